"""What serves requests, joined: one object, made when the collection is open. Imports `http` and `api`."""

from dataclasses import dataclass
from typing import Any

from storekeeper.api.cache import ResponseCache
from storekeeper.api.gate import Gate
from storekeeper.api.head_cache import HeadCache
from storekeeper.api.resource import Resource
from storekeeper.http.limits import Limits


@dataclass(frozen=True, slots=True)
class Runtime:
    """All that connections of one process share."""

    resource: Resource
    gate: Gate
    cache: ResponseCache
    heads: HeadCache
    limits: Limits
    application: Any
    """The ASGI application: it responds to what the fast lane does not."""
