"""Processor time of a request inside the service, without socket and kernel.

The service is real, down to its file of 100,000 stores; only the socket is not there. No head comes twice, unless the
case says so. Each checkout runs in a process of its own, in turn, several times; the least counts, so that a busy
machine hardly moves the figures. The loop's thread and all threads are told apart: the writer thread is the rest.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import seeds
from bench.systems import DATA, ROOT, STOREKEEPER, call, with_checkouts

STORES = 100_000
ROUNDS = 6
SCRIPT = r"""
import asyncio, random, sys, time
from collections import deque
from pathlib import Path
import uvloop
from tests.harness.in_process import inside, Line

STORES, CLIENTS, READS, WRITES = int(sys.argv[2]), 64, 20_000, 2560
HEAD = "%s %s HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n%s\r\n%s"
UNIQUE = "x-request-id: %08x-7b06-4d1f-8a1b-0123456789ab\r\ntraceparent: 00-%032x-0123456789abcdef-01\r\n"
JSON = "Content-Type: application/json\r\nContent-Length: %d\r\n"

def lane(service):
    connection, _ = service.connect()
    line = Line()
    sent = deque(maxlen=1)
    line.write, line.is_closing = sent.append, bool  # in C, as uvloop's are
    connection.transport, line.protocol, connection.sent_bytes = line, connection, sent
    return connection

def heads(case, ids):
    for id in ids:
        if case in ("post", "put"):
            body = '{"name":"Bench %07d","address":"Lane %07d"}' % (id, id)
            target = ("PUT", "/api/stores/%d" % id) if case == "put" else ("POST", "/api/stores")
            yield HEAD % (*target, JSON % len(body), body)
        else:
            path = "?name=Store%%20%06d" % id if case == "name" else "/7" if case in ("fields", "same") else f"/{id}"
            fields = UNIQUE % (id, id) if case in ("fields", "both") else ""
            yield HEAD % ("GET", "/api/stores" + path, fields, "")

def reads(service, given):
    receive = lane(service).data_received
    begin, began = time.process_time(), time.thread_time()
    for data in given:
        receive(data)
    return time.thread_time() - began, time.process_time() - begin

async def writes(service, given):
    lanes = [lane(service) for _ in range(CLIENTS)]
    responded = asyncio.Event()
    lanes[-1].transport.write = lambda _: responded.set()
    begin, began = time.process_time(), time.thread_time()
    for first in range(0, WRITES, CLIENTS):
        for connection, data in zip(lanes, given[first:first + CLIENTS]):
            connection.data_received(data)
        await responded.wait()
        responded.clear()
    return time.thread_time() - began, time.process_time() - begin

async def main():
    random.seed(int(sys.argv[3]))
    ids = random.sample(range(1, STORES + 1), STORES)
    async with inside(Path(sys.argv[1])) as service:
        for number, case in enumerate(("same", "fields", "id", "both", "name", "post", "put")):
            first = number % 5 * READS  # no id twice
            given = [head.encode() for head in heads(case, ids[first:first + READS])]
            if case in ("post", "put"):
                times, count = await writes(service, given), WRITES
            else:
                times, count = reads(service, given), READS
            check = lane(service)
            check.data_received(given[0])
            while not check.sent_bytes:
                await asyncio.sleep(0.001)
            assert check.sent_bytes[0].startswith(b"HTTP/1.1 20"), check.sent_bytes
            print(case, *(spent / count * 1e6 for spent in times))

uvloop.run(main())
"""


def compare(checkouts: list[Path]) -> int:
    """Print the figures of each checkout, side by side."""
    least: dict[Path, dict[str, tuple[float, ...]]] = {checkout: {} for checkout in checkouts}
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        rows = Path(folder) / "rows.csv"
        seeds.write_csv(rows, STORES)
        call(STOREKEEPER, "import", rows, "--database", f"sqlite:///{folder}/stores.db")
        for number in range(ROUNDS):
            for checkout in checkouts[:: 1 if number % 2 else -1]:
                for case, *times in measure(checkout, folder, number):
                    found = tuple(map(float, times))
                    least[checkout][case] = tuple(map(min, least[checkout].get(case, found), found))
    for case in least[checkouts[0]]:
        figures = " | ".join("{:6.2f} {:6.2f}".format(*least[checkout][case]) for checkout in checkouts)
        sys.stdout.write(f"{case:8}{figures}  us (loop, all threads)\n")
    return 0


def measure(checkout: Path, folder: str, number: int) -> list[list[str]]:
    words = [sys.executable, "-c", SCRIPT, folder, str(STORES), str(number)]
    env = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}:{ROOT}"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return [line.split() for line in done.stdout.splitlines()]


if __name__ == "__main__":
    sys.exit(compare(with_checkouts(argparse.ArgumentParser(description=__doc__)).checkouts))
