"""What every database must promise, in words.

To add a database, read this file and `databases.Database`, name it in `databases.database` and
in `KINDS` of `tests/harness/databases.py`, then make `tests/storage` pass for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from storekeeper.concurrency.interruption import Interruption
from storekeeper.domain.changes import ChangesPage, ChangesQuery
from storekeeper.domain.commands import Command
from storekeeper.domain.errors import StorekeeperError
from storekeeper.domain.queries import Moment, Query, State
from storekeeper.domain.selection import Place, StoreKeys
from storekeeper.domain.stores import Store
from storekeeper.domain.tokens import Token, Traces
from storekeeper.storage import sessions
from storekeeper.storage.sessions import Session

T = TypeVar("T")
Row = tuple[Any, ...]
Rows = Generator[Row, None, None]
Eventual: TypeAlias = T | asyncio.Future[T]
"""A value, or a future of it: an embedded database completes reads at once."""

Fail: TypeAlias = Callable[[StorekeeperError], None]
"""Called on the loop, once, when the database can no longer be trusted: with CannotStart if the
operator must change something first."""

WriteObserver: TypeAlias = Callable[[Sequence[object], float], None]
"""Called on the loop with the results of each transaction of writes, and how many seconds it
took."""


async def completed(value: Eventual[T]) -> T:
    """Return the value as soon as it is there."""
    if isinstance(value, asyncio.Future):
        return await value
    return value


class Listing(msgspec.Struct, frozen=True):
    """Stores as JSON in UTF-8, ascending by id unless there is a selection: `first` is the inside
    of an array, and `rest` follows it.

    `rest` is None when `first` is everything. Each part of it starts with a comma: send one
    after another. All parts show the collection at `version` of `epoch`, however slowly they are
    read. `last` is the id of the last store if the limit left out later ones; otherwise it is None.
    For a selection it is `place`. `total` is how many stores there are, None if some are left out.
    """

    version: int
    epoch: str
    first: bytes
    rest: AsyncIterator[bytes] | None = None
    last: int | None = None
    total: int | None = None
    place: Place | None = None


COUNTED = (
    "SELECT (SELECT count(*) FROM stores), (SELECT count(*) FROM changes), epoch FROM collection"
)
"""Selects the numbers of a collection, in every database, from all that is there."""


class Snapshot(Protocol):
    """All rows of one collection, as of one moment. Close the generators, or the database keeps
    sending rows."""

    def state(self) -> State:
        """Return how many stores and changes there are, counted, and the epoch: the row of
        `COUNTED`."""

    def rows(self, table: str) -> Rows:
        """Return a table's rows in the order of its key."""

    def select(self, statement: str, *values: str | int) -> Rows:
        """Return the rows of a statement; its parameters `$1`, `$2` must first occur in this
        order."""


class CopyTarget(Snapshot, Protocol):
    """A collection that is filled in one transaction, and read again in it."""

    def fill(self, table: str, rows: Iterable[Row]) -> None:
        """Add rows to an empty table."""

    def finish(self, epoch: str | None) -> None:
        """Set the epoch, None for a new one, and write all rows to where they stay, and are read
        from then on."""


class Collection(Protocol):
    """One list of stores. Every method belongs to one event loop and does not block it.

    - **Ids** are 1..n without a gap and without a duplicate, in the order of the creates, with
    any number of processes and machines on one database, whatever crashes (decision 25).
    - **Durable:** a write has a result only when it would survive a power cut.
    - **Atomic:** a write that failed leaves nothing behind, and its neighbours in a batch are as
    if it had never been there. A store and its change are written together.
    - **Linearizable:** a read sees every write that was acknowledged before the read began, by any
      process. A listing is one snapshot that does so.
    - **Versions:** every write that changes something is one change; changes are numbered 1, 2,
    3, … without a gap, and a store's `version` is the number of its latest change. `epoch` is
    eight characters of `[a-z2-7]`.
    - **Conditions, keys, and writes that change nothing:** as `commands.apply` decides inside
    the transaction; the PreconditionFailed or KeyReused is the exception of the future.
    - **The past:** a read of it costs as much as any other read, however long ago it is.
    - **Errors:** `Unavailable`, raised or as the exception of the future, whenever the database
    cannot respond, after at most 5 s (decision 30); its `outcome` says whether a write may have
    happened. `in_session` may take longer, and raises CannotStart if the operator must change
    something.
    """

    def begin_reads(self, count: int = 1) -> float:
        """Begin a batch for the requests of `count` connections: reads that are completed at once
        may be of one moment from now on.

        Call it when the requests have arrived, and `end_reads` in the same call of the loop. It
        returns after how many seconds to call it again, so that later reads are of a later moment.
        """

    def end_reads(self) -> None:
        """End a batch; writes and reads that came in it begin at once. Raises nothing."""

    def numbers(self) -> object | None:
        """Return what differs after any write that was acknowledged before the batch began, by
        any process, and when the epoch does. None: nothing can be cached now, or there is no
        batch."""

    def get(self, id: int) -> Eventual[Store | None]:
        """Return the store of that id, None if there is none. `id` may be any non-negative
        integer."""

    def get_at(self, id: int, at: Moment) -> Eventual[Store | None]:
        """Return the store as it was at that moment, None if there was none. Raises EpochEnded,
        InvalidInput."""

    def list(self, query: Query) -> Eventual[Listing]:
        """Return the stores that the query asks for. With `at` or a selection, raises EpochEnded,
        InvalidInput. Pages of a selection have each store that the list had at the first one once,
        unless a filter leaves it out by then."""

    def keys(self, ids: Sequence[int]) -> Eventual[StoreKeys]:
        """Return the outside keys of those of these stores that have some."""

    def state(self) -> Eventual[State]:
        """Return the numbers of the collection, without reading any store."""

    def changes(self, query: ChangesQuery) -> Eventual[ChangesPage]:
        """Return a page of the changes that the query asks for, and the version and epoch of the
        same moment.

        No change is left out, and all are committed. Raises EpochEnded if the collection has no
        such place.
        """

    def write(self, command: Command) -> asyncio.Future[Store | None]:
        """Carry out a command; the result is the store after it, None if a replace found no
        store of that id."""

    async def in_session(
        self, work: Callable[[Session], T], lock_timeout: float = sessions.LOCK_TIMEOUT
    ) -> T:
        """Call `work` on a thread, with a session for one import; return what it returns, raise
        what it raises.

        It waits for other writers for up to `lock_timeout` seconds.
        """

    async def with_snapshot(self, work: Callable[[Snapshot], T], interruption: Interruption) -> T:
        """Call `work` on a thread, with a snapshot; return what it returns, raise what it raises.

        After an interruption, raise Unavailable, and no longer wait for the database.
        """

    async def tokens(self) -> Sequence[Token]:
        """Return the tokens that are not revoked."""

    async def all_tokens(self) -> Sequence[Token]:
        """Return all tokens, also those that are revoked."""

    async def traces(self) -> Traces:
        """Return the traces that commands leave."""

    async def restored(self) -> int | None:
        """Return when this database was restored, in ms since 1970, None if nothing tells."""

    async def mark_used(self, numbers: Iterable[int], now: int) -> None:
        """Record that tokens were used at `now`, in ms since 1970, but for each only once in
        `tokens.USED_INTERVAL`."""

    async def check(self) -> None:
        """Return if the collection can be read; raise Unavailable if not. For readiness probes."""

    async def refusal_of_writes(self, *, probe: bool) -> str:
        """Return why writes are refused, "" if they are not.

        After a refused write, or with `probe`, find out by a write that leaves nothing behind, at
        most once in 5 s.
        """

    def writes_refused(self) -> str:
        """Return why writes are refused, "" if they are not, as far as this process knows."""

    def observe_writes(self, observer: WriteObserver) -> None:
        """Call `observer` from now on."""

    def queued_writes(self) -> tuple[int, int]:
        """Return how many writes wait, and how many were refused because too many waited."""

    def refused_lists(self) -> int:
        """Return how many long lists by name were refused or broken off because slow clients kept
        too many ids."""

    async def figures(self) -> Mapping[str, float | None]:
        """Return `database_bytes`, the size of the database, `disk_free_bytes`, and
        `last_backup_timestamp_seconds`.

        What is not known, or has not happened, is None or missing.
        """

    async def close(self) -> None:
        """Finish the writes under way, then close the database. A second call does nothing."""
