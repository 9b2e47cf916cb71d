"""What is searched: texts without case and marks."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storekeeper.domain.search import MAX_SEARCHED_LENGTH, fold, folded, folded_texts

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Main Street", "main street"),
        ("Zürich", "zurich"),
        ("ZU\u0308RICH", "zurich"),  # decomposed
        ("Straße", "strasse"),
        ("İstanbul", "istanbul"),
        ("\uff23\uff41fé №\uff15", "cafe no5"),
        ("\u039f\u0394\u038c\u03a3", "\u03bf\u03b4\u03bf\u03c3"),
        (" a\t\u00a0 b\n", "a b"),
        ("店舗", "店舗"),
        ("", ""),
    ],
)
def test_case_marks_and_runs_of_blanks_do_not_count(text: str, expected: str) -> None:
    assert fold(text) == expected


def test_every_character_folds_to_what_folding_leaves_as_it_is() -> None:
    once = fold(" ".join(map(chr, range(sys.maxunicode + 1))))
    assert fold(once) == once
    assert not any(map(unicodedata.combining, once))


@given(TEXTS, TEXTS)
def test_a_word_is_found_in_a_part_of_a_store_and_never_across_them(
    name: str, address: str
) -> None:
    parts = fold(name).split() + fold(address[:MAX_SEARCHED_LENGTH]).split()
    assert folded(name, address).split() == parts


def test_the_longest_store_folds_to_a_short_text() -> None:
    assert len(folded("\ufdfa" * 30, "\ufdfa" * 2**20)) < 10_000
    assert folded("A", "b" * MAX_SEARCHED_LENGTH + "c") == "a " + "b" * MAX_SEARCHED_LENGTH
    assert folded("A", None) == "a"


@given(TEXTS, st.none() | TEXTS | st.just("é " * MAX_SEARCHED_LENGTH))
def test_both_texts_of_a_store_are_as_each_is_folded(name: str, address: str | None) -> None:
    assert folded_texts(name, address) == (folded(name, address), fold(name))
