"""Domain: the codes of what can be wrong with an input. Code compares these, never a message."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class Reason(StrEnum):
    """Why a field of a request, an option or a row of a file is refused."""

    REQUIRED = "required"
    TOO_LONG = "too_long"
    HAS_NULLS = "has_nulls"
    NOT_TEXT = "not_text"
    NOT_OBJECT = "not_object"
    NOT_ALLOWED = "not_allowed"
    MALFORMED = "malformed"
    """It is not one of the values that it can have."""
    EXCLUSIVE = "exclusive"
    """It cannot be used together with another one."""
    IN_FUTURE = "in_future"
    NO_KEYS = "no_keys"
    """No store has a key in this column."""
    NOT_IN_FORMAT = "not_in_format"
    """The format of an export cannot hold what a store has."""
    BAD_FILE = "bad_file"
    UNKNOWN_STORE = "unknown_store"
    REPEATED = "repeated"
    AMBIGUOUS = "ambiguous"
    NOT_VERSION = "not_version"
    WRONG_CELLS = "wrong_cells"
    BAD_CELL = "bad_cell"
    """A cell has an error, or a formula without a value."""
    UNCLOSED_QUOTE = "unclosed_quote"
    HEADER_AGAIN = "header_again"
    """A row has nothing but the names of the columns."""
    TOO_LARGE = "too_large"
    CUT = "cut"
    """The row is imported with the beginning of its name."""
    CONFLICT = "conflict"
    TAKEN = "taken"
    """Another store has the key."""
    OTHER_KEY = "other_key"
    """The store has another key in this column."""
    LIKE_SEVERAL = "like_several"
    """Several stores are like the row, so that none gets its key."""
    ROWS_ALIKE = "rows_alike"
    """Several rows are like one store, so that it gets the key of none."""


class Violation(NamedTuple):
    """Which rule a field breaks, and what people read about it.

    `rule` follows the name of the field, as in `must be a string`; `other` is a second field that
    the rule ends with. A violation that says more than that has a whole `sentence` instead.
    """

    reason: Reason
    rule: str = ""
    sentence: str = ""
    other: str = ""

    def message(self, field: str, name_of: Callable[[str], str]) -> str:
        """Return what people read, with each field under the name that `name_of` returns."""
        if self.sentence:
            return self.sentence
        if self.other:
            return f"{name_of(field)} {self.rule} {name_of(self.other)}"
        return f"{name_of(field)} {self.rule}"
