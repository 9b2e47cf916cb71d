"""The table from the domain's errors to responses."""

from collections.abc import Iterable

from storekeeper.domain.errors import (
    Code,
    EpochEnded,
    InvalidInput,
    KeyReused,
    PreconditionFailed,
    StorekeeperError,
    Unavailable,
)
from storekeeper.http.response import (
    INTERNAL_ERROR,
    NO_CACHE,
    Response,
    Validation,
    error_response,
    unavailable,
)
from storekeeper.log.events import Event, emit

_NO_MEMORY = "There is not enough memory"


class InvalidJson(StorekeeperError):
    """The body is not JSON text in UTF-8."""

    code = Code.INVALID_JSON

    def __init__(self) -> None:
        super().__init__("Invalid request payload JSON format")


def to_response(error: BaseException, *, generic: bool = False) -> Response:
    """Return the response to an error; one that is not the domain's is a bug. With `generic`, a 400
    does not say what was wrong."""
    match error:
        case InvalidJson():  # not about a field, so generic mode names it too (decision 12)
            return error_response(400, str(error))
        case InvalidInput():
            if generic:
                return error_response(400, f"Invalid request {error.source} input")
            return error_response(
                400, str(error), validation=Validation(error.source, list(error.violations))
            )
        case PreconditionFailed():
            response = error_response(412, str(error))
            response.tag = error.tag.encode()
            return response
        case KeyReused():
            return error_response(422, str(error))
        case EpochEnded():
            return error_response(410, str(error), cursor=error.cursor)
        case Unavailable():
            return unavailable(str(error), error.outcome)
        case MemoryError():  # as under ulimit -v; a write may be under way
            emit(Event.SERVER, message=_NO_MEMORY)
            return unavailable(_NO_MEMORY, "unknown")
    emit(Event.BUG, error=error)
    return INTERNAL_ERROR


NOT_FOUND = error_response(404, "Not Found")
"""The response to an unknown path (decision 17)."""


def not_allowed(method: str, allowed: Iterable[str]) -> Response:
    """Return the response to a method that a path does not have, and to OPTIONS, which asks for the
    methods (decision 16)."""
    allow = f"allow: {', '.join(allowed)}\r\n".encode()
    if method == "OPTIONS":
        return Response(b"", NO_CACHE + allow, 204)
    return error_response(405, "Method Not Allowed", headers=allow)
