"""Domain: what can be wrong with the rows of a file, and how that is told."""

from typing import NamedTuple, Self

import msgspec

from storekeeper.domain.stores import MAX_EXTERNAL_LENGTH, MAX_NAME_LENGTH

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


class Reason(NamedTuple):
    """Why a row cannot be imported: what is said of one value, and of several; and the rule that
    is broken."""

    one: str
    many: str
    rule: str = ""


REQUIRED = Reason("is missing", "are missing", "is required")
TOO_LONG = Reason(
    "has more than {} characters",
    "have more than {} characters",
    "length must be less than or equal to {} characters long",
)
HAS_NULLS = Reason(
    "has null characters", "have null characters", "must not contain null characters"
)
NO_TEXT = Reason("is not a text", "are not texts", "must be a string")
UNKNOWN = Reason("names no store", "name no store")
REPEATED = Reason("occurs more than once in the file", "occur more than once in the file")
AMBIGUOUS = Reason("belongs to several stores", "belong to several stores")
NO_VERSION = Reason("is not the version of an export", "are not the version of an export")
CELLS = Reason(
    "has another number of cells than the header", "have another number of cells than the header"
)
TOO_LARGE = Reason("has more than 1 MiB", "have more than 1 MiB")
CUT = Reason("was cut", "were cut")
CHANGED = Reason(
    "is in conflict: its store has changed since",
    "are in conflict: their stores have changed since",
)


def limited(text: str, column: str) -> str:
    """Return a text of TOO_LONG with the greatest length of this column."""
    return text.format(MAX_NAME_LENGTH if column == "name" else MAX_EXTERNAL_LENGTH)


class Wrong(NamedTuple):
    """What is wrong with a row in one of its columns. Without a `message`, the reason tells it."""

    column: str
    value: str
    reason: Reason
    message: str = ""

    def cut(self, length: int) -> Self:
        """Return this with so many characters of its value at most."""
        return self._replace(value=shown(self.value, length))


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


class Problem(msgspec.Struct):
    """What is wrong with a row. `id` is that of its store, if it is known; `row` has its cells
    by their columns."""

    line: int
    id: int | None
    column: str
    value: str
    message: str
    row: dict[str, str] = msgspec.field(default_factory=dict)


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
        message = message or f'"{column}" {limited(reason.rule or reason.one, column)}'
        problem = Problem(line, id, column, shown(value), message)
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
