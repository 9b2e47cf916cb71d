"""10,000 files that are made to stop or to fill the service (`make fuzz-imports`).

Each is sent to a real service while other clients read and write. What must hold: no response is
500, a 503 says that nothing was done, no other client waits for over a second, and the service has
no more than 200 MiB more memory. The first file for which it does not ends the run with status 1;
`--seed` and its number name it: `--first` begins with that one, so a long run can be made in parts.
Each hundredth file prints what was measured up to there.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.campaigns.hostile_sheets import Hostile, hostile
from tests.harness.linux import memory
from tests.harness.process import Running, serving

MAX_MEMORY = 200 * 2**20
"""Bytes that the service may have more than before the first file."""

GOOD = {200, 400, 413, 415, 422}
IMPORT_TIMEOUT = 90.0
"""Seconds after which a file has no response."""

PRINTED_EVERY = 100
"""Files between two lines of progress."""

PAUSE = 0.05
"""Seconds between two requests of others."""


class Found(Exception):
    """A file for which something does not hold."""


class Others:
    """Clients that read and write meanwhile: how long the slowest waited, and the most memory
    that the service had more."""

    def __init__(self, service: Running) -> None:
        self._service = service
        self._began_with = memory(service.process.pid)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.requests = 0
        self.slowest = 0.0
        self.memory = 0
        self.failed = ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(PAUSE):
            began = time.monotonic()
            try:
                self._ask()
            except Exception as error:  # noqa: BLE001 - `Run` says so of the file
                self.failed = repr(error)
                return
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.memory = max(self.memory, memory(self._service.process.pid) - self._began_with)

    def _ask(self) -> None:
        self.requests += 1
        if self.requests % 4:
            response = self._service.request("GET", "/api/stores?limit=1")
        else:
            response = self._service.request("PUT", "/api/stores/1", {"name": f"{self.requests}"})
        assert response.status == 200, response


class Run:
    """Sends files, and judges what comes of them."""

    def __init__(self, service: Running, others: Others, longest: float) -> None:
        self._service = service
        self.others = others
        self._longest = longest
        self.statuses = Counter[int]()
        self.unavailable = Counter[str]()
        self.slowest = 0.0

    def take(self, name: str, file: Hostile) -> None:
        """Send a file. Raises Found."""
        began = time.monotonic()
        done = self._service.request(
            "POST",
            f"/api/imports?{file.query}",
            file.data,
            {"content-type": file.type},
            IMPORT_TIMEOUT,
        )
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.statuses[done.status] += 1
        if done.status == 503:
            self.unavailable[f"{file.kind}: {json.loads(done.body)['message']}"] += 1
        if problem := self._problem(done.status, done.body):
            raise Found(
                f"file {name}, {file.kind}, {len(file.data):,} bytes, ?{file.query[:300]}:"
                f" {problem}"
            )

    def _problem(self, status: int, body: bytes) -> str:
        """Return what does not hold, "" if all does."""
        if status == 503 and json.loads(body).get("outcome") != "none":
            return f"503 with an unknown outcome: {body[:300]!r}"
        if status == 503 and b"ended early" in body:
            return f"no file ends the reader: {body[:300]!r}, and the log says why"
        if status not in GOOD | {503}:
            return f"{status}: {body[:300]!r}"
        if self.others.failed:
            return f"a request of others failed: {self.others.failed}"
        if self.others.slowest > self._longest:
            return f"a request of others took {self.others.slowest:.1f} s"
        if self.others.memory > MAX_MEMORY:
            return f"the service has {self.others.memory >> 20} MiB more"
        return ""


@contextmanager
def started(folder: Path, longest: float) -> Iterator[Run]:
    """Start a service with a list, and the clients that use it meanwhile."""
    with serving(folder) as service:
        assert service.request("POST", "/api/stores", {"name": "First"}).status == 200
        with Others(service) as others:
            yield Run(service, others, longest)


def fuzz(files: int, seed: int, first: int, longest: float) -> None:
    """Send files, and print what was measured. Raises Found."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, started(Path(folder), longest) as run:
        for sent in range(1, files + 1):
            number = first + sent - 1
            run.take(f"{seed}:{number}", hostile(seed, number))
            if sent % PRINTED_EVERY == 0 or sent == files:
                print(measured(run, sent, seed, first, time.monotonic() - began), flush=True)


def measured(run: Run, sent: int, seed: int, first: int, took: float) -> str:
    """Return a line with what the files sent so far led to."""
    others = run.others
    statuses = " ".join(f"{status}={count}" for status, count in sorted(run.statuses.items()))
    return (
        f"fuzz-imports files={sent} first={first} seed={seed} {statuses}"
        f" others_slowest={others.slowest:.2f}s memory={others.memory >> 20}MiB"
        f" slowest_import={run.slowest:.1f}s took={took:.0f}s {dict(run.unavailable) or ''}"
    )


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=20261127)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--longest", type=float, default=1.0, help="seconds that others may wait")
    asked = parser.parse_args()
    try:
        fuzz(asked.files, asked.seed, asked.first, asked.longest)
    except Found as found:
        sys.exit(f"fuzz-imports: {found}")


if __name__ == "__main__":
    main()
