"""The contract's rules for every response, held to all that was seen during the run; this
package only."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from types import NoneType

from storeapi_check.documents import Store
from storeapi_check.rejecting import GENERIC, NO_STRING, REQUIRED
from storeapi_check.service import Response, Rules, Service, Skipped, Violation, Way
from storeapi_check.writing import THREE

RULES = Rules()
Look = Callable[
    [Response, bool], str
]  # returns what is wrong with a response, or nothing, given the generic mode
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
    f"Message for a name that is a number instead of a string: `{NO_STRING}`, with keys [name]."
)


def _groups(seen: Response) -> Iterator[str | None]:
    """Yield the groups of a response: for a rejection, the message that it should have is one
    too."""
    if isinstance(seen.wanted, Way) and seen.status == 400:
        yield from ("rejection", "error", "json", seen.wanted.message)
    if seen.status == 500 and seen.method != "HEAD":
        yield from ("failure", "error")
    if seen.wanted in ("alive", "success") or (seen.wanted == "either" and seen.ok):
        yield from ("success",) if seen.wanted == "alive" else ("success", "stores", "json")


def _wrong(what: str, have: object, wanted: object) -> str:
    """Return what is wrong with a value, its type included; nothing when it is right."""
    found = "absent" if have is None else repr(have)
    return (
        ""
        if have == wanted and type(have) is type(wanted)
        else f"{what} is {found}, not {wanted!r}"
    )


def _is(wanted: dict[str, object], part: Callable[..., object] = Response.member) -> Look:
    """Return the look at members of the body, `a b` for the member b of a; or at what else
    `part` gives by name."""
    return lambda seen, _: next(
        filter(None, (_wrong(at, part(seen, *at.split()), wanted[at]) for at in wanted)), ""
    )


def _stores(holds: Callable[[Store], bool]) -> Look:
    return lambda seen, _: next(
        (f"a store is {one!r}" for one in seen.stores if seen.ok and not holds(one)), ""
    )


def _has(property: str, *allowed: type) -> Look:
    return _stores(lambda store: type(store.get(property)) in allowed)


def _text(seen: Response, _: bool) -> str:
    return (
        ""
        if seen.member("message") and isinstance(seen.member("message"), str)
        else "message is no text"
    )


def _keys(seen: Response, _: bool) -> str:
    key = seen.wanted.key if isinstance(seen.wanted, Way) else ""
    return _wrong("validation keys", seen.member("validation", "keys"), [key]) if key else ""


def _names_the_field(seen: Response, _: bool) -> str:
    """Look at a message of which the contract gives no text."""
    assert isinstance(seen.wanted, Way)
    way, message = seen.wanted, str(seen.member("message"))
    if not re.search(rf"\b{way.key}\b", message):
        return f"the message for {way.label} does not name {way.key}"
    return f"the message for {way.label} is that of another rule" if message in way.never else ""


def _is_of_one_mode(seen: Response, generic: bool) -> str:
    details = isinstance(seen.document, dict) and "validation" in seen.document
    fits = generic != details and generic == (seen.member("message") == GENERIC)
    return (
        ""
        if fits
        else f"the other errors are {'generic' if generic else 'detailed'}, this one is not"
    )


def _hold(group: str, look: Look, service: Service) -> None:
    """Raise Violation at the first response of this group that is wrong; raise Skipped when none
    was seen."""
    found = [seen for seen in service.seen if group in _groups(seen)]
    if not found:
        raise Skipped("no such response was seen")
    for seen in found:
        if reason := look(seen, service.generic):
            raise Violation(reason, seen)


def _add(name: str, sentence: str, group: str, look: Look, scope: str = "", **marks: bool) -> None:
    RULES.add(
        name,
        sentence,
        scope,
        partial(_hold, group, look),
        **{"writes": False, "late": True} | marks,
    )


is_json = _is({"content-type": JSON}, Response.header)
is_uncached = _is({"cache-control": "no-cache"}, Response.header)
for_errors, detailed = partial(_add, writes=True), partial(_add, writes=True, detailed=True)
_add("success-has-status-200", SUCCESS, "success", _is({"status": 200}, getattr), "The status.")
_add("success-has-content-type", SUCCESS, "stores", is_json, "The content type.")
_add("success-has-cache-control", SUCCESS, "success", is_uncached, "The cache control.")
_add(
    "bodies-are-json",
    "All bodies are JSON unless stated.",
    "json",
    lambda seen, _: seen.malformed or "",
)
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
for_errors("error-has-content-type", ERRORS, "error", is_json, "The content type.")
for_errors("error-has-cache-control", ERRORS, "error", is_uncached, "The cache control.")
for_errors(
    "error-has-status-code",
    "statusCode, integer, HTTP status code",
    "rejection",
    _is({"statusCode": 400}),
)
for_errors("error-has-reason-phrase", PHRASE, "rejection", _is({"error": "Bad Request"}))
for_errors("error-has-message", "message, string, Human-readable reason", "rejection", _text)
_add("server-error-has-its-body", FAILED, "failure", _is(INTERNAL_ERROR))
for_errors("errors-are-of-one-mode", GENERIC_MODE, "rejection", _is_of_one_mode)
detailed("message-for-a-number", NUMBER, NO_STRING, _is({"message": NO_STRING}))
detailed("message-for-a-missing-name", MISSING, REQUIRED, _is({"message": REQUIRED}))
detailed(
    "message-names-the-field",
    "`message` names the field and the violated rule",
    "rejection",
    _names_the_field,
)
detailed("validation-has-source", SOURCE, "rejection", _is({"validation source": "payload"}))
detailed("validation-has-keys", "`validation.keys` lists the field names", "rejection", _keys)
