"""What clients can cost the service: memory, connections, time of the event loop. Over real
sockets.

The figures come from /proc, so these tests need Linux.
"""

import json
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from select import select

from storekeeper.domain.stores import Payload
from tests.harness.client import create as store
from tests.harness.client import fill, until
from tests.harness.linux import in_kernel, peak_memory, sockets
from tests.harness.process import TIMEOUT, Running
from tests.harness.wire import HOST, SLOW, Wire, assert_error, create, dial, request

MIB = 2**20


def add(service: Running, tmp_path: Path, count: int, address: str) -> None:
    fill(tmp_path, (Payload(f"Store {id}", address) for id in range(1, count + 1)))
    assert service.request("GET", f"/api/stores/{count}").status == 200


def test_a_client_that_reads_thousands_of_responses_late_costs_little(
    fresh: Running, tmp_path: Path
) -> None:
    count, rounds = 1500, 1000
    add(fresh, tmp_path, count, "")
    expected = fresh.request("GET", "/api/stores").body
    before = peak_memory(fresh)
    assert len(expected) * rounds > 40 * MIB
    with dial(fresh) as wire:
        asked = [
            request("GET", "/api/stores") + request("GET", f"/api/stores/{id}")
            for id in range(1, rounds + 1)
        ]
        wire.send(b"".join(asked))
        assert fresh.request("GET", "/test").body == b"OK"  # others are served meanwhile
        for id in range(1, rounds + 1):
            assert wire.response().body == expected
            assert wire.response().json["id"] == id
    assert peak_memory(fresh) - before < 20 * MIB


def test_large_bodies_of_many_connections_take_little_together_and_leave_room_for_small_ones(
    fresh: Running,
) -> None:
    """The excess is refused at once; and when those that hold the room are gone, others have it."""
    body = json.dumps({"name": "Large", "address": "x" * 1_000_000}).encode()
    data = request("POST", "/api/stores", body)
    before = peak_memory(fresh)
    clients = [fresh.socket() for _ in range(80)]
    for client in clients:
        client.sendall(data[:-1])
    until(lambda: not in_kernel(fresh.port))
    assert fresh.request("GET", "/test").body == b"OK"  # so what was read last has its response too
    late = [Wire(client) for client in select(clients, [], [], 0)[0]]
    assert 10 <= len(late) <= 20
    for wire in late:
        response = wire.response()
        assert_error(response, 503, "Too many large requests", outcome="none")
        assert response.headers["retry-after"] == "1"
        wire.assert_closed()
    assert peak_memory(fresh) - before < 80 * MIB
    store(fresh, "Small")
    kept = [Wire(client) for client in clients if client not in {wire.client for wire in late}]
    for wire in kept:
        wire.send(data[-1:])
        assert wire.response().json["name"] == "Large"
    with dial(fresh) as wire:
        wire.send(data)
        assert wire.response().json["id"] == 1 + len(kept) + 1
    for client in clients:
        client.close()


def test_a_client_that_sends_requests_without_end_keeps_nobody_waiting(service: Running) -> None:
    """As fast as it can, and reads all responses."""
    done = threading.Event()
    many = request("GET", "/api/stores", None, "If-None-Match: *") * 4000

    def flood() -> None:
        with service.socket() as client:
            client.setblocking(False)
            unsent = many
            while not done.is_set():
                readable, writable, _ = select([client], [client], [], TIMEOUT)
                if readable:
                    assert client.recv(MIB)
                if writable:
                    with suppress(BlockingIOError):
                        unsent = unsent[client.send(unsent) :] or many

    with ThreadPoolExecutor(1) as pool, dial(service) as wire:
        flooding = pool.submit(flood)
        try:
            for _ in range(20):
                began = time.monotonic()
                wire.send(request("GET", "/test"))
                assert wire.response().body == b"OK"
                assert (
                    time.monotonic() - began < 10
                )  # or after all that others send, which never ends
                time.sleep(0.01)
        finally:
            done.set()
        flooding.result()


def test_clients_that_reset_in_the_middle_leave_nothing_behind(
    fresh: Running, tmp_path: Path
) -> None:
    add(fresh, tmp_path, 1500, "x" * 100)
    began = len(sockets(fresh.process.pid))
    middles = [
        b"",
        b"GET /te",
        create("Half")[:-5],
        create("Whole"),
        create("Two") * 2,
        request("GET", "/api/stores"),
        request("GET", "/api/stores") * 50,
        request("GET", SLOW) * 3,
        b"POST /api/stores HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999\r\n\r\n",
        b"garbage\r\n\r\n",
    ]
    for number in range(100):
        with fresh.socket() as client:
            client.sendall(middles[number % len(middles)])
            if number % 3 == 0 and number % len(middles) in (3, 5, 6, 7):
                client.recv(100)
            client.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )  # a reset, at its close
    until(lambda: len(sockets(fresh.process.pid)) <= began)
    written = fresh.request("GET", "/api/stores?name=Whole").json
    assert len(written) <= 10
    assert store(fresh, "After") == len(fresh.request("GET", "/api/stores").json)
    assert fresh.log.count("level=") == fresh.log.count("level=info"), (
        "clients that go away are nothing to log"
    )
