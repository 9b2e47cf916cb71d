"""Errors and problems have codes, so that no code needs to read a message."""

import pytest

from storekeeper.api.errors import InvalidJson
from storekeeper.domain.errors import Code, InvalidInput, StorekeeperError
from storekeeper.domain.intake import NeedsMatch, Refused
from storekeeper.domain.problems import WORDS, message_of, words_of
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.domain.stores import RULES, check_payload
from storekeeper.sheets import BadFile
from storekeeper.sheets.reader import ReaderEnded
from storekeeper.storage.copying import VerificationFailed
from storekeeper.storage.databases import CopyFailed

ELSEWHERE = (
    InvalidJson,
    NeedsMatch,
    Refused,
    BadFile,
    ReaderEnded,
    CopyFailed,
    VerificationFailed,
)


def kinds(kind: type[StorekeeperError]) -> list[type[StorekeeperError]]:
    """Return the kinds of error below one, of our package."""
    below = [other for child in kind.__subclasses__() for other in (child, *kinds(child))]
    return [other for other in below if other.__module__.startswith("storekeeper.")]


def test_each_kind_of_error_has_a_code() -> None:
    assert set(ELSEWHERE) <= set(kinds(StorekeeperError))
    codes = {kind: kind.code for kind in kinds(StorekeeperError)}
    assert set(codes.values()) == set(Code)


@pytest.mark.parametrize(
    ("value", "reasons"),
    [
        ({}, {"name": "required"}),
        ({"name": 1, "address": None}, {"name": "not_text", "address": "not_text"}),
        ({"name": "x" * 31, "address": "\0"}, {"name": "too_long", "address": "has_nulls"}),
        ({"name": "\0"}, {"name": "has_nulls"}),
        ({"name": "Shop", "id": 1}, {"id": "not_allowed"}),
    ],
)
def test_a_broken_rule_has_its_code(value: object, reasons: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as error:
        check_payload(value, reject_unknown=True)
    found = {field: violation.reason for field, violation in error.value.violations.items()}
    assert found == reasons


def test_a_part_that_is_no_object_has_its_code() -> None:
    with pytest.raises(InvalidInput) as error:
        check_payload([])
    assert error.value.whole is not None
    assert error.value.whole.reason is Reason.NOT_OBJECT


def test_violations_are_told_under_the_names_that_the_reader_knows() -> None:
    error = InvalidInput(
        "query",
        {
            "q": Violation(Reason.MALFORMED, "must be short"),
            "at": Violation(Reason.EXCLUSIVE, "must not be used together with", other="q"),
        },
    )
    assert str(error) == '"q" must be short. "at" must not be used together with "q"'
    assert error.told(lambda field: f"--{field}") == (
        "--q must be short. --at must not be used together with --q"
    )


def test_each_reason_of_a_row_has_words_for_one_and_for_several() -> None:
    for reason in WORDS:
        assert words_of(reason, "name", 1) != words_of(reason, "name", 2)
        assert "{" not in message_of(reason, "name") + words_of(reason, "name", 2)
    assert message_of(Reason.TOO_LONG, "name").endswith(" 30 characters long")
    assert message_of(Reason.TOO_LONG, "Key").endswith(" 200 characters long")
    assert set(RULES) - set(WORDS) == {Reason.NOT_ALLOWED}
