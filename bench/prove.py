"""Proves that the load is what the report says: prove.py [SECONDS for each case, 1].

wrk sends each case's requests to a server that records them. They are checked, and then the
writes among them are sent again, one by one, to a Storekeeper with 1,000 stores: each must get a
200 and be one change.
"""

import contextlib
import re
import socket
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

from bench import load
from bench.cases import CASES, Case
from bench.servers import Server, free_port
from bench.systems import DATA, SYSTEMS

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
STORES, REPLAYED = 1_000_000, 2000
SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 1
SMALL = 1000
Requests = list[bytes]
FIELDS = {
    b"x-request-id: ": "unique",
    b"traceparent: ": "unique",
    b"Idempotency-Key: ": "keys",
}


class Recorder(threading.Thread):
    """Responds with 200 on one connection, and keeps each request."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.requests: Requests = []
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self.port: int = self._listener.getsockname()[1]

    def run(self) -> None:
        """Take connections one after another: wrk tries the first one before it measures."""
        while True:
            connection, _ = self._listener.accept()
            # wrk resets its connections when its time is over.
            with connection, contextlib.suppress(ConnectionResetError):
                while data := connection.recv(65536):
                    self.requests.append(data)
                    connection.sendall(RESPONSE)


class Recorded(Server):
    """The recorder as a server to be measured."""

    def processor_seconds(self) -> float:
        """Return 0: only the requests matter."""
        return 0.0


def record(case: Case, stores: int) -> Requests:
    """Return the requests that wrk sends, in order."""
    recorder = Recorder()
    recorder.start()
    words = SYSTEMS[case.systems[0]].load
    server = Recorded(None, recorder.port, stores=stores, load=words)  # type: ignore[arg-type]
    load.wrk(server, replace(case, connections=1), SECONDS)
    return recorder.requests


def check(case: Case, requests: Requests) -> str:
    """Return a summary; raise AssertionError if the requests are not what the case says."""
    assert len(requests) > 1000, "too few requests to tell"
    shares = Counter(request.partition(b" ")[0].decode() for request in requests)
    words = dict(word.split("=") for word in (*case.load, *SYSTEMS[case.systems[0]].load))
    for method, key in (("PUT", "put"), ("POST", "post")):
        share = 100 * shares[method] / len(requests)
        assert abs(share - int(words.get(key, 0))) < 1, f"{share} % {method}"
    if words.get("by") != "one" and words.get("post") != "100":
        check_targets(
            [request.split(b" ", 2)[1] for request in requests if not request.startswith(b"POST")]
        )
    bodies = [body for request in requests if (body := request.partition(b"\r\n\r\n")[2])]
    assert len(set(bodies)) == len(bodies), "a body came twice: a write might change nothing"
    for name, word in FIELDS.items():
        values = [
            request.partition(name)[2].partition(b"\r\n")[0]
            for request in requests
            if name in request
        ]
        wanted = len(requests) if word in words else 0
        assert len(set(values)) == len(values) == wanted, f"{name!r} came twice, or is missing"
    return ", ".join(f"{count:,} {method}" for method, count in sorted(shares.items()))


def check_targets(targets: list[bytes]) -> None:
    assert len(set(targets)) == len(targets), "a store came twice"
    tens = Counter(int(re.split(rb"/|%20", target)[-1]) * 10 // (STORES + 1) for target in targets)
    least, most = min(tens[tenth] for tenth in range(10)), max(tens.values())
    assert most < 1.3 * least, f"not uniform: {dict(tens)}"


def check_one_change_each(case: Case, folder: Path) -> int:
    """Send writes, check that each gets a 200 and is exactly one change, and return how many."""
    requests = record(case, SMALL)[:REPLAYED]
    with SYSTEMS["storekeeper"].serve(SMALL, folder) as server:
        before, succeeded = server.changes(), 0
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            for request in requests:
                connection.sendall(request)
                status = connection.recv(65536)[:12]
                assert status == b"HTTP/1.1 200", status
                succeeded += not request.startswith(b"GET")
        assert (server.changes() or 0) - (before or 0) == succeeded, "a write was not one change"
    return succeeded


def main() -> int:
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        for case in (case for case in CASES if case.load):
            found = check(case, record(case, STORES))
            if any(word.startswith(("put=", "post=")) for word in case.load):
                writes = check_one_change_each(case, Path(folder))
                found += f"; {writes:,} writes, each one change"
            sys.stdout.write(f"{case.name}: {found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
