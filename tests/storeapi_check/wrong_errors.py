"""Mutants whose errors look wrong: body, messages, details, modes."""

from collections.abc import Callable
from typing import Any

from tests.storeapi_check.mutants import breaks
from tests.storeapi_check.reference import (
    GENERIC,
    JSON,
    GenericReference,
    Problem,
    Reference,
    Response,
    Store,
)

# The error body


def body(
    change: Callable[[Store], Store], when: Callable[[str, str], bool] = lambda *_: True
) -> Callable[..., Store]:
    """Another error body for status 400, always or for some operations and messages."""

    def error_body(
        self: Reference, operation: str, status: int, phrase: str, message: str
    ) -> Store:
        made = Reference.error_body(self, operation, status, phrase, message)
        return {**made, **change(made)} if status == 400 and when(operation, message) else made

    return error_body


BODIES: dict[str, tuple[str, Callable[[Store], Store]]] = {
    "statusCode as a string": ("error-has-status-code", lambda _: {"statusCode": "400"}),
    "statusCode 422": ("error-has-status-code", lambda _: {"statusCode": 422}),
    "error Bad request": ("error-has-reason-phrase", lambda _: {"error": "Bad request"}),
    "message as an array": ("error-has-message", lambda made: {"message": [made["message"]]}),
}
for of, mode in ((Reference, "detailed"), (GenericReference, "generic")):
    for wrong, (check, change) in BODIES.items():
        breaks(f"{wrong}, {mode}", check, of=of, error_body=body(change))
        only_put = body(change, lambda operation, _: operation == "update")
        breaks(f"{wrong}, {mode}, PUT only", check, of=of, error_body=only_put)


# Messages


def says(message: str, instead: str, operation: str = "") -> Callable[..., Store]:
    """Another message instead of one, for both operations or for one."""
    return body(
        lambda _: {"message": instead},
        lambda asked, text: text == message and operation in ("", asked),
    )


REQUIRED, NO_STRING, NO_ADDRESS = (
    '"name" is required',
    '"name" must be a string',
    '"address" must be a string',
)
TOO_LONG = '"name" length must be less than or equal to 30 characters long'
for message, instead, check in (
    (REQUIRED, '"name" is not allowed to be empty', "message-for-a-missing-name"),
    (REQUIRED, "'name' is required", "message-for-a-missing-name"),
    (NO_STRING, "name must be a string", "message-for-a-number"),
    (TOO_LONG, "it is longer than 30 characters", "message-names-the-field"),
    (NO_ADDRESS, '"value" must be a string', "message-names-the-field"),
):
    breaks(f"{instead} for {message}", check, error_body=says(message, instead))
    breaks(f"{instead} for {message}, PUT only", check, error_body=says(message, instead, "update"))


def problem(when: Callable[[Any], bool], message: str) -> Callable[..., list[Problem]]:
    """Another message for one kind of name."""

    def name_problems(self: Reference, payload: Any, operation: str) -> list[Problem]:
        found = Reference.name_problems(self, payload, operation)
        return [("name", message)] if found and when(payload.get("name", ...)) else found

    return name_problems


for wrong, when, message, check in (
    (
        "an empty name",
        lambda name: name == "",
        '"name" is not allowed to be empty',
        "message-for-a-missing-name",
    ),
    (
        "a missing name",
        lambda name: name is ...,
        '"name" must be given',
        "message-for-a-missing-name",
    ),
    (
        "the number 0",
        lambda name: type(name) is int and name == 0,
        REQUIRED,
        "message-for-a-number",
    ),
    ("a boolean", lambda name: isinstance(name, bool), "no string", "message-names-the-field"),
):
    breaks(f"another message for {wrong}", check, name_problems=problem(when, message))

# Details

DETAILS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "keys in quotes": (
        "validation-has-keys",
        lambda keys: {"source": "payload", "keys": [f'"{k}"' for k in keys]},
    ),
    "no keys": ("validation-has-keys", lambda _: {"source": "payload", "keys": []}),
    "always both keys": (
        "validation-has-keys",
        lambda _: {"source": "payload", "keys": ["name", "address"]},
    ),
    "source body": ("validation-has-source", lambda keys: {"source": "body", "keys": keys}),
    "source absent": ("validation-has-source", lambda keys: {"keys": keys}),
    "no validation": ("validation-has-source", lambda _: None),
}
for wrong, (check, make) in DETAILS.items():
    breaks(wrong, check, validation=lambda self, keys, asked, m=make: m(keys))
    breaks(
        f"{wrong}, PUT only",
        check,
        validation=lambda self, keys, asked, m=make: (
            m(keys) if asked == "update" else Reference.validation(self, keys, asked)
        ),
    )

# Modes


def leaks(when: Callable[[str, str], bool]) -> Callable[..., Response]:
    """Generic errors with a validation object."""

    def reject(self: Reference, operation: str, problems: list[Problem]) -> Response:
        keys, message = [key for key, _ in problems], problems[0][1]
        validation = self.validation(keys, operation) if when(operation, message) else None
        return self.error(operation, 400, "Bad Request", GENERIC, validation)

    return reject


MIXED: dict[str, Callable[[str, str], bool]] = {
    "always": lambda operation, message: True,
    "PUT only": lambda operation, message: operation == "update",
    "for an address": lambda operation, message: message == NO_ADDRESS,
    "for an empty name on PUT": lambda operation, message: (
        message == REQUIRED and operation == "update"
    ),
}
for mixed, mixes in MIXED.items():
    breaks(
        f"generic with validation, {mixed}",
        "errors-are-of-one-mode",
        of=GenericReference,
        reject=leaks(mixes),
    )
    for of, mode in ((Reference, "detailed"), (GenericReference, "generic")):
        if mixed != "always":
            breaks(
                f"{mode}, but the other mode {mixed}",
                "errors-are-of-one-mode",
                of=of,
                is_generic=lambda self, asked, problems, w=mixes: (
                    self.generic != w(asked, problems[0][1])
                ),
            )
for wrong, check, error_body in (
    (
        "generic with the detailed message once",
        "errors-are-of-one-mode",
        body(lambda _: {"message": REQUIRED}, lambda operation, _: operation == "update"),
    ),
    (
        "another generic message",
        "message-for-a-missing-name",
        body(lambda _: {"message": "Invalid request payload"}),
    ),
    (
        "validation null in generic mode",
        "errors-are-of-one-mode",
        body(lambda _: {"validation": None}),
    ),
):
    breaks(wrong, check, of=GenericReference, error_body=error_body)

# 500

FAILURES: dict[str, dict[str, object]] = {
    "its message": {"message": "oops"},
    "its code": {"statusCode": 0},
}
for wrong, member in FAILURES.items():
    failure = {
        "statusCode": 500,
        "error": "Internal Server Error",
        "message": "An internal server error occurred",
    }
    breaks(
        f"500 wrong in {wrong}",
        "server-error-has-its-body",
        missing=lambda self, operation, c={**failure, **member}: self.send(
            operation, 500, self.encode(c), JSON
        ),
    )
