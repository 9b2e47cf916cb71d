"""What an answer is made of: Reply, the error body, the table from errors to statuses. Imports the domain."""

from collections.abc import AsyncIterator, Callable, Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from storekeeper.collection import Pending
from storekeeper.errors import InvalidInput, Outcome, StorekeeperError, Unavailable

Headers = tuple[tuple[bytes, bytes], ...]
"""Header fields as ASGI has them: names in lower case."""

JSON: Headers = (
    (b"content-type", b"application/json; charset=utf-8"),
    (b"cache-control", b"no-cache"),
)
TEXT: Headers = ((b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-cache"))
NO_CONTENT: Headers = ((b"cache-control", b"no-cache"),)

BODY_LIMIT = 2**20
"""The most bytes that a request's body may have (decision 15)."""

INTERNAL_ERROR = "An internal server error occurred"

_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {
    # RFC 9110 renamed them; Python did so only in 3.13 (decision 21).
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}


def phrase(status: int) -> str:
    """Give the reason phrase that RFC 9110 has for a status (decision 21)."""
    return _PHRASES.get(status, "Unknown")


class Reply:
    """A whole answer, or with `stream` one whose body arrives in parts (its length then is unknown)."""

    __slots__ = ("body", "headers", "status", "stream")

    def __init__(
        self,
        body: bytes,
        headers: Headers = JSON,
        status: int = 200,
        stream: AsyncIterator[bytes] | None = None,
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.stream = stream


class Later:
    """An answer that waits for the database: once `future` is done, `reply` makes the answer of it."""

    __slots__ = ("_fail", "_render", "future")

    def __init__(
        self,
        future: Pending[Any],
        render: Callable[[Any], Reply],
        fail: Callable[[StorekeeperError], Reply],
    ) -> None:
        self.future = future
        self._render = render
        self._fail = fail

    def reply(self) -> Reply:
        """Give the answer; raises only what is a bug."""
        try:
            return self._render(self.future.result())
        except StorekeeperError as error:
            return self._fail(error)


class Validation(msgspec.Struct, frozen=True):
    """Which part of a request failed, and the names of the offending fields."""

    source: str
    keys: list[str]


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every error, as the contract has it; `outcome` is there for decision 30."""

    statusCode: int  # noqa: N815 - the contract's spelling
    error: str
    message: str
    validation: Validation | UnsetType = UNSET
    outcome: Outcome | UnsetType = UNSET


def error_reply(
    status: int,
    message: str,
    *,
    headers: Headers = (),
    validation: Validation | UnsetType = UNSET,
    outcome: Outcome | UnsetType = UNSET,
) -> Reply:
    """Make the answer of an error, with the contract's body and headers."""
    body = msgspec.json.encode(ErrorBody(status, phrase(status), message, validation, outcome))
    return Reply(body, JSON + headers, status)


def error_answer(error: StorekeeperError, *, generic: bool = False) -> Reply:
    """Make the answer to what went wrong. With `generic`, invalid input is not explained."""
    match error:
        case InvalidInput():
            if generic:
                return error_reply(400, f"Invalid request {error.source} input")
            return error_reply(400, str(error), validation=Validation(error.source, error.keys))
        case Unavailable():
            return error_reply(503, str(error), headers=((b"retry-after", b"1"),), outcome=error.outcome)
    raise error


def bug_reply() -> Reply:
    """Make the answer to a bug: it says nothing (the contract's 500)."""
    return error_reply(500, INTERNAL_ERROR)


def too_large() -> Reply:
    """Make the answer to a body over the limit (decision 15)."""
    return error_reply(413, f"Payload content length greater than maximum allowed: {BODY_LIMIT}")


def not_found() -> Reply:
    """Make the answer to an unknown path (decision 17)."""
    return error_reply(404, "Not Found")


def not_allowed(method: str, allowed: Iterable[str]) -> Reply:
    """Make the answer to a method that a path does not have; OPTIONS asks for just that (decision 16)."""
    allow: Headers = ((b"allow", ", ".join(allowed).encode()),)
    if method == "OPTIONS":
        return Reply(b"", NO_CONTENT + allow, 204)
    return error_reply(405, "Method Not Allowed", headers=allow)
