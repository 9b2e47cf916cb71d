"""Is a history of concurrent clients linearizable?

Every value is written at most once, so that a value that was read identifies its write. `check`
takes the order of all writes as the database numbered them, and looks for a moment for every
response that agrees with that order and with real time: this is exact for all kinds of operations.
If it finds such moments, they are the proof; the database's numbers are not trusted, but tested.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import NamedTuple

Order = Sequence[tuple[int, int]]
"""The store and the value of every write that took effect, in the order of the database's versions
1, 2, 3, …"""


class Kind(Enum):
    CREATE = "create"
    REPLACE = "replace"
    READ = "read"
    LIST = "list"
    FILTER = "filter"
    TAG = "tag"
    """A response that has only a version, of a store or (`store` 0) of the list: 304, or 412."""
    REPLAY = "replay"
    """A later response to a write that was sent again with its Idempotency-Key."""


class Outcome(Enum):
    """OK: there was a response. FAILED: certainly did nothing. UNKNOWN: may have happened, even
    later (`end` is infinite)."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Operation:
    """What one client did, from `start` to `end` on a clock that all clients share."""

    kind: Kind
    start: float
    end: float
    store: int = 0
    """The id; for a create, the one in the response, 0 if there is none."""
    value: int | None = None
    """What was written, or read (None: there was no such store)."""
    name: str = ""
    """The name in what was written, or the name that a filter asked for."""
    ids: Sequence[int] = ()
    """For a list or filter, the ids in the response, in order,"""
    values: Sequence[int] = ()
    """and the value of each."""
    outcome: Outcome = Outcome.OK
    version: int | None = None
    """The version in the tag of the response: of the store, or for a list of the collection."""
    if_match: int | None = None
    """The version that a write asked for; a READ that has one is the response to a write that
    changed nothing. For a TAG: the version that it asked for and that was not current."""
    at: int | None = None
    """For a read or list of the past: the version that the collection had."""

    @property
    def writes(self) -> bool:
        return self.kind in (Kind.CREATE, Kind.REPLACE)


class Violation(NamedTuple):
    """`text` says what contradicts what.

    `fault` is lost, phantom, duplicate, gap, order, version, stale, torn, past, overwrote (a write
    was done, or called done, that its If-Match did not allow) or refused (a 412 without a reason).
    """

    fault: str
    text: str


def _is_of_all(op: Operation) -> bool:
    """Return whether an operation's version is the collection's."""
    return op.kind in (Kind.LIST, Kind.FILTER) or (op.kind is Kind.TAG and not op.store)


Writes = Mapping[int | None, Operation]
"""The writes that were sent, by their values."""


def check(history: Sequence[Operation], order: Order) -> list[Violation]:
    """Return every response that is true at no moment that agrees with `order` and with real
    time."""
    writes = {op.value: op for op in history if op.writes}
    found = list(_strange_writes(writes, order))
    if found:
        return found
    line = _Line(writes, order)
    done = sorted((op for op in history if op.outcome is Outcome.OK), key=lambda op: op.end)
    moments: dict[int, int] = {}
    reached = ended = 0
    for op in sorted(history, key=lambda op: op.start):
        # Everything that ended before this operation began comes before it, so it cannot be earlier
        # than the latest of them.
        while ended < len(done) and done[ended].end < op.start:
            reached = max(reached, moments.get(id(done[ended]), 0))
            ended += 1
        if op.value not in line.spans if op.writes else op.outcome is not Outcome.OK:
            continue  # it did nothing
        try:
            moments[id(op)] = line.moment(op, reached)
        except _Contradiction as contradiction:
            found.append(Violation(*contradiction.args))
            continue
        if op.kind in (Kind.LIST, Kind.FILTER, Kind.TAG):
            continue  # their version is one of the conditions for their moment
        if op.version is not None and (
            op.value is None or op.version != line.spans[op.value].since
        ):
            found.append(Violation("version", f"{op.value} was answered with version {op.version}"))
        if op.kind is Kind.READ and op.if_match not in (None, op.version):
            found.append(
                Violation("overwrote", f"{op.value} is {op.version}, {op.if_match} was asked for")
            )
    return found


def _strange_writes(writes: Writes, order: Order) -> Iterator[Violation]:
    """Find writes that are in the database and should not be, and writes that are missing."""
    count = 0
    stored: set[int | None] = set()
    for store, value in order:
        write = writes.get(value)
        if write is None or write.outcome is Outcome.FAILED or value in stored:
            yield Violation(
                "phantom",
                f"store {store} became {value}, whose write was refused, done, or never sent",
            )
            continue
        stored.add(value)
        if write.kind is Kind.CREATE:
            count += 1
        expected = count if write.kind is Kind.CREATE else write.store
        if store > count or store != expected or write.store not in (0, store):
            fault = (
                "phantom"
                if write.kind is Kind.REPLACE
                else "gap"
                if store > expected
                else "duplicate"
            )
            yield Violation(
                fault, f"{value} went to store {store}, not {write.store or expected}, of {count}"
            )
    for sent, write in writes.items():
        if write.outcome is Outcome.OK and sent not in stored:
            yield Violation(
                "lost", f"store {write.store}: {sent} was acknowledged and is not there"
            )


class _Contradiction(Exception):
    """No moment fits; the arguments are those of a Violation."""


class _Span(NamedTuple):
    """From when until when a value was current, its store and name, and the version that its write
    replaced."""

    since: int
    until: float
    store: int
    name: str
    before: int


class _Line:
    """The history of the collection: moment p is after the first p writes."""

    def __init__(self, writes: Writes, order: Order) -> None:
        self.spans: dict[int | None, _Span] = {}
        self._order = order
        self._created: list[float] = [inf]
        self._counts: defaultdict[str, tuple[list[int], list[int]]] = defaultdict(
            lambda: ([0], [0])
        )
        current: dict[int, int] = {}
        for moment, (store, value) in enumerate(order, start=1):
            matched = moment - 1
            if store in current:
                before = self.spans[current[store]]
                matched = before.since
                self.spans[current[store]] = before._replace(until=moment)
                self._count(before.name, moment, -1)
            else:
                self._created.append(moment)
            current[store] = value
            self.spans[value] = _Span(moment, inf, store, writes[value].name, matched)
            self._count(writes[value].name, moment, +1)
        self._created.append(inf)

    def _count(self, name: str, moment: int, step: int) -> None:
        moments, counts = self._counts[name]
        if moments[-1] == moment:
            counts[-1] += step
        else:
            moments.append(moment)
            counts.append(counts[-1] + step)

    def moment(self, op: Operation, reached: int) -> int:
        """Return the first moment from `reached` on at which the response is true; raise
        _Contradiction if there is none."""
        if op.writes:
            moment, before = self.spans[op.value].since, self.spans[op.value].before
            if moment <= reached:
                raise _Contradiction(
                    "order", f"write {moment} ({op.value}) began after number {reached} was seen"
                )
            if op.if_match not in (None, before):
                raise _Contradiction(
                    "overwrote", f"{op.value} went over {before}, and was to follow {op.if_match}"
                )
            return moment
        first, until = self._range(op)
        if first >= min(until, len(self._order) + 1):
            raise _Contradiction("torn", f"{_title(op)} has parts that never stood together")
        moment = int(max(first, reached))
        if op.kind is Kind.FILTER:
            moment = self._with_count(op, moment)
        if moment >= until:
            raise _Contradiction(
                "stale", f"{_title(op)} was true until {until}; {reached} had been seen before"
            )
        return moment

    def _range(self, op: Operation) -> tuple[float, float]:
        """Return from when until when the response was true."""
        if op.kind is Kind.TAG:
            return self._range_of_tag(op)
        first, until = self._range_of_stores(op)
        if op.version is not None and _is_of_all(op):
            first, until = max(first, op.version), min(until, op.version + 1)
        if op.kind is Kind.REPLAY:
            return first, inf
        if op.at is None:
            return first, until
        if not first <= op.at < min(until, len(self._order) + 1):
            raise _Contradiction(
                "past", f"{_title(op)} at {op.at} was true from {first} to {until}"
            )
        return op.at, inf

    def _range_of_tag(self, op: Operation) -> tuple[float, float]:
        version = op.version
        if version is None or not 0 <= version <= len(self._order) or version == op.if_match:
            raise _Contradiction(
                "refused", f"a response names version {version}, {op.if_match} was asked for"
            )
        if not op.store:
            return version, version + 1
        store, value = self._order[version - 1] if version else (0, 0)
        if store != op.store:
            raise _Contradiction(
                "refused", f"version {version} of store {op.store} is {value} of store {store}"
            )
        return version, self.spans[value].until

    def _range_of_stores(self, op: Operation) -> tuple[float, float]:
        if op.kind is Kind.READ and op.value is None:
            return 0, self._created_at(op.store)
        one = op.kind in (Kind.READ, Kind.REPLAY)
        ids = [op.store] if one else list(op.ids)
        try:
            spans = [self.spans[value] for value in ([op.value] if one else op.values)]
        except KeyError as value:
            raise _Contradiction("phantom", f"{_title(op)} has {value}, which never was") from None
        if [span.store for span in spans] != ids or ids != sorted(set(ids)):
            raise _Contradiction(
                "phantom", f"{_title(op)} has another store's value, or one store twice"
            )
        if op.kind is Kind.FILTER and any(span.name != op.name for span in spans):
            raise _Contradiction("phantom", f"{_title(op)} has another name")
        first = max((span.since for span in spans), default=0)
        until = min((span.until for span in spans), default=inf)
        return (
            (first, min(until, self._created_at(len(ids) + 1)))
            if op.kind is Kind.LIST
            else (first, until)
        )

    def _created_at(self, store: int) -> float:
        return self._created[min(store, len(self._created) - 1)]

    def _with_count(self, op: Operation, moment: int) -> int:
        """Return the first moment from this one on at which as many stores had the name as the
        response has."""
        moments, counts = self._counts[op.name]
        at = bisect_right(moments, moment) - 1
        if counts[at] == len(op.values):
            return moment
        while at < len(moments) and counts[at] != len(op.values):
            at += 1
        if at == len(moments):
            raise _Contradiction("torn", f"{_title(op)} never had {len(op.values)} stores again")
        return moments[at]


def _title(op: Operation) -> str:
    if op.kind in (Kind.READ, Kind.TAG, Kind.REPLAY):
        return f"a {op.kind.value} of store {op.store} ({op.value}, {op.version})"
    return f"a {op.kind.value} of {len(op.values)} {op.name}".rstrip()
