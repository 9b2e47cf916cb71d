"""The contract's rules for every response, checked on all responses of the run."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from types import NoneType

from storeapi_check.documents import Store
from storeapi_check.rejecting import GENERIC, NOT_A_STRING, REQUIRED
from storeapi_check.service import Response, Rules, Service, Skipped, Violation, Way
from storeapi_check.writing import THREE

RULES = Rules()
Look = Callable[[Response, bool], str]
"""Return what is wrong with a response, or ""; the flag says whether the mode is generic."""
JSON = "application/json; charset=utf-8"
SUCCESS = f"use status 200 and the headers `content-type: {JSON}` and `cache-control: no-cache`"
ERRORS = f"Error responses carry `content-type: {JSON}` and `cache-control: no-cache`."
GENERIC_MODE = (
    "A deployment may run in a generic mode: the same 400 status and error text but message"
)
INTERNAL_ERROR = {
    "statusCode": 500,
    "error": "Internal Server Error",
    "message": "An internal server error occurred",
}
PHRASE = "error, string, Standard reason phrase of the status"
MISSING = f"Message for a missing (or empty) name: `{REQUIRED}`, with keys [name]."
FAILED = "statusCode {statusCode}, error `{error}`, message `{message}`".format_map(INTERNAL_ERROR)
SOURCE = "`validation.source` is `payload`"
NUMBER = (
    f"Message for a name that is a number instead of a string: `{NOT_A_STRING}`, with keys [name]."
)


def _groups(seen: Response) -> Iterator[str | None]:
    """Yield the groups of a response; the message that a rejection must have is one of them."""
    if isinstance(seen.wanted, Way) and seen.status == 400:
        yield from ("rejection", "error", "json", seen.wanted.message)
    if seen.status == 500 and seen.method != "HEAD":
        yield from ("failure", "error")
    if seen.wanted == "alive":
        yield "success"
    if seen.wanted == "success" or (seen.wanted == "either" and seen.ok):
        yield from ("success", "stores", "json")


def _difference(what: str, found: object, wanted: object) -> str:
    """Return how a value or its type differs; "" if it does not."""
    if found == wanted and type(found) is type(wanted):
        return ""
    return f"{what} is {'absent' if found is None else repr(found)}, not {wanted!r}"


def _is(wanted: dict[str, object]) -> Look:
    """Return a look at members of the body; the path `a b` is the member b of a."""

    def look(seen: Response, _: bool) -> str:
        for path, value in wanted.items():
            if wrong := _difference(path, seen.member(*path.split()), value):
                return wrong
        return ""

    return look


def _has_header(name: str, wanted: str) -> Look:
    return lambda seen, _: _difference(name, seen.header(name), wanted)


def _stores(holds: Callable[[Store], bool]) -> Look:
    def look(seen: Response, _: bool) -> str:
        wrong = [store for store in seen.stores if not holds(store)]
        return f"a store is {wrong[0]!r}" if wrong and seen.ok else ""

    return look


def _has(property: str, *allowed: type) -> Look:
    return _stores(lambda store: type(store.get(property)) in allowed)


def _has_status_200(seen: Response, _: bool) -> str:
    return _difference("status", seen.status, 200)


def _is_json(seen: Response, _: bool) -> str:
    return seen.malformed or ""


def _has_message(seen: Response, _: bool) -> str:
    message = seen.member("message")
    return "" if message and isinstance(message, str) else "message is not text"


def _has_keys(seen: Response, _: bool) -> str:
    key = seen.wanted.key if isinstance(seen.wanted, Way) else ""
    if not key:
        return ""
    return _difference("validation keys", seen.member("validation", "keys"), [key])


def _names_the_field(seen: Response, _: bool) -> str:
    """Look at a message for which the contract gives no text."""
    assert isinstance(seen.wanted, Way)
    way, message = seen.wanted, str(seen.member("message"))
    if not re.search(rf"\b{way.key}\b", message):
        return f"the message for {way.label} does not name {way.key}"
    if message in way.never:
        return f"the message for {way.label} is that of another rule"
    return ""


def _is_of_one_mode(seen: Response, generic: bool) -> str:
    has_details = isinstance(seen.document, dict) and "validation" in seen.document
    has_generic_message = seen.member("message") == GENERIC
    if generic != has_details and generic == has_generic_message:
        return ""
    return f"the other errors are {'generic' if generic else 'detailed'}, this one is not"


def _check(group: str, look: Look, service: Service) -> None:
    """Raise Violation at the first wrong response of this group; raise Skipped if there is no
    response."""
    found = [seen for seen in service.seen if group in _groups(seen)]
    if not found:
        raise Skipped("no such response was seen")
    for seen in found:
        if reason := look(seen, service.generic):
            raise Violation(reason, seen)


def _add(
    name: str,
    sentence: str,
    group: str,
    look: Look,
    scope: str = "",
    *,
    writes: bool = False,
    detailed: bool = False,
) -> None:
    check = partial(_check, group, look)
    RULES.add(name, sentence, scope, check, writes=writes, detailed=detailed, late=True)


for_errors = partial(_add, writes=True)
detailed = partial(_add, writes=True, detailed=True)
has_json_type = _has_header("content-type", JSON)
is_uncached = _has_header("cache-control", "no-cache")
_add("success-has-status-200", SUCCESS, "success", _has_status_200, "The status.")
_add("success-has-content-type", SUCCESS, "stores", has_json_type, "The content type.")
_add("success-has-cache-control", SUCCESS, "success", is_uncached, "The cache control.")
_add("bodies-are-json", "All bodies are JSON unless stated.", "json", _is_json)
_add(
    "store-has-three-properties",
    THREE,
    "stores",
    _stores(lambda store: set(store) == {"id", "name", "address"}),
)
_add("store-id-is-an-integer", "id, integer, service", "stores", _has("id", int))
_add("store-name-is-a-string", "name, string, client", "stores", _has("name", str))
_add(
    "store-address-is-a-string-or-null",
    "address, string or null, client",
    "stores",
    _has("address", str, NoneType),
)
for_errors("error-has-content-type", ERRORS, "error", has_json_type, "The content type.")
for_errors("error-has-cache-control", ERRORS, "error", is_uncached, "The cache control.")
for_errors(
    "error-has-status-code",
    "statusCode, integer, HTTP status code",
    "rejection",
    _is({"statusCode": 400}),
)
for_errors("error-has-reason-phrase", PHRASE, "rejection", _is({"error": "Bad Request"}))
for_errors("error-has-message", "message, string, Human-readable reason", "rejection", _has_message)
_add("server-error-has-its-body", FAILED, "failure", _is(INTERNAL_ERROR))
for_errors("errors-are-of-one-mode", GENERIC_MODE, "rejection", _is_of_one_mode)
detailed("message-for-a-number", NUMBER, NOT_A_STRING, _is({"message": NOT_A_STRING}))
detailed("message-for-a-missing-name", MISSING, REQUIRED, _is({"message": REQUIRED}))
detailed(
    "message-names-the-field",
    "`message` names the field and the violated rule",
    "rejection",
    _names_the_field,
)
detailed("validation-has-source", SOURCE, "rejection", _is({"validation source": "payload"}))
detailed("validation-has-keys", "`validation.keys` lists the field names", "rejection", _has_keys)
