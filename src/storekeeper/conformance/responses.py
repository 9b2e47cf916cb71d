"""The contract's rules for every response, held to all that was seen during the run; this package only."""

import re
from collections.abc import Callable
from functools import partial
from types import NoneType

from storekeeper.conformance.documents import Store
from storekeeper.conformance.rejecting import GENERIC, NO_STRING, REQUIRED
from storekeeper.conformance.rules import THREE, Rule, Rules, Skipped
from storekeeper.conformance.service import Fault, Response, Service, Violation

RULES = Rules()
Look = Callable[[Response], str]  # returns what is wrong with a response, or nothing
JSON = "application/json; charset=utf-8"
SUCCESS = f"use status 200 and the headers `content-type: {JSON}` and `cache-control: no-cache`"
ERRORS = f"Error responses carry `content-type: {JSON}` and `cache-control: no-cache`."
GENERIC_MODE = "A deployment may run in a generic mode: the same 400 status and error text but message"
INTERNAL, OCCURRED = "Internal Server Error", "An internal server error occurred"
PHRASE = "error, string, Standard reason phrase of the status"
MISSING = f"Message for a missing (or empty) name: `{REQUIRED}`, with keys [name]."
FAILED = f"statusCode 500, error `{INTERNAL}`, message `{OCCURRED}`"
NAMES = "`message` names the field and the violated rule"
SOURCE = "`validation.source` is `payload`"
NUMBER = f"Message for a name that is a number instead of a string: `{NO_STRING}`, with keys [name]."


def groups(seen: Response) -> set[str]:
    """Return what a response is: a success, one with stores, a rejection, a failure (500), an error of these."""
    fault = seen.wanted if isinstance(seen.wanted, Fault) and seen.http.status == 400 else None
    success = seen.wanted == "success" or (seen.wanted == "either" and seen.ok)
    failure = seen.http.status == 500 and seen.http.method != "HEAD"
    found = {"rejection", "error", "json", str(fault.message)} if fault else set[str]()
    found |= {"failure", "error"} if failure else set()
    return found | ({"success"} | ({"stores", "json"} if seen.kind != "test" else set()) if success else set())


def wrong(what: str, have: object, wanted: object) -> str:
    """Return what is wrong with a value, its type included; nothing when it is right."""
    found = "absent" if have is None else repr(have)
    return "" if have == wanted and type(have) is type(wanted) else f"{what} is {found}, not {wanted!r}"


def header(name: str, value: str) -> Look:
    """Return the look at a field that has to have exactly this value."""
    return lambda seen: wrong(name, seen.http.header(name), value)


def members(**wanted: object) -> Look:
    """Return the look at members of the body, value and type."""
    return lambda seen: next(filter(None, (wrong(name, seen.member(name), wanted[name]) for name in wanted)), "")


def detail(name: str, seen: Response, value: object) -> str:
    """Return what is wrong with a member of `validation`."""
    validation = seen.member("validation")
    have = validation.get(name) if isinstance(validation, dict) else None
    return wrong(f"validation {name}", have, value)


def stores(holds: Callable[[Store], bool]) -> Look:
    """Return the look at each store."""
    return lambda seen: next((f"a store is {store!r}" for store in seen.stores if seen.ok and not holds(store)), "")


def types(property: str, *allowed: type) -> Look:
    """Return the look at the type of one property of each store."""
    return stores(lambda store: type(store.get(property)) in allowed)


def text(seen: Response) -> str:
    """Look whether an error tells people anything."""
    return "" if seen.member("message") and isinstance(seen.member("message"), str) else "message is no text"


def keys(seen: Response) -> str:
    """Look at the names of the offending fields."""
    return detail("keys", seen, list(seen.wanted.keys)) if isinstance(seen.wanted, Fault) and seen.wanted.keys else ""


def names_the_field(seen: Response) -> str:
    """Look at a message of which the contract gives no text."""
    fault, message = seen.wanted, str(seen.member("message"))
    assert isinstance(fault, Fault)
    if not all(re.search(rf"\b{key}\b", message) for key in fault.keys):
        return f"the message for {fault.label} does not name {' and '.join(fault.keys)}"
    return f"the message for {fault.label} is that of another rule" if message in fault.never else ""


def one_mode(service: Service) -> None:
    """Violation at the first validation error that is not of the same mode as most."""
    others = "generic" if service.generic else "detailed"

    def look(seen: Response) -> str:
        details = isinstance(seen.document, dict) and "validation" in seen.document
        fits = service.generic != details and service.generic == (seen.member("message") == GENERIC)
        return "" if fits else f"the other errors are {others}, this one is not"

    hold("rejection", look, service)


def hold(group: str, look: Look, service: Service) -> None:
    """Violation at the first response of this group that is wrong; Skipped when none was seen."""
    found = [seen for seen in service.seen if group in groups(seen)]
    if not found:
        raise Skipped("no such response was seen")
    for seen in found:
        if reason := look(seen):
            raise Violation(reason, seen.http)


def add(name: str, sentence: str, group: str, look: Look, scope: str = "", **marks: bool) -> None:
    """Add the rule that holds every response of a group."""
    RULES.append(Rule(name, sentence, scope, partial(hold, group, look), **{"writes": False, "late": True} | marks))


for_errors, for_details = partial(add, writes=True), partial(add, writes=True, detailed=True)
add("success-has-status-200", SUCCESS, "success", lambda seen: wrong("status", seen.http.status, 200), "The status.")
add("success-has-content-type", SUCCESS, "stores", header("content-type", JSON), "The content type.")
add("success-has-cache-control", SUCCESS, "success", header("cache-control", "no-cache"), "The cache control.")
add("bodies-are-json", "All bodies are JSON unless stated.", "json", lambda seen: seen.malformed or "")
add("store-has-three-properties", THREE, "stores", stores(lambda store: set(store) == {"id", "name", "address"}))
add("store-id-is-an-integer", "id, integer, service", "stores", types("id", int))
add("store-name-is-a-string", "name, string, client", "stores", types("name", str))
add("store-address-is-a-string-or-null", "address, string or null, client", "stores", types("address", str, NoneType))
for_errors("error-has-content-type", ERRORS, "error", header("content-type", JSON), "The content type.")
for_errors("error-has-cache-control", ERRORS, "error", header("cache-control", "no-cache"), "The cache control.")
for_errors("error-has-status-code", "statusCode, integer, HTTP status code", "rejection", members(statusCode=400))
for_errors("error-has-reason-phrase", PHRASE, "rejection", members(error="Bad Request"))
for_errors("error-has-message", "message, string, Human-readable reason", "rejection", text)
add("server-error-has-its-body", FAILED, "failure", members(statusCode=500, error=INTERNAL, message=OCCURRED))
RULES.append(Rule("errors-are-of-one-mode", GENERIC_MODE, "", one_mode, late=True))
for_details("message-for-a-number", NUMBER, NO_STRING, members(message=NO_STRING))
for_details("message-for-a-missing-name", MISSING, REQUIRED, members(message=REQUIRED))
for_details("message-names-the-field", NAMES, "rejection", names_the_field)
for_details("validation-has-source", SOURCE, "rejection", lambda seen: detail("source", seen, "payload"))
for_details("validation-has-keys", "`validation.keys` lists the field names", "rejection", keys)
