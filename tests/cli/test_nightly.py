"""A list that another system sends every night: each store is there once, whatever is killed."""

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from storekeeper import databases
from tests.harness.command import run
from tests.harness.databases import Database
from tests.harness.process import start

STORES = 1500


def night(number: int) -> dict[str, tuple[str, str]]:
    """Return the stores of a night by their numbers: some are new, some have changed, some are absent."""
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
    with databases.database(database.url).opened(write=False) as execute:
        return list(execute(statement))


def test_a_nightly_file_that_is_killed_at_any_moment_and_fed_again_has_each_store_once(
    tmp_path: Path, database: Database
) -> None:
    file, expected, chosen = tmp_path / "night.csv", dict[str, tuple[str, str]](), random.Random(7)
    arguments = ["import", "--database", database.url, "--match", "Store Number", "--yes", str(file)]
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


@pytest.mark.parametrize("on_conflict", ["refuse", "skip"])
def test_of_two_who_edit_exports_of_one_day_nobody_loses_an_edit(
    tmp_path: Path, database: Database, on_conflict: str
) -> None:
    (tmp_path / "first.csv").write_text("name\nHarbour\nOld Mill\nStation\n")
    command = ["import", "--database", database.url]
    assert run(*command, str(tmp_path / "first.csv")).returncode == 0
    with databases.database(database.url).opened(write=False) as execute:
        ((epoch,),) = execute("SELECT epoch FROM collection")
    header = "id,name,version\n"
    (tmp_path / "anna.csv").write_text(f"{header}1,By Anna,3.{epoch}\n2,Old Mill,3.{epoch}\n3,Station,3.{epoch}\n")
    (tmp_path / "bob.csv").write_text(f"{header}1,Harbour,3.{epoch}\n2,By Bob,3.{epoch}\n3,Station,3.{epoch}\n")
    anna = run(*command, "--match", "id", str(tmp_path / "anna.csv"))
    assert b"0 stores created, 1 replaced, 2 unchanged" in anna.stderr
    bob = run(*command, "--match", "id", "--on-conflict", on_conflict, str(tmp_path / "bob.csv"))
    conflict, end = bob.stderr.decode().splitlines()
    assert conflict == "1 row is in conflict: its store has changed since: line 2 (store 1)"
    assert bob.returncode == (2 if on_conflict == "refuse" else 0)
    expected = (
        "of 3 rows, 1 in conflict" if on_conflict == "refuse" else "1 replaced, 1 unchanged, 1 in conflict, skipped"
    )
    assert expected in end
    second = "Old Mill" if on_conflict == "refuse" else "By Bob"
    assert [name for _, name, _ in kept(database)] == ["By Anna", second, "Station"]
