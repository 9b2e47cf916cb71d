"""The grammar of entity tags, compared with a second reader that goes character by character."""

import time
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storekeeper.api.preconditions import Preconditions, parse_tags
from storekeeper.domain.commands import ANY
from tests.harness.cases import thorough
from tests.oracles.entity_tags import MARKS, read

PIECES = [*'"W/w, \t*a\\\x00\x7f\x80\xff', "W/", "7.abcdefgh", *MARKS]
tags = st.builds(
    '{}"{}{}"'.format,
    st.sampled_from(["", "W/"]),
    st.one_of(st.just("7.abcdefgh"), st.text(st.characters(max_codepoint=255), max_size=4)),
    st.sampled_from(["", *MARKS, "-GZIP", "-gzip-gzip", "gzip"]),
)
lists = st.lists(st.one_of(tags, st.sampled_from(["", " ", "\t", "*"])), max_size=4)
values = st.one_of(
    st.builds(str.join, st.sampled_from([",", ", ", " ,\t", ";", " "]), lists),
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
)


@pytest.mark.parametrize("count", [200, *thorough(2000)])
def test_tags_are_read_as_the_grammar_has_them(count: int) -> None:
    @settings(max_examples=count)
    @given(
        lines=st.lists(values.map(lambda value: value.encode("latin-1")), min_size=1, max_size=3)
    )
    def compare(lines: list[bytes]) -> None:
        assert parse_tags(b", ".join(lines)) == read(lines)

    compare()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([b'"7.abcdefgh"'], {'"7.abcdefgh"'}),
        ([b'W/"7.abcdefgh-gzip"'], {'"7.abcdefgh"'}),
        ([b'"7.abcdefgh;gzip"'], {'"7.abcdefgh"'}),
        ([b'"a, b"'], None),
        ([b'"a,b" , ,"\xe4",'], {'"a,b"', '"\xe4"'}),
        ([b'"a"', b'W/"b"'], {'"a"', '"b"'}),
        ([b'"a', b'b"'], None),
        ([b'"a,', b'"'], None),
        ([b"*", b"*"], None),
        ([b"*", b""], None),
        ([b'""'], {'""'}),
        ([b""], set()),
        ([b" * "], ANY),
        ([b'"*"'], {'"*"'}),
        ([b'*, "a"'], None),
        ([b"a"], None),
        ([b'w/"a"'], None),
        ([b'"a" "b"'], None),
        ([b'"a'], None),
    ],
)
def test_both_readings_have_what_the_rfc_has(lines: list[bytes], expected: set[str] | None) -> None:
    assert parse_tags(b", ".join(lines)) == read(lines) == expected


@pytest.mark.parametrize(
    "value", [b", \t" * 4000 + b"x", b'"a", ' * 3000 + b'"', b'"' + b"-gzip" * 3000, b'"a"' * 5000]
)
def test_a_long_list_is_read_or_refused_at_once(value: bytes) -> None:
    began = time.process_time()
    assert parse_tags(value) is None
    assert time.process_time() - began < 0.05


def test_nothing_of_the_tags_of_a_write_with_a_key_is_kept() -> None:
    """There are hundreds of KB of them in one head."""
    many = frozenset(f'"{number}.aaaaaaaa"' for number in range(1000))
    kept = weakref.ref(many)
    preconditions = Preconditions(many)
    assert preconditions.key("key", 0, ("store", 1, "Name", None))
    del many, preconditions
    assert kept() is None


def test_a_request_with_a_key_has_the_same_number_in_every_process_and_version() -> None:
    """Else it is another request after a restart or an upgrade. Sets have another order in each
    process."""
    many = frozenset(f'"{number}.aaaaaaaa"' for number in range(20))
    replace = Preconditions(many).key("key", 3, ("store", 7, "Name", "1 Road"))
    create = Preconditions().key("key", 0, ("stores", None, "Name", "1 Road"))
    assert Preconditions(many).key("", 3, ("store", 7, "Name", None)) is None
    assert replace == ("3 key", 5888496581782306191)
    assert create == ("key", -3330016781047931073)
