"""Keep a copy of all stores in an SQLite file of yours: python mirror.py http://127.0.0.1:8080
ours.db [--follow].

It may be stopped at any time, and goes on where it was. A token comes from the variable
STOREKEEPER_TOKEN.
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
    """Write stores, and the cursor that says how far the copy is, in the caller's transaction."""
    ours.executemany(WRITE, stores)
    ours.execute("INSERT OR REPLACE INTO cursor VALUES (1, ?)", [cursor])


def copy_all(api: httpx.Client, ours: sqlite3.Connection) -> None:
    """Copy the list as it is at one moment; put the stores that are not what they were under
    review."""
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
        ours.execute(
            "DELETE FROM stores WHERE id > ?", [len(stores)]
        )  # ids are 1, 2, 3, ... without a hole
        ours.executemany("INSERT OR IGNORE INTO review VALUES (?, ?)", changed)
        save(ours, stores, cursor)
    print(f"stores copied: {len(stores)}, to review: {len(changed)}; as of {cursor}", flush=True)


def catch_up(api: httpx.Client, ours: sqlite3.Connection) -> None:
    """Apply all changes behind the cursor, a page at a time."""
    while True:
        found = ours.execute("SELECT value FROM cursor").fetchone()
        response = (
            api.get("/api/changes", params={"after": found[0], "limit": 1000}) if found else None
        )
        if (
            response is None or response.status_code == 410
        ):  # the first time, or a backup was restored
            copy_all(api, ours)
            continue
        page = response.raise_for_status().json()
        if not page["changes"]:
            return
        with ours:
            save(ours, [change["store"] for change in page["changes"]], page["next"])
        print(f"changes applied: {len(page['changes'])}; as of {page['next']}", flush=True)


def main() -> None:
    """Bring the copy up to date; with --follow, again each second."""
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
                # The service is away, or refuses the token. The cursor stands where it was: go on
                # from there.
                print(f"not now: {error}", file=sys.stderr, flush=True)
                if not order.follow:
                    sys.exit(1)
            if not order.follow:
                return
            time.sleep(1)


if __name__ == "__main__":
    main()
