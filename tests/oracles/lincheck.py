"""Is a history of concurrent clients linearizable? Imports only the standard library.

Two checks, which believe different things. Every value is written at most once, so that a value that was read
names its write.

`check_registers` believes nothing but the responses. For creates, replaces and reads by id it is exact, in
O(n log n): the zones of Gibbons and Korach (Testing shared memories, SIAM J. Comput. 26, 1997) for each store,
and one chain of points for the ids, which are dense. A list or filter counts as a read of each of its stores.

`check_order` takes the order of all writes as the database numbered them, and looks for a moment for every
response that agrees with that order and with real time: exact for all kinds of operations. If it finds them,
they are the proof; the database's numbers are not believed, but tried.

`check_versions` takes the versions in the responses' tags and believes nothing else: sound, and not exact.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from math import inf
from typing import NamedTuple

Order = Sequence[tuple[int, int]]
"""The store and the value of every write that took effect, in the order of the database's versions 1, 2, 3, …"""


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
    """OK: answered. FAILED: surely did nothing. UNKNOWN: may have happened, even later (`end` is infinite)."""

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
    """The id; of a create the one it answered, 0 if it did not say."""
    value: int | None = None
    """What was written, or read (None: there was no such store)."""
    name: str = ""
    """The name in what was written, or that a filter asked for."""
    ids: Sequence[int] = ()
    """Of a list or filter, what it answered: the ids in their order,"""
    values: Sequence[int] = ()
    """and the value of each."""
    outcome: Outcome = Outcome.OK
    version: int | None = None
    """The version in the tag of the response: of the store, or of the collection if it is a list."""
    if_match: int | None = None
    """The version that a write asked for. Of a TAG: the one that it asked for and that was not there; then `value`
    is what it would have written, and the store was not that (decision 34)."""
    at: int | None = None
    """Of a read or list of the past: the version that the collection had."""

    @property
    def writes(self) -> bool:
        return self.kind in (Kind.CREATE, Kind.REPLACE)


class Violation(NamedTuple):
    """`text` says what contradicts what.

    `fault` is lost, phantom, duplicate, gap, order, version, stale, torn, past, overwrote (a write went over what its
    If-Match did not allow) or refused (a 412 without a reason).
    """

    fault: str
    text: str


def check(history: Sequence[Operation], order: Order | None = None) -> list[Violation]:
    """Return every violation found, none if the history is linearizable."""
    found = check_registers(history) + check_versions(history)
    return found if order is None else found + check_order(history, order)


# Believing nothing.


@dataclass(slots=True, eq=False)
class _Zone:
    """One value's life: it was there from `first_end` at the latest until `last_start` at the earliest."""

    write: Operation
    store: int
    first_end: float
    last_start: float
    seen: bool = False


def check_registers(history: Sequence[Operation]) -> list[Violation]:
    """Check creates, replaces and reads by id exactly; of lists and filters only that each store's value fits."""
    return list(_Registers(history).violations())


class _Registers:
    def __init__(self, history: Sequence[Operation]) -> None:
        self._history = history
        self._zones: dict[int | None, _Zone] = {}
        # A store's creation comes after all of the one, and before all of the other.
        self._after: defaultdict[int, float] = defaultdict(lambda: -inf)
        self._before: defaultdict[int, float] = defaultdict(lambda: inf)
        for op in history:
            if op.writes and op.outcome is not Outcome.FAILED:
                self._zones[op.value] = _Zone(op, op.store, op.end, op.start)
                if op.kind is Kind.REPLACE and op.outcome is Outcome.OK:
                    self._saw(op.store, op.end)

    def violations(self) -> Iterator[Violation]:
        yield from self._observe()
        yield from self._match_creates()
        yield from self._place_creates()
        stores = defaultdict(list)
        for zone in self._zones.values():
            stores[zone.store].append(zone)
        for store, zones in stores.items():
            if store:
                yield from _overlaps(store, zones)

    def _saw(self, store: int, end: float) -> None:
        self._before[store] = min(self._before[store], end)

    def _missed(self, store: int, start: float) -> None:
        self._after[store] = max(self._after[store], start)

    def _observe(self) -> Iterator[Violation]:
        for op in self._history:
            if op.kind is Kind.READ and op.value is None:
                if op.at is None:
                    self._missed(op.store, op.start)
            elif op.kind in (Kind.READ, Kind.REPLAY) and op.value is not None:
                yield from self._observe_values(op, (op.store,), (op.value,))
            elif op.kind in (Kind.LIST, Kind.FILTER):
                yield from self._observe_values(op, op.ids, op.values)
            if op.kind is Kind.LIST:
                if list(op.ids) != list(range(1, len(op.ids) + 1)):
                    yield Violation("gap", f"a list has the ids {_short(op.ids)}")
                if op.at is None:
                    self._missed(len(op.ids) + 1, op.start)

    def _observe_values(self, op: Operation, ids: Sequence[int], values: Sequence[int]) -> Iterator[Violation]:
        # What is read of the past was true by the end, and may be true no more.
        start, end = (-inf if op.kind is Kind.REPLAY or op.at is not None else op.start), op.end
        for store, value in zip(ids, values, strict=True):
            zone = self._zones.get(value)
            if zone is None:
                yield Violation(
                    "phantom", f"store {store} has {value}, which nobody wrote, or whose write was refused"
                )
                continue
            zone.store = zone.store or store
            if zone.store != store:
                yield Violation("duplicate", f"{value} is in store {store} and in store {zone.store}")
            elif end < zone.write.start:
                yield Violation("phantom", f"store {store} has {value} before that was sent")
            zone.seen = True
            zone.first_end = min(zone.first_end, end)
            zone.last_start = max(zone.last_start, start)
        for store in ids if op.kind is Kind.FILTER else ids[-1:]:  # of a list, the last one's bounds the others'
            self._saw(store, end)

    def _match_creates(self) -> Iterator[Violation]:
        """Return each id the create that made it; creates of unknown outcome fill what is left, in their order."""
        self._creates: dict[int, Operation] = {}
        unknown = []
        for zone in list(self._zones.values()):
            if zone.write.kind is Kind.CREATE and zone.store:
                if zone.store in self._creates:
                    yield Violation("duplicate", f"two creates answered id {zone.store}")
                self._creates[zone.store] = zone.write
            elif zone.write.kind is Kind.CREATE:
                unknown.append(zone)
            elif zone.write.outcome is Outcome.UNKNOWN and not zone.seen:
                del self._zones[zone.write.value]  # as good as never sent
        unknown.sort(key=lambda zone: zone.write.start)
        used = {zone.store for zone in self._zones.values()}
        for store in range(1, max(used, default=0) + 1):
            if store not in self._creates:
                if not unknown:
                    yield Violation("gap", f"nobody created store {store}, of {max(used)}")
                    continue
                zone = unknown.pop(0)
                zone.store = store
                self._creates[store] = zone.write
        for zone in unknown:
            del self._zones[zone.write.value]

    def _place_creates(self) -> Iterator[Violation]:
        """Look for points in time that increase with the ids."""
        earliest = -inf
        for store, create in sorted(self._creates.items()):
            earliest = max(earliest, create.start, self._after[store])
            latest = min(create.end if create.store else inf, self._before[store])
            if earliest > latest:
                yield Violation("order", f"store {store} has to be created by {latest}, but not before {earliest}")
                earliest = latest  # so that one violation does not make all later ones


def _overlaps(store: int, zones: list[_Zone]) -> Iterator[Violation]:
    for zone in zones:
        if zone.write.kind is Kind.CREATE:
            zone.first_end = -inf  # nothing comes before the first value
    long = sorted((zone for zone in zones if zone.first_end < zone.last_start), key=lambda zone: zone.first_end)
    for one, next_one in pairwise(long):
        if next_one.first_end < one.last_start:
            yield Violation("stale", f"store {store}: {one.write.value} is still read after {next_one.write.value}")
    starts = [zone.first_end for zone in long]
    for zone in zones:
        if zone.first_end >= zone.last_start:
            around = bisect_right(starts, zone.last_start) - 1
            if around >= 0 and starts[around] < zone.last_start and zone.first_end < long[around].last_start:
                gone = zone.write.value
                yield Violation(
                    "stale", f"store {store}: {long[around].write.value} stood, and {gone} within its time"
                )


# Believing versions.


def check_versions(history: Sequence[Operation]) -> list[Violation]:
    """Check what the versions in the responses say of each other, and of real time."""
    return list(_Versions(history).violations())


class _Versions:
    """What is known of the versions, from responses alone."""

    def __init__(self, history: Sequence[Operation]) -> None:
        done = [op for op in history if op.outcome is Outcome.OK and op.version is not None]
        self._done = done
        self._stores = [op for op in done if op.kind in (Kind.CREATE, Kind.REPLACE, Kind.READ, Kind.REPLAY)]
        self._known: defaultdict[int, list[int]] = defaultdict(list)

    def violations(self) -> Iterator[Violation]:
        yield from self._one_to_one()
        yield from self._conditions()
        yield from self._real_time()

    def _one_to_one(self) -> Iterator[Violation]:
        values: dict[int, tuple[int, int | None]] = {}
        versions: dict[int | None, int] = {}
        for op in self._stores:
            assert op.version is not None
            if values.setdefault(op.version, (op.store, op.value)) != (op.store, op.value):
                yield Violation("version", f"version {op.version} is {op.value} and {values[op.version]}")
            if versions.setdefault(op.value, op.version) != op.version:
                yield Violation("version", f"{op.value} has the versions {op.version} and {versions[op.value]}")
        for version, (store, _) in sorted(values.items()):
            self._known[store].append(version)

    def _conditions(self) -> Iterator[Violation]:
        for op in self._done:
            if op.if_match is None or op.version is None:
                continue
            if op.kind is Kind.TAG:
                if op.version == op.if_match:
                    yield Violation("refused", f"{op.value} was refused, and {op.version} is what it asked for")
            elif op.kind is Kind.CREATE:
                if op.version != op.if_match + 1:
                    yield Violation("overwrote", f"{op.value} is {op.version}, and was to follow {op.if_match}")
            else:
                known = self._known[op.store]
                before = known[: bisect_left(known, op.version)][-1:]
                if op.if_match >= op.version or (before and before[0] > op.if_match):
                    yield Violation("overwrote", f"{op.value} went over {before}, and was to follow {op.if_match}")

    def _real_time(self) -> Iterator[Violation]:
        """Let versions grow with time: what begins later writes a later one, and sees no earlier list."""
        ended = sorted(self._done, key=lambda op: op.end)
        reached = at = 0
        for op in sorted(self._done, key=lambda op: op.start):
            while at < len(ended) and ended[at].end < op.start:
                reached = max(reached, ended[at].version or 0)
                at += 1
            assert op.version is not None
            if op.writes and op.version <= reached:
                yield Violation("order", f"{op.value} became {op.version} after {reached} had been seen")
            elif _is_of_all(op) and op.at is None and op.version < reached:
                yield Violation("stale", f"{_title(op)} has {op.version}; {reached} had been seen before")


def _is_of_all(op: Operation) -> bool:
    """Tell whether an operation's version is the collection's."""
    return op.kind in (Kind.LIST, Kind.FILTER) or (op.kind is Kind.TAG and not op.store)


# Trying the database's order.

Writes = Mapping[int | None, Operation]
"""The writes that were sent, by their values."""


def check_order(history: Sequence[Operation], order: Order) -> list[Violation]:
    """Check that every response is true at a moment that agrees with `order` and with real time. Exact."""
    writes = {op.value: op for op in history if op.writes}
    found = list(_strange_writes(writes, order))
    if found:
        return found
    line = _Line(writes, order)
    done = sorted((op for op in history if op.outcome is Outcome.OK), key=lambda op: op.end)
    moments: dict[int, int] = {}
    reached = ended = 0
    for op in sorted(history, key=lambda op: op.start):
        # All that had ended before this began comes before it, so it cannot be earlier than the latest of them.
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
            continue  # their version is one of the conditions of their moment
        if op.version is not None and (op.value is None or op.version != line.spans[op.value].since):
            found.append(Violation("version", f"{op.value} was answered with version {op.version}"))
    return found


def _strange_writes(writes: Writes, order: Order) -> Iterator[Violation]:
    """Find writes that are in the database and should not be, or the other way round."""
    count = 0
    stored: set[int | None] = set()
    for store, value in order:
        write = writes.get(value)
        if write is None or write.outcome is Outcome.FAILED or value in stored:
            yield Violation("phantom", f"store {store} became {value}, whose write was refused, done, or never sent")
            continue
        stored.add(value)
        if write.kind is Kind.CREATE:
            count += 1
        expected = count if write.kind is Kind.CREATE else write.store
        if store > count or store != expected or write.store not in (0, store):
            fault = "phantom" if write.kind is Kind.REPLACE else "gap" if store > expected else "duplicate"
            yield Violation(fault, f"{value} went to store {store}, not {write.store or expected}, of {count}")
    for sent, write in writes.items():
        if write.outcome is Outcome.OK and sent not in stored:
            yield Violation("lost", f"store {write.store}: {sent} was acknowledged and is not there")


class _Contradiction(Exception):
    """No moment fits; the arguments are those of a Violation."""


class _Span(NamedTuple):
    """From when until when a value stood, where, its name, and the version that its write found."""

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
        self._counts: defaultdict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([0], [0]))
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
        """Return the first moment from `reached` on when the response is true; raise _Contradiction if none is."""
        if op.writes:
            moment, before = self.spans[op.value].since, self.spans[op.value].before
            if moment <= reached:
                raise _Contradiction("order", f"write {moment} ({op.value}) began after number {reached} was seen")
            if op.if_match not in (None, before):
                raise _Contradiction("overwrote", f"{op.value} went over {before}, and was to follow {op.if_match}")
            return moment
        first, until = self._range(op)
        if first >= min(until, len(self._order) + 1):
            raise _Contradiction("torn", f"{_title(op)} has parts that never stood together")
        moment = int(max(first, reached))
        if op.kind is Kind.FILTER:
            moment = self._with_count(op, moment)
        if moment >= until:
            raise _Contradiction("stale", f"{_title(op)} was true until {until}; {reached} had been seen before")
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
            raise _Contradiction("past", f"{_title(op)} at {op.at} was true from {first} to {until}")
        return op.at, inf

    def _range_of_tag(self, op: Operation) -> tuple[float, float]:
        version = op.version
        if version is None or not 0 <= version <= len(self._order) or version == op.if_match:
            raise _Contradiction("refused", f"a response names version {version}, {op.if_match} was asked for")
        if not op.store:
            return version, version + 1
        store, value = self._order[version - 1] if version else (0, 0)
        if store != op.store or value == op.value:
            raise _Contradiction("refused", f"version {version} of store {op.store} is {value} of store {store}")
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
            raise _Contradiction("phantom", f"{_title(op)} has another store's value, or one store twice")
        if op.kind is Kind.FILTER and any(span.name != op.name for span in spans):
            raise _Contradiction("phantom", f"{_title(op)} has another name")
        first = max((span.since for span in spans), default=0)
        until = min((span.until for span in spans), default=inf)
        return (first, min(until, self._created_at(len(ids) + 1))) if op.kind is Kind.LIST else (first, until)

    def _created_at(self, store: int) -> float:
        return self._created[min(store, len(self._created) - 1)]

    def _with_count(self, op: Operation, moment: int) -> int:
        """Return the first moment from this one on when as many stores had the name as were answered."""
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


def _short(ids: Sequence[int]) -> str:
    strange = next((place for place, id in enumerate(ids, start=1) if place != id), len(ids))
    return f"… {', '.join(map(str, ids[max(0, strange - 3) : strange + 2]))} …"
