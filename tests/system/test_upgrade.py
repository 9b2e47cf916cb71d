"""One process of an older version and one of this one on one database."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import apsw
import psycopg
import pytest

from storekeeper import databases
from storekeeper.collection import Collection
from storekeeper.postgres import schema as postgres_schema
from storekeeper.sqlite import schema as sqlite_schema
from storekeeper.stores import Payload
from tests.harness.collection import create, replace, run, state
from tests.harness.databases import KINDS, Database, Sqlite, handle

SCHEMAS: dict[str, Any] = {"sqlite": sqlite_schema, "postgres": postgres_schema}

WRITES = {
    ("sqlite", 1): [
        "INSERT INTO stores SELECT count(*) + 1, 'old', NULL, (SELECT max(seq) + 1 FROM changes) FROM stores",
        "INSERT INTO changes SELECT version, id, name, address, 5 FROM stores ORDER BY id DESC LIMIT 1",
    ],
    ("sqlite", 2): [
        "INSERT INTO stores SELECT count(*) + 1, 'old', NULL, (SELECT max(seq) + 1 FROM changes_2) FROM stores",
        "INSERT INTO changes_2 SELECT version, id, name, address, 5, 0, id FROM stores ORDER BY id DESC LIMIT 1",
    ],
    ("sqlite", 3): [
        """INSERT INTO stores (id, name, address, version)
          SELECT count(*) + 1, 'old', NULL, (SELECT max(seq) + 1 FROM changes_{0}) FROM stores""",
        """INSERT INTO changes_{0} (seq, store_id, name, address, at, previous, count)
          SELECT version, id, name, address, 5, 0, id FROM stores ORDER BY id DESC LIMIT 1""",
    ],
    ("postgres", 1): [
        "SELECT count, version FROM collection WHERE one = 1 FOR UPDATE",
        "INSERT INTO stores SELECT count + 1, 'old', NULL, version + 1 FROM collection",
        """INSERT INTO changes (seq, store_id, name, address, at)
          SELECT version + 1, count + 1, 'old', NULL, 5 FROM collection""",
        "UPDATE collection SET count = count + 1, version = version + 1 WHERE one = 1",
    ],
    ("postgres", 2): [
        "SELECT count, version, at FROM collection_2 WHERE one = 1 FOR UPDATE",
        "INSERT INTO stores SELECT count + 1, 'old', NULL, version + 1 FROM collection_2",
        "INSERT INTO changes SELECT version + 1, count + 1, 'old', NULL, 5, 0, count + 1 FROM collection_2",
        "UPDATE collection_2 SET count = count + 1, version = version + 1 WHERE one = 1",
    ],
    ("postgres", 3): [
        "SELECT count, version, at, epoch FROM collection_{0} WHERE one = 1 FOR UPDATE",
        """INSERT INTO stores (id, name, address, version)
          SELECT count + 1, 'old', NULL, version + 1 FROM collection_{0}""",
        """INSERT INTO changes (seq, store_id, name, address, at, previous, count)
          SELECT version + 1, count + 1, 'old', NULL, 5, 0, count + 1 FROM collection_{0}""",
        "UPDATE collection_{0} SET count = count + 1, version = version + 1 WHERE one = 1",
    ],
}
"""How a process of each older schema creates a store, in one transaction; those after the third do as the third."""

NUMBERS = {
    ("sqlite", 1): "SELECT (SELECT count(*) FROM stores), max(seq) FROM changes",
    ("sqlite", 2): "SELECT count, seq FROM changes_2 WHERE seq = (SELECT max(seq) FROM changes_2)",
    ("sqlite", 3): "SELECT count, seq FROM changes_{0} WHERE seq = (SELECT max(seq) FROM changes_{0})",
    ("postgres", 1): "SELECT count, version FROM collection",
    ("postgres", 2): "SELECT count, version FROM collection_2",
    ("postgres", 3): "SELECT count, version FROM collection_{0}",
}
"""How it reads the collection's numbers for a list."""

LEAVE_WRITABLE = {
    "sqlite": """; CREATE TRIGGER writable INSTEAD OF INSERT ON changes_{0}
      BEGIN INSERT INTO changes_{1} (seq, store_id, name, at, previous, count)
        VALUES (NEW.seq, NEW.store_id, NEW.name, NEW.at, 0, NEW.count); END""",
    "postgres": """; CREATE OR REPLACE VIEW collection_{0} AS
      SELECT one, count, version, at, epoch FROM collection_{1}""",
}
"""Has the last migration leave the table that writers lock under its old name."""


class Older(Protocol):
    """A process of an older version."""

    def write(self) -> None:
        """Create a store."""
        ...

    def numbers(self) -> tuple[int, int]:
        """Read how many stores there are, and the version."""
        ...


class OlderOnSqlite:
    """See Older."""

    def __init__(self, file: apsw.Connection, version: int) -> None:
        self._file, self._version = file, version

    def write(self) -> None:
        """See Older."""
        with self._file:
            for statement in WRITES["sqlite", min(self._version, 3)]:
                self._file.execute(statement.format(self._version))

    def numbers(self) -> tuple[int, int]:
        """See Older."""
        found: tuple[int, int] = self._file.execute(
            NUMBERS["sqlite", min(self._version, 3)].format(self._version)
        ).get
        return found


class OlderOnPostgres:
    """See Older."""

    def __init__(self, server: psycopg.Connection, version: int) -> None:
        self._server, self._version = server, version

    def write(self) -> None:
        """See Older."""
        with self._server.transaction():
            for statement in WRITES["postgres", min(self._version, 3)]:
                self._server.execute(statement.format(self._version).encode())

    def numbers(self) -> tuple[int, int]:
        """See Older."""
        with self._server.transaction():
            query = NUMBERS["postgres", min(self._version, 3)].format(self._version)
            [found] = self._server.execute(query.encode()).fetchall()
        return found


@contextmanager
def older(database: Database, kind: str, version: int) -> Iterator[Older]:
    """Make a database of an older schema with one store; yield a process of that version that has it open."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SCHEMAS[kind], "MIGRATIONS", SCHEMAS[kind].MIGRATIONS[:version])
        databases.prepare(database.url)
    first = "INSERT INTO stores (id, name, version) VALUES (1, 'old', 1)"
    renamed = f"_{version}" * (version > 1)
    columns, values = (", previous, count", ", 0, 1") if version > 1 else ("", "")
    changed = f"(seq, store_id, name, at{columns}) VALUES (1, 1, 'old', 5{values})"
    if isinstance(database, Sqlite):
        with closing(apsw.Connection(str(database.path))) as file:
            file.execute(f"{first}; INSERT INTO changes{renamed} {changed}")
            yield OlderOnSqlite(file, version)
        return
    with psycopg.connect(database.url, prepare_threshold=0, autocommit=True) as server:
        numbers = f"UPDATE collection{renamed} SET count = 1, version = 1"
        for statement in (first, f"INSERT INTO changes {changed}", numbers):
            server.execute(statement.encode())
        yield OlderOnPostgres(server, version)


async def _write_beside(collection: Collection, process: Older) -> bool:
    """Write with both, one after the other; tell whether the older one could."""
    await create(collection, Payload("new"))
    try:
        process.write()
    except (apsw.Error, psycopg.Error):
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "version"), [(kind, version) for kind in KINDS for version in range(1, len(SCHEMAS[kind].MIGRATIONS))]
)
def test_a_process_of_an_older_version_reads_but_writes_nothing_once_this_one_has_started(
    tmp_path: Path, kind: str, version: int
) -> None:
    with KINDS[kind](tmp_path) as database, older(database, kind, version) as process:
        process.write()
        process.write()

        async def main() -> None:
            async with handle(database) as collection:
                for _ in range(3):
                    assert not await _write_beside(collection, process)
                    assert process.numbers() == (await state(collection))[:2]
                assert await replace(collection, 2, Payload("new"))
                numbers = await state(collection)
                assert numbers[:2] == (6, 7)
                assert len(numbers.epoch) == 8

        databases.prepare(database.url)
        run(main())
        names = [name for _, _, name, *_ in database.changes()]
        assert names == ["old"] * 3 + ["new"] * 4
        assert [seq for seq, *_ in database.changes()] == list(range(1, 8))


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_of_an_older_version_would_write_on_if_nothing_was_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The control."""
    *earlier, last = SCHEMAS[kind].MIGRATIONS
    with KINDS[kind](tmp_path) as database, older(database, kind, len(earlier)) as process:
        left = LEAVE_WRITABLE[kind].format(len(earlier), len(earlier) + 1)
        monkeypatch.setattr(SCHEMAS[kind], "MIGRATIONS", (*earlier, last.rstrip().rstrip(";") + left))

        async def main() -> bool:
            async with handle(database) as collection:
                return await _write_beside(collection, process)

        databases.prepare(database.url)
        assert run(main())
        assert [name for _, _, name, *_ in database.changes()] == ["old", "new", "old"]
