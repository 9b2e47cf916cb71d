"""Domain: what the rows of a file do to a collection, decided by one pure class (decisions 59, 62).

The database compares each row with its store and with their base, field by field, and says what
each field is to be: a `FieldIs`. An `ImportPlan` makes a `Decision` of that.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from storekeeper.domain.import_rows import Base, Decision, FieldIs, Found, InConflict
from storekeeper.domain.intake import Import, ListedChange, Numbers, Reject, Report
from storekeeper.domain.problems import MAX_LISTED, Group, Problems, Wrong, decode_wrong
from storekeeper.domain.reasons import Reason
from storekeeper.domain.search import folded_texts
from storekeeper.domain.stores import MAX_NAME_LENGTH, Payload


class ImportPlan:
    """Decides what the rows of a file do to a collection with these numbers, which knows the keys
    of its stores by this `column`.

    What it keeps does not grow with the file: each row that is not imported is told to `reject`.
    """

    def __init__(
        self, options: Import, numbers: Numbers, reject: Reject, column: str | None = None
    ) -> None:
        self.column = column
        self.options = options
        self.numbers = numbers
        self.report = Report(options.dry_run, version=self.before)
        self.in_conflict: list[InConflict] = []
        """The first rows in conflict."""
        self.remembers = 0
        """How many rows change what their source last gave."""
        self._reject = reject
        self._bad, self._cut = Problems(), Problems()
        self._matched = 0
        self._attaches = options.attaches or ""

    @property
    def before(self) -> str:
        """The version of the list before the import."""
        return f"{self.numbers.version}.{self.numbers.epoch}"

    @property
    def refuses(self) -> bool:
        """Whether nothing is imported, because of bad rows or conflicts."""
        report, options = self.report, self.options
        return bool(
            (report.bad and not options.skip_bad)
            or (report.conflicts and options.on_conflict == "refuse")
        )

    @property
    def changes(self) -> int:
        """How many changes the import makes."""
        return self.report.created + self.report.replaced

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

    def finish(self, changes: list[ListedChange], rows: int, repeated: int) -> None:
        """Complete the report, after the last of the `rows` of the file: those that were not given
        to `decide` change nothing. So many more are `repeated`. If not all problems fit, the report
        has those that refuse a row."""
        report = self.report
        left_out = rows - report.rows
        report.unchanged += left_out
        self._matched += left_out
        report.changes = changes
        report.repeated = repeated
        report.rows = rows + repeated
        listed = [*self._bad.listed, *self._cut.listed][:MAX_LISTED]
        report.problems = sorted(listed, key=lambda problem: problem.line)
        if self.options.match:
            report.missing = self.numbers.total - self._matched

    def renumber(self, numbers: Numbers, changes: list[ListedChange]) -> None:
        """Follow writes of other stores, after which the list has these numbers and the first
        changes are these."""
        if self.options.match:
            self.report.missing += numbers.total - self.numbers.total
        self.report.changes = changes
        self.numbers = numbers

    def _decide(self, row: Found) -> Decision | None:
        report = self.report
        # Two rows mean one store only by one key.
        if row.id is not None and row.matches == 1 and row.first_line in (None, row.line):
            self._matched += 1
        if self._is_bad(row):
            report.bad += 1
            return None
        if row.id is None and row.like is None:
            report.created += 1
            return self._change(row, self.numbers.total + report.created)
        if row.like is not None:
            self._matched += 1
            report.adopted += 1
            report.replaced += 1
            return self._change(row, row.like)
        if FieldIs.CONFLICT in (row.name_is, row.address_is):
            report.conflicts += 1
            if len(self.in_conflict) < MAX_LISTED:
                self.in_conflict.append(InConflict(row.place, row.name_is, row.address_is))
            self._refuse(row, [self._conflict(row)])
            return None
        self.remembers += row.remembers
        assert row.id is not None
        if row.changes or row.attaches:
            report.adopted += row.attaches
            report.replaced += 1
            return self._change(row, row.id)
        report.unchanged += 1
        if row.remembers:
            return self._decision(row, row.id, None)
        return None

    def _is_bad(self, row: Found) -> bool:
        """Return whether a row is bad; collect what is wrong with it."""
        found = decode_wrong(row.wrong) if row.wrong else []
        bad = found or self._misfits(row) or self._wrong_name(row)
        if bad:
            self._refuse(row, bad)
            return True
        return False

    def _refuse(self, row: Found, wrong: Iterable[Wrong]) -> None:
        messages = [self._bad.add(row.line, row.id, each) for each in wrong]
        self._reject(row.line, ". ".join(messages))

    def _wrong_name(self, row: Found) -> list[Wrong]:
        """Return what is wrong with a name that would be written."""
        is_written = row.name_is == FieldIs.WRITE and row.like is None
        if row.id is None and row.like is None and row.given is None:
            return [Wrong("name", "", Reason.REQUIRED)]
        if not is_written or row.given is None or row.name is None:
            return []
        if not row.name:
            return [Wrong("name", "", Reason.REQUIRED)]
        if len(row.name) > MAX_NAME_LENGTH:
            return [Wrong("name", row.given, Reason.TOO_LONG)]
        if row.name != row.given:
            message = f'The name was cut to "{row.name}"'
            self._cut.add(row.line, row.id, Wrong("name", row.given, Reason.CUT, message))
        return []

    def _misfits(self, row: Found) -> list[Wrong]:
        """Return what is wrong with a row among the others and with the collection."""
        key, match = row.key, self.options.match or ""
        if key is not None and row.first_line is not None:
            message = _repeated(match, row.first_line, row.last_line)
            return [Wrong(match, key, Reason.REPEATED, message)]
        if row.attach is not None and row.first_attach is not None:
            column = self.options.attach or ""
            message = _repeated(column, row.first_attach, row.last_attach)
            return [Wrong(column, row.attach, Reason.REPEATED, message)]
        if row.matches > 1:
            return [Wrong(match, key or "", Reason.AMBIGUOUS)]
        if row.id is None and match == "id" and key is not None and self.numbers.total:
            return [Wrong(match, key, Reason.UNKNOWN_STORE)]
        column, value = self._attaches, row.attach or key or ""
        if why_not := _unattachable(row, column, value):
            return [Wrong(column, value, *why_not)]
        return []

    def _conflict(self, row: Found) -> Wrong:
        differs = " and ".join(fields_in_conflict(row.name_is, row.address_is))
        if row.version is None:
            column, value = self.options.match or "", row.key or ""
            message = f"Store {row.id} and the row differ in {differs}, and both changed"
            if row.base == Base.MEMORY:
                message += " since the source last gave it, or the source never gave it"
            return Wrong(column, value, Reason.CONFLICT, message)
        seq, _, epoch = row.version.partition(".")
        if epoch != self.numbers.epoch or int(seq) > self.numbers.version:
            message = f"The version {row.version} is of another history than {self.before}"
        elif row.base == Base.OTHER:
            means = f"store {row.id}, which its {self.options.match} means"
            message = f'The "id" of the row is not that of {means}; they differ in {differs}'
        else:
            message = (
                f"Store {row.id} has changed since the version {row.version}: its version is"
                f" {row.store_version} now; it and the row differ in {differs}"
            )
        return Wrong("version", row.version, Reason.CONFLICT, message)

    def _change(self, row: Found, id: int) -> Decision:
        return self._decision(row, id, self.numbers.version + self.changes)

    def _decision(self, row: Found, id: int, seq: int | None) -> Decision:
        assert row.name is not None
        text, folded_name = folded_texts(row.name, row.address)
        is_adopted = row.like is not None
        return Decision(
            seq=seq,
            place=row.place,
            id=id,
            is_new=int(row.id is None and not is_adopted),
            total=self.numbers.total + self.report.created,
            folded=text,
            folded_name=folded_name,
            name_is=FieldIs.KEEP if is_adopted else row.name_is,
            address_is=FieldIs.KEEP if is_adopted else row.address_is,
            attaches=int(is_adopted or row.attaches),
            remembers=row.remembers,
        )


def fields_in_conflict(name_is: int, address_is: int) -> list[str]:
    """Return the fields whose `FieldIs` is a conflict."""
    fields = zip(Payload.__struct_fields__, (name_is, address_is), strict=True)
    return [name for name, is_ in fields if is_ == FieldIs.CONFLICT]


def _repeated(column: str, first: int | None, last: int | None) -> str:
    lines = f"in line {first} and in line {last}"
    return f'"{column}" occurs more than once in the file, with different content: {lines}'


def _unattachable(row: Found, column: str, value: str) -> tuple[Reason, str] | None:
    """Return why no store gets the key of a row, None if one can, or if none should."""
    if row.key_of is not None:
        return Reason.TAKEN, f'"{column}" {value} belongs to store {row.key_of}'
    if row.other_key is not None:
        id = row.id if row.id is not None else row.like
        message = f'Store {id} has the "{column}" {row.other_key} already, which is not {value}'
        return Reason.OTHER_KEY, message
    if row.last_like is not None:
        message = f"Several stores are like the row, such as {row.like} and {row.last_like}"
        return Reason.LIKE_SEVERAL, message
    if row.last_alike is not None:
        message = (
            f"Several rows are like store {row.like}, such as those in line {row.first_alike} and"
            f" in line {row.last_alike}"
        )
        return Reason.ROWS_ALIKE, message
    return None
