"""The stores that every system starts with, and the bytes that it must respond with."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw

Store = dict[str, int | str | None]
KEYS = """WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1)
    INSERT INTO keys (key, request, seq, at)
    SELECT format('%08x-0000-4000-8000-000000000000', n * ?2), 0, 1, ?3 FROM numbers"""


def store(number: int) -> Store:
    return {"id": number, "name": f"Store {number:06}", "address": f"Street {number:06}"}


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def stores(count: int) -> Iterator[Store]:
    return map(store, range(1, count + 1))


def write_csv(path: Path, count: int) -> None:
    with path.open("w") as file:
        file.write("name,address\n")
        file.writelines(f"{row['name']},{row['address']}\n" for row in stores(count))


def add_keys(database: Path, count: int) -> None:
    """Add `count` current keys to Storekeeper's file, evenly spread among the keys of wrk."""
    with closing(apsw.Connection(str(database))) as connection:
        connection.execute(KEYS, (count, 2**32 // (count + 1), time.time_ns() // 1_000_000))
        connection.pragma("wal_checkpoint(truncate)")
