"""The stores that every system starts with, and the bytes that every system must respond with; imports nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

Store = dict[str, int | str | None]
STORES_OF_CHANGED = 10
"""Stores of a collection of which one was changed very often."""


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
