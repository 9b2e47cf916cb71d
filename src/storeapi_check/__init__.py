"""The conformance kit holds any service to the API, knowing only its address; it imports nothing
but itself."""

from storeapi_check.client import CannotCheck
from storeapi_check.running import examine, run

__all__ = ["CannotCheck", "examine", "run"]
