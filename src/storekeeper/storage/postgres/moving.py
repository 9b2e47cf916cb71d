"""What keeps every instance from writing to a database whose list moves to another one."""

from storekeeper.storage.postgres.connections import Connection, connected
from storekeeper.storage.postgres.schema import COLLECTION_TABLE, MOVED_TABLE, is_moved, version
from storekeeper.storage.postgres.snapshot import RENEW_EPOCH

_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '4s'"
_COLUMNS = "one, count, version, at, epoch, backed_up, folding, memory"
# It groups rows, so that no writer can lock it; reads continue through it.
_FREEZE = f"""ALTER TABLE {COLLECTION_TABLE} RENAME TO {MOVED_TABLE};
  CREATE VIEW {COLLECTION_TABLE} AS SELECT {_COLUMNS} FROM {MOVED_TABLE} GROUP BY {_COLUMNS}"""
_THAW = f"DROP VIEW {COLLECTION_TABLE}; ALTER TABLE {MOVED_TABLE} RENAME TO {COLLECTION_TABLE}"


def freeze(url: str) -> bool:
    """Refuse all writes from now on, also those of running instances; return whether they were
    allowed. Raises CannotStart, Unavailable."""
    with connected(url) as connection:
        return _apply(connection, _FREEZE, when_moved=False)


def thaw(url: str, *, renew: bool) -> bool:
    """Allow writes again, with `renew` under a new epoch; return whether they were refused. Raises
    CannotStart, Unavailable."""
    statements = f"{_THAW}; {RENEW_EPOCH}" if renew else _THAW
    with connected(url) as connection:
        return _apply(connection, statements, when_moved=True)


def _apply(connection: Connection, statements: str, *, when_moved: bool) -> bool:
    version(connection, upgrade=False, moved=True)
    connection.execute(_LOCK_TIMEOUT)
    connection.execute("LOCK TABLE storekeeper")  # after another move of the same list
    if is_moved(connection) != when_moved:
        return False
    connection.execute(statements.encode())
    return True
