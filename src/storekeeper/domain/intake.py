"""Domain: what an import of rows does, decided by one pure function (decisions 42, 52, 53, 55).

`cli.imports` or `api.imports` gets a file, `sheets.rows` makes a `SheetRow` of each of its rows,
`storage.intake` puts them into a temporary table, asks a `Plan` what becomes of each, and
writes that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from storekeeper.domain.commands import Key, Tags
from storekeeper.domain.errors import Code, StorekeeperError
from storekeeper.domain.problems import (
    MAX_LISTED,
    MAX_WRONG_LENGTH,
    Group,
    Problem,
    Problems,
    Wrong,
    decode_wrong,
)
from storekeeper.domain.reasons import Reason
from storekeeper.domain.search import fold, folded
from storekeeper.domain.stores import MAX_CONTENT_BYTES, MAX_EXTERNAL_LENGTH, MAX_NAME_LENGTH

VERSION = r"^[0-9]{1,18}\.[a-z2-7]{8}\Z"
"""The version of an export, as a row may have it."""

OnConflict = Literal["refuse", "skip", "overwrite"]
"""What to do with a row whose store has changed since the version of the file."""


KEY_PREFIX = "key:"
"""What stands before the name of a column that is called like a field, or like this, and has the
keys of an outside system."""


class Import(msgspec.Struct, frozen=True):
    """How to read the rows of a file, what to do with them, and which token sent them.

    `match` is what rows have in common with their stores: "id", "name", the name of a column
    with the keys of an outside system (decision 52), perhaps after KEY_PREFIX, or None. With None
    all rows are new, which only an empty collection, or `add`, permits. `map` has the columns
    that a field comes from (decision 53). What `encoding`, `delimiter`, `sheet` and `header_row`
    do not say is found out; with "none" as the row, columns are named 1, 2, 3, …
    `idempotency_key` has the key and a hash of the request; in a `SheetRow`, `key` is what the row
    is matched by.
    """

    match: str | None = None
    add: bool = False
    map: Mapping[str, str] = {}
    encoding: str | None = None
    delimiter: str | None = None
    sheet: str | None = None
    header_row: int | Literal["none"] | None = None
    cut_names: bool = False
    on_conflict: OnConflict = "refuse"
    skip_bad: bool = False
    dry_run: bool = False
    if_match: Tags | None = None
    idempotency_key: Key | None = None
    token_number: int = 0

    @property
    def key_column(self) -> str | None:
        """The column with the keys of an outside system, if rows are matched by them."""
        if self.match is None or self.match in ("id", "name"):
            return None
        return self.match.removeprefix(KEY_PREFIX)


class SheetRow(NamedTuple):
    """A row of a file; `line` is where it begins.

    `key` is the id, name or outside key that it is matched by, None for a new store. A `name`
    that is None is kept, as is the address without `has_address`. `wrong` is what
    `problems.encode_wrong` returns of it. The limits hold what another process sends.
    """

    place: int
    line: int
    key: Annotated[str, Meta(max_length=MAX_EXTERNAL_LENGTH)] | None
    version: Annotated[str, Meta(pattern=VERSION)] | None
    wrong: Annotated[str, Meta(max_length=MAX_WRONG_LENGTH)] | None
    has_address: int
    name: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)] | None
    address: Annotated[str, Meta(max_length=MAX_CONTENT_BYTES)] | None


class Found(NamedTuple):
    """What the database has for a row: the store that it means, if there is one, and whether
    nothing would change.

    `matches` is how many stores have the key, two at most. `first` is the first place of a key
    that occurs more than once. `name` and `address` are those after the change, the address up to
    the part that is searched.
    """

    place: int
    line: int
    key: str | None
    version: str | None
    wrong: str | None
    id: int | None
    store_version: int | None
    is_equal: int | None
    matches: int
    first: int | None
    name: str | None
    address: str | None


class ListedChange(msgspec.Struct, frozen=True):
    """What a row makes of its store; `old` is None for a new store."""

    line: int
    id: int
    old: dict[str, str | None] | None
    new: dict[str, str | None]


class Counts(msgspec.Struct, rename="camel"):
    """What an import did or, for a dry run, would do; `version` is the collection's after it.

    Each row is counted once: in `created`, `replaced`, `unchanged`, `conflicts` or `bad`.
    `missing` is how many stores are not in the file.
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


class Report(Counts, rename="camel"):
    """The counts, and the first MAX_LISTED of problems and of changes."""

    problems: list[Problem] = msgspec.field(default_factory=list)
    changes: list[ListedChange] = msgspec.field(default_factory=list)


class Refused(StorekeeperError):
    """Nothing was imported, because rows are bad or in conflict, as the report says."""

    code = Code.BAD_ROWS

    def __init__(self, report: Report) -> None:
        self.report = report
        wrong = []
        if report.bad:
            wrong.append(f"{report.bad:,} bad")
        if report.conflicts:
            wrong.append(f"{report.conflicts:,} in conflict")
        noun = "row" if report.rows == 1 else "rows"
        self.why = f"of {report.rows:,} {noun}, {' and '.join(wrong)}"
        super().__init__(f"Nothing was imported: {self.why}")


class NeedsMatch(StorekeeperError):
    """The collection has stores, and the client did not say which of them the rows mean."""

    code = Code.NEEDS_MATCH


Reject = Callable[[int, str], None]
"""Gets the line of each row that is not imported, in their order, and why."""


class Numbers(NamedTuple):
    """The numbers of a collection; `at` is the time of its latest change."""

    total: int
    version: int
    epoch: str
    at: int


class Decision(NamedTuple):
    """What a row becomes: the change `seq`, of the store `id`; from then on there are `total`
    stores."""

    seq: int
    place: int
    id: int
    is_new: int
    total: int
    folded: str
    folded_name: str


class Plan:
    """Decides what the rows of a file do to a collection with these numbers.

    What it keeps does not grow with the file: each row that is not imported is told to `reject`.
    """

    def __init__(self, options: Import, numbers: Numbers, reject: Reject) -> None:
        self.options = options
        self.numbers = numbers
        self.before = f"{numbers.version}.{numbers.epoch}"
        """The version of the list before the import."""
        self.report = Report(options.dry_run, version=self.before)
        self._reject = reject
        self._bad, self._cut = Problems(), Problems()
        self._matched = 0

    @property
    def refuses(self) -> bool:
        """Whether nothing is imported, because of bad rows or conflicts."""
        report, options = self.report, self.options
        return bool(
            (report.bad and not options.skip_bad)
            or (report.conflicts and options.on_conflict == "refuse")
        )

    @property
    def ids(self) -> range:
        """The ids of the new stores."""
        return range(self.numbers.total + 1, self.numbers.total + 1 + self.report.created)

    def groups(self) -> list[Group]:
        """Return all problems by reason, the most frequent first."""
        groups = chain(self._cut.groups.values(), self._bad.groups.values())
        return sorted(groups, key=lambda group: group.count, reverse=True)

    def decide(self, rows: Iterable[Found]) -> Iterator[Decision]:
        """Yield what becomes of the next rows of the file, in their order."""
        for row in rows:
            self.report.rows += 1
            if (decision := self._decide(row)) is not None:
                yield decision

    def finish(self, changes: list[ListedChange]) -> None:
        """Complete the report, after the last row. Where not all problems fit, it has those that
        refuse a row."""
        self.report.changes = changes
        listed = [*self._bad.listed, *self._cut.listed][:MAX_LISTED]
        self.report.problems = sorted(listed, key=lambda problem: problem.line)
        if self.options.match:
            self.report.missing = self.numbers.total - self._matched

    def _decide(self, row: Found) -> Decision | None:
        report = self.report
        # Two rows mean one store only by one key.
        if row.id is not None and row.matches == 1 and row.first in (None, row.place):
            self._matched += 1
        if self._is_bad(row):
            report.bad += 1
        elif row.id is None:
            report.created += 1
            return self._change(row, self.numbers.total + report.created)
        elif row.is_equal:
            report.unchanged += 1
        elif self.options.on_conflict != "overwrite" and (message := self._conflict(row)):
            report.conflicts += 1
            self._refuse(row, [Wrong("version", row.version or "", Reason.CONFLICT, message)])
        else:
            report.replaced += 1
            return self._change(row, row.id)
        return None

    def _is_bad(self, row: Found) -> bool:
        """Return whether a row is bad; collect what is wrong with it."""
        found = decode_wrong(row.wrong) if row.wrong else []
        bad = [each for each in found if each.reason is not Reason.CUT] or self._misfits(row)
        if bad:
            self._refuse(row, bad)
            return True
        for cut in found:
            self._cut.add(row.line, row.id, cut)
        return False

    def _refuse(self, row: Found, wrong: Iterable[Wrong]) -> None:
        messages = [self._bad.add(row.line, row.id, each) for each in wrong]
        self._reject(row.line, ". ".join(messages))

    def _misfits(self, row: Found) -> list[Wrong]:
        """Return what is wrong with a row among the others and with the collection."""
        key, match = row.key, self.options.match or ""
        if key is not None and row.first is not None:
            return [Wrong(match, key, Reason.REPEATED)]
        if row.matches > 1:
            return [Wrong(match, key or "", Reason.AMBIGUOUS)]
        if row.id is None and match == "id" and key is not None and self.numbers.total:
            return [Wrong(match, key, Reason.UNKNOWN_STORE)]
        return [Wrong("name", "", Reason.REQUIRED)] if row.name is None else []

    def _conflict(self, row: Found) -> str:
        if row.version is None:
            return ""
        seq, _, epoch = row.version.partition(".")
        if epoch != self.numbers.epoch or int(seq) > self.numbers.version:
            return f"The version {row.version} is of another history: the list's is {self.before}"
        assert row.store_version is not None
        if row.store_version <= int(seq):
            return ""
        return (
            f"Store {row.id} has changed since the version {row.version}: its version is"
            f" {row.store_version} now"
        )

    def _change(self, row: Found, id: int) -> Decision:
        assert row.name is not None
        seq = self.numbers.version + self.report.created + self.report.replaced
        total = self.numbers.total + self.report.created
        text = folded(row.name, row.address)
        return Decision(seq, row.place, id, int(row.id is None), total, text, fold(row.name))
