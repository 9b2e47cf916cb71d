"""What keeps every process from writing to a file whose list moves to another database."""

from contextlib import closing
from pathlib import Path

import apsw

from storekeeper.storage.sqlite import schema
from storekeeper.storage.sqlite.connections import START_TIMEOUT, connect, transaction
from storekeeper.storage.sqlite.migrations import CHANGES_TABLE, MOVED_TABLE
from storekeeper.storage.sqlite.snapshot import RENEW_EPOCH

# Nothing can be written to a view; reads continue through it.
_FREEZE = f"""ALTER TABLE {CHANGES_TABLE} RENAME TO {MOVED_TABLE};
  CREATE VIEW {CHANGES_TABLE} AS SELECT * FROM {MOVED_TABLE}"""
_THAW = f"DROP VIEW {CHANGES_TABLE}; ALTER TABLE {MOVED_TABLE} RENAME TO {CHANGES_TABLE}"


def freeze(path: Path) -> bool:
    """Refuse all writes from now on, also those of running services; return whether they were
    allowed. Raises CannotStart."""
    return _apply(path, _FREEZE, when_moved=False)


def thaw(path: Path, *, renew: bool) -> bool:
    """Allow writes again, with `renew` under a new epoch; return whether they were refused. Raises
    CannotStart."""
    statements = f"{_THAW}; {RENEW_EPOCH}" if renew else _THAW
    return _apply(path, statements, when_moved=True)


def _apply(path: Path, statements: str, *, when_moved: bool) -> bool:
    schema.prepare(path, upgrade=False, moved=True)
    with (
        schema.raising_cannot_start(path),
        closing(connect(path, timeout=START_TIMEOUT)) as connection,
    ):
        # The views keep their text: it names what the table is called now, and again later.
        connection.pragma("legacy_alter_table", True)
        with transaction(connection, "IMMEDIATE"):
            if _is_moved(connection) != when_moved:
                return False
            connection.execute(statements).fetchall()
    return True


def _is_moved(connection: apsw.Connection) -> bool:
    named = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (MOVED_TABLE,))
    return named.fetchone() is not None
