"""A database that cannot be written now (decision 30): reads continue, writes are refused soon and
change nothing."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.harness.client import create as store
from tests.harness.client import locked, until
from tests.harness.process import Response, Running, ask
from tests.harness.stores import shown
from tests.harness.wire import assert_error, assert_invalid, create, dial, request

REQUIRED = '"name" is required'

MOST = 5.0
"""Seconds that a response may take."""

SLACK = 5.0
"""Seconds beyond it that a busy machine may take."""


def refused(service: Running, method: str, target: str) -> Response:
    began = time.monotonic()
    response = service.request(method, target, {"name": "Never"})
    assert time.monotonic() - began < MOST + SLACK
    assert_error(response, 503, "The database is locked", outcome="none")
    assert int(response.headers["retry-after"]) >= 1
    return response


def test_while_another_process_writes_reads_go_on_and_writes_are_refused(
    fresh: Running, tmp_path: Path
) -> None:
    id = store(fresh, "Before", "1 High Street")
    before = fresh.request("GET", "/api/stores").body
    with locked(tmp_path), ThreadPoolExecutor(10) as pool:
        writes = [pool.submit(refused, fresh, "POST", "/api/stores") for _ in range(5)]
        writes += [pool.submit(refused, fresh, "PUT", f"/api/stores/{id}") for _ in range(5)]
        connection = fresh.connection()
        reads = 0
        while not all(write.done() for write in writes):
            assert ask(connection, "GET", "/api/stores").body == before
            assert ask(connection, "GET", f"/api/stores/{id}").json["name"] == "Before"
            assert ask(connection, "GET", "/health/ready").status == 200
            assert_invalid(ask(connection, "POST", "/api/stores", {}), REQUIRED, ["name"])
            reads += 1
            time.sleep(0.02)  # the machine has others to serve
        connection.close()
        for write in writes:
            write.result()
        assert reads > 10
        until(
            lambda: 'event="writes are refused" reason="The database is locked"' in fresh.log,
            1 + SLACK,
        )
        refused_writes = {
            "status": "ready",
            "writes": "refused",
            "reason": "The database is locked",
        }
        assert fresh.request("GET", "/health/ready").json == refused_writes
    until(lambda: 'event="writes work again"' in fresh.log, 2 + SLACK)
    assert fresh.request("GET", "/health/ready").json == {"status": "ready", "writes": "ok"}
    assert fresh.request("GET", "/api/stores").body == before
    assert store(fresh, "After") == id + 1


def test_a_write_waits_for_a_short_lock_and_after_a_long_one_is_refused(
    fresh: Running, tmp_path: Path
) -> None:
    with dial(fresh) as wire:
        with locked(tmp_path):
            wire.send(request("GET", "/test") + create("Waited"))
            assert wire.response().body == b"OK"
        assert wire.response().json == shown(1, "Waited")
        with locked(tmp_path):
            wire.send(create("Never") + request("GET", "/test") + create(""))
            assert_error(wire.response(), 503, "The database is locked", outcome="none")
            assert wire.response().body == b"OK"
            assert_invalid(wire.response(), REQUIRED, ["name"])
