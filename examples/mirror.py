"""Keep a copy of all stores in an SQLite file of your own.

    python mirror.py http://127.0.0.1:8080 ours.db [--follow]

You can stop it at any time; the next run continues where it stopped. The variable
STOREKEEPER_TOKEN holds the token, if the service needs one.
"""

import argparse
import os
import sqlite3
import sys
import time
from typing import Any

import httpx

TABLES = """
CREATE TABLE IF NOT EXISTS stores (id INTEGER PRIMARY KEY, name TEXT NOT NULL, address TEXT);
CREATE TABLE IF NOT EXISTS cursor (n INTEGER PRIMARY KEY CHECK (n = 1), value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS review (store_id INTEGER PRIMARY KEY, name_before TEXT NOT NULL);
"""
WRITE = """INSERT INTO stores VALUES (:id, :name, :address)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, address = excluded.address"""


def save(ours: sqlite3.Connection, stores: list[dict[str, Any]], cursor: str) -> None:
    """Write stores, and the cursor that says how far we have got, in the caller's transaction."""
    ours.executemany(WRITE, stores)
    ours.execute("INSERT OR REPLACE INTO cursor VALUES (1, ?)", [cursor])


def copy_all(api: httpx.Client, ours: sqlite3.Connection) -> None:
    """Copy the list as of one moment; record the stores that have changed in `review`."""
    cursor = api.get("/api/changes?after=now").raise_for_status().json()["next"]
    url, stores = f"/api/stores?limit=1000&at={cursor}", []
    while url:
        page = api.get(url).raise_for_status()
        stores += page.json()
        url = page.links.get("next", {}).get("url", "")
    now = {store["id"]: (store["name"], store["address"]) for store in stores}
    before = ours.execute("SELECT id, name, address FROM stores").fetchall()
    changed = [(id, name) for id, name, address in before if now.get(id) != (name, address)]
    with ours:
        # Ids are 1, 2, 3, ... without gaps.
        ours.execute("DELETE FROM stores WHERE id > ?", [len(stores)])
        ours.executemany("INSERT OR IGNORE INTO review VALUES (?, ?)", changed)
        save(ours, stores, cursor)
    print(f"stores copied: {len(stores)}, to review: {len(changed)}; as of {cursor}", flush=True)


def catch_up(api: httpx.Client, ours: sqlite3.Connection) -> None:
    """Apply all changes after the cursor, page by page."""
    while True:
        cursor = ours.execute("SELECT value FROM cursor").fetchone()
        if cursor is None:  # the first run
            copy_all(api, ours)
            continue
        response = api.get("/api/changes", params={"after": cursor[0], "limit": 1000})
        if response.status_code == 410:  # a backup was restored
            copy_all(api, ours)
            continue
        page = response.raise_for_status().json()
        if not page["changes"]:
            return
        with ours:
            save(ours, [change["store"] for change in page["changes"]], page["next"])
        print(f"changes applied: {len(page['changes'])}; as of {page['next']}", flush=True)


def main() -> None:
    """Bring the copy up to date; with --follow, do so every second."""
    parser = argparse.ArgumentParser(description="Keep a copy of all stores in an SQLite file.")
    parser.add_argument("url")
    parser.add_argument("file")
    parser.add_argument("--follow", action="store_true")
    order = parser.parse_args()
    ours = sqlite3.connect(order.file)
    ours.executescript(TABLES)
    token = os.environ.get("STOREKEEPER_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=order.url, headers=headers, timeout=10) as api:
        while True:
            try:
                catch_up(api, ours)
            except (httpx.TransportError, httpx.HTTPStatusError) as error:
                # The service is unavailable, or refuses the token. The cursor is unchanged, so
                # the next attempt continues from there.
                print(f"not now: {error}", file=sys.stderr, flush=True)
                if not order.follow:
                    sys.exit(1)
            if not order.follow:
                return
            time.sleep(1)


if __name__ == "__main__":
    main()
