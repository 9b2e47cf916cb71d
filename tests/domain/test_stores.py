"""The rules of a payload, and their messages."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storekeeper.domain.errors import InvalidInput
from storekeeper.domain.stores import EXAMPLES, MAX_NAME_LENGTH, Payload, Store, check_payload
from storekeeper.storage.sql import CHANGES, CONTENT, STORES

OBJECT = '"value" must be of type object'
NAME_STRING = '"name" must be a string'
NAME_REQUIRED = '"name" is required'
NAME_LONG = '"name" length must be less than or equal to 30 characters long'
NAME_NULL = '"name" must not contain null characters'
ADDRESS_STRING = '"address" must be a string'
ADDRESS_NULL = '"address" must not contain null characters'

NOT_OBJECTS: list[Any] = [None, [], [{"name": "Shop"}], "name", "", 0, 1.5, True]
NOT_STRINGS: list[Any] = [None, 0, 42, 1.5, True, False, [], ["x"], {}, {"name": "x"}]
EMOJI = "\U0001f3ea"

REFUSED: list[tuple[Any, list[str], str]] = [
    *((value, [], OBJECT) for value in NOT_OBJECTS),
    *(({"name": value}, ["name"], NAME_STRING) for value in NOT_STRINGS),
    ({}, ["name"], NAME_REQUIRED),
    ({"address": "1 Road"}, ["name"], NAME_REQUIRED),
    ({"Name": "Shop"}, ["name"], NAME_REQUIRED),
    ({"name": ""}, ["name"], NAME_REQUIRED),
    ({"name": "x" * 31}, ["name"], NAME_LONG),
    ({"name": EMOJI * 31}, ["name"], NAME_LONG),
    ({"name": "e\u0301" * 15 + "x"}, ["name"], NAME_LONG),
    ({"name": " " * 31}, ["name"], NAME_LONG),
    ({"name": "\0"}, ["name"], NAME_NULL),
    ({"name": "Sh\0op"}, ["name"], NAME_NULL),
    ({"name": "\0" * 31}, ["name"], NAME_LONG),
    *(({"name": "Shop", "address": value}, ["address"], ADDRESS_STRING) for value in NOT_STRINGS),
    ({"name": "Shop", "address": "1\0Road"}, ["address"], ADDRESS_NULL),
    ({"name": 1, "address": 2}, ["name", "address"], f"{NAME_STRING}. {ADDRESS_STRING}"),
    ({"address": None, "name": ""}, ["name", "address"], f"{NAME_REQUIRED}. {ADDRESS_STRING}"),
    ({"name": "x" * 31, "address": "\0"}, ["name", "address"], f"{NAME_LONG}. {ADDRESS_NULL}"),
]

ACCEPTED: list[tuple[Any, Payload]] = [
    ({"name": "Shop"}, Payload("Shop", None)),
    ({"name": "Shop", "address": "1 Road"}, Payload("Shop", "1 Road")),
    ({"name": "Shop", "address": ""}, Payload("Shop", "")),
    ({"name": " "}, Payload(" ")),
    ({"name": " Shop ", "address": " \n"}, Payload(" Shop ", " \n")),
    ({"name": "x" * 30}, Payload("x" * 30)),
    ({"name": EMOJI * 30}, Payload(EMOJI * 30)),
    ({"name": "Shop", "address": "x" * 10**6}, Payload("Shop", "x" * 10**6)),
    ({"name": "Shop", "id": 99, "version": 1, "": None}, Payload("Shop")),
]


@pytest.mark.parametrize(("value", "keys", "message"), REFUSED)
def test_a_broken_rule_has_its_message_and_its_key(
    value: Any, keys: list[str], message: str
) -> None:
    with pytest.raises(InvalidInput) as error:
        check_payload(value)
    assert str(error.value) == message
    assert list(error.value.violations) == keys
    assert error.value.source == "payload"


@pytest.mark.parametrize(("value", "payload"), ACCEPTED)
def test_what_breaks_no_rule_is_taken_as_it_is(value: Any, payload: Payload) -> None:
    assert check_payload(value) == payload


@pytest.mark.parametrize(
    ("value", "keys", "message"),
    [
        ({"name": "Shop", "id": 1}, ["id"], '"id" is not allowed'),
        ({"id": 1, "x": 2, "name": "Shop"}, ["id", "x"], '"id" is not allowed. "x" is not allowed'),
        ({"id": 1}, ["name", "id"], f'{NAME_REQUIRED}. "id" is not allowed'),
        ({"id": 1, "address": 1, "name": 1}, ["name", "address", "id"],
         f'{NAME_STRING}. {ADDRESS_STRING}. "id" is not allowed'),
    ],
)  # fmt: skip
def test_unknown_keys_are_refused_where_that_is_asked_for(
    value: Any, keys: list[str], message: str
) -> None:
    with pytest.raises(InvalidInput) as error:
        check_payload(value, reject_unknown=True)
    assert str(error.value) == message
    assert list(error.value.violations) == keys
    assert check_payload({"name": "Shop", "address": "1 Road"}, reject_unknown=True) == Payload(
        "Shop", "1 Road"
    )


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
OBJECTS = st.dictionaries(
    st.sampled_from(["name", "address", "id", "Name"]) | st.text(max_size=5), ANYTHING
)


@given(OBJECTS | ANYTHING, st.booleans())
def test_any_value_is_a_payload_or_broken_rules(value: Any, reject_unknown: bool) -> None:
    """And it is a payload if and only if a reader of the contract would say so."""
    fields = value if isinstance(value, dict) else {}
    name, address = fields.get("name"), fields.get("address", "")
    good = (
        isinstance(name, str)
        and 1 <= len(name) <= MAX_NAME_LENGTH
        and isinstance(address, str)
        and "\0" not in name + address
        and not (reject_unknown and fields.keys() - {"name", "address"})
    )
    try:
        payload = check_payload(value, reject_unknown=reject_unknown)
    except InvalidInput as error:
        assert not good
        assert set(error.violations) <= {"name", "address", *fields}
        assert str(error)
    else:
        assert good
        assert payload == Payload(name, fields.get("address"))  # type: ignore[arg-type]  # a good payload has strings


@given(st.text(min_size=1, max_size=30), st.none() | st.text(max_size=50))
def test_the_schema_of_the_payload_and_its_rules_agree(name: str, address: str | None) -> None:
    """The OpenAPI document is made of the class, the responses of the rules; only U+0000 no
    schema can forbid."""
    value = {"name": name} if address is None else {"name": name, "address": address}
    assert msgspec.convert(json.loads(json.dumps(value)), Payload) == Payload(name, address)
    if "\0" not in f"{name}{address}":
        assert check_payload(value) == Payload(name, address)


def test_the_examples_keep_the_rules() -> None:
    for payload in EXAMPLES:
        value = {
            name: text for name, text in msgspec.structs.asdict(payload).items() if text is not None
        }
        assert check_payload(value) == payload
    assert any(payload.address is None for payload in EXAMPLES)


def test_stores_and_changes_have_a_column_for_each_field_of_a_payload_in_its_order() -> None:
    assert tuple(CONTENT) == Payload.__struct_fields__
    assert (*STORES, "epoch") == Store.__struct_fields__
    assert tuple(name for name in CHANGES if name in CONTENT) == tuple(CONTENT)
