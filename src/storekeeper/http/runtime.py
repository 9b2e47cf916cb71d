"""What all connections of one process share. Imports nothing of the project but `http`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from storekeeper.http.cache import ResponseCache
from storekeeper.http.limits import Limits
from storekeeper.http.plain import PlainReader
from storekeeper.http.request import BodyLimit, Request
from storekeeper.http.response import Deferred, Fields, Headers, Response


class _Application(Protocol):
    """What HTTP asks of `api.application.Application`, which this package may not import."""

    def respond(self, request: Request) -> Response | Deferred: ...
    def early_refusal(self, request: Request) -> Response | None: ...
    def fields(self, headers: Fields) -> Headers: ...
    def body_limit(self, target: bytes) -> BodyLimit: ...


class Observer(Protocol):
    """Called once at the end of each response: when its last byte was written, or when it was broken off."""

    def __call__(
        self,
        route: str | None,
        method: str,
        status: int,
        size: int,
        seconds: float,
        token_number: int,
        client: tuple[str, int] | None,
        request_id: bytes,
        /,
    ) -> None:
        """Take note of a response.

        `route` is None for an unknown path, and if the request could not be read: then `method` may be empty.
        `status` is 0 if the client left before the response began. `size` is in bytes, with the head if this process
        encodes it. `token_number` is 0 for a client without a token. `client` is the address and port of the
        connection; `request_id` is empty unless the client sent one.
        """


def ignore(*_: object) -> None:
    """Observe nothing."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """The objects that all connections of one process share, joined in one when the collection is open."""

    application: _Application
    plain: PlainReader[Any]
    cache: ResponseCache
    limits: Limits
    observe: Observer = ignore
    is_draining: Callable[[], bool] = lambda: False
    """Whether the service was told to stop, so that no stream may begin."""
