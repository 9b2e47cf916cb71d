"""The read transaction that reads share: it hides no commit, and does not keep the log from being reused."""

import asyncio
import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from storekeeper import sqlite
from storekeeper.collection import Query, State
from storekeeper.errors import Unavailable
from storekeeper.sqlite.migrations import CHANGES_TABLE
from storekeeper.sqlite.read_transaction import MAX_LOG_PAGES, ReadTransaction
from storekeeper.sqlite.reads import MAX_CHANGED_IDS
from storekeeper.stores import Payload
from tests.harness.collection import get, now, numbered, replace, run, stores
from tests.harness.databases import Sqlite, handle
from tests.harness.in_process import until
from tests.harness.stores import a_store
from tests.harness.tokens import add_token


def test_every_read_sees_what_another_process_committed_before_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as one, handle(Sqlite(tmp_path)) as two:
            await one.load(numbered(3))
            for number in range(200):
                await replace(one, 2, Payload(f"Version {number}"))
                assert await get(two, 2) == a_store(2, f"Version {number}", None, 4 + number)
                assert (await stores(two))[1]["name"] == f"Version {number}"
                assert await get(two, 2) == await get(one, 2)

    run(main())


def test_a_page_of_stores_that_another_process_renames_meanwhile_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as one, handle(Sqlite(tmp_path)) as two:
            await one.load([Payload("Same")])
            connection = apsw.Connection(str(tmp_path / "stores.db"))
            begin = ReadTransaction.begin

            def interrupted(self: ReadTransaction, *rest: Any) -> Any:
                row = begin(self, *rest)
                connection.execute("UPDATE stores SET name = 'Other'")
                return row

            # While the log is long, each statement is a transaction of its own.
            monkeypatch.setattr("storekeeper.sqlite.read_transaction.MAX_LOG_PAGES", 0)
            monkeypatch.setattr(ReadTransaction, "begin", interrupted)
            page = await now(two.list(Query("Same", limit=1)))
            assert (page.first, page.rest, page.last) == (b"", None, None)
            connection.close()

    run(main())


def test_tokens_are_those_of_the_latest_commit(tmp_path: Path) -> None:
    """Not those that the shared transaction sees."""

    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as collection:
            await collection.load(numbered(1))
            assert await get(collection, 1) is not None  # begins the transaction
            add_token(f"sqlite:///{tmp_path}/stores.db", "new", "read")
            assert [token.name for token in await collection.tokens()] == ["new"]

    run(main())


def test_no_store_is_missing_among_those_that_changed(tmp_path: Path) -> None:
    """All of them are told, or that they are many."""

    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as collection:
            start, _ = collection.changed_since(State(0, 0, ""))
            await collection.load(numbered(MAX_CHANGED_IDS))
            assert collection.changed_since(start)[1] == [*range(1, MAX_CHANGED_IDS + 1)]
            await collection.load(numbered(1))
            assert collection.changed_since(start)[1] is None

    run(main())


def test_the_first_page_of_a_list_is_of_its_version_although_no_transaction_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as one, handle(Sqlite(tmp_path)) as two:
            await one.load([Payload("Former")])
            assert await get(two, 1)  # begins a transaction that is shared, while the log is short
            connection = apsw.Connection(str(tmp_path / "stores.db"))
            connection.execute("CREATE TABLE theirs (a)")
            begin = ReadTransaction.begin

            def interrupted(self: ReadTransaction, *rest: Any) -> Any:
                row = begin(self, *rest)
                monkeypatch.setattr(ReadTransaction, "begin", begin)
                connection.execute(f"""BEGIN; UPDATE stores SET name = 'Later', version = 2;
                  INSERT INTO {CHANGES_TABLE} VALUES (2, 1, 'Later', NULL, 1, 1, 1, 0); COMMIT""")
                return row

            monkeypatch.setattr("storekeeper.sqlite.read_transaction.MAX_LOG_PAGES", 0)
            monkeypatch.setattr(ReadTransaction, "begin", interrupted)
            found = await now(two.list(Query()))
            assert (found.version, json.loads(found.first)["name"]) in [(1, "Former"), (2, "Later")]
            assert (await now(two.list(Query()))).version == 2, "nothing was written in between"
            connection.close()

    run(main())


def test_reads_between_all_writes_do_not_make_the_log_longer(tmp_path: Path) -> None:
    """Each read leaves a transaction open, as long as the log is short."""

    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as collection:
            await collection.load(numbered(3))
            for number in range(150):
                await asyncio.gather(*(replace(collection, 2, Payload(f"{number}", "x" * 100_000)) for _ in range(4)))
                assert await get(collection, 2)
            size = (tmp_path / "stores.db-wal").stat().st_size
            assert 3 * size < 150 * 400_000, "the log was never begun anew"
            assert size < 2 * MAX_LOG_PAGES * 4096

    run(main())


def test_a_transaction_ends_soon_after_the_last_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "TICK_INTERVAL", 0.01)

    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as collection:
            await collection.load(numbered(3))
            assert await get(collection, 2)
            other = apsw.Connection(str(tmp_path / "stores.db"))
            other.execute("CREATE TABLE theirs (a)")
            assert await get(collection, 2)
            await until(lambda: not other.execute("PRAGMA wal_checkpoint(TRUNCATE)").get[0])
            other.close()

    run(main())


@pytest.mark.parametrize("query", [None, Query(), Query("Store 2"), Query(limit=1)])
def test_the_first_read_after_a_commit_opens_the_transaction(tmp_path: Path, query: Query | None) -> None:
    """Its own statement does, so that neither this read nor the next ones take other locks."""

    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as collection:
            await collection.load(numbered(3))
            other = apsw.Connection(str(tmp_path / "stores.db"))
            other.execute("UPDATE stores SET address = 'theirs' WHERE id = 2")
            assert await get(collection, 2) if query is None else collection.list(query)
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").get[0], "no transaction is open"
            other.close()

    run(main())


def test_a_read_that_fails_keeps_no_transaction_open(tmp_path: Path) -> None:
    """Else the reads after it would see the past."""

    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as collection:
            await collection.load(numbered(3))
            other = apsw.Connection(str(tmp_path / "stores.db"))
            other.execute("UPDATE stores SET address = CAST(x'ff' AS TEXT) WHERE id = 2")
            assert await get(collection, 1)
            for _ in range(2):
                with pytest.raises(Unavailable, match="damaged"):
                    await get(collection, 2)
            for number in range(3):
                other.execute("UPDATE stores SET address = ? WHERE id = 2", (f"Street {number}",))
                found = await get(collection, 1), await get(collection, 2)
                assert found[1], "it is there"
                assert found[1].address == f"Street {number}"
            other.close()

    run(main())


def test_after_closing_no_read_looks_at_memory_that_is_gone(tmp_path: Path) -> None:
    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as collection:
            await collection.load(numbered(3))
            assert await get(collection, 2)
        with pytest.raises(Exception, match=r"closed|shutting down"):
            await get(collection, 2)

    run(main())
