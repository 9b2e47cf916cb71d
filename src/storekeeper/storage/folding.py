"""Fold the texts of stores again that an older version folded, a piece of the list at a time."""

from collections.abc import Iterable
from typing import Any

from storekeeper.domain.search import MAX_SEARCHED_LENGTH, folded_texts

PIECE = 10_000
"""Stores whose texts are folded again in one transaction: less than a second, so that other
writers hardly wait, and the log stays short."""

SELECT_PIECE = f"""SELECT id, name, substr(address, 1, {MAX_SEARCHED_LENGTH}), folded, folded_name
  FROM stores WHERE id > CAST($1 AS bigint) ORDER BY id LIMIT CAST($2 AS bigint)"""
"""Selects the texts of the stores after an id."""


def refolded(rows: Iterable[tuple[Any, ...]]) -> tuple[int | None, list[tuple[int, str, str]]]:
    """Return the last id of a piece, None if it is empty; and id, search text and folded name of
    the stores that have other ones."""
    last: int | None = None
    changed = list[tuple[int, str, str]]()
    for last, name, address, *before in rows:
        text, folded_name = folded_texts(name, address)
        if before != [text, folded_name]:
            changed.append((last, text, folded_name))
    return last, changed
