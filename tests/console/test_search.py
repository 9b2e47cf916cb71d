"""The page marks what the service found, since both fold alike."""

import json
import unicodedata
from collections.abc import Callable

from playwright.sync_api import expect

from storekeeper.domain.search import fold, words_of
from tests.harness.console import Console, add
from tests.harness.process import Running

Open = Callable[..., Console]

FOUND = [
    ("Zed McDonald’s", "mcdonald's,", ["McDonald’s"]),
    ("Zed L'Église", "(l’eglise)", ["L'Église"]),
    ("Zed 12–14", "12-14", ["12–14"]),
    ("Zed Łódź, Tromsø", "tromso - lodz", ["Łódź", "Tromsø"]),
    ("Zed So\u00adho Æbler", "aebler soho", ["So\u00adho", "Æbler"]),
    ("Zed ΟΔΌΣ", "οδος", ["ΟΔΌΣ"]),
    ("Zed Zo\u0308e", "zoe", ["Zo\u0308e"]),
    ("Zed 葛\U000e0100城市", "葛城", ["葛\U000e0100城"]),
]
QUERIES = ["“a, b”", '"', "-", "%x%", "a_ (b)", "ก่กิ", "a\x1cb\x85c", "x\u200by\ufeff ´z`"]


FOLD_ALL = """async (texts) => {
    const { fold, wordsOf } = await import("/console/format.js");
    return JSON.stringify(JSON.parse(texts).map((text) => [fold(text), wordsOf(text)]));
}"""


def known_letters() -> list[str]:
    """Return the characters that folding could change, but for a script whose case folds to
    capitals in Python and not in the page, on both sides of each search."""
    return [
        character
        for character in map(chr, [*range(0x3400), *range(0xA000, 0xAC00), *range(0xF900, 0x10000)])
        if unicodedata.category(character) not in ("Cn", "Cs", "Co")
        and "CHEROKEE" not in unicodedata.name(character, "")
    ]


def test_the_page_folds_as_the_service_does_and_marks_what_was_found(
    shop: Running, open_console: Open
) -> None:
    page = open_console(shop)
    box = page.page.get_by_placeholder("Search name or address")
    for name, query, marked in FOUND:
        id = add(shop, name)
        box.fill(query)
        expect(page.row(id).locator("mark")).to_have_text(marked)
    box.fill("—")
    page.sees("0 stores found")
    texts = [*known_letters(), *(query for _, query, _ in FOUND), *QUERIES]
    folded = json.loads(page.page.evaluate(FOLD_ALL, json.dumps(texts)))
    differ = [
        (text, ours, theirs)
        for text, theirs in zip(texts, folded, strict=True)
        if (ours := [fold(text), words_of(text)]) != theirs
    ]
    assert differ == []
