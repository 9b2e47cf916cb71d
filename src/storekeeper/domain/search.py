"""Domain: the text of a store that is searched, and what a search looks for (decision 39)."""

import unicodedata
from itertools import filterfalse
from typing import NamedTuple

from storekeeper.domain.parameters import Parameter
from storekeeper.domain.stores import MAX_INTEGER

MAX_SEARCHED_LENGTH = 500
"""Characters of an address that are searched. One character may fold to 18."""

MAX_LENGTH = 200
MAX_WORDS = 8
"""Characters and words of what a client searches for."""

DEFAULT_LIMIT = 50
"""Stores of a page, unless the client says otherwise."""

TIMEOUT = 1.0
"""Seconds that a search may wait for its turn, and that it may take."""

MAX_AT_ONCE = 2
"""Searches that run in one process; the others wait."""

TOO_LONG = "The search takes too long: narrow the search"

FOLDING = 2
"""The number of what `fold` does to a text. Raise it together with a migration whenever that
changes: then the first start folds the texts of all stores again."""

SPELLINGS = {
    "'": "`´‘’‚‛′‵ʻʼʽꞌ",
    '"': "“”„‟«»",
    "-": "‐‒–—―−",
    "/": "⁄∕",
    "l": "ł",
    "o": "ø",
    "d": "đð",
    "i": "ı",
    "h": "ħ",
    "t": "ŧ",
    "ae": "æ",
    "oe": "œ",
    "th": "þ",
}
"""What people type, and the characters that count as it."""

INVISIBLE = (
    (0x00AD, 0x00AD),  # the soft hyphen
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x180B, 0x180F),
    (0x200B, 0x200F),  # of no width, joiners, directions
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0xFE00, 0xFE0F),  # variations of the character before
    (0xFEFF, 0xFEFF),
    (0xE0000, 0xE0FFF),
)
"""The ranges of characters that do not count: people neither see nor type them."""

PLAIN_SIGNS = "%_*"
"""The punctuation that is looked for at the ends of words too (decision 39)."""

_NEVER = "  "
"""Occurs in no text that is searched: those have no two blanks side by side."""

LAST_COMBINING = 0x1EFFF
"""Characters after this one are not combined with others."""

TYPED = {character: typed for typed, characters in SPELLINGS.items() for character in characters}
"""What people type for each character of SPELLINGS."""

_MAP = {
    **{ord(character): typed for character, typed in TYPED.items()},
    **{code: None for first, last in INVISIBLE for code in range(first, last + 1)},
}


def fold(text: str) -> str:
    """Return a text as it is searched and sorted: without case and marks (NFKD without combining
    marks, casefolded) and invisible characters, its runs of blanks as one, and with the spellings
    that people type."""
    if text.isascii():
        text = text.lower()
    else:
        # NFKD would make a blank and a mark of it.
        text = text.replace("´", "'").replace("\u1ffd", "'")
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(filterfalse(unicodedata.combining, decomposed)).casefold()
        if not text.isascii():
            text = text.translate(_MAP)
    return " ".join(text.replace("`", "'").split())


BLANKS = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""Every blank character, as `str.strip` knows them."""


def like_text(name: str, address: str | None) -> bytes:
    """Return a text that is equal for stores that are like each other: name and address are equal
    but for case, blanks and normal form."""
    return "\0".join(map(_plain, (name, address or ""))).encode()


def _plain(text: str) -> str:
    text = unicodedata.normalize("NFC", text).casefold()
    return " ".join(unicodedata.normalize("NFC", text).split())


def folded(name: str, address: str | None) -> str:
    """Return the text of a store that is searched: no word, as none has a blank, occurs across
    its two parts."""
    return fold(f"{name} {(address or '')[:MAX_SEARCHED_LENGTH]}")


def folded_texts(name: str, address: str | None) -> tuple[str, str]:
    """Return the text of a store that is searched, and its name as it is sorted: as `folded` and
    `fold` would, but the name is folded once."""
    folded_name = fold(name)
    folded_address = fold(address[:MAX_SEARCHED_LENGTH]) if address else ""
    return f"{folded_name} {folded_address}".strip(), folded_name


class Search(NamedTuple):
    """What a client searches for: stores that have all of these folded words, the longest first.

    Besides, the store of the number `id`, which comes first unless the page `follows` another
    one, and the stores that have the whole `text` as a key of an outside system. `id` is 0 if
    the text is not a number.
    """

    words: tuple[str, ...]
    text: str
    id: int = 0
    follows: bool = False

    def parameters(self, after: int, limit: int) -> tuple[str | int, ...]:
        """Return the parameters of `storage.sql.search_statement` for the first `limit` stores
        after the id `after`."""
        words = (*self.words, *("",) * (MAX_WORDS - len(self.words)))
        return min(after, MAX_INTEGER), self.id, *words, limit, self.text


def words_of(text: str) -> list[str]:
    """Return the folded words of what a client searches for, without the punctuation at their
    ends; none of them is empty."""
    return [word for word in map(_trimmed, fold(text).split()) if word]


def _trimmed(word: str) -> str:
    inner = [place for place, sign in enumerate(word) if not _is_trimmed(sign)]
    if inner:
        return word[inner[0] : inner[-1] + 1]
    return '"' if word.strip('"') == "" else ""


def _is_trimmed(sign: str) -> bool:
    return unicodedata.category(sign).startswith("P") and sign not in PLAIN_SIGNS


def parse(text: str) -> Search | None:
    """Return what a text searches for, None if it has too many characters or words.

    A text without words finds nothing but the store that has it as a key.
    """
    if len(text) > MAX_LENGTH:
        return None
    words = words_of(text) or [_NEVER]
    if len(words) > MAX_WORDS:
        return None
    text = text.strip()
    if "\0" in text:  # PostgreSQL takes no such text; and no store has one
        return NOTHING
    id = int(text) if text.isascii() and text.isdigit() else 0
    if id > MAX_INTEGER:
        id = 0
    return Search(tuple(sorted(words, key=len, reverse=True)), text, id)


NOTHING = Search((_NEVER,), "")
"""A search that finds no store."""


def _parse_value(value: bytes) -> Search | None:
    try:
        return parse(value.decode())
    except UnicodeDecodeError:
        return NOTHING


PARAMETER = Parameter(
    _parse_value,
    f"{MAX_WORDS} words and {MAX_LENGTH} characters at most",
    excludes=("name",),
)
"""The search of a request or a command."""
