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

FOLDING = 1
"""The number of what `fold` does to a text. Raise it together with a migration whenever that
changes: then the first start folds the texts of all stores again."""

_NEVER = "  "
"""Occurs in no text that is searched: those have no two blanks side by side."""


def fold(text: str) -> str:
    """Return a text without case and marks (NFKD without combining marks, casefolded), its runs
    of blanks as one."""
    if text.isascii():
        text = text.lower()
    else:
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(filterfalse(unicodedata.combining, decomposed)).casefold()
    return " ".join(text.split())


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


def parse(text: str) -> Search | None:
    """Return what a text searches for, None if it has too many characters or words."""
    if len(text) > MAX_LENGTH:
        return None
    words = fold(text).split()
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
