"""What `make bench` shows: the goals and what was reached; and the floor, which is not a peer."""

import shutil
import socket
from contextlib import closing
from pathlib import Path

import apsw

from bench import report, smoke
from bench.cases import CASES
from bench.systems import SYSTEMS
from tests.harness.machine import need
from tests.harness.process import serving

CLIENTS = 8
PUT = b'PUT /api/stores/1 HTTP/1.1\r\nContent-Length: 12\r\n\r\n{"name":"%d"}'
WRONG = (
    """SELECT * FROM changes
      WHERE count !=
        (SELECT max(store_id) FROM changes AS earlier WHERE earlier.seq <= changes.seq)""",
    """SELECT id, name, address, version FROM stores EXCEPT
      SELECT store_id, name, address, max(seq) FROM changes GROUP BY store_id""",
)
"""Each finds what no file of Storekeeper's has."""


def test_the_floor_responds_as_storekeeper_does_and_keeps_its_file_whole(tmp_path: Path) -> None:
    if not shutil.which("taskset"):
        need("taskset", "servers that are measured are kept on one core (Debian: util-linux)")
    with SYSTEMS["floor"].serve(smoke.SEED, tmp_path) as server:
        for test in smoke.TESTS[SYSTEMS["floor"].smoke_test]:
            test(server)
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(CLIENTS)]
        for number, client in enumerate(clients):
            client.sendall(PUT % number)
        for number, client in enumerate(clients):
            with client:
                assert client.recv(65536).endswith(b'{"id":1,"name":"%d","address":null}' % number)
        assert server.changes() == smoke.SEED + 2 + CLIENTS
        with closing(apsw.Connection(str(server.database))) as connection:
            assert connection.pragma("integrity_check") == "ok"
            assert [list(connection.execute(statement)) for statement in WRONG] == [[], []]
        with serving(tmp_path, database=f"sqlite:///{server.database}") as service:
            found = service.request("GET", "/api/stores/1")
            assert found.json["address"] is None
            assert (
                service.request("GET", "/api/stores")
                .headers["etag"]
                .startswith(f'"{server.changes()}.')
            )


def test_there_is_a_system_for_each_name_of_a_case_and_each_case_has_a_goal() -> None:
    assert {name for case in CASES for name in case.systems} == SYSTEMS.keys()
    assert all(bool(case.goal) != bool(case.most_more) for case in CASES)


def results(case: str, **times: float) -> report.Outcome:
    """Return the results of one round in which each system takes these microseconds for a
    request."""
    systems = {
        name.replace("_", "-"): {"rate": 1e6 / time, "us": time} for name, time in times.items()
    }
    return {"cases": {case: {"figures": [systems]}}}


def cells(row: str) -> list[str]:
    """Return what stands in a row behind its first two columns."""
    return [cell.strip() for cell in row.split("|")[3:-1]]


def test_a_goal_is_a_ratio_to_the_second_system() -> None:
    _, _, *rows = report.goal_lines(
        results("random-id", storekeeper=10.0, fastify_sqlite=20.0, fastify=1.0)
    )
    assert [cells(row) for row in rows] == [["≥ 1.4", "2.00 ✓", "2.00 to 2.00", "0.50"]]
    _, _, *rows = report.goal_lines(results("random-id", storekeeper=10.0, fastify_sqlite=12.5))
    assert [cells(row) for row in rows] == [["≥ 1.4", "1.25 ✗", "1.25 to 1.25", "0.80"]]


def test_what_keys_cost_is_a_difference() -> None:
    _, _, *rows = report.goal_lines(results("post-keys", storekeeper_keys=40.0, storekeeper=20.0))
    assert [cells(row)[:2] for row in rows] == [["≤ 35 µs more", "20.0 µs more ✓"]]


def test_a_goal_that_was_not_measured_is_left_out() -> None:
    assert len(list(report.goal_lines(results("random-id", storekeeper=10.0)))) == 2
