"""The conformance kit holds any service to the API, knowing only its address; it imports nothing but itself."""

from storekeeper.conformance.client import CannotCheck
from storekeeper.conformance.running import examine, run

__all__ = ["CannotCheck", "examine", "run"]
