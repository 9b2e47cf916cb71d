"""The tables of the database, their migrations, and rows as parameters."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg

from storekeeper.domain.errors import MOVED_BEFORE_PROBLEM, MOVED_PROBLEM, Missing, WrongDatabase
from storekeeper.domain.search import FOLDING
from storekeeper.storage import folding as refolding
from storekeeper.storage.postgres.connections import (
    Connection,
    collection_schema,
    connected,
    describe,
)
from storekeeper.storage.postgres.pipeline import array
from storekeeper.storage.sql import (
    SCHEMA_NUMBER,
    TABLES,
    TABLES_OF_9,
    additions_of_10,
    additions_of_11,
    check_folding,
    check_schema_number,
    statements_of_tables,
)

NEW_EPOCH = """(SELECT string_agg(
        substr('abcdfghijklmnopqrstuvwxyze234567', 1 + floor(random() * value)::integer, 1), '')
      FROM unnest(ARRAY[25,32,32,32,32,32,32,32]) AS value)"""
"""The expression of a new epoch. Its first character is neither a digit nor an e, so that a version
before it stays the same number."""

COLLECTION_TABLE = "collection_11"
"""The table whose one row all writers lock: each schema has another name for it. The view
`collection` is for those who read."""

MOVED_TABLE = "collection_moved"
"""The name of that table once the list was moved to another database: then COLLECTION_TABLE is a
view."""

SCHEMA = f"""
    CREATE TABLE storekeeper (
      schema integer NOT NULL        -- one row: the number of the schema
    );
    INSERT INTO storekeeper VALUES ({SCHEMA_NUMBER});
    -- Without a key, a publication of all tables refuses an UPDATE.
    ALTER TABLE storekeeper REPLICA IDENTITY FULL;
    {statements_of_tables("bigint", 'text COLLATE "C"')}
    CREATE INDEX stores_by_name ON stores (name, id);
    CREATE INDEX changes_by_store ON changes (store_id, seq);
    -- The one lock of all writers, and the numbers that it guards. A SEQUENCE would leave gaps.
    CREATE TABLE collection (
      one     integer PRIMARY KEY CHECK (one = 1),
      count   bigint NOT NULL,       -- of stores
      version bigint NOT NULL,       -- the greatest seq
      at      bigint NOT NULL,       -- of the latest change
      epoch   text COLLATE "C" NOT NULL, -- changes if the numbers go back
      backed_up bigint               -- when the latest backup was made; null: never
    );
    INSERT INTO collection VALUES (1, 0, 0, 0, {NEW_EPOCH}, NULL);
    CREATE TABLE probe (             -- a probe of writes writes and deletes its row
      one    integer PRIMARY KEY DEFAULT 1 CHECK (one = 1),
      filler text NOT NULL
    );
"""

_TO_10 = f"""
    ALTER TABLE collection RENAME TO collection_10;
    -- The number of the function that folds the texts.
    ALTER TABLE collection_10 ADD COLUMN folding bigint NOT NULL DEFAULT 0;
    {additions_of_10("bigint", 'text COLLATE "C"', "", "changes")}
    CREATE INDEX stores_by_folded_name ON stores (folded_name, id);
    CREATE VIEW collection AS SELECT one, count, version, at, epoch, backed_up FROM collection_10
      GROUP BY one, count, version, at, epoch, backed_up;
"""

_OF_COLLECTION = "one, count, version, at, epoch, backed_up, folding"
_TO_11 = f"""
    -- Later texts are folded otherwise: see `_fold_again`.
    ALTER TABLE collection_10 RENAME TO collection_11;
    {additions_of_11("bigint", 'text COLLATE "C"', "collection_11")}
    CREATE OR REPLACE VIEW collection AS
      SELECT one, count, version, at, epoch, backed_up, memory FROM collection_11
      GROUP BY one, count, version, at, epoch, backed_up, memory;
    CREATE VIEW collection_10 AS SELECT {_OF_COLLECTION} FROM collection_11
      GROUP BY {_OF_COLLECTION};
"""

MIGRATIONS: tuple[str, ...] = (_TO_10, _TO_11)
"""The ways from SCHEMA to later schemas, one number each, each in one transaction with its number.

A released one is never edited. Each renames COLLECTION_TABLE, so that instances of older versions
cannot write, and leaves a view of the old name that cannot be locked (it groups rows), so that they
can read.
"""

# The last column: whether a COMMIT waits for a standby.
LOCK = f"""SELECT count, version, at, epoch,
    coalesce(current_setting('synchronous_standby_names', true), '') <> ''
  FROM {COLLECTION_TABLE} WHERE one = 1 FOR UPDATE"""

TYPES = {int: "int8", str: "text"}
"""The types of the columns of all tables."""

# Not to_regclass: its cached result may be older than the wait for the lock of migrations.
# Not information_schema: it hides what this user cannot read.
_TABLES = """SELECT relname FROM pg_catalog.pg_class
  WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND relnamespace = (
    SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())"""
# A rule can keep rows from being written without an error, and every view has a rule.
_NAMES = ("storekeeper", *TABLES, "probe", COLLECTION_TABLE)
_NAMES_BEFORE = ("storekeeper", *TABLES_OF_9, "probe")
"""The tables that must exist, and those of all earlier schemas."""
_FOREIGN = f"""{_TABLES} AND relname = ANY (%s)
  AND (relkind NOT IN ('r', 'p') OR relpersistence <> 'p'
    OR EXISTS (SELECT FROM pg_catalog.pg_rewrite WHERE ev_class = pg_class.oid)) ORDER BY relname"""
# One statement reads one moment, even while others write.
_NUMBERS = """SELECT count, version, (SELECT coalesce(max(id), 0) FROM stores),
  (SELECT coalesce(max(seq), 0) FROM changes) FROM collection WHERE one = 1"""

MIGRATION_LOCK = 0x53544F52
"""The advisory lock of all migrations: without it, concurrent migrations can fail."""

RIGHTS = "to create them needs CREATE on the schema"
"""What a user needs in addition to its own tables."""
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '4s'"

_FOLDING = f"SELECT folding FROM {COLLECTION_TABLE} WHERE one = 1"
_SET_FOLDING = f"UPDATE {COLLECTION_TABLE} SET folding = {FOLDING} WHERE one = 1"


def as_table(columns: Mapping[str, type]) -> str:
    """Return the FROM item `new` for what `as_arrays` returns of rows of these columns."""
    arrays = ", ".join(
        f"${number}::{TYPES[kind]}[]" for number, kind in enumerate(columns.values(), 1)
    )
    return f"unnest({arrays}) AS new ({', '.join(columns)})"


def as_arrays(rows: Iterable[tuple[str | int | None, ...]]) -> tuple[str, ...]:
    """Return rows as one parameter for each column."""
    return tuple([array(column) for column in zip(*rows, strict=True)])


_REFOLD = f"""UPDATE stores SET folded = new.folded, folded_name = new.folded_name
  FROM {as_table({"id": int, "folded": str, "folded_name": str})} WHERE stores.id = new.id"""


def current_number() -> int:
    """Return the number of the schema that this program reads and writes."""
    return SCHEMA_NUMBER + len(MIGRATIONS)


def exists(url: str) -> bool:
    """Return whether the database has a collection of the current version; raises as `prepare`
    without `upgrade`."""
    with connected(url, needs=RIGHTS, commits=False) as connection:
        return version(connection, upgrade=False, moved=True) > 0


def prepare(url: str, *, upgrade: bool = True) -> str:
    """Upgrade the database; return the schema that contains the collection.

    Several instances may do this at once. Raises CannotStart if the database cannot be used, if it
    is older and not `upgrade`, or if it has no collection. Raises Unavailable, also if another lock
    or another instance's migration takes longer than a few seconds.
    """
    with connected(url, needs=RIGHTS) as connection:
        _check_encoding(connection)
        connection.execute(_LOCK_TIMEOUT)
        number = version(connection, upgrade=upgrade)
        if not number:
            raise Missing(describe(url))
        if number < current_number():
            _migrate(connection, url)
        is_folded = folding(connection) == FOLDING
        check_rows(connection)
        found = collection_schema(connection)
    if not is_folded:
        _fold_again(url)
    return found


def create_tables(connection: Connection) -> bool:
    """Create the tables in the transaction of `connection`, unless they are there; return whether
    it did."""
    _check_encoding(connection)
    connection.execute(_LOCK_TIMEOUT)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
    if version(connection):
        return False
    connection.execute(SCHEMA.encode())
    _apply_migrations(connection, SCHEMA_NUMBER)
    connection.execute(_SET_FOLDING.encode())
    return True


def _check_encoding(connection: Connection) -> None:
    """Raise CannotStart unless a database can store all letters."""
    # Also a complete one: a dump may have been restored into another encoding.
    if connection.execute("SHOW server_encoding").fetchone() != ("UTF8",):
        raise WrongDatabase("its encoding must be UTF8: CREATE DATABASE ... ENCODING 'UTF8'")


def _migrate(connection: Connection, url: str) -> None:
    # Otherwise an instance that migrates now would wait for the tables that this one has read.
    connection.rollback()
    connection.execute(_LOCK_TIMEOUT)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
    # While this waits for a table, all others wait behind it: during a pg_dump, even the reads of
    # older instances.
    connection.execute("SET LOCAL lock_timeout = '1s'")
    # Again, because another instance may have migrated while this one waited for the lock.
    if (number := version(connection)) == current_number():
        return
    if not number:
        raise Missing(describe(url))
    # Every start reads it first, and has no lock then.
    connection.execute("LOCK TABLE storekeeper")
    _apply_migrations(connection, number)


def _apply_migrations(connection: Connection, number: int) -> None:
    for migration in MIGRATIONS[number - SCHEMA_NUMBER :]:
        connection.execute(migration.encode())
    connection.execute("UPDATE storekeeper SET schema = %s", (current_number(),))


def is_moved(connection: Connection) -> bool:
    """Return whether the list was moved to another database."""
    return (MOVED_TABLE,) in connection.execute(_TABLES).fetchall()


def version(connection: Connection, *, upgrade: bool = True, moved: bool = False) -> int:
    """Return the number of the schema, 0 if there is none; raise CannotStart if it cannot be
    used: also if the list was moved, unless `moved`."""
    if ("storekeeper",) not in connection.execute(_TABLES).fetchall():
        return 0
    try:
        ((number,),) = connection.execute(
            "SELECT schema::integer FROM storekeeper WHERE schema::integer > 0"
        ).fetchall()
        number = int(number)
    except (
        ValueError,
        TypeError,
        psycopg.errors.UndefinedColumn,
        psycopg.errors.CannotCoerce,
        psycopg.DataError,
    ):
        raise WrongDatabase(
            "its table storekeeper is not the one we made: restore it, or name another database"
        ) from None
    is_current = number == current_number()
    names = _NAMES if is_current else _NAMES_BEFORE
    was_moved = is_moved(connection)
    if was_moved and number < current_number():
        raise WrongDatabase(MOVED_BEFORE_PROBLEM)
    check_schema_number(number, current_number(), "--database", upgrade=upgrade)
    if was_moved:
        if not moved:
            raise WrongDatabase(MOVED_PROBLEM)
        names = tuple(MOVED_TABLE if name == COLLECTION_TABLE else name for name in names)
    _check_tables(connection, names)
    if is_current:
        check_folding(folding(connection), "--database", upgrade=upgrade)
    return number


def folding(connection: Connection) -> int:
    """Return the number of what folded the texts of the stores."""
    ((number,),) = connection.execute(_FOLDING).fetchall() or [(FOLDING,)]
    return int(number)


def _fold_again(url: str) -> None:
    """Fold the texts of all stores as this program does it.

    It is many transactions, so that no client waits for it; only this program and later ones write
    meanwhile, and they fold what they write.
    """
    last: int | None = 0
    while last is not None:
        with connected(url) as connection:
            connection.execute(_LOCK_TIMEOUT)
            connection.execute(LOCK.encode())
            last = _fold_some(psycopg.RawCursor(connection), last)


def _fold_some(cursor: psycopg.RawCursor[tuple[Any, ...]], after: int) -> int | None:
    """Fold the texts of the next stores; return the last id, None if there were none."""
    rows = cursor.execute(refolding.SELECT_PIECE.encode(), (after, refolding.PIECE))
    last, changed = refolding.refolded(rows)
    if changed:
        cursor.execute(_REFOLD.encode(), as_arrays(changed))
    if last is None:
        cursor.execute(_SET_FOLDING.encode())
    return last


def _check_tables(connection: Connection, names: Sequence[str]) -> None:
    """Raise CannotStart unless there are all tables of these names, or more."""
    # Asked after the number: another instance may migrate meanwhile.
    tables = {name for (name,) in connection.execute(_TABLES)}
    if missing := ", ".join(sorted(set(names) - tables)):
        raise WrongDatabase(f"not complete, it lacks the table {missing}: restore it")
    if foreign := ", ".join(name for (name,) in connection.execute(_FOREIGN, (list(names),))):
        raise WrongDatabase(
            f"{foreign} is not an ordinary table that survives a crash, but a view, UNLOGGED, or"
            " has rules"
        )
    # The view makes one row of several equal ones.
    numbers = COLLECTION_TABLE if COLLECTION_TABLE in names else "collection"
    if connection.execute(f"SELECT count(*) FROM {numbers}".encode()).fetchone() != (1,):
        raise WrongDatabase(
            "not complete, the table collection does not have its one row: restore it"
        )


def check_rows(connection: Connection) -> None:
    """Raise CannotStart unless there are as many stores and changes as the row of the collection
    says."""
    ((count, version, stores, changes),) = connection.execute(_NUMBERS).fetchall()
    if (count, version) != (stores, changes):
        raise WrongDatabase(
            f"not complete, it has {stores} of {count} stores and {changes} of {version} changes:"
            " restore it"
        )
