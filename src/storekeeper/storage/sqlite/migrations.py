"""The tables of a new file, and the ways from each schema to the next."""

from storekeeper.storage.sql import additions_of_10, additions_of_11, statements_of_tables

NEW_EPOCH = """(SELECT group_concat(
        substr('abcdfghijklmnopqrstuvwxyze234567', abs(random() % value) + 1, 1), '')
      FROM json_each('[25,32,32,32,32,32,32,32]'))"""
"""Selects eight random characters. The first is neither a digit nor an e, so that a version before
it stays the same number."""

CHANGES_TABLE = "changes_11"
"""The table of changes, which every writer writes to: each schema has another name for it. The
view `changes` is for those who read."""

MOVED_TABLE = "changes_moved"
"""What that table is called once the list was moved; CHANGES_TABLE is a view then."""

SCHEMA = f"""{statements_of_tables("INTEGER", "TEXT", "STRICT", "STRICT, WITHOUT ROWID")}
    CREATE INDEX stores_by_name ON stores (name);  -- and, as in every index, by the primary key
    CREATE INDEX changes_by_store ON changes (store_id);
    CREATE TABLE collection (
      one       INTEGER PRIMARY KEY CHECK (one = 1),
      epoch     TEXT NOT NULL,      -- which history the versions count
      backed_up INTEGER             -- when the latest backup was made; null: never
    ) STRICT;
    INSERT INTO collection (one, epoch) VALUES (1, {NEW_EPOCH});
    CREATE TABLE probe (            -- a probe of writes writes and deletes its row
      one    INTEGER PRIMARY KEY CHECK (one = 1),
      filler BLOB NOT NULL
    ) STRICT;
"""

_TO_10 = f"""
    ALTER TABLE changes RENAME TO changes_10;
    {additions_of_10("INTEGER", "TEXT", "STRICT", "changes_10")}
    CREATE INDEX stores_by_folded_name ON stores (folded_name);
    -- The number of the function that folds the texts.
    ALTER TABLE collection ADD COLUMN folding INTEGER NOT NULL DEFAULT 0;
    CREATE VIEW changes AS
      SELECT seq, store_id, name, address, at, count, token_number, user_name FROM changes_10;
"""

_TO_11 = f"""
    -- Later texts are folded otherwise: see `folding.py`.
    DROP VIEW changes;
    ALTER TABLE changes_10 RENAME TO changes_11;
    CREATE VIEW changes_10 AS
      SELECT seq, store_id, name, address, at, count, token_number, user_name FROM changes_11;
    CREATE VIEW changes AS
      SELECT seq, store_id, name, address, at, count, token_number, user_name FROM changes_11;
    {additions_of_11("INTEGER", "TEXT", "collection")}
"""

MIGRATIONS: tuple[str, ...] = (_TO_10, _TO_11)
"""The ways from SCHEMA to later schemas, one number each, each in one transaction with its number.

A released one is never edited. Each renames CHANGES_TABLE, so that processes of older versions
cannot write, and leaves a view of the old name, so that they can read.
"""
