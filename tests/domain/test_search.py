"""What is searched: texts without case and marks."""

import sys
import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storekeeper.domain.search import (
    INVISIBLE,
    LAST_COMBINING,
    MAX_SEARCHED_LENGTH,
    MAX_WORDS,
    SPELLINGS,
    fold,
    folded,
    folded_texts,
    parse,
    words_of,
)
from tests import ROOT

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
UNSEEN = st.text(
    [chr(code) for first, last in INVISIBLE for code in (first, last)], min_size=1, max_size=3
)
SCRIPTS = {
    "Japanese": "東京都港区葛\U000e0100城ァアヴが\u304b\u3099ぱーｶﾞ々〒・、。「」〜４２－㈱ 　",
    "Arabic": "مَدِينَة\u0640لاآأإؤئىي\u200c\u200d٣٤۳۴،؛؟\u061c\u200f 0",
    "Thai": "กรุงเทพฯำแใไๆ่้์็ิีืู๐๑\u200b 0",
}


def folded_before(text: str) -> str:
    """Fold a text as the releases before did."""
    decomposed = unicodedata.normalize("NFKD", text)
    plain = "".join(each for each in decomposed if not unicodedata.combining(each))
    return " ".join(plain.casefold().split())


def finds(query: str, text: str) -> bool:
    """Return whether a search for a text, not a number, finds another text."""
    words = words_of(query)
    return bool(words) and all(word in fold(text) for word in words)


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
        ("McDonald’s McDonald´s McDonald`s", "mcdonald's mcdonald's mcdonald's"),
        ("Œuvre ÐAÞ Ħamrun Đorđe ǾǼ IJzer", "oeuvre dath hamrun dorde oae ijzer"),
        ("So\u00adho \ufeff\u200bA\u2060B\u200d", "soho ab"),
        ("\u200b\u0301\u00ad", ""),
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


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("McDonald’s", "McDonald's"),
        ("mcdonald's", "McDonald’s"),
        ("l'eglise", "L’Église"),
        ("12-14", "12–14 Quay Road"),
        ("12—14", "12-14 Quay Road"),
        ("Portsmouth, Quay", "20 Quay Road, Portsmouth"),
        ("Leeds & York", "York (Leeds)"),
        ("“High Street”", "3 High Street"),
        ("lodz", "Łódź"),
        ("kobenhavn", "København"),
        ("tromso", "Tromsø"),
        ("aebler", "Æbler"),
        ("diyarbakir", "Diyarbakır"),
        ("Reykjavik thingvellir", "Þingvellir, Reykjavík"),
        ("so\u00adho", "Soho"),
        ("soho", "So\u00adho"),
        ("1/2", "½ Mile Road"),
        ("100%", "100% Wool"),
        ('"', 'The "A"'),
    ],
)
def test_people_find_what_they_type(query: str, text: str) -> None:
    assert finds(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("a.c", "a c"),
        ("100%", "100 Wool"),
        ("o'hare", "ohare"),
        ("a*", "ab"),
        ("a_", "ab"),
        ("ab", "a b"),
        ("a-b", "ab"),
    ],
)
def test_what_is_inside_a_word_and_plain_signs_count(query: str, text: str) -> None:
    assert not finds(query, text)


@pytest.mark.parametrize("text", ["", " \t", "—", "’", ". , ; -", "\u00ad", "\u0301", "¿?", "()"])
def test_a_query_that_folds_to_nothing_finds_nothing(text: str) -> None:
    wanted = parse(text)
    assert wanted is not None
    assert wanted.id == 0
    assert all(word not in folded("A - b's (1), c.", "x, \u00ad—!") for word in wanted.words)
    assert not finds(text, "A - b's")


def test_punctuation_between_words_is_not_counted_as_one() -> None:
    assert parse(" - ".join("abcdefgh")) is not None
    assert parse(" - ".join("abcdefghi")) is None
    assert len("abcdefgh") == MAX_WORDS


@given(TEXTS, st.sampled_from(["NFC", "NFD"]))
def test_the_normal_form_of_a_text_does_not_count(text: str, form: Literal["NFC", "NFD"]) -> None:
    assert fold(unicodedata.normalize(form, text)) == fold(text)


@given(TEXTS, UNSEEN, st.data())
def test_invisible_characters_do_not_count(text: str, unseen: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text)))
    assert fold(text[:place] + unseen + text[place:]) == fold(text)


@given(st.text("abcłøæþ'-’–. ", max_size=9), st.data())
def test_each_spelling_finds_each_other(text: str, data: st.DataObject) -> None:
    def spelled(sign: str) -> str:
        for typed, others in SPELLINGS.items():
            if sign == typed or sign in others:
                return str(data.draw(st.sampled_from([typed, *others])))
        return sign

    other = "".join(map(spelled, text))
    assert fold(other) == fold(text)
    assert finds(other, text) == bool(words_of(text))


@given(TEXTS)
def test_no_word_of_a_query_ends_with_punctuation(text: str) -> None:
    for word in words_of(text):
        assert word in fold(text)
        for end in (word[0], word[-1]):
            assert end in '%_*"' or not unicodedata.category(end).startswith("P")


@pytest.mark.parametrize("script", SCRIPTS)
@given(data=st.data())
def test_other_scripts_find_what_they_found_before(script: str, data: st.DataObject) -> None:
    letters = SCRIPTS[script]
    text = data.draw(st.text(letters, max_size=12))
    begin = data.draw(st.integers(0, len(text)))
    query = text[begin : begin + data.draw(st.integers(1, 6))] or data.draw(st.text(letters))
    if words_of(query) and all(
        word in folded_before(text) for word in folded_before(query).split()
    ):
        assert finds(query, text)


def test_the_map_is_named_in_the_contract() -> None:
    page = (ROOT / "docs/contract.md").read_text()
    for typed, characters in SPELLINGS.items():
        assert f"| `{typed}` | {' '.join(characters)} |" in page
    for first, last in INVISIBLE:
        named = f"U+{first:04X}" if first == last else f"U+{first:04X} to U+{last:04X}"
        assert named in page


def test_every_combining_character_is_sent_to_the_console() -> None:
    after = map(chr, range(LAST_COMBINING + 1, sys.maxunicode + 1))
    assert not any(map(unicodedata.combining, after))
