"""Domain: what to import, and how, and the report of it (decisions 42, 52, 53, 55).

`cli.imports` or `api.routes.imports` gets a file, `sheets.rows` makes a `SheetRow` of each of its
rows, `storage.intake` puts them into a temporary table, asks an `ImportPlan` what becomes of each,
and writes that.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from storekeeper.domain.commands import Key, Tags
from storekeeper.domain.errors import Code, StorekeeperError
from storekeeper.domain.problems import MAX_WRONG_LENGTH, Problem
from storekeeper.domain.stores import (
    MAX_CONTENT_BYTES,
    MAX_EXTERNAL_LENGTH,
    MAX_INTEGER,
    MAX_NAME_LENGTH,
)

VERSION = r"^[0-9]{1,18}\.[a-z2-7]{8}\Z"
"""The version of an export, as a row may have it."""

OnConflict = Literal["refuse", "skip", "overwrite", "ignore-version"]
"""What to do with a row that differs from its store, which another client changed too (decision
59)."""


MAX_LINE = 2**31 - 1
"""The number of a line that a decision may name."""

KEY_PREFIX = "key:"
"""What is put before the name of a column that is called like a field, or like this, and has the
keys of an outside system."""


FieldName = Literal["name", "address"]


class Resolution(msgspec.Struct, frozen=True):
    """What a person decided about the row that begins at a line, which is in conflict (decision
    63).

    It holds while the store has the version `seen`, a cursor or its number. The fields in `present`
    stay as the store has them, those in `row` become what the row has, and `name` and `address` are
    other texts that a store gets; what is not decided is UNSET. A report shows long texts cut, so
    that only these names can mean them whole.
    """

    line: Annotated[int, Meta(ge=1, le=MAX_LINE)]
    seen: (
        Annotated[str, Meta(pattern=r"^[0-9]{1,18}(\.[a-z2-7]{8})?\Z")]
        | Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
    )
    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)] | UnsetType = UNSET
    address: Annotated[str, Meta(max_length=MAX_CONTENT_BYTES)] | UnsetType | None = UNSET
    present: tuple[FieldName, ...] = ()
    row: tuple[FieldName, ...] = ()


class Import(msgspec.Struct, frozen=True):
    """How to read the rows of a file, what to do with them, and which token sent them.

    `match` is what rows have in common with their stores: "id", "name", the name of a column
    with the keys of an outside system (decision 52), perhaps after KEY_PREFIX, or None. With None
    all rows are new, which only an empty collection, or `add`, permits. `map` has the columns
    that a field comes from (decision 53). What `encoding`, `delimiter`, `sheet` and `header_row`
    do not say is found out; with "none" as the row, columns are named 1, 2, 3, …
    `idempotency_key` has the key and a hash of the request; in a `SheetRow`, `key` is what the row
    is matched by. With `adopt`, a row whose key no store has gets the one store that is like it;
    with `attach`, stores that are matched by id get the keys of that column (decision 62). `file`
    is the name of the file, and `user` who sends it, if it is known; `proxy_user` is the same if a
    trusted proxy named the user, whom each change then has (decision 58).
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
    adopt: bool = False
    attach: str | None = None
    decisions: tuple[Resolution, ...] = ()
    file: str | None = None
    user: str | None = None
    proxy_user: str | None = None

    @property
    def key_column(self) -> str | None:
        """The column with the keys of an outside system, if rows are matched by them."""
        if self.match is None or self.match in ("id", "name"):
            return None
        return self.match.removeprefix(KEY_PREFIX)

    @property
    def attaches(self) -> str | None:
        """The column whose keys stores may get."""
        return self.key_column or self.attach


class SheetRow(NamedTuple):
    """A row of a file; `line` is where it begins.

    `key` is the id, name or outside key that it is matched by, None for a new store. Name and
    address are as the file has them, without the blanks at their ends: perhaps blank or too long,
    which matters only if they are written. A `name` that is None is kept, as is the address
    without `has_address`. `wrong` is what `problems.encode_wrong` returns of it. `attach` is the
    key that its store gets, and `id` what the file has as its id, whatever rows are matched by. The
    limits hold what another process sends.
    """

    place: int
    line: int
    key: Annotated[str, Meta(max_length=MAX_EXTERNAL_LENGTH)] | None
    version: Annotated[str, Meta(pattern=VERSION)] | None
    wrong: Annotated[str, Meta(max_length=MAX_WRONG_LENGTH)] | None
    has_address: int
    name: Annotated[str, Meta(max_length=MAX_CONTENT_BYTES)] | None
    address: Annotated[str, Meta(max_length=MAX_CONTENT_BYTES)] | None
    attach: Annotated[str, Meta(max_length=MAX_EXTERNAL_LENGTH)] | None = None
    id: Annotated[str, Meta(max_length=MAX_EXTERNAL_LENGTH)] | None = None


class ListedChange(msgspec.Struct, frozen=True):
    """What a row makes of its store; `old` is None for a new store."""

    line: int
    id: int
    old: dict[str, str | None] | None
    new: dict[str, str | None]


class Counts(msgspec.Struct, rename="camel"):
    """What an import did or, for a dry run, would do; `version` is the collection's after it.

    Each row is counted once: in `created`, `replaced`, `unchanged`, `repeated` (it is as an earlier
    row), `conflicts` or `bad`. `adopted` is how many of those replaced got a key.
    `missing` is how many stores are not in the file. `first` and `last` are the cursors of its
    changes, with which it can be undone; None if it has none.
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
    repeated: int = 0
    adopted: int = 0
    first: str | None = msgspec.field(default=None, name="from")
    last: str | None = msgspec.field(default=None, name="to")


class Told(Counts, rename="camel"):
    """The counts, and what the file says besides its rows: its `unused` columns, those of them
    that look like a part of an address (`dropped`), and `notes`, sentences for people.

    All of this is known again from the file when an import is replayed, so that no key keeps it.
    """

    unused: list[str] = msgspec.field(default_factory=list)
    dropped: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)


class Report(Told, rename="camel"):
    """The same, and the first MAX_LISTED of problems and of changes."""

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
    """The numbers of a collection; `at` is the time of its latest change, and `memory` grows with
    each import that changes what a source last gave."""

    total: int
    version: int
    epoch: str
    at: int
    memory: int = 0

    def is_same_list(self, other: "Numbers") -> bool:
        """Return whether nothing that an import compares was written in between."""
        return self._replace(at=0) == other._replace(at=0)
