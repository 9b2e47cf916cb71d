"""Processor time of the SQLite collection's own reads, without HTTP.

Each checkout's reads run in a process of their own on one file, in turn, three times; the least counts.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import seeds
from bench.systems import DATA, STOREKEEPER, call, with_checkouts

READS = 100_000
ROUNDS = 3
SCRIPT = """
import random, sys, time
from pathlib import Path
from storekeeper.collection import Query
from storekeeper.sqlite import schema
from storekeeper.sqlite.reads import Reader

path, count, reads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
reader = Reader(schema.connect(path, reader=True))
random.seed(1)
ids = random.sample(range(1, count + 1), min(count, reads))
queries = [Query(f"Store {id:06}") for id in ids]

def microseconds(read, values):
    for value in values[:5000]:
        read(value)
    begin = time.process_time()
    for value in values:
        read(value)
    return (time.process_time() - begin) / len(values) * 1e6

print(microseconds(reader.get, ids), microseconds(reader.list, queries))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", type=int, default=1_000_000)
    given = with_checkouts(parser)
    count, checkouts = given.stores, given.checkouts
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        rows, database = Path(folder) / "rows.csv", Path(folder) / "stores.db"
        seeds.write_csv(rows, count)
        call(STOREKEEPER, "import", rows, "--database", f"sqlite:///{database}")
        found: dict[Path, list[tuple[float, ...]]] = {checkout: [] for checkout in checkouts}
        for _ in range(ROUNDS):
            for checkout in checkouts:
                found[checkout].append(measure(checkout, database, count))
    for checkout, times in found.items():
        by_id, by_name = map(min, zip(*times, strict=True))
        sys.stdout.write(f"{checkout}: a random id {by_id:.2f} us, a random name {by_name:.2f} us\n")
    return 0


def measure(checkout: Path, database: Path, count: int) -> tuple[float, ...]:
    words = [sys.executable, "-c", SCRIPT, str(database), str(count), str(READS)]
    env = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    return tuple(map(float, done.stdout.split()))


if __name__ == "__main__":
    sys.exit(main())
