"""How the kit reads JSON and lists: whole or in pieces, within its limits."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storeapi_check.documents import MAX_KEPT, MAX_STORE_LENGTH, Listing, parse

TEXT = st.text('a {}[],:"\\\n\u00e9\U0001f3ec')
VALUES = (
    st.none() | st.booleans() | st.integers() | TEXT | st.just('},{"id": 1}, "') | st.lists(TEXT)
)
STORES = st.lists(st.dictionaries(st.sampled_from(["id", "name", "address", "x"]), VALUES))


def read(content: bytes, size: int = 7) -> Listing:
    """A list fed in pieces."""
    listing = Listing(lambda _: True)
    for at in range(0, len(content), size):
        listing.feed(content[at : at + size])
    listing.feed(b"", last=True)
    return listing


@given(STORES, st.integers(1, 200), st.sampled_from([None, 1]), st.booleans())
def test_a_list_is_the_same_whole_or_in_pieces(
    stores: list[dict[str, Any]], size: int, indent: int | None, escaped: bool
) -> None:
    content = json.dumps(stores, indent=indent, ensure_ascii=escaped).encode()
    listing = read(content, size)
    assert (listing.fault, listing.count, listing.stores) == (None, len(stores), stores)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        *(
            (content, "not JSON")
            for content in (b"", b"[", b'[{"id": 1}', b'[{"id": 1},', b'[{"id": 1}, {"id": ')
        ),
        *(
            (content, "not JSON")
            for content in (b'[{"id": 1} {"id": 2}]', b"[] []", b'[{"id": 1}] x', b"[,]")
        ),
        *(
            (content, "not a JSON array of objects")
            for content in (b"{}", b"null", b"[1]", b'["}, "]', b'[{"id": 1},]')
        ),
        (b'[{"id": 1}, 5, {"id": 2}]', "not a JSON array of objects"),
        (b'[{"name": "' + b"x" * (MAX_STORE_LENGTH + 1), "not a JSON array of objects"),
        (b'[{"id": NaN}]', "NaN is not JSON"),
        (b'[{"id": 1, "id": 2}]', "an object has the same key twice"),
        (b'[{"name": "\xff"}]', "not UTF-8"),
        (b'[{"name": "\xc3', "not UTF-8"),
        (b"\xef\xbb\xbf[]", "not JSON"),
        (b'[{"id": %s}]' % (b"9" * 5000), "integer string conversion"),
    ],
)
@pytest.mark.parametrize("size", [1 << 18, 3])
def test_what_is_not_a_list_has_a_fault(content: bytes, fault: str, size: int) -> None:
    if len(content) > MAX_STORE_LENGTH:
        size = 1 << 18
    assert fault in (read(content, size).fault or "")


def test_a_list_keeps_one_store_of_every_shape() -> None:
    stores = [
        {"id": 1, "name": "a", "address": None},
        {"id": 2, "name": "b", "address": None},
        {"id": "3"},
    ]
    listing = Listing(lambda _: False)
    listing.feed(json.dumps(stores).encode())
    listing.feed(b"", last=True)
    assert list(listing.shapes.values()) == [stores[0], stores[2]]
    assert listing.stores == []


def test_a_list_keeps_no_more_than_its_limit() -> None:
    listing = read(json.dumps([{"id": 1}] * (MAX_KEPT + 5)).encode(), 1 << 16)
    assert (listing.count, len(listing.stores)) == (MAX_KEPT + 5, MAX_KEPT)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"{} {}",
        b"NaN",
        b"[-Infinity]",
        b'{"a": 1, "a": 1}',
        b'"\xff"',
        b"[" * 100_000,
        b"'a'",
    ],
)
def test_what_is_no_json_is_malformed(content: bytes) -> None:
    assert parse(content)[1]
