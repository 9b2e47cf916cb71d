"""What a cell is as the id of a store, or as its key in an outside system."""

import re

from storekeeper.domain.problems import Wrong
from storekeeper.domain.reasons import Reason
from storekeeper.domain.stores import MAX_EXTERNAL_LENGTH, MAX_INTEGER
from storekeeper.sheets.cells import NoText

_WHOLE = re.compile(r"^([0-9]+)\.0+\Z")
"""A whole number, as programs write one that computed it."""


def id_of(text: str, wrong: list[Wrong]) -> str | None:
    """Return the id that a text is, None for a blank one or what is not one, which goes to
    `wrong`."""
    whole = _WHOLE.sub(r"\1", text) if "." in text else text
    if whole.isascii() and whole.isdigit() and len(whole) < 20 and int(whole) <= MAX_INTEGER:
        return str(int(whole))
    if text:
        wrong.append(Wrong("id", text, Reason.UNKNOWN_STORE))
    return None


def why_no_key(cell: object, text: str) -> Reason | None:
    """Return why a cell is not a key of an outside system, None if it is one."""
    if isinstance(cell, NoText):
        return Reason.NOT_TEXT
    if not text:
        return Reason.REQUIRED
    if "\0" in text:
        return Reason.HAS_NULLS
    return Reason.TOO_LONG if len(text) > MAX_EXTERNAL_LENGTH else None
