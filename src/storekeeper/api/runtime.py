"""The objects that serve requests, joined in one when the collection is open. Imports `http` and `api`."""

from dataclasses import dataclass
from typing import Any

from storekeeper.api.cache import ResponseCache
from storekeeper.api.gate import Gate
from storekeeper.api.resource import Resource
from storekeeper.http.limits import Limits
from storekeeper.http.plain import PlainReader


@dataclass(frozen=True, slots=True)
class Runtime:
    """The objects that all connections of one process share."""

    resource: Resource
    gate: Gate
    cache: ResponseCache
    plain: PlainReader
    limits: Limits
    application: Any
    """The ASGI application, which responds to the requests that the fast lane does not serve."""
