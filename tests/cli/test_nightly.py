"""A list that another system sends every night: each store is there once, whatever is killed."""

import random
import signal
import time
from pathlib import Path
from typing import Any

from storekeeper.storage import databases
from tests.harness.command import run
from tests.harness.databases import Database
from tests.harness.process import start

STORES = 1500


def night(number: int) -> dict[str, tuple[str, str]]:
    """Return the stores of a night by their numbers: some are new, some have changed, some are
    absent."""
    chosen = random.Random(number)
    return {
        f"N-{key}": (f"Store {key}", f"{key} Road, night {number if key % 10 == 0 else 0}")
        for key in range(1, STORES + 100 * number)
        if chosen.random() > 0.05
    }


def write(file: Path, stores: dict[str, tuple[str, str]]) -> None:
    rows = "".join(f'{key},{name},"{address}"\n' for key, (name, address) in stores.items())
    file.write_text("Store Number,Name,Address\n" + rows)


def kept(database: Database) -> list[Any]:
    statement = """SELECT value, name, address FROM stores LEFT JOIN external_ids ON store_id = id
      AND column_name = 'Store Number' ORDER BY id"""
    with databases.database(database.url).snapshot() as snapshot:
        return list(snapshot.select(statement))


def test_a_nightly_file_that_is_killed_and_fed_again_has_each_store_once(
    tmp_path: Path, database: Database
) -> None:
    file, expected, chosen = tmp_path / "night.csv", dict[str, tuple[str, str]](), random.Random(7)
    arguments = [
        "import",
        "--create",
        "--database",
        database.url,
        "--match",
        "Store Number",
        "--yes",
        str(file),
    ]
    longest = 0.5
    for number in range(2):
        write(file, night(number))
        for _ in range(3):
            process = start(*arguments)
            time.sleep(chosen.uniform(0.1, longest))
            process.send_signal(signal.SIGKILL)
            process.wait()
        began = time.monotonic()
        assert run(*arguments).returncode == 0
        longest = max(longest, 2 * (time.monotonic() - began))
        expected |= night(number)
        found = kept(database)
        assert len(found) == len(expected), "a store is there twice, or is missing"
        assert {value: (name, address) for value, name, address in found} == expected
