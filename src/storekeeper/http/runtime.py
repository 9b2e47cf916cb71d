"""What all connections of one process share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec

from storekeeper.http.arrivals import Arrivals
from storekeeper.http.cache import ResponseCache
from storekeeper.http.limits import Limits
from storekeeper.http.peers import NO_PEERS, TrustedPeers
from storekeeper.http.plain import PlainReader
from storekeeper.http.request import BodyLimit, Request
from storekeeper.http.response import Deferred, Fields, Response


class _Application(Protocol):
    """What HTTP asks of `api.application.Application`, which this package must not import."""

    def respond(self, request: Request) -> Response | Deferred: ...
    def complete(self, deferred: Deferred) -> Response: ...
    def early_refusal(self, request: Request) -> Response | None: ...
    def fields(self, headers: Fields) -> bytes: ...
    def body_limit(self, target: bytes) -> BodyLimit: ...


class Served(msgspec.Struct, gc=False):
    """A response at its end: when its last byte was written, or when it was broken off."""

    route: str | None
    """None for an unknown path, and if the request could not be read: then `method` may be
    empty."""

    method: str
    status: int
    """0 if the client left before the response began."""

    size: int
    """In bytes, with the head if this process encodes it."""

    seconds: float
    token_number: int
    """0 for a client without a token."""

    client: tuple[str, int] | None
    """The address and port of the connection."""

    request_id: bytes
    """Empty unless the client sent one."""


Observer: TypeAlias = Callable[[Served], None]
"""Called once for each response."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The objects that all connections of one process share, joined in one when the collection
    is open."""

    application: _Application
    arrivals: Arrivals
    plain: PlainReader
    cache: ResponseCache
    limits: Limits
    observe: Observer = lambda _: None
    trusted: TrustedPeers = NO_PEERS
    """The proxies that are trusted to name users."""

    is_draining: Callable[[], bool] = lambda: False
    """Whether the service was told to stop, so that no stream may begin."""
