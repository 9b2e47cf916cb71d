"""The contract's rules for every answer, held to all that was seen during the run; this package only."""

import re
from collections.abc import Callable

from storekeeper.conformance.documents import Store
from storekeeper.conformance.rules import Skipped, rule
from storekeeper.conformance.service import GENERIC, Answer, Service, Violation

JSON = "application/json; charset=utf-8"
SERVER_ERROR = {
    "statusCode": 500,
    "error": "Internal Server Error",
    "message": "An internal server error occurred",
}


def each(answers: list[Answer], wrong: Callable[[Answer], str | None]) -> None:
    """Violation at the first answer that is wrong; Skipped when there is none to look at."""
    if not answers:
        raise Skipped("no such answer was seen")
    for answer in answers:
        if reason := wrong(answer):
            raise Violation(reason, answer.http)


def successes(service: Service) -> list[Answer]:
    """What the contract wants to be a success, and what is one that need not be."""
    return [seen for seen in service.seen if seen.purpose == "success" or (seen.purpose == "either" and seen.ok)]


def rejections(service: Service) -> list[Answer]:
    """The validation errors."""
    return [seen for seen in service.seen if seen.purpose == "invalid" and seen.http.status == 400]


def server_errors(service: Service) -> list[Answer]:
    """What was answered 500, whatever was asked."""
    return [seen for seen in service.seen if seen.http.status == 500 and seen.http.method != "HEAD"]


def header(name: str, value: str) -> Callable[[Answer], str | None]:
    """Whether a field has exactly this value."""

    def wrong(answer: Answer) -> str | None:
        have = answer.http.header(name)
        shown = "absent" if have is None else repr(have)
        return None if have == value else f"{name} is {shown}, not {value!r}"

    return wrong


def every_store(service: Service, wrong: Callable[[Store], str | None]) -> None:
    """Violation at the first store in any answer that is wrong."""
    answers = [seen for seen in successes(service) if seen.ok and seen.kind not in {"test", "other"}]
    each(answers, lambda seen: next((found for store in seen.stores if (found := wrong(store))), None))


@rule(late=True)
def success_has_status_200(service: Service) -> None:
    """Success responses use status 200 and the headers `content-type: application/json; charset=utf-8`
    and `cache-control: no-cache`, except where noted.

    The status.
    """
    each(
        successes(service),
        lambda seen: None if seen.http.status == 200 else f"status {seen.http.status}, not 200",
    )


@rule(late=True)
def success_has_content_type(service: Service) -> None:
    """Success responses use status 200 and the headers `content-type: application/json; charset=utf-8`
    and `cache-control: no-cache`, except where noted.

    The content type.
    """
    each([seen for seen in successes(service) if seen.kind != "test"], header("content-type", JSON))


@rule(late=True)
def success_has_cache_control(service: Service) -> None:
    """Success responses use status 200 and the headers `content-type: application/json; charset=utf-8`
    and `cache-control: no-cache`, except where noted.

    The cache control.
    """
    each(successes(service), header("cache-control", "no-cache"))


@rule(late=True)
def bodies_are_json(service: Service) -> None:
    """All bodies are JSON unless stated."""
    answers = [seen for seen in successes(service) + rejections(service) if seen.kind != "test"]
    each(answers, lambda seen: seen.malformed)


@rule(late=True)
def store_has_three_properties(service: Service) -> None:
    """A store returned by create, update or read always carries exactly three properties: id, name,
    address.
    """

    def wrong(store: Store) -> str | None:
        return None if set(store) == {"id", "name", "address"} else f"a store has the properties {sorted(store)}"

    every_store(service, wrong)


@rule(late=True)
def store_id_is_an_integer(service: Service) -> None:
    """id, integer, service"""
    every_store(service, lambda store: None if type(store.get("id")) is int else f"an id is {store.get('id')!r}")


@rule(late=True)
def store_name_is_a_string(service: Service) -> None:
    """name, string, client"""
    every_store(service, lambda store: None if isinstance(store.get("name"), str) else "a name is no string")


@rule(late=True)
def store_address_is_a_string_or_null(service: Service) -> None:
    """address, string or null, client"""

    def wrong(store: Store) -> str | None:
        address = store.get("address")
        return None if address is None or isinstance(address, str) else f"an address is {address!r}"

    every_store(service, wrong)


@rule(late=True, writes=True)
def error_has_content_type(service: Service) -> None:
    """Error responses carry `content-type: application/json; charset=utf-8` and `cache-control:
    no-cache`.

    The content type.
    """
    each(rejections(service) + server_errors(service), header("content-type", JSON))


@rule(late=True, writes=True)
def error_has_cache_control(service: Service) -> None:
    """Error responses carry `content-type: application/json; charset=utf-8` and `cache-control:
    no-cache`.

    The cache control.
    """
    each(rejections(service) + server_errors(service), header("cache-control", "no-cache"))


@rule(late=True, writes=True)
def error_has_status_code(service: Service) -> None:
    """statusCode, integer, HTTP status code"""
    each(rejections(service), lambda seen: field(seen, "statusCode", 400))


@rule(late=True, writes=True)
def error_has_reason_phrase(service: Service) -> None:
    """error, string, Standard reason phrase of the status"""
    each(rejections(service), lambda seen: field(seen, "error", "Bad Request"))


@rule(late=True, writes=True)
def error_has_message(service: Service) -> None:
    """message, string, Human-readable reason"""
    each(rejections(service), lambda seen: None if message(seen) else "message is no text")


@rule(late=True)
def server_error_has_its_body(service: Service) -> None:
    """500, Internal Server Error, An unexpected failure, for example a handler that produces no value,
    statusCode 500, error `Internal Server Error`, message `An internal server error occurred`
    """
    found = server_errors(service)
    each(
        found,
        lambda seen: next((bad for name in SERVER_ERROR if (bad := field(seen, name, SERVER_ERROR[name]))), None),
    )


@rule(late=True, writes=True)
def errors_are_of_one_mode(service: Service) -> None:
    """A deployment may run in a generic mode: the same 400 status and error text but message `Invalid
    request payload input` and no `validation` object.
    """

    def wrong(answer: Answer) -> str | None:
        generic = message(answer) == GENERIC
        details = isinstance(answer.document, dict) and "validation" in answer.document
        if service.generic:
            return None if generic and not details else "the other errors are generic, this one is not"
        return "the other errors are detailed, this one is not" if generic or not details else None

    each(rejections(service), wrong)


@rule(late=True, writes=True, detailed=True)
def message_for_a_number(service: Service) -> None:
    """Message for a name that is a number instead of a string: `"name" must be a string`, with keys
    [name].
    """
    exact(service, '"name" must be a string')


@rule(late=True, writes=True, detailed=True)
def message_for_a_missing_name(service: Service) -> None:
    """Message for a missing (or empty) name: `"name" is required`, with keys [name]."""
    exact(service, '"name" is required')


@rule(late=True, writes=True, detailed=True)
def message_names_the_field(service: Service) -> None:
    """`message` names the field and the violated rule"""

    def wrong(answer: Answer) -> str | None:
        fault, text = answer.fault, message(answer)
        if fault is None:
            return None
        named = all(re.search(rf"\b{key}\b", text) for key in fault.keys)
        if not named:
            return f"the message for {fault.label} does not name {' and '.join(fault.keys)}"
        return f"the message for {fault.label} is that of another rule" if text in fault.never else None

    each(rejections(service), wrong)


@rule(late=True, writes=True, detailed=True)
def validation_has_source(service: Service) -> None:
    """`validation.source` is `payload`"""
    each(rejections(service), lambda seen: detail(seen, "source", "payload"))


@rule(late=True, writes=True, detailed=True)
def validation_has_keys(service: Service) -> None:
    """`validation.keys` lists the field names"""

    def wrong(answer: Answer) -> str | None:
        keys = answer.fault.keys if answer.fault else ()
        return detail(answer, "keys", list(keys)) if keys else None

    each(rejections(service), wrong)


def exact(service: Service, text: str) -> None:
    """Hold every rejection for which the contract gives this message to it."""
    answers = [seen for seen in rejections(service) if seen.fault and seen.fault.message == text]
    each(
        answers,
        lambda seen: None if message(seen) == text else f"the message is {message(seen)!r}, not {text!r}",
    )


def message(answer: Answer) -> str:
    """The error's message; empty when it has none that is a string."""
    text = answer.document.get("message") if isinstance(answer.document, dict) else None
    return text if isinstance(text, str) else ""


def field(answer: Answer, name: str, value: object) -> str | None:
    """How a member of the error body differs from what it must be, in value or in type."""
    have = answer.document.get(name) if isinstance(answer.document, dict) else None
    return None if have == value and type(have) is type(value) else f"{name} is {have!r}, not {value!r}"


def detail(answer: Answer, name: str, value: object) -> str | None:
    """How a member of `validation` differs from what it must be."""
    validation = answer.document.get("validation") if isinstance(answer.document, dict) else None
    if not isinstance(validation, dict):
        return "there is no validation object"
    have = validation.get(name)
    return None if have == value else f"validation.{name} is {have!r}, not {value!r}"
