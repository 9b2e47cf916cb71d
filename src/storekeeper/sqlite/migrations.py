"""The schema of the database file, and the way to later ones. Imports the domain."""

from storekeeper.tables import MAX_EXTERNAL_LENGTH, SCHEMA_NUMBER

NEW_EPOCH = """(SELECT group_concat(substr('abcdefghijklmnopqrstuvwxyz234567', (random() & 31) + 1, 1), '')
      FROM json_each('[1,2,3,4,5,6,7,8]'))"""
"""Selects eight random characters."""

CHANGES_TABLE = "changes"
"""The table of changes, which every writer writes to."""

SCHEMA = f"""
    CREATE TABLE stores (
      id      INTEGER PRIMARY KEY,  -- 1..n without a hole
      name    TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 30),
      folded  TEXT NOT NULL,        -- what is searched; before the address, which would have to be read to get here
      version INTEGER NOT NULL,     -- the seq of its latest change
      address TEXT                  -- null: not given
    ) STRICT;
    CREATE INDEX stores_by_name ON stores (name);
    CREATE TABLE {CHANGES_TABLE} (
      seq          INTEGER PRIMARY KEY, -- 1..n without a hole; the greatest is the collection's version
      store_id     INTEGER NOT NULL,
      name         TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 30),  -- what the store became
      address      TEXT,
      at           INTEGER NOT NULL,    -- milliseconds since 1970, UTC; never falls
      count        INTEGER NOT NULL,    -- how many stores there were after it
      token_number INTEGER NOT NULL     -- of the token that wrote it; 0: none
    ) STRICT;
    CREATE INDEX changes_by_store ON {CHANGES_TABLE} (store_id);  -- and, as in every index, by seq
    CREATE TABLE collection (
      one   INTEGER PRIMARY KEY CHECK (one = 1),
      epoch TEXT NOT NULL,          -- which history the versions count
      backed_up INTEGER             -- when the latest backup was made: milliseconds since 1970, UTC; null: never
    ) STRICT;
    INSERT INTO collection (one, epoch) VALUES (1, {NEW_EPOCH});
    CREATE TABLE keys (
      n       INTEGER PRIMARY KEY,  -- grows; the oldest are deleted, the newest never
      key     TEXT NOT NULL UNIQUE, -- an Idempotency-Key, perhaps behind the number of a token and a blank
      request INTEGER NOT NULL,     -- a hash of the request that it was sent with
      seq     INTEGER NOT NULL,     -- the change that is its response
      at      INTEGER NOT NULL,     -- milliseconds since 1970, UTC
      result  TEXT                  -- null: the response is a store
    ) STRICT;
    CREATE TABLE tokens (
      number  INTEGER PRIMARY KEY,  -- 1..n; nothing is deleted
      name    TEXT NOT NULL UNIQUE,
      scope   TEXT NOT NULL CHECK (scope IN ('read', 'write')),
      hash    TEXT NOT NULL UNIQUE, -- SHA-256 in hexadecimal digits
      created INTEGER NOT NULL,     -- milliseconds since 1970, UTC, as all that follow
      expires INTEGER,              -- null: never
      revoked INTEGER,
      used    INTEGER               -- within an hour before its latest use
    ) STRICT;
    CREATE TABLE external_ids (
      store_id    INTEGER NOT NULL,
      column_name TEXT NOT NULL CHECK (length(column_name) BETWEEN 1 AND {MAX_EXTERNAL_LENGTH}),
      value       TEXT NOT NULL CHECK (length(value) BETWEEN 1 AND {MAX_EXTERNAL_LENGTH}),
      PRIMARY KEY (store_id, column_name),
      UNIQUE (value, column_name)   -- in this order: a search knows the value alone
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE probe (            -- what a probe of writes writes and deletes
      one    INTEGER PRIMARY KEY CHECK (one = 1),
      filler BLOB NOT NULL
    ) STRICT;
"""

MIGRATIONS: tuple[str, ...] = ()
"""The ways from SCHEMA to later schemas, one number each, each in one transaction with its number.

A released one is never edited. Each renames CHANGES_TABLE, so that processes of older versions can write nothing, and
leaves a view of the old name, so that these can read.
"""


def current_number() -> int:
    """Return the number of the schema that this program reads and writes."""
    return SCHEMA_NUMBER + len(MIGRATIONS)
