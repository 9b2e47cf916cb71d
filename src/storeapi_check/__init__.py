"""The conformance kit checks any service against the API; it needs nothing but the address."""

from storeapi_check.client import CannotCheck
from storeapi_check.running import examine, run

__all__ = ["CannotCheck", "examine", "run"]
