"""The tables of the database, their migrations, and rows as parameters. Imports psycopg and the domain."""

from collections.abc import Iterable, Mapping

import psycopg

from storekeeper.errors import CannotStart
from storekeeper.postgres.pipeline import array
from storekeeper.postgres.session import Connection, collection_schema, connected

NEW_EPOCH = """(SELECT string_agg(substr('abcdefghijklmnopqrstuvwxyz234567', 1 + floor(random() * 32)::integer, 1),
      '') FROM generate_series(1, 8))"""
"""The expression of a new epoch."""

MIGRATIONS = (
    # Migration n takes a database from version n-1 to n, in one transaction with its version number.
    # A released one is never edited: a change of the schema is a new migration at the end. It renames the table that
    # writers lock (`COLLECTION_TABLE`), so that instances of older versions can write nothing more.
    """
    CREATE TABLE storekeeper (
      schema integer NOT NULL        -- one row: how many migrations this database has had
    );
    INSERT INTO storekeeper VALUES (0);
    CREATE TABLE stores (
      id      bigint PRIMARY KEY,    -- 1..n without a hole
      name    text COLLATE "C" NOT NULL CHECK (char_length(name) BETWEEN 1 AND 30),
      address text,                  -- null: not given
      version bigint NOT NULL        -- the seq of its latest change
    );
    CREATE INDEX stores_by_name ON stores (name, id);
    CREATE TABLE changes (
      seq      bigint PRIMARY KEY,   -- 1..n without a hole; the greatest is the collection's version
      store_id bigint NOT NULL,      -- no REFERENCES: it would cost a lock on each store, and holds by construction
      name     text COLLATE "C" NOT NULL CHECK (char_length(name) BETWEEN 1 AND 30),  -- what the store became
      address  text,
      at       bigint NOT NULL       -- milliseconds since 1970, UTC
    );
    CREATE INDEX changes_by_store ON changes (store_id, seq);
    -- The one lock of all writers, and the numbers that it guards. A SEQUENCE would leave holes.
    CREATE TABLE collection (
      one     integer PRIMARY KEY CHECK (one = 1),
      count   bigint NOT NULL,       -- of stores
      version bigint NOT NULL        -- the greatest seq
    );
    INSERT INTO collection VALUES (1, 0, 0);
    """,
    """
    LOCK TABLE collection;  -- before changes, as every writer does: else there would be deadlocks with them
    ALTER TABLE changes
      ADD COLUMN previous bigint NOT NULL DEFAULT 0,  -- the seq of the store's change before; 0 for its first
      ADD COLUMN count bigint NOT NULL DEFAULT 0;     -- how many stores there were after it
    UPDATE changes SET at = new.at, previous = new.previous, count = new.count FROM (
      SELECT seq, max(at) OVER (ORDER BY seq) AS at,
        coalesce(lag(seq) OVER (PARTITION BY store_id ORDER BY seq), 0) AS previous,
        max(store_id) OVER (ORDER BY seq) AS count FROM changes) AS new WHERE changes.seq = new.seq;
    ALTER TABLE changes ALTER COLUMN previous DROP DEFAULT, ALTER COLUMN count DROP DEFAULT;
    ALTER TABLE collection RENAME TO collection_2;
    ALTER TABLE collection_2 ADD COLUMN at bigint NOT NULL DEFAULT 0;  -- of the latest change
    UPDATE collection_2 SET at = (SELECT coalesce(max(at), 0) FROM changes);
    -- Older versions can read this view, and cannot lock it, because it groups rows (each is a group of its own).
    CREATE VIEW collection AS SELECT one, count, version FROM collection_2 GROUP BY ctid, one, count, version;
    """,
    f"""
    LOCK TABLE collection_2;
    CREATE TABLE keys (              -- Idempotency-Keys that are remembered
      n       bigint PRIMARY KEY,    -- grows by one with each; the oldest are deleted, the newest never
      key     bigint NOT NULL,       -- a hash
      request bigint NOT NULL,       -- a hash of the request that it was sent with
      seq     bigint NOT NULL,       -- the change that is the response
      at      bigint NOT NULL        -- milliseconds since 1970, UTC
    );
    CREATE INDEX keys_by_key ON keys (key, n);
    ALTER TABLE collection_2 RENAME TO collection_3;
    ALTER TABLE collection_3 ADD COLUMN epoch text COLLATE "C" NOT NULL DEFAULT '';  -- changes if the numbers go back
    UPDATE collection_3 SET epoch = {NEW_EPOCH};
    ALTER TABLE collection_3 ALTER COLUMN epoch DROP DEFAULT;
    CREATE VIEW collection_2 AS
      SELECT one, count, version, at FROM collection_3 GROUP BY ctid, one, count, version, at;
    CREATE OR REPLACE VIEW collection AS
      SELECT one, count, version, epoch FROM collection_3 GROUP BY ctid, one, count, version, epoch;
    """,
    """
    LOCK TABLE collection_3;
    CREATE TABLE tokens (
      number  bigint PRIMARY KEY,    -- 1..n; nothing is deleted
      name    text COLLATE "C" NOT NULL UNIQUE,
      scope   text NOT NULL CHECK (scope IN ('read', 'write')),
      hash    text NOT NULL UNIQUE,  -- SHA-256 in hexadecimal digits
      created bigint NOT NULL,       -- milliseconds since 1970, UTC, as all that follow
      expires bigint,                -- null: never
      revoked bigint,
      used    bigint                 -- within an hour before its latest use
    );
    ALTER TABLE changes ADD COLUMN by_token bigint NOT NULL DEFAULT 0;  -- the token's number; 0: none
    ALTER TABLE collection_3 RENAME TO collection_4;
    CREATE VIEW collection_3 AS
      SELECT one, count, version, at, epoch FROM collection_4 GROUP BY ctid, one, count, version, at, epoch;
    """,
    # Each process has an index of its own in its memory (`key_index`).
    """
    LOCK TABLE collection_4;
    DROP INDEX IF EXISTS keys_by_key;
    ALTER TABLE collection_4 RENAME TO collection_5;
    CREATE VIEW collection_4 AS
      SELECT one, count, version, at, epoch FROM collection_5 GROUP BY ctid, one, count, version, at, epoch;
    """,
    # One row for all keys of a transaction, and the keys themselves: what a write costs is a fraction.
    """
    LOCK TABLE collection_5;
    TRUNCATE keys;                   -- a new table would have lost who may use it, and its place in a publication
    ALTER TABLE keys                 -- n is how many keys there ever were, with those of its row
      DROP COLUMN key, DROP COLUMN request, DROP COLUMN seq,
      ADD COLUMN entries text NOT NULL,  -- JSON: each Idempotency-Key, a number for its request, and its change's seq
      SET (toast_tuple_target = 8160);
    ALTER TABLE keys ALTER COLUMN entries SET STORAGE EXTERNAL;  -- to compress them would take longer than all else
    ALTER TABLE collection_5 RENAME TO collection_6;
    CREATE VIEW collection_5 AS
      SELECT one, count, version, at, epoch FROM collection_6 GROUP BY ctid, one, count, version, at, epoch;
    """,
)

COLLECTION_TABLE = "collection_6"
"""The table whose one row all writers lock. Its old names are views: instances of older versions, and people, can
read them."""

# The last column: whether a COMMIT waits for a standby.
LOCK = f"""SELECT count, version, at, epoch, coalesce(current_setting('synchronous_standby_names', true), '') <> ''
  FROM {COLLECTION_TABLE} WHERE one = 1 FOR UPDATE"""

TYPES = {int: "int8", str: "text"}
"""The types of the columns of all tables."""

# Not to_regclass: its cached result may be older than the wait for the lock of migrations.
# Not information_schema: it hides what this user may not read.
_TABLES = """SELECT relname FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND relnamespace = (
  SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())"""
# A rule can keep rows from being written without an error, and every view has a rule.
_FOREIGN = f"""{_TABLES} AND relname IN ('storekeeper', 'stores', 'changes', 'keys', 'tokens', '{COLLECTION_TABLE}')
  AND (relkind NOT IN ('r', 'p') OR relpersistence <> 'p'
    OR EXISTS (SELECT FROM pg_catalog.pg_rewrite WHERE ev_class = pg_class.oid)) ORDER BY relname"""
_COMPLETE = {"stores": 1, "changes": 1, "collection": 1, "keys": 3, "tokens": 4}
"""The tables and views that have to exist, and the migration that creates each."""

# What is read in one statement is of one moment, beside writers too.
_NUMBERS = """SELECT count, version, (SELECT coalesce(max(id), 0) FROM stores),
  (SELECT coalesce(max(seq), 0) FROM changes) FROM collection"""

MIGRATION_LOCK = 0x53544F52
"""The advisory lock of all migrations: without it, migrations at the same time can fail."""

_RIGHTS = "for the first start needs CREATE on the schema"
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '4s'"


def as_table(columns: Mapping[str, type]) -> str:
    """Return the FROM item `new` for what `as_arrays` returns of rows of these columns."""
    arrays = ", ".join(f"${number}::{TYPES[kind]}[]" for number, kind in enumerate(columns.values(), 1))
    return f"unnest({arrays}) AS new ({', '.join(columns)})"


def as_arrays(rows: Iterable[tuple[str | int | None, ...]]) -> tuple[str, ...]:
    """Return rows as one parameter for each column."""
    return tuple([array(column) for column in zip(*rows, strict=True)])


def exists(url: str) -> bool:
    """Tell whether the database has a collection of the present version; raises as `prepare` without `upgrade`."""
    with connected(url, needs=_RIGHTS, commits=False) as connection:
        return version(connection, upgrade=False) > 0


def prepare(url: str, *, upgrade: bool = True) -> str:
    """Create or upgrade the database; return the schema that contains the collection.

    Several instances may do this at once. Raises CannotStart, also if it is older and may not be upgraded. Raises
    Unavailable, also if another lock or another instance's migration takes longer than a few seconds.
    """
    with connected(url, needs=_RIGHTS) as connection:
        # Also of one that is complete: a dump may have been restored into another encoding.
        if connection.execute("SHOW server_encoding").fetchone() != ("UTF8",):
            raise CannotStart("--database: its encoding has to be UTF8: CREATE DATABASE ... ENCODING 'UTF8'")
        connection.execute(_LOCK_TIMEOUT)
        if version(connection, upgrade=upgrade) < len(MIGRATIONS):
            _migrate(connection)
        _check_rows(connection)
        return collection_schema(connection)


def _migrate(connection: Connection) -> None:
    connection.rollback()  # else whoever migrates now would wait for the tables that were looked at
    connection.execute(_LOCK_TIMEOUT)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
    # While this waits for a table, all others wait behind it: during a pg_dump, also the reads of older instances.
    connection.execute("SET LOCAL lock_timeout = '1s'")
    # Asked again: while this waited for the lock, another instance may have migrated.
    if (number := version(connection)) == len(MIGRATIONS):
        return
    if number:
        connection.execute("LOCK TABLE storekeeper")  # every start reads it first, and has no lock then
    for migration in MIGRATIONS[number:]:
        connection.execute(migration)
    # It has no key, without which a publication of all tables refuses an UPDATE.
    connection.execute("ALTER TABLE storekeeper REPLICA IDENTITY FULL")
    connection.execute("UPDATE storekeeper SET schema = %s", (len(MIGRATIONS),))


def version(connection: Connection, *, upgrade: bool = True) -> int:
    """Return how many migrations the database has had; raise CannotStart if it cannot be used."""
    if ("storekeeper",) not in connection.execute(_TABLES).fetchall():
        return 0
    try:
        ((number,),) = connection.execute(
            "SELECT schema::integer FROM storekeeper WHERE schema::integer > 0"
        ).fetchall()
        number = int(number)
    except (ValueError, TypeError, psycopg.errors.UndefinedColumn, psycopg.errors.CannotCoerce, psycopg.DataError):
        raise CannotStart(
            "--database has a table storekeeper that is not as we made it: restore it, or name another database"
        ) from None
    if number > len(MIGRATIONS):
        raise CannotStart(
            f"--database was written by a newer Storekeeper (its schema is {number}, this one knows"
            f" {len(MIGRATIONS)}): install that version or a later one"
        )
    _check_tables(connection, number)
    if number < len(MIGRATIONS) and not upgrade:
        raise CannotStart(
            "--database was written by an older Storekeeper: upgrade it first, by starting `storekeeper serve` with"
            " it once"
        )
    return number


def _check_tables(connection: Connection, number: int) -> None:
    """Raise CannotStart unless the tables are those that so many migrations create, or more."""
    # Asked after the number: another instance may migrate meanwhile.
    tables = {name for (name,) in connection.execute(_TABLES)}
    if missing := ", ".join(sorted(name for name in _COMPLETE.keys() - tables if _COMPLETE[name] <= number)):
        raise CannotStart(f"--database is not complete, it lacks the table {missing}: restore it")
    if foreign := ", ".join(name for (name,) in connection.execute(_FOREIGN)):
        raise CannotStart(
            f"--database: {foreign} is no ordinary table that outlives a crash (but a view, UNLOGGED, or with rules)"
        )
    if connection.execute("SELECT count(*) FROM collection").fetchone() != (1,):
        raise CannotStart("--database is not complete, the table collection does not have its one row: restore it")


def _check_rows(connection: Connection) -> None:
    """Raise CannotStart unless there are as many stores and changes as the row of the collection says."""
    ((count, version, stores, changes),) = connection.execute(_NUMBERS).fetchall()
    if (count, version) != (stores, changes):
        raise CannotStart(
            f"--database is not complete, it has {stores} of {count} stores and {changes} of {version} changes:"
            " restore it"
        )
