"""The migrations of the database file, and the names that follow from them. Imports nothing."""

NEW_EPOCH = """(SELECT group_concat(substr('abcdefghijklmnopqrstuvwxyz234567', (random() & 31) + 1, 1), '')
      FROM json_each('[1,2,3,4,5,6,7,8]'))"""
"""Selects eight random characters."""

MIGRATIONS = (
    # Migration n takes a database from version n-1 to n, in one transaction with its version number.
    # A released one is never edited: a change of the schema is a new migration at the end. It renames the table that
    # every writer reads and writes (`CHANGES_TABLE`), so that processes of older versions can write nothing more.
    """
    CREATE TABLE stores (
      id      INTEGER PRIMARY KEY,  -- 1..n without a hole
      name    TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 30),
      address TEXT,                 -- null: not given
      version INTEGER NOT NULL      -- the seq of its latest change
    ) STRICT;
    CREATE INDEX stores_by_name ON stores (name);
    CREATE TABLE changes (
      seq      INTEGER PRIMARY KEY, -- 1..n without a hole; the greatest is the collection's version
      store_id INTEGER NOT NULL REFERENCES stores (id),
      name     TEXT NOT NULL,       -- what the store became
      address  TEXT,
      at       INTEGER NOT NULL     -- milliseconds since 1970, UTC
    ) STRICT;
    CREATE INDEX changes_by_store ON changes (store_id);  -- and, as in every index, by seq
    """,
    # The number of a store's previous change stands in each change: an index of them by store would cost every write
    # one more page, far from the others.
    """
    CREATE TABLE changes_2 (
      seq      INTEGER PRIMARY KEY, -- 1..n without a hole; the greatest is the collection's version
      store_id INTEGER NOT NULL,
      name     TEXT NOT NULL,       -- what the store became
      address  TEXT,
      at       INTEGER NOT NULL,    -- milliseconds since 1970, UTC; never falls
      previous INTEGER NOT NULL,    -- the seq of the store's change before this one; 0 for its first
      count    INTEGER NOT NULL     -- how many stores there were after it
    ) STRICT;
    INSERT INTO changes_2 SELECT seq, store_id, name, address, max(at) OVER (ORDER BY seq),
      ifnull((SELECT max(seq) FROM changes AS old
        WHERE old.store_id = changes.store_id AND old.seq < changes.seq), 0),
      max(store_id) OVER (ORDER BY seq) FROM changes ORDER BY seq;
    DROP TABLE changes;
    CREATE VIEW changes AS SELECT * FROM changes_2;
    """,
    # No index over `key`: it would cost every write one more page, far from the others (see `sqlite.keys`).
    f"""
    CREATE TABLE collection (
      one   INTEGER PRIMARY KEY CHECK (one = 1),
      epoch TEXT NOT NULL           -- which history the versions count
    ) STRICT;
    INSERT INTO collection VALUES (1, {NEW_EPOCH});
    CREATE TABLE keys (
      n       INTEGER PRIMARY KEY,  -- grows by one; the oldest are deleted, the greatest never
      key     INTEGER NOT NULL,     -- the hash of an Idempotency-Key
      request INTEGER NOT NULL,     -- the hash of the request that it was sent with
      seq     INTEGER NOT NULL,     -- the change that is its response
      at      INTEGER NOT NULL      -- milliseconds since 1970, UTC
    ) STRICT;
    DROP VIEW changes;
    ALTER TABLE changes_2 RENAME TO changes_3;
    CREATE VIEW changes AS SELECT * FROM changes_3;
    CREATE VIEW changes_2 AS SELECT * FROM changes_3;
    """,
    """
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
    ALTER TABLE changes_3 ADD COLUMN by_token INTEGER NOT NULL DEFAULT 0;  -- the token's number; 0: none
    DROP VIEW changes;
    DROP VIEW IF EXISTS changes_2;  -- not made by a checkout of minutes, of 2026-11-22
    ALTER TABLE changes_3 RENAME TO changes_4;
    CREATE VIEW changes AS SELECT * FROM changes_4;
    CREATE VIEW changes_2 AS SELECT * FROM changes_4;
    CREATE VIEW changes_3 AS SELECT * FROM changes_4;
    """,
    # One row for all keys of a transaction, and the keys themselves: what a write costs is a fraction.
    """
    DROP TABLE keys;
    CREATE TABLE keys (
      n       INTEGER PRIMARY KEY,  -- how many keys there ever were, with these; the greatest is never deleted
      at      INTEGER NOT NULL,     -- milliseconds since 1970, UTC
      entries TEXT NOT NULL         -- JSON: each Idempotency-Key, a number for its request, and its change's seq
    ) STRICT;
    ALTER TABLE changes_4 RENAME TO changes_5;  -- which the views follow
    CREATE VIEW changes_4 AS SELECT * FROM changes_5;
    """,
)

CHANGES_TABLE = "changes_5"
"""The table of changes. Its old names are views: processes of older versions, and people, can read them."""
