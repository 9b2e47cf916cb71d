"""The contract's rules for every response, held to all that was seen during the run; this package only."""

import re
from collections.abc import Callable
from functools import partial

from storekeeper.conformance.documents import Store
from storekeeper.conformance.rejecting import GENERIC, NO_STRING, REQUIRED
from storekeeper.conformance.rules import THREE, Rule, Rules, Skipped
from storekeeper.conformance.service import Fault, Response, Service

RULES = Rules()
VALID, NONE = "validation", type(None)
Look = Callable[[Response], None]  # looks at one response; Violation when it is wrong
JSON = "application/json; charset=utf-8"
SUCCESS = (
    "use status 200 and the headers `content-type: application/json; charset=utf-8` and `cache-control: no-cache`"
)
ERRORS = "Error responses carry `content-type: application/json; charset=utf-8` and `cache-control: no-cache`."
GENERIC_MODE = "A deployment may run in a generic mode: the same 400 status and error text but message"
INTERNAL, OCCURRED = "Internal Server Error", "An internal server error occurred"
PHRASE = "error, string, Standard reason phrase of the status"
MISSING = f"Message for a missing (or empty) name: `{REQUIRED}`, with keys [name]."
FAILED = f"statusCode 500, error `{INTERNAL}`, message `{OCCURRED}`"
NAMES = "`message` names the field and the violated rule"
NUMBER = f"Message for a name that is a number instead of a string: `{NO_STRING}`, with keys [name]."


def groups(seen: Response) -> set[str]:
    """Return what a response is: a success, one with a document, a rejection, a failure (500), an error of these."""
    fault = seen.wanted if isinstance(seen.wanted, Fault) and seen.http.status == 400 else None
    success = seen.wanted == "success" or (seen.wanted == "either" and seen.ok)
    failure = seen.http.status == 500 and seen.http.method != "HEAD"
    found = {"rejection", "error", "json", str(fault.message)} if fault else set[str]()
    found |= {"failure", "error"} if failure else set()
    return found | ({"success"} | ({"document", "json"} if seen.kind != "test" else set()) if success else set())


def status(seen: Response) -> None:
    """Look at the status of a success."""
    seen.expect(seen.http.status == 200, f"status {seen.http.status}, not 200")


def well_formed(seen: Response) -> None:
    """Look whether it is JSON."""
    seen.expect(not seen.malformed, str(seen.malformed))


def header(name: str, value: str) -> Look:
    """Return the look at a field that has to have exactly this value."""

    def look(seen: Response) -> None:
        have = seen.http.header(name)
        seen.expect(have == value, f"{name} is {'absent' if have is None else repr(have)}, not {value!r}")

    return look


def members(within: str = "", **wanted: object) -> Look:
    """Return the look at members, value and type, of the body or of an object in it."""

    def look(seen: Response) -> None:
        body = seen.member(within) if within else seen.document
        for name, value in wanted.items():
            have = body.get(name) if isinstance(body, dict) else None
            seen.expect(
                have == value and type(have) is type(value), f"{within} {name} is {have!r}, not {value!r}".strip()
            )

    return look


def stores(holds: Callable[[Store], bool]) -> Look:
    """Return the look at each store."""

    def look(seen: Response) -> None:
        for store in seen.stores if seen.ok else ():
            seen.expect(holds(store), f"a store is {store!r}")

    return look


def types(property: str, *allowed: type) -> Look:
    """Return the look at the type of one property of each store."""
    return stores(lambda store: type(store.get(property)) in allowed)


def keys(seen: Response) -> None:
    """Look at the names of the offending fields."""
    wanted = seen.wanted.keys if isinstance(seen.wanted, Fault) else ()
    if wanted:
        members(VALID, keys=list(wanted))(seen)


def text(seen: Response) -> None:
    """Look whether an error tells people anything."""
    seen.expect(isinstance(seen.member("message"), str) and seen.member("message"), "message is no text")


def names_the_field(seen: Response) -> None:
    """Look at a message of which the contract gives no text."""
    fault, message = seen.wanted, str(seen.member("message"))
    assert isinstance(fault, Fault)
    named = all(re.search(rf"\b{key}\b", message) for key in fault.keys)
    seen.expect(named, f"the message for {fault.label} does not name {' and '.join(fault.keys)}")
    seen.expect(message not in fault.never, f"the message for {fault.label} is that of another rule")


def one_mode(service: Service) -> None:
    """Violation at the first validation error that is not of the same mode as most."""

    def look(seen: Response) -> None:
        generic = seen.member("message") == GENERIC
        details = isinstance(seen.document, dict) and "validation" in seen.document
        fits = generic == service.generic and details != service.generic
        seen.expect(fits, f"the other errors are {'generic' if service.generic else 'detailed'}, this one is not")

    hold("rejection", look, service)


def hold(group: str, look: Look, service: Service) -> None:
    """Violation at the first response of this group that is wrong; Skipped when none was seen."""
    found = [seen for seen in service.seen if group in groups(seen)]
    if not found:
        raise Skipped("no such response was seen")
    for seen in found:
        look(seen)


def add(name: str, sentence: str, group: str, look: Look, scope: str = "", **marks: bool) -> None:
    """Add the rule that holds every response of a group."""
    RULES.append(Rule(name, sentence, scope, partial(hold, group, look), **{"writes": False, "late": True} | marks))


for_errors, for_details = partial(add, writes=True), partial(add, writes=True, detailed=True)
add("success-has-status-200", SUCCESS, "success", status, "The status.")
add("success-has-content-type", SUCCESS, "document", header("content-type", JSON), "The content type.")
add("success-has-cache-control", SUCCESS, "success", header("cache-control", "no-cache"), "The cache control.")
add("bodies-are-json", "All bodies are JSON unless stated.", "json", well_formed)
add("store-has-three-properties", THREE, "document", stores(lambda store: set(store) == {"id", "name", "address"}))
add("store-id-is-an-integer", "id, integer, service", "document", types("id", int))
add("store-name-is-a-string", "name, string, client", "document", types("name", str))
add("store-address-is-a-string-or-null", "address, string or null, client", "document", types("address", str, NONE))
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
for_details(
    "validation-has-source", "`validation.source` is `payload`", "rejection", members(VALID, source="payload")
)
for_details("validation-has-keys", "`validation.keys` lists the field names", "rejection", keys)
