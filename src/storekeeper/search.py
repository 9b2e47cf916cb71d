"""Domain: the text of a store that is searched (decision 39). Imports nothing of the project."""

import unicodedata
from itertools import filterfalse

MAX_SEARCHED_LENGTH = 500
"""Characters of an address that are searched. One character may fold to 18."""


def fold(text: str) -> str:
    """Return a text without case and marks (NFKD without combining marks, casefolded), its runs of blanks as one."""
    if text.isascii():
        text = text.lower()
    else:
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(filterfalse(unicodedata.combining, decomposed)).casefold()
    return " ".join(text.split())


def folded(name: str, address: str | None) -> str:
    """Return the text of a store that is searched: no word, as none has a blank, occurs across its two parts."""
    return fold(f"{name} {(address or '')[:MAX_SEARCHED_LENGTH]}")
