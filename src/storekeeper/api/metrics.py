"""What the processes of a service count.

Each process counts in the slot of its number, and its successor continues there, so that no
total falls. All slots are one block of shared memory. Label sets are closed: no client can make
a series.
"""

import multiprocessing
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from types import NoneType
from typing import Any, Literal, NamedTuple

from storekeeper.api.routing import METHODS, ROUTES
from storekeeper.api.token_table import UNREAD
from storekeeper.domain import errors
from storekeeper.domain.errors import KeyReused, Outcome, PreconditionFailed, Unavailable
from storekeeper.domain.stores import Replay, Store
from storekeeper.http.limits import Limits
from storekeeper.http.runtime import Served
from storekeeper.storage import clock
from storekeeper.storage.collection import Collection

OTHER = "other"
"""The label of every route, method or status that is not in the lists."""

STATUSES = (0, 200, 204, 302, 304, *range(400, 416), 422, 431, 500, 501, 503, 505)
"""What a response may have; 0 if the client left before it began."""

BOUNDS = (0.0005, 0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0)
"""Seconds at which the buckets of a histogram end; the tenth has no end."""

_RESULTS: Mapping[object, str] = {
    Store: "stored",
    Replay: "replayed",
    NoneType: "not_found",
    PreconditionFailed: PreconditionFailed.code,
    KeyReused: KeyReused.code,
    Outcome.NONE: "unavailable",
    Outcome.UNKNOWN: "unknown",
}
REFUSALS = (
    errors.DISK_FULL,
    errors.DISK_STALLED,
    errors.LOCKED,
    errors.FAILED,
    errors.NO_RESPONSE,
    errors.NO_STANDBY,
    errors.CLOSED,
    errors.MOVED,
    UNREAD,
    "The database cannot be written",
    "The database cannot be opened",
    "The database is damaged",
    "The database cannot be reached",
    "The database is read-only",
    "The database is busy",
    "The database is out of space, memory or connections",
    "The database did not write everything",
    "The database rolled the write back",
    "The table collection does not have its one row",
    "There is not enough memory",
    OTHER,
)
"""Every reason why writes are refused, as `/health/ready` gives it, up to its colon."""

_PATHS = {route.name: route.path for route in ROUTES}
_ROUTES = (*_PATHS.values(), OTHER)
_METHODS = (*METHODS, "OPTIONS", OTHER)

ENDS = (*map(str, BOUNDS), "+Inf")
"""The ends of the buckets of a histogram. Their cells follow one another; one more has the sum."""


class Family(NamedTuple):
    """Series of one name, with all values of each label; a gauge that is `asked` for has no
    cells."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Mapping[str, Sequence[str]] = {}
    asked: bool = False
    is_flag: bool = False
    """Whether it is 1 or 0: 1 if it is 1 in any process."""


_RESPONSES = {"route": _ROUTES, "method": _METHODS, "status": (*map(str, STATUSES), OTHER)}
_LIMITS = (
    "connections",
    "requests",
    "readers",
    "writes",
    "listeners",
    "exports",
    "lists",
    "scrapes",
)

FAMILIES = {
    "http_requests": Family(
        "counter", "Responses; status 0: the client left before it began.", _RESPONSES
    ),
    "http_request_duration_seconds": Family(
        "histogram", "Until a response ended.", {"route": _ROUTES}
    ),
    "writes": Family(
        "counter", "Creates and replaces.", {"result": (*_RESULTS.values(), "failed")}
    ),
    "commit_duration_seconds": Family("histogram", "Transactions of writes, with their waits."),
    "refused": Family("counter", "What a limit refused or closed.", {"reason": _LIMITS}),
    "wrong_clock_commits": Family(
        "counter", "Transactions whose changes are dated by a clock that was wrong by over a day."
    ),
    "clock_jumps": Family("counter", "How often the clock was set by over a minute."),
    "worker_restarts": Family("counter", "Workers that were lost and replaced."),
    "connections": Family("gauge", "Open connections."),
    "listeners": Family("gauge", "Clients that listen to changes."),
    "write_queue": Family("gauge", "Writes that wait."),
    "writes_refused": Family(
        "gauge",
        "Whether writes are refused: 1 for the reason, 0 for all others.",
        {"reason": REFUSALS},
        is_flag=True,
    ),
    "pid": Family("gauge", "Not shown."),
    "ready": Family("gauge", "Whether /health/ready responds with 200.", asked=True),
    "stores": Family("gauge", "Stores in the list.", asked=True),
    "changes": Family("gauge", "Changes so far: the version of the list.", asked=True),
    "seconds_since_last_change": Family(
        "gauge", "Age of the latest change; absent while there is none.", asked=True
    ),
    "latest_change_ahead_seconds": Family(
        "gauge", "How far the latest change is dated ahead of now; 0 if it is not.", asked=True
    ),
    "database_bytes": Family(
        "gauge", "Size of the file and its log, or of the database of PostgreSQL.", asked=True
    ),
    "disk_free_bytes": Family(
        "gauge", "Free space on the disk of the file; absent on PostgreSQL.", asked=True
    ),
    "last_backup_timestamp_seconds": Family(
        "gauge", "When the latest backup was made.", asked=True
    ),
    "next_token_expiry_timestamp_seconds": Family(
        "gauge", "When the next token expires; absent while none will.", asked=True
    ),
}


def _lay_out() -> tuple[dict[tuple[str, ...], int], int]:
    """Return the cell of each series, the first one of a histogram, and how many there are."""
    cells: dict[tuple[str, ...], int] = {}
    count = 0
    for name, family in FAMILIES.items():
        for values in product(*family.labels.values()):
            cells[name, *values] = count
            count += len(ENDS) + 1 if family.kind == "histogram" else 1
    return cells, count


CELLS, SLOT_SIZE = _lay_out()
"""The place in a slot of each series, by its name and its labels."""

_REFUSALS = {reason: CELLS["writes_refused", reason] for reason in REFUSALS}
_GAUGES = [CELLS[name,] for name in ("pid", "connections", "listeners", "write_queue")]
_GAUGES += _REFUSALS.values()


class Slots:
    """The slots of some workers, and of their supervisor, in memory that they inherit. Raises
    OSError."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        cells = (workers + 1) * SLOT_SIZE
        self._block: Any = bytearray(8 * cells)
        if workers > 1:
            self._block = multiprocessing.get_context("spawn").RawArray("d", cells)

    def of(self, number: int) -> "memoryview[float]":
        """Return the cells of a process, as floating-point numbers; the supervisor comes after the
        workers."""
        cells = memoryview(self._block).cast("B").cast("d")
        return cells[number * SLOT_SIZE : (number + 1) * SLOT_SIZE]

    def release(self, number: int, lost: bool) -> None:
        """Note that a worker ended; its counts stay."""
        for cell in _GAUGES:
            self.of(number)[cell] = 0.0
        if lost:
            self.of(self.workers)[CELLS["worker_restarts",]] += 1


def labels(route: str | None, method: str) -> tuple[str, str]:
    """Return the names of a request's route and method in metrics and in the log."""
    if method not in _METHODS:
        method = OTHER
    return _PATHS.get(route or "", OTHER), method


@lru_cache(maxsize=4096)
def _places(route: str | None, method: str, status: int) -> tuple[int, int]:
    """Return the cell that counts such a response, and the first bucket of its route."""
    path, method = labels(route, method)
    code = str(status) if status in STATUSES else OTHER
    counted = CELLS["http_requests", path, method, code]
    return counted, CELLS["http_request_duration_seconds", path]


class Metrics:
    """Counts what one process does, in the slot of its `number`."""

    def __init__(self, slots: Slots, number: int = 0) -> None:
        self.slots = slots
        self._cells = slots.of(number)
        self._watched: list[tuple[int, float, Callable[[], int]]] = []
        self._refusal: Callable[[], str] = str
        self.watch(os.getpid, "pid")

    def observe(self, served: Served) -> None:
        """Count a response."""
        counted, buckets = _places(served.route, served.method, served.status)
        self._cells[counted] += 1
        self._add_time(buckets, served.seconds)

    def observe_writes(self, results: Sequence[object], seconds: float) -> None:
        """Count the writes of a transaction; see `collection.WriteObserver`."""
        kinds = Counter(
            [each.outcome if isinstance(each, Unavailable) else type(each) for each in results]
        )
        for kind, count in kinds.items():
            self._cells[CELLS["writes", _RESULTS.get(kind, "failed")]] += count
        self._add_time(CELLS["commit_duration_seconds",], seconds)

    def _add_time(self, buckets: int, seconds: float) -> None:
        self._cells[buckets + bisect_left(BOUNDS, seconds)] += 1
        self._cells[buckets + len(ENDS)] += seconds

    def watch(self, read: Callable[[], int], *key: str) -> None:
        """Show what `read` returns as a series; a counter continues from the count of an earlier
        process."""
        cell = CELLS[key]
        base = 0.0 if cell in _GAUGES else self._cells[cell]
        self._watched.append((cell, base, read))

    def watch_limits(self, limits: Limits, collection: Collection) -> None:
        """Count writes, and show the state of all limits."""
        collection.observe_writes(self.observe_writes)
        self.watch(lambda: collection.queued_writes()[0], "write_queue")
        self.watch(lambda: collection.queued_writes()[1], "refused", "writes")
        self.watch(lambda: clock.WATCH.wrong_commits, "wrong_clock_commits")
        self.watch(lambda: clock.WATCH.jumps, "clock_jumps")
        self.watch(collection.refused_lists, "refused", "lists")
        self.watch(lambda: len(limits.connections.open), "connections")
        self.watch(lambda: limits.connections.refused, "refused", "connections")
        self.watch(lambda: limits.receive_budget.refused, "refused", "requests")
        self.watch(lambda: limits.send_budget.refused, "refused", "readers")

    def watch_refusal(self, read: Callable[[], str]) -> None:
        """Show why writes are refused: `read` returns the reason, "" if they are not."""
        self._refusal = read

    def publish(self) -> None:
        """Write what is watched into the slot, for all workers."""
        for cell, base, read in self._watched:
            self._cells[cell] = base + read()
        refusal = self._refusal().partition(":")[0]
        if refusal and refusal not in _REFUSALS:
            refusal = OTHER
        for reason, cell in _REFUSALS.items():
            self._cells[cell] = float(reason == refusal)
