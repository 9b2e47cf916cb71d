"""A copy of all stores in an SQLite database of one's own, which follows every change."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from storekeeper.client import core
from storekeeper.client.aio import AsyncClient
from storekeeper.client.core import PAGE, Steps
from storekeeper.client.errors import EpochEnded
from storekeeper.client.model import Store
from storekeeper.client.sync import Client

_TABLES = """
CREATE TABLE IF NOT EXISTS stores (id INTEGER PRIMARY KEY, name TEXT NOT NULL, address TEXT);
CREATE TABLE IF NOT EXISTS cursor (n INTEGER PRIMARY KEY CHECK (n = 1), value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS review (store_id INTEGER PRIMARY KEY, name_before TEXT NOT NULL);
"""
_WRITE = """INSERT INTO stores VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, address = excluded.address"""


@dataclass(frozen=True, slots=True)
class Copied:
    """What an update did: how many `stores` it copied, because it was the first or a backup was
    restored, or how many `changes` it applied; up to which `cursor`.

    `review` counts the stores that a restore has changed: their ids may mean other stores now.
    """

    stores: int
    changes: int
    review: int
    cursor: str


class _Copy:
    def __init__(self, database: str | Path | sqlite3.Connection, patience: float) -> None:
        if not isinstance(database, sqlite3.Connection):
            database = sqlite3.connect(database)
        self.database = database
        self._patience = patience
        self.database.executescript(_TABLES)

    def update(self) -> Steps[Copied]:
        copied = changed = review = 0
        cursor = self._cursor()
        while True:
            try:
                if cursor is None:
                    copied, review, cursor = yield from self._copy_all()
                page = yield from core.changes(cursor, PAGE, None, self._patience)
            except EpochEnded:  # a backup was restored
                cursor = None
                continue
            if not page.changes:
                return Copied(copied, changed, review, cursor)
            with self.database:
                self._write([change.store for change in page], page.next)
            changed += len(page)
            cursor = page.next

    def _cursor(self) -> str | None:
        found = self.database.execute("SELECT value FROM cursor").fetchone()
        return None if found is None else str(found[0])

    def _copy_all(self) -> Steps[tuple[int, int, str]]:
        listing = yield from core.list_stores(None, None, self._patience)
        now = {store.id: (store.name, store.address) for store in listing}
        before = self.database.execute("SELECT id, name, address FROM stores").fetchall()
        changed = [(id, name) for id, name, address in before if now.get(id) != (name, address)]
        with self.database:
            # Ids are 1, 2, 3, ... without gaps.
            self.database.execute("DELETE FROM stores WHERE id > ?", [len(listing)])
            self.database.executemany("INSERT OR IGNORE INTO review VALUES (?, ?)", changed)
            self._write(listing, listing.cursor)
        return len(listing), len(changed), listing.cursor

    def _write(self, stores: Iterable[Store], cursor: str) -> None:
        """Write stores, and how far the copy has got, in the caller's transaction."""
        rows = [(store.id, store.name, store.address) for store in stores]
        self.database.executemany(_WRITE, rows)
        self.database.execute("INSERT OR REPLACE INTO cursor VALUES (1, ?)", [cursor])


class Mirror:
    """Keeps a copy of all stores in a database: a file, or a connection of yours.

    Its table `stores` has `id`, `name` and `address`; `cursor` says how far it has got; `review`
    has the stores that a restore has changed, with the name before. Your own tables can be
    next to them. It can be stopped at any moment: the next update continues.
    """

    def __init__(self, client: Client, database: str | Path | sqlite3.Connection) -> None:
        self._client = client
        self._copy = _Copy(database, client.patience)
        self.database = self._copy.database
        """The connection to the copy."""

    def update(self) -> Copied:
        """Apply all changes up to now. Raises ClientError; what was applied stays."""
        return self._client.run(self._copy.update())


class AsyncMirror:
    """The same as Mirror, for programs with asyncio; its database blocks while it is written."""

    def __init__(self, client: AsyncClient, database: str | Path | sqlite3.Connection) -> None:
        self._client = client
        self._copy = _Copy(database, client.patience)
        self.database = self._copy.database
        """The connection to the copy."""

    async def update(self) -> Copied:
        """Apply all changes up to now. Raises ClientError; what was applied stays."""
        return await self._client.run(self._copy.update())
