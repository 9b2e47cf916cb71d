"""One process of an older version and one of this one on one database."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, LiteralString

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

WRITES: dict[tuple[str, int], list[LiteralString]] = {
    ("sqlite", 1): [
        "INSERT INTO stores SELECT count(*) + 1, 'old', NULL, (SELECT max(seq) + 1 FROM changes) FROM stores",
        "INSERT INTO changes SELECT version, id, name, address, 5 FROM stores ORDER BY id DESC LIMIT 1",
    ],
    ("sqlite", 2): [
        "INSERT INTO stores SELECT count(*) + 1, 'old', NULL, (SELECT max(seq) + 1 FROM changes_2) FROM stores",
        "INSERT INTO changes_2 SELECT version, id, name, address, 5, 0, id FROM stores ORDER BY id DESC LIMIT 1",
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
}
"""How a process of each older schema creates a store, in one transaction."""

LEAVE_WRITABLE = {
    "sqlite": """; CREATE VIEW changes_2 AS SELECT * FROM changes_3;
      CREATE TRIGGER writable INSTEAD OF INSERT ON changes_2
      BEGIN INSERT INTO changes_3 VALUES (NEW.seq, NEW.store_id, NEW.name, NULL, NEW.at, 0, NEW.count); END""",
    "postgres": "; CREATE OR REPLACE VIEW collection_2 AS SELECT one, count, version, at FROM collection_3",
}
"""Has the last migration leave the table that writers lock under its old name."""


@contextmanager
def older(database: Database, kind: str, version: int) -> Iterator[Callable[[], None]]:
    """Make a database of an older schema; yield what creates a store in it, as a process of that version does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SCHEMAS[kind], "MIGRATIONS", SCHEMAS[kind].MIGRATIONS[:version])
        databases.prepare(database.url)
    first = "INSERT INTO stores VALUES (1, 'old', NULL, 1)"
    changed: LiteralString = "INSERT INTO changes VALUES (1, 1, 'old', NULL, 5" + ", 0, 1" * (version > 1) + ")"
    writes = WRITES[kind, version]
    if isinstance(database, Sqlite):
        with closing(apsw.Connection(str(database.path))) as file:
            file.execute(first)
            file.execute(changed.replace("changes", "changes_2") if version > 1 else changed)

            def write_file() -> None:
                with file:
                    for statement in writes:
                        file.execute(statement)

            yield write_file
        return
    with psycopg.connect(database.url, prepare_threshold=0) as server:
        for statement in (first, changed, _numbers(version)):
            server.execute(statement)
        server.commit()

        def write() -> None:
            with server.transaction():
                for statement in writes:
                    server.execute(statement)

        yield write


def _numbers(version: int) -> LiteralString:
    if version == 1:
        return "UPDATE collection SET count = 1, version = 1"
    return "UPDATE collection_2 SET count = 1, version = 1"


async def _write_beside(collection: Collection, write_older: Callable[[], None]) -> bool:
    """Write with both, one after the other; tell whether the older one could."""
    await create(collection, Payload("new"))
    try:
        write_older()
    except (apsw.Error, psycopg.Error):
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [1, 2])
def test_a_process_of_an_older_version_writes_nothing_once_this_one_has_started(
    tmp_path: Path, kind: str, version: int
) -> None:
    with KINDS[kind](tmp_path) as database, older(database, kind, version) as write_older:
        write_older()
        write_older()

        async def main() -> None:
            async with handle(database) as collection:
                for _ in range(3):
                    assert not await _write_beside(collection, write_older)
                assert await replace(collection, 2, Payload("new"))
                numbers = await state(collection)
                assert numbers[:2] == (6, 7)
                assert len(numbers.epoch) == 8

        databases.prepare(database.url)
        run(main())
        names = [name for _, _, name, _ in database.changes()]
        assert names == ["old"] * 3 + ["new"] * 4
        assert [seq for seq, *_ in database.changes()] == list(range(1, 8))


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_of_an_older_version_would_write_on_if_nothing_was_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The control."""
    *earlier, last = SCHEMAS[kind].MIGRATIONS
    with KINDS[kind](tmp_path) as database, older(database, kind, len(earlier)) as write_older:
        monkeypatch.setattr(SCHEMAS[kind], "MIGRATIONS", (*earlier, last.rstrip().rstrip(";") + LEAVE_WRITABLE[kind]))

        async def main() -> bool:
            async with handle(database) as collection:
                return await _write_beside(collection, write_older)

        databases.prepare(database.url)
        assert run(main())
        assert [name for _, _, name, _ in database.changes()] == ["old", "new", "old"]
