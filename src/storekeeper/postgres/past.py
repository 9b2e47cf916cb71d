"""Reads of the past: the collection as it was at a moment. Imports the domain.

As changes stay, several statements may read one past. Each gets the time that is left; the server ends a statement
that takes longer, and its connection is used again.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from storekeeper import collection
from storekeeper.collection import MAX_PAST_READS, PAST_TIMEOUT, Listing, Moment, Query, State
from storekeeper.postgres.pipeline import Statement, rows
from storekeeper.postgres.pool import Pool, single_row
from storekeeper.postgres.reads import PAGE_SIZE, as_of, with_rest
from storekeeper.postgres.schema import COLLECTION_TABLE
from storekeeper.stores import Store
from storekeeper.tables import FIELDS, MAX_INTEGER

GRACE = 1.0
"""Seconds after the deadline of a statement within which the server has to end it; else the connection is dropped."""

# LIMIT and `one = 1` have the server use the index even before it has statistics: else it reads all changes.
_PRESENT = f"""SELECT version, epoch, at, was.seq, was.count
  FROM {COLLECTION_TABLE} LEFT JOIN LATERAL (SELECT seq, changes.count FROM changes WHERE seq ="""

STATEMENTS = {
    b"time left": "SELECT set_config('statement_timeout', $1::text, true)",
    b"version": f"{_PRESENT} $1::int8 LIMIT 1) AS was ON true WHERE one = 1",
    # `at` never falls, so half of what is left is left out with each step.
    b"moment": f"""{_PRESENT} (
      WITH RECURSIVE search (low, high) AS (
        SELECT 0::int8, version
        UNION ALL SELECT CASE WHEN at <= $1::int8 THEN seq ELSE low END,
          CASE WHEN at <= $1::int8 THEN high ELSE seq - 1 END
        FROM search, LATERAL (SELECT seq, at FROM changes WHERE seq = (low + high + 1) / 2 LIMIT 1) AS middle
        WHERE low < high)
      SELECT max(low) FROM search) LIMIT 1) AS was ON true WHERE one = 1""",
    b"was": f"""SELECT {FIELDS}, seq FROM changes
      WHERE store_id = $1::int8 AND seq <= $2::int8 ORDER BY seq DESC LIMIT 1""",
}
"""The statements that a connection has to prepare for these reads."""


class PastReader:
    """Carries out reads of the past; they raise Unavailable, EpochEnded, InvalidInput."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(MAX_PAST_READS)

    async def get(self, id: int, at: Moment) -> Store | None:
        """Return the store of that id as it was, None if there was none."""
        async with collection.past_slot(self._slots, PAST_TIMEOUT) as deadline:
            was = await self._state_at(at, deadline)
            if not 0 < id <= was.total:
                return None
            (found,) = await self._rows((b"was", (id, was.version)), deadline)
        return Store(*[id, *found, was.epoch])

    async def list_stores(self, query: Query) -> Listing:
        """Return the stores that the query asks for, as they were."""
        assert query.at is not None
        async with collection.past_slot(self._slots, PAST_TIMEOUT) as deadline:
            was = await self._state_at(query.at, deadline)
            ids, last = query.ids(was.total)
            first, end = await self._read(ids[:PAGE_SIZE], was.version, deadline) if ids else (b"", 0)
        listing = Listing(was.version, was.epoch, first, None, last, was.total)
        return with_rest((listing, ids, end), self._page)

    async def _page(self, ids: Sequence[int], version: int) -> tuple[bytes, int]:
        async with collection.past_slot(self._slots, PAST_TIMEOUT) as deadline:
            return await self._read(ids, version, deadline)

    async def _read(self, ids: Sequence[int], version: int, deadline: float) -> tuple[bytes, int]:
        ((page, end, _),) = await self._rows(as_of(ids, version), deadline)
        return page, end

    async def _state_at(self, moment: Moment, deadline: float) -> State:
        """Return the numbers of the collection at a moment."""
        if moment.time is not None:
            statement: Statement = (b"moment", (max(-MAX_INTEGER, min(moment.time, MAX_INTEGER)),))
        else:
            statement = (b"version", (min(moment.seq or 0, MAX_INTEGER),))
        version, epoch, at, seq, count = single_row(await self._rows(statement, deadline))
        collection.check_moment(moment, version, epoch, max(at, time.time_ns() // 1_000_000))
        return State(count or 0, seq or 0, epoch)

    async def _rows(self, statement: Statement, deadline: float) -> list[tuple[Any, ...]]:
        left = max(1, int((deadline - self._loop.time()) * 1000))
        # Both are one transaction, at whose end the session has its own time limit again.
        _, result = await self._pool.execute((b"time left", (left,)), statement, deadline=deadline + GRACE)
        return rows(result)
