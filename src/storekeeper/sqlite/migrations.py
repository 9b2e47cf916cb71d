"""The schema of the database file, and the way to later ones. Imports the domain."""

from storekeeper.tables import SCHEMA_NUMBER, statements_of_tables

NEW_EPOCH = """(SELECT group_concat(substr('abcdfghijklmnopqrstuvwxyze234567', abs(random() % value) + 1, 1), '')
      FROM json_each('[25,32,32,32,32,32,32,32]'))"""
"""Selects eight random characters, of which the first makes no number of a version: neither a digit nor an e."""

CHANGES_TABLE = "changes"
"""The table of changes, which every writer writes to."""

SCHEMA = f"""{statements_of_tables("INTEGER", "TEXT", "STRICT", "STRICT, WITHOUT ROWID")}
    CREATE INDEX stores_by_name ON stores (name);  -- and, as in every index, by the primary key
    CREATE INDEX changes_by_store ON changes (store_id);
    CREATE TABLE collection (
      one       INTEGER PRIMARY KEY CHECK (one = 1),
      epoch     TEXT NOT NULL,      -- which history the versions count
      backed_up INTEGER             -- when the latest backup was made: milliseconds since 1970, UTC; null: never
    ) STRICT;
    INSERT INTO collection (one, epoch) VALUES (1, {NEW_EPOCH});
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
