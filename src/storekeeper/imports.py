"""Domain: what an import of rows does, decided by one pure function. Imports only the domain.

Decisions 42, 52, 53 and 55. Both databases carry out what a `Plan` decides (`importer`).
"""

from collections.abc import Container, Iterable, Iterator
from itertools import chain
from typing import Any, Literal, NamedTuple

import msgspec

from storekeeper.commands import Tags
from storekeeper.errors import StorekeeperError

MAX_LISTED = 1000
"""Problems and changes of a report; more are only counted."""

MAX_SHOWN_LENGTH = 1000
"""Characters that a report shows of one text."""

MAX_EXAMPLES = 3
"""Problems of one reason that a group has."""

OnConflict = Literal["refuse", "skip", "overwrite"]
"""What to do with a row whose store has changed since the version of the file."""


class Import(msgspec.Struct, frozen=True):
    """What to do with the rows of a file, and for whom.

    `match` is what rows have in common with their stores: "id", "name", the name of a column with the keys of an
    outside system (decision 52), or None: all rows are new, which only an empty collection, or `add`, permits.
    `key` is the Idempotency-Key with a hash of the request.
    """

    match: str | None = None
    add: bool = False
    on_conflict: OnConflict = "refuse"
    skip_bad: bool = False
    dry_run: bool = False
    if_match: Tags | None = None
    key: tuple[str, int] | None = None
    token_number: int = 0


class Row(NamedTuple):
    """A row of a file; `line` is where it begins.

    `key` is the id, name or outside key that it is matched by, None for a new store. A `name` that is None is kept,
    as is the address without `has_address`. A row with `is_bad` has a problem that was found when it was read.
    `folded` is what is searched of the store, None if that depends on what is kept.
    """

    place: int
    line: int
    key: str | None
    version: str | None
    is_bad: int
    has_address: int
    name: str | None
    folded: str | None
    address: str | None


class Found(NamedTuple):
    """What the database says of a row: the store that it means, if there is one, and whether nothing would change.

    `means` is how many stores the key means, two at most. `name` and `address` are those after the change, the
    address up to the part that is searched, if the row leaves one of them as it is.
    """

    place: int
    line: int
    key: str | None
    version: str | None
    is_bad: int
    has_name: int
    id: int | None
    changed: int | None
    is_equal: int | None
    means: int
    name: str | None
    address: str | None


class Reason(NamedTuple):
    """Why a row cannot be imported: what is said of one value, and of several."""

    one: str
    many: str


REQUIRED = Reason("is missing", "are missing")
TOO_LONG = Reason("has more than {} characters", "have more than {} characters")
HAS_NULLS = Reason("has null characters", "have null characters")
NO_TEXT = Reason("is not a text", "are not texts")
UNKNOWN = Reason("names no store", "name no store")
REPEATED = Reason("occurs more than once in the file", "occur more than once in the file")
AMBIGUOUS = Reason("belongs to several stores", "belong to several stores")
NO_VERSION = Reason("is not the version of an export", "are not the version of an export")
CELLS = Reason("has another number of cells than the header", "have another number of cells than the header")
CUT = Reason("was cut", "were cut")
CHANGED = Reason("is in conflict: its store has changed since", "are in conflict: their stores have changed since")


class Problem(msgspec.Struct):
    """What is wrong with a row. `id` is that of its store, if it is known; `row` has its cells by their columns."""

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
    """Collects problems, in the order of their lines: the first MAX_LISTED, all in groups, and the lines of all."""

    def __init__(self) -> None:
        self.listed: list[Problem] = []
        self.groups: dict[tuple[str, Reason], Group] = {}
        self.messages: dict[int, str] = {}

    def add(self, line: int, column: str, value: object, reason: Reason, message: str = "", id: Any = None) -> None:
        """Add a problem; without a `message`, the reason tells it."""
        message = message or f'"{column}" {reason.one}'
        problem = Problem(line, id, column, shown(value), message)
        group = self.groups.get((column, reason))
        if group is None:
            group = self.groups[column, reason] = Group(column, reason)
        group.count += 1
        if len(group.examples) < MAX_EXAMPLES:
            group.examples.append(problem)
        if len(self.listed) < MAX_LISTED:
            self.listed.append(problem)
        before = self.messages.get(line)
        self.messages[line] = f"{before}. {message}" if before else message


def shown(value: object) -> str:
    """Return a value as a report shows it."""
    text = "" if value is None else str(value)
    return text if len(text) <= MAX_SHOWN_LENGTH else f"{text[:MAX_SHOWN_LENGTH]}…"


class ListedChange(msgspec.Struct, frozen=True):
    """What a row makes of its store; `old` is None for a new store."""

    line: int
    id: int
    old: dict[str, str | None] | None
    new: dict[str, str | None]


class Report(msgspec.Struct, rename="camel"):
    """What an import did or, for a dry run, would do; `version` is the collection's after it.

    Each row is counted once: in `created`, `replaced`, `unchanged`, `conflicts` or `bad`. `missing` is how many
    stores are not in the file. Of problems and changes, it has the first MAX_LISTED.
    """

    dry_run: bool
    rows: int = 0
    created: int = 0
    replaced: int = 0
    unchanged: int = 0
    conflicts: int = 0
    bad: int = 0
    missing: int = 0
    version: str = ""
    problems: list[Problem] = msgspec.field(default_factory=list)
    changes: list[ListedChange] = msgspec.field(default_factory=list)


class Refused(StorekeeperError):
    """Nothing was imported, because rows are bad or in conflict, as the report of the plan says."""

    def __init__(self, plan: "Plan") -> None:
        self.plan = plan
        report = plan.report
        wrong = [f"{n:,} {what}" for n, what in ((report.bad, "bad"), (report.conflicts, "in conflict")) if n]
        super().__init__(f"Nothing was imported: of {report.rows:,} rows, {' and '.join(wrong)}")


class NeedsMatch(StorekeeperError):
    """The collection has stores, and nobody said which of them the rows mean."""


class Decision(NamedTuple):
    """What a row becomes: the change number `n` of the import, of the store `id`; `total` stores are new by then."""

    n: int
    place: int
    id: int
    is_new: int
    total: int
    folded: str | None


class Plan:
    """Decides what the rows of a file do to a collection with `total` stores, at `version` of `epoch`.

    `read` has the problems that were found when the rows were read; `repeated` the keys that occur more than once.
    `fold` returns what is searched of a name and an address.
    """

    def __init__(
        self, order: Import, total: int, version: int, epoch: str, read: Problems, repeated: Container[str], fold: Any
    ) -> None:
        self.order, self.total, self.version, self.epoch = order, total, version, epoch
        self.report = Report(order.dry_run, version=f"{version}.{epoch}")
        self.found = Problems()
        self.read = read
        self._repeated = repeated
        self._fold = fold
        self.changes = 0
        self._matched = 0
        self._met = set[str | None]()
        """The repeated keys that were counted."""

    @property
    def refuses(self) -> bool:
        """Whether nothing is imported, because of bad rows or conflicts."""
        report, order = self.report, self.order
        return bool((report.bad and not order.skip_bad) or (report.conflicts and order.on_conflict == "refuse"))

    def groups(self) -> list[Group]:
        """Return all problems by reason, the most frequent first."""
        return sorted(chain(self.read.groups.values(), self.found.groups.values()), key=lambda each: -each.count)

    def messages(self) -> dict[int, str]:
        """Return why each row that is not imported is not, by its line."""
        return self.read.messages | self.found.messages

    def decide(self, rows: Iterable[Found]) -> Iterator[Decision]:
        """Yield what becomes of the next rows of the file, in their order."""
        for row in rows:
            self.report.rows += 1
            if (decision := self._decide(row)) is not None:
                yield decision

    def finish(self) -> None:
        """Complete the report, after the last row."""
        listed = [*self.read.listed, *self.found.listed]
        self.report.problems = sorted(listed, key=lambda problem: problem.line)[:MAX_LISTED]
        if self.order.match:
            self.report.missing = self.total - self._matched

    def _decide(self, row: Found) -> Decision | None:
        report = self.report
        if row.id is not None and row.means == 1 and row.key not in self._met:
            self._matched += 1
            if row.key in self._repeated:
                self._met.add(row.key)
        reason = None if row.is_bad else self._wrong(row)
        if row.is_bad or reason:
            report.bad += 1
            if reason:
                self._add(row, reason)
            return None
        if row.id is None:
            report.created += 1
            return self._change(row, self.total + report.created, is_new=True)
        if row.is_equal:
            report.unchanged += 1
            return None
        if self.order.on_conflict != "overwrite" and (message := self._conflict(row)):
            report.conflicts += 1
            self.found.add(row.line, "version", row.version, CHANGED, message, row.id)
            return None
        report.replaced += 1
        return self._change(row, row.id, is_new=False)

    def _add(self, row: Found, reason: Reason) -> None:
        if reason is REQUIRED:
            self.found.add(row.line, "name", "", reason, '"name" is required')
        else:
            self.found.add(row.line, self.order.match or "", row.key, reason, id=row.id)

    def _wrong(self, row: Found) -> Reason | None:
        if row.key is not None and row.key in self._repeated:
            return REPEATED
        if row.means > 1:
            return AMBIGUOUS
        if row.id is None and self.order.match == "id" and row.key is not None and self.total:
            return UNKNOWN
        return REQUIRED if row.id is None and not row.has_name else None

    def _conflict(self, row: Found) -> str:
        if row.version is None:
            return ""
        seq, _, epoch = row.version.partition(".")
        if epoch != self.epoch or int(seq) > self.version:
            return f"The version {row.version} is of another history: the list's is {self.version}.{self.epoch}"
        assert row.changed is not None
        if row.changed <= int(seq):
            return ""
        return f"Store {row.id} has changed since the version {row.version}: its version is {row.changed} now"

    def _change(self, row: Found, id: int, *, is_new: bool) -> Decision:
        self.changes += 1
        folded = None if row.name is None else self._fold(row.name, row.address)
        return Decision(self.changes, row.place, id, int(is_new), self.report.created, folded)
