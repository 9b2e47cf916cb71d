"""The contract's rules for every response, held to all that was seen during the run; this package only."""

import re
from collections.abc import Callable
from functools import partial
from types import NoneType

from storekeeper.conformance.documents import Store
from storekeeper.conformance.rejecting import GENERIC, NO_STRING, REQUIRED
from storekeeper.conformance.rules import THREE, Rule, Rules, Skipped
from storekeeper.conformance.service import Response, Service, Violation, Way

RULES = Rules()
Look = Callable[[Response], str]  # returns what is wrong with a response, or nothing
JSON = "application/json; charset=utf-8"
SUCCESS = f"use status 200 and the headers `content-type: {JSON}` and `cache-control: no-cache`"
ERRORS = f"Error responses carry `content-type: {JSON}` and `cache-control: no-cache`."
GENERIC_MODE = "A deployment may run in a generic mode: the same 400 status and error text but message"
FAILURE = {"statusCode": 500, "error": "Internal Server Error", "message": "An internal server error occurred"}
PHRASE = "error, string, Standard reason phrase of the status"
MISSING = f"Message for a missing (or empty) name: `{REQUIRED}`, with keys [name]."
FAILED = "statusCode {statusCode}, error `{error}`, message `{message}`".format_map(FAILURE)
NAMES = "`message` names the field and the violated rule"
SOURCE = "`validation.source` is `payload`"
NUMBER = f"Message for a name that is a number instead of a string: `{NO_STRING}`, with keys [name]."


def _groups(seen: Response) -> set[str]:
    """Return what a response is: a success, one with stores, a rejection, a failure (500), an error of these."""
    way = seen.wanted if isinstance(seen.wanted, Way) and seen.status == 400 else None
    success = seen.wanted in ("alive", "success") or (seen.wanted == "either" and seen.ok)
    failure = seen.status == 500 and seen.method != "HEAD"
    found = {"rejection", "error", "json", str(way.message)} if way else set[str]()
    found |= {"failure", "error"} if failure else set()
    return found | ({"success"} | ({"stores", "json"} if seen.wanted != "alive" else set()) if success else set())


def _wrong(what: str, have: object, wanted: object) -> str:
    """Return what is wrong with a value, its type included; nothing when it is right."""
    found = "absent" if have is None else repr(have)
    return "" if have == wanted and type(have) is type(wanted) else f"{what} is {found}, not {wanted!r}"


def _header(name: str, value: str) -> Look:
    return lambda seen: _wrong(name, seen.header(name), value)


def _members(wanted: dict[str, object]) -> Look:
    """Return the look at members of the body; `a b` is the member b of a."""
    return lambda seen: next(filter(None, (_wrong(at, seen.member(*at.split()), wanted[at]) for at in wanted)), "")


def _stores(holds: Callable[[Store], bool]) -> Look:
    return lambda seen: next((f"a store is {store!r}" for store in seen.stores if seen.ok and not holds(store)), "")


def _types(property: str, *allowed: type) -> Look:
    return _stores(lambda store: type(store.get(property)) in allowed)


def _text(seen: Response) -> str:
    return "" if seen.member("message") and isinstance(seen.member("message"), str) else "message is no text"


def _keys(seen: Response) -> str:
    keys = seen.wanted.keys if isinstance(seen.wanted, Way) else ()
    return _wrong("validation keys", seen.member("validation", "keys"), [*keys]) if keys else ""


def _names_the_field(seen: Response) -> str:
    """Look at a message of which the contract gives no text."""
    assert isinstance(seen.wanted, Way)
    way, message = seen.wanted, str(seen.member("message"))
    if not all(re.search(rf"\b{key}\b", message) for key in way.keys):
        return f"the message for {way.label} does not name {' and '.join(way.keys)}"
    return f"the message for {way.label} is that of another rule" if message in way.never else ""


def _one_mode(service: Service) -> None:
    """Violation at the first validation error that is not of the same mode as most."""
    others = "generic" if service.generic else "detailed"

    def look(seen: Response) -> str:
        details = isinstance(seen.document, dict) and "validation" in seen.document
        fits = service.generic != details and service.generic == (seen.member("message") == GENERIC)
        return "" if fits else f"the other errors are {others}, this one is not"

    _hold("rejection", look, service)


def _hold(group: str, look: Look, service: Service) -> None:
    """Violation at the first response of this group that is wrong; Skipped when none was seen."""
    found = [seen for seen in service.seen if group in _groups(seen)]
    if not found:
        raise Skipped("no such response was seen")
    for seen in found:
        if reason := look(seen):
            raise Violation(reason, seen)


def _add(name: str, sentence: str, group: str, look: Look, scope: str = "", **marks: bool) -> None:
    RULES.append(Rule(name, sentence, scope, partial(_hold, group, look), **{"writes": False, "late": True} | marks))


for_errors, for_details = partial(_add, writes=True), partial(_add, writes=True, detailed=True)
_add("success-has-status-200", SUCCESS, "success", lambda seen: _wrong("status", seen.status, 200), "The status.")
_add("success-has-content-type", SUCCESS, "stores", _header("content-type", JSON), "The content type.")
_add("success-has-cache-control", SUCCESS, "success", _header("cache-control", "no-cache"), "The cache control.")
_add("bodies-are-json", "All bodies are JSON unless stated.", "json", lambda seen: seen.malformed or "")
_add("store-has-three-properties", THREE, "stores", _stores(lambda store: set(store) == {"id", "name", "address"}))
_add("store-id-is-an-integer", "id, integer, service", "stores", _types("id", int))
_add("store-name-is-a-string", "name, string, client", "stores", _types("name", str))
_add(
    "store-address-is-a-string-or-null", "address, string or null, client", "stores", _types("address", str, NoneType)
)
for_errors("error-has-content-type", ERRORS, "error", _header("content-type", JSON), "The content type.")
for_errors("error-has-cache-control", ERRORS, "error", _header("cache-control", "no-cache"), "The cache control.")
for_errors(
    "error-has-status-code", "statusCode, integer, HTTP status code", "rejection", _members({"statusCode": 400})
)
for_errors("error-has-reason-phrase", PHRASE, "rejection", _members({"error": "Bad Request"}))
for_errors("error-has-message", "message, string, Human-readable reason", "rejection", _text)
_add("server-error-has-its-body", FAILED, "failure", _members(FAILURE))
RULES.append(Rule("errors-are-of-one-mode", GENERIC_MODE, "", _one_mode, late=True))
for_details("message-for-a-number", NUMBER, NO_STRING, _members({"message": NO_STRING}))
for_details("message-for-a-missing-name", MISSING, REQUIRED, _members({"message": REQUIRED}))
for_details("message-names-the-field", NAMES, "rejection", _names_the_field)
for_details("validation-has-source", SOURCE, "rejection", _members({"validation source": "payload"}))
for_details("validation-has-keys", "`validation.keys` lists the field names", "rejection", _keys)
