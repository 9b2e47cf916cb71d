"""Domain: what can be wrong with the rows of a file, and how that is told."""

from collections.abc import Mapping
from typing import NamedTuple, Self

import msgspec
from msgspec import UNSET, UnsetType

from storekeeper.domain.reasons import Reason
from storekeeper.domain.stores import RULES, max_length, rule_of

MAX_LISTED = 1000
"""Problems and changes of a report; more are only counted."""

MAX_SHOWN_LENGTH = 1000
"""Characters that a report shows of one text."""

MAX_BRIEF_LENGTH = 40
"""Characters that a message shows of one text."""

MAX_WRONG_LENGTH = 8_000
"""Characters of what is wrong with a row, as JSON: many rows of it are in memory at once."""

MAX_EXAMPLES = 3
"""Problems of one reason that a group has."""


class Words(NamedTuple):
    """What people read about one value that is wrong for a reason, and about several."""

    one: str
    many: str


WORDS: Mapping[Reason, Words] = {
    Reason.REQUIRED: Words("is missing", "are missing"),
    Reason.TOO_LONG: Words("has more than {} characters", "have more than {} characters"),
    Reason.HAS_NULLS: Words("has null characters", "have null characters"),
    Reason.NOT_TEXT: Words("is not a text", "are not texts"),
    Reason.UNKNOWN_STORE: Words("names no store", "name no store"),
    Reason.REPEATED: Words("occurs more than once in the file", "occur more than once in the file"),
    Reason.AMBIGUOUS: Words("belongs to several stores", "belong to several stores"),
    Reason.NOT_VERSION: Words(
        "is not the version of an export", "are not the version of an export"
    ),
    Reason.WRONG_CELLS: Words(
        "has another number of cells than the header",
        "have another number of cells than the header",
    ),
    Reason.BAD_CELL: Words("has an error of the sheet", "have errors of the sheet"),
    Reason.UNCLOSED_QUOTE: Words(
        "has a quotation mark that is not closed", "have quotation marks that are not closed"
    ),
    Reason.HEADER_AGAIN: Words(
        "has the names of the columns again", "have the names of the columns again"
    ),
    Reason.TOO_LARGE: Words("has more than 1 MiB", "have more than 1 MiB"),
    Reason.CUT: Words("was cut", "were cut"),
    Reason.TAKEN: Words("belongs to another store", "belong to other stores"),
    Reason.OTHER_KEY: Words(
        "is for a store that has another one", "are for stores that have other ones"
    ),
    Reason.LIKE_SEVERAL: Words(
        "is new, and its row is like several stores",
        "are new, and their rows are like several stores",
    ),
    Reason.ROWS_ALIKE: Words(
        "is new, and several rows are like one store",
        "are new, and several rows are like one store",
    ),
    Reason.CONFLICT: Words(
        "is in conflict: its store has changed since",
        "are in conflict: their stores have changed since",
    ),
}
"""For each reason that a row can have, the words of a group."""


def words_of(reason: Reason, column: str, count: int) -> str:
    """Return what people read about `count` values of this column."""
    words = WORDS[reason]
    text = words.one if count == 1 else words.many
    return text.format(max_length(column))


def message_of(reason: Reason, column: str) -> str:
    """Return the message about one value: the contract's words, where it has some."""
    words = rule_of(reason, column) if reason in RULES else words_of(reason, column, 1)
    return f'"{column}" {words}'


class Wrong(NamedTuple):
    """What is wrong with a row in one of its columns. Without a `message`, the reason tells it."""

    column: str
    value: str
    reason: Reason
    message: str = ""

    def cut(self, length: int) -> Self:
        """Return this with at most `length` characters of its value, and no longer a message than
        a report shows."""
        return self._replace(
            value=shown(self.value, length), message=shown(self.message, MAX_SHOWN_LENGTH)
        )


def encode_wrong(wrong: list[Wrong]) -> str | None:
    """Return what is wrong with a row as a text, None for nothing."""
    if not wrong:
        return None
    text = msgspec.json.encode([each.cut(MAX_SHOWN_LENGTH) for each in wrong]).decode()
    if len(text) > MAX_WRONG_LENGTH:
        text = msgspec.json.encode([each.cut(MAX_BRIEF_LENGTH) for each in wrong]).decode()
    return text


decode_wrong = msgspec.json.Decoder(list[Wrong]).decode
"""Returns what `encode_wrong` was given."""


Texts = dict[str, str | None]
"""Name and address, cut as a report shows them."""


class Conflict(msgspec.Struct, omit_defaults=True):
    """What a row, which is in conflict, and others made of the same store, in these fields.

    `base` is what both began with, None if that is not known; `present` is the store, whose latest
    change was made by the token `by` and the user `user`, if they are known, at the time `at`, and
    `seen` is its version, as a decision names it; `row` is the row.
    """

    fields: list[str]
    seen: str
    base: Texts | None
    present: Texts
    row: Texts
    at: str
    by: str | None = None
    user: str | None = None


class Problem(msgspec.Struct):
    """What is wrong with a row. `id` is that of its store, if it is known; `row` has its cells
    by their columns; `conflict` says more of a row that is in conflict."""

    line: int
    id: int | None
    column: str
    value: str
    reason: Reason
    message: str
    row: dict[str, str] = msgspec.field(default_factory=dict)
    conflict: Conflict | UnsetType = UNSET


class Group(msgspec.Struct):
    """All problems of one column for one reason."""

    column: str
    reason: Reason
    count: int = 0
    examples: list[Problem] = msgspec.field(default_factory=list)


class Problems:
    """Collects problems in the order of their lines: the first MAX_LISTED, and all in groups."""

    def __init__(self) -> None:
        self.listed: list[Problem] = []
        self.groups: dict[tuple[str, Reason], Group] = {}

    def add(self, line: int, id: int | None, wrong: Wrong) -> str:
        """Add what is wrong with a row, whose store has this id; return the message."""
        column, value, reason, message = wrong
        message = message or message_of(reason, column)
        problem = Problem(line, id, column, shown(value), reason, message)
        group = self.groups.setdefault((column, reason), Group(column, reason))
        group.count += 1
        if len(group.examples) < MAX_EXAMPLES:
            group.examples.append(problem)
        if len(self.listed) < MAX_LISTED:
            self.listed.append(problem)
        return message


def shown(text: str, length: int = MAX_SHOWN_LENGTH) -> str:
    """Return a text as a report shows it, or a message."""
    return text if len(text) <= length else f"{text[:length]}…"
