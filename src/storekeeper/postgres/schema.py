"""The database: its URL, its connections, its tables and migrations. Imports psycopg and the domain."""

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from storekeeper.errors import CannotStart, StorekeeperError, Unavailable
from storekeeper.postgres import session

Connection = psycopg.Connection[tuple[Any, ...]]

NEW_EPOCH = """(SELECT string_agg(substr('abcdefghijklmnopqrstuvwxyz234567', 1 + floor(random() * 32)::integer, 1),
      '') FROM generate_series(1, 8))"""
"""The expression of a new epoch."""

MIGRATIONS = (
    # Migration n takes a database from version n-1 to n, in one transaction with its version number.
    # A released one is never edited: a change of the schema is a new migration at the end. It renames the table that
    # writers lock (`COLLECTION`), so that instances of older versions can write nothing more.
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
)

COLLECTION = "collection_4"
"""The table whose one row all writers lock. Its old names are views: instances of older versions, and people, can
read them."""

# Not to_regclass, whose cached result may be older than the wait for the lock of migrations.
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
# A rule can keep rows from being written without an error, and every view has a rule.
_FOREIGN = f"""SELECT relname FROM pg_catalog.pg_class WHERE relnamespace = (
  SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())
  AND relname IN ('storekeeper', 'stores', 'changes', 'keys', 'tokens', '{COLLECTION}')
  AND (relkind NOT IN ('r', 'p') OR relpersistence <> 'p'
    OR EXISTS (SELECT FROM pg_catalog.pg_rewrite WHERE ev_class = pg_class.oid)) ORDER BY relname"""
_COMPLETE = {"stores": 1, "changes": 1, "collection": 1, "keys": 3, "tokens": 4}
"""Tables and views that have to be there, and since which migration."""

_SCHEMAS = """SELECT nspname
  FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace AS space ON space.oid = relnamespace
  WHERE relname = 'storekeeper' AND relkind IN ('r', 'p', 'v', 'm', 'f')
  AND nspname = ANY (pg_catalog.current_schemas(false)) ORDER BY nspname"""
"""Selects every schema of the search path that has a collection."""

MIGRATION_LOCK = 0x53544F52
"""The advisory lock of all migrations: without it, migrations at the same time can fail. On an engine without
advisory locks, start the first instance alone."""

_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '4s'"

_DEFAULTS = {
    "application_name": "storekeeper",
    "connect_timeout": "3",
    # A host that vanished silently is noticed within about 10 s, even on an idle connection.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
    # For reads too: a standby may be behind, and a read must see every write that was acknowledged before.
    # `primary` and not `read-write`: while a full disk keeps the server from writing, reads continue.
    "target_session_attrs": "primary",
}
_PRIMARY = ("read-write", "primary")


def parameters(url: str) -> str:
    """Return libpq's connection string for a URL; raise CannotStart. Messages never show a password."""
    try:
        given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except (psycopg.Error, UnicodeError):
        raise CannotStart(
            "--database is no valid PostgreSQL URL: postgresql://user:password@host:port/database, with special"
            " characters of user and password percent-encoded"
        ) from None
    if "@" in given.get("host", ""):
        raise CannotStart("--database: an @ within user or password has to be written as %40")
    if given.get("target_session_attrs", "primary") not in _PRIMARY:
        raise CannotStart(
            "--database: target_session_attrs can only be read-write or primary: a standby may be behind"
        )
    return make_conninfo(**(_DEFAULTS | _from_environment() | given | {"client_encoding": "utf8"}))


def describe(url: str) -> str:
    """Return the URL of the database as libpq understands it, without a password; raise CannotStart."""
    defaults = {option.keyword.decode(): option.val.decode() for option in Conninfo.get_defaults() if option.val}
    given = defaults | {name: str(value) for name, value in conninfo_to_dict(parameters(url)).items()}
    if service := given.get("service"):
        return f"postgresql:///?service={quote(service)}"  # its file has the rest
    user = given.get("user", "")
    hosts = (given.get("host") or given.get("hostaddr", "")).split(",")
    ports = given.get("port", "").split(",")
    places = [
        quote(host, safe=":[]") + f":{port}" * (port not in ("", "5432"))
        for host, port in zip(hosts, ports * (len(hosts) if len(ports) == 1 else 1), strict=False)
    ]
    return f"postgresql://{quote(user)}@{','.join(places)}/{quote(given.get('dbname') or user)}"


def connect(conninfo: str) -> Connection:
    """Open a blocking connection, for a thread, whose statements may take long; raises Unavailable, CannotStart."""
    try:
        connection = psycopg.connect(conninfo, autocommit=True)
        try:
            connection.execute("; ".join(session.setup_statements(session.BULK)).encode())
            connection.execute(session.set_search_path(_collection_schema(connection)).encode())
            connection.autocommit = False
        except BaseException:
            connection.close()
            raise
    except psycopg.Error as error:
        raise session_error(error, conninfo) from None
    return connection


def session_error(error: Exception, conninfo: str) -> StorekeeperError:
    """Return the error for a session that cannot be used."""
    if getattr(error, "sqlstate", "") == session.SHARED_SESSION:
        return CannotStart("--database: a pooler gives each session to many clients: use session pooling")
    return Unavailable(one_line(error, conninfo))


def prepare(conninfo: str, *, upgrade: bool = True) -> str:
    """Create or upgrade the database; return the schema that contains the collection.

    Several instances may do this at once. Raises CannotStart, also if it is older and may not be upgraded. Raises
    Unavailable, also if another lock or another instance's migration takes longer than a few seconds.
    """
    with connect(conninfo) as connection:
        try:
            connection.execute(_LOCK_TIMEOUT)
            done = version(connection)
            if done == len(MIGRATIONS):
                return _collection_schema(connection)
            if done and not upgrade:
                raise CannotStart(
                    "--database was written by an older Storekeeper: upgrade it first, by starting"
                    " `storekeeper serve` with it once"
                )
            if connection.execute("SHOW server_encoding").fetchone() != ("UTF8",):
                raise CannotStart("--database: its encoding has to be UTF8: CREATE DATABASE ... ENCODING 'UTF8'")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            _migrate(connection)
            return _collection_schema(connection)
        except (psycopg.errors.DuplicateTable, psycopg.errors.DuplicateObject) as error:
            raise CannotStart(
                f"--database has tables of another program ({one_line(error, conninfo)}): name another database"
            ) from None
        except psycopg.errors.InsufficientPrivilege as error:
            raise CannotStart(
                f"--database: {one_line(error, conninfo)}: the user has to own the tables, and for the first start"
                " needs CREATE on the schema"
            ) from None
        except psycopg.Error as error:
            raise Unavailable(one_line(error, conninfo)) from None


def version(connection: Connection) -> int:
    """Return how many migrations the database has had; raise CannotStart if more than are known."""
    tables = {name for (name,) in connection.execute(_TABLES)}
    if "storekeeper" not in tables:
        return 0
    try:
        ((number,),) = connection.execute("SELECT schema::integer FROM storekeeper").fetchall()
    except psycopg.errors.InsufficientPrivilege:
        raise
    except (ValueError, psycopg.ProgrammingError, psycopg.DataError):
        raise CannotStart(
            "--database has a table storekeeper that is not as we made it: restore it, or name another database"
        ) from None
    if number > len(MIGRATIONS):
        raise CannotStart(
            f"--database was written by a newer Storekeeper (its schema is {number}, this one knows"
            f" {len(MIGRATIONS)}): install that version or a later one"
        )
    _check_tables(connection, tables, number)
    return int(number)


def _check_tables(connection: Connection, tables: set[str], number: int) -> None:
    """Raise CannotStart unless the tables are those that so many migrations create."""
    if missing := ", ".join(sorted(name for name in _COMPLETE.keys() - tables if _COMPLETE[name] <= number)):
        raise CannotStart(
            f"--database is not complete, it lacks (or this user may not see) the table {missing}: restore it"
        )
    if foreign := ", ".join(name for (name,) in connection.execute(_FOREIGN)):
        raise CannotStart(
            f"--database: {foreign} is no ordinary table that outlives a crash (but a view, UNLOGGED, or with rules)"
        )
    if connection.execute("SELECT count(*) FROM collection").fetchone() != (1,):
        raise CannotStart("--database is not complete, the table collection does not have its one row: restore it")


def one_line(error: Exception, conninfo: str) -> str:
    """Return an error of libpq as one line, without any password."""
    text = " ".join(str(error).split())
    secrets: Mapping[str, Any] = conninfo_to_dict(conninfo)
    for name in ("password", "sslpassword"):
        if secret := secrets.get(name) or os.environ.get("PGPASSWORD", ""):
            text = text.replace(str(secret), "***")
    return text


def _collection_schema(connection: Connection) -> str:
    """Return the schema that contains the collection, or that is to contain a new one."""
    found = [name for (name,) in connection.execute(_SCHEMAS)]
    if len(found) > 1:
        raise CannotStart(
            f"--database has two collections, in the schemas {' and '.join(found)}: name one, as by"
            " ALTER ROLE ... SET search_path, or with ?options=-csearch_path%3D... in the URL"
        )
    if not found:
        found = [name for (name,) in connection.execute("SELECT pg_catalog.current_schema()") if name]
    if not found:
        raise CannotStart("--database: the search_path names no schema that is there and that this user may use")
    return str(found[0])


def _migrate(connection: Connection) -> None:
    done = version(connection)
    for migration in MIGRATIONS[done:]:
        connection.execute(migration)
    if done < len(MIGRATIONS):
        connection.execute("UPDATE storekeeper SET schema = %s", (len(MIGRATIONS),))
    connection.commit()


def _from_environment() -> dict[str, str]:
    # libpq's environment variables override our defaults, as they override its own.
    timeout = os.environ.get("PGCONNECT_TIMEOUT")
    return {"connect_timeout": timeout} if timeout else {}
