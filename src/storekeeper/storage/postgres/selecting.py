"""Sorted and filtered lists of the PostgreSQL collection."""

from collections.abc import AsyncIterator, Sequence
from functools import partial

from storekeeper.concurrency.threads import run_in_thread
from storekeeper.concurrency.turns import Turns
from storekeeper.domain import search
from storekeeper.domain.queries import Query, State, check_history
from storekeeper.domain.selection import StoreKeys
from storekeeper.domain.stores import MAX_INTEGER
from storekeeper.storage import selecting
from storekeeper.storage.collection import Listing
from storekeeper.storage.postgres.long_reads import long_read
from storekeeper.storage.postgres.pipeline import Execute, Result, Statement, array, rows
from storekeeper.storage.postgres.pool import Pool, single_row
from storekeeper.storage.postgres.reads import PAGE_BYTES
from storekeeper.storage.postgres.schema import COLLECTION_TABLE
from storekeeper.storage.selecting import Ask, Dialect, Selected, Twins
from storekeeper.storage.sql import FIELDS

_DIALECT = Dialect(
    position="strpos",
    scan="stores",
    picked="unnest(CAST(:ids AS bigint[])) AS pick (pick_id)",
)
_STATEMENTS = selecting.statements(_DIALECT)

_BYTES = "coalesce(octet_length(address), 0)"
_ROW = f"{COLLECTION_TABLE} WHERE one = 1"
_PAGE = f"""SELECT *, sum({_BYTES}) OVER (ORDER BY place) - {_BYTES} AS before
  FROM unnest($1::int8[]) WITH ORDINALITY AS pick (id, place)"""
# The stores of a page as JSON, how many they are, the newest version in the page, and the
# collection's version and epoch.
_JSON = f"""
  (SELECT convert_to(string_agg(row_to_json(store)::text, ',' ORDER BY place), 'UTF8')
    FROM page, LATERAL (SELECT page.id, {FIELDS}) AS store WHERE before < {PAGE_BYTES}),
  (SELECT count(*) FROM page WHERE before < {PAGE_BYTES}), (SELECT max(version) FROM page),
  version, epoch"""

STATEMENTS = {
    b"begin to select": "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    b"selected": f"""WITH page AS ({_PAGE} JOIN stores USING (id)) SELECT {_JSON} FROM {_ROW}""",
    b"selected as of": f"""WITH page AS ({_PAGE}, LATERAL (
        SELECT {FIELDS}, seq AS version FROM changes
        WHERE store_id = pick.id AND seq <= $2::int8 ORDER BY seq DESC LIMIT 1) AS was)
      SELECT {_JSON} FROM {_ROW}""",
    b"keys": f"""SELECT version, epoch, store_id, column_name, value
      FROM {COLLECTION_TABLE} LEFT JOIN external_ids ON store_id = ANY($1::int8[])
      WHERE one = 1 ORDER BY store_id, column_name""",
    **{b"select " + name.encode(): statement.text for name, statement in _STATEMENTS.items()},
}
"""The statements that a connection must prepare for these reads."""


class Selecting:
    """Carries out selections, and reads outside keys; raises Unavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._twins = Twins()
        self._turns = Turns(search.MAX_AT_ONCE, search.TIMEOUT, selecting.TOO_LONG)

    async def keys(self, ids: Sequence[int]) -> StoreKeys:
        """Return what `Collection.keys` does."""
        wanted = array(id for id in ids if id <= MAX_INTEGER)
        (result,) = await self._pool.execute((b"keys", (wanted,)))
        found = rows(result)
        if not found:
            single_row([])  # a restore left no row of the collection
        return StoreKeys([row[2:] for row in found if row[2] is not None], *found[0][:2])

    async def listing(self, query: Query) -> Listing:
        """Return the page of a selection. Raises EpochEnded, InvalidInput."""
        # They leave connections for all other requests.
        async with self._turns, long_read(self._pool, selecting.TOO_LONG) as execute:
            state, selected = await self._find(execute, query)
        total = None if query.has_filter else state.total
        ids = selected.ids
        first, count = await self._page(ids, state) if ids else (b"", 0)
        rest = self._rest(ids[count:], state) if count < len(ids) else None
        return Listing(state.version, state.epoch, first, rest, None, total, selected.last)

    async def _find(self, execute: Execute, query: Query) -> tuple[State, Selected]:
        """Carry out the steps of a selection in one transaction."""
        results = await execute((b"begin to select", ()), (b"search timeout", ()), (b"state", ()))
        state = State(*single_row(rows(results[2])))
        steps = selecting.select(query, state, self._twins)
        step: Sequence[Ask] | Selected = next(steps)
        while not isinstance(step, Selected):
            results = await execute(*map(_statement, step))
            # Comparing and folding many names would keep the event loop.
            step = await run_in_thread(partial(_continue, steps, results))
        await execute((b"commit", ()))
        return state, step

    async def _rest(self, ids: Sequence[int], state: State) -> AsyncIterator[bytes]:
        """Yield the stores that did not fit into the first part, each part after a comma."""
        while ids:
            part, count = await self._page(ids, state)
            ids = ids[count:]
            yield b"," + part

    async def _page(self, ids: Sequence[int], state: State) -> tuple[bytes, int]:
        """Return as many of these stores as fit in a part, as they were in a state, and how many
        they are."""
        page, count, newest = await self._page_of((b"selected", (array(ids),)), state)
        if newest > state.version:
            as_of: Statement = (b"selected as of", (array(ids), state.version))
            page, count, _ = await self._page_of(as_of, state)
        return page, count

    async def _page_of(self, statement: Statement, state: State) -> tuple[bytes, int, int]:
        (result,) = await self._pool.execute(statement)
        page, count, newest, version, epoch = single_row(rows(result))
        check_history(state, version, epoch)
        return page, count, newest


def _statement(ask: Ask) -> Statement:
    name, named = ask
    if named.get("ids") is not None:
        named = {**named, "ids": array(named["ids"])}
    return b"select " + name.encode(), _STATEMENTS[name].values(named)


def _continue(steps: selecting.Steps, results: Sequence[Result]) -> Sequence[Ask] | Selected:
    """Return the next step of a selection, or what it selected."""
    try:
        return steps.send([rows(result) for result in results])
    except StopIteration as end:
        selected: Selected = end.value
        return selected
