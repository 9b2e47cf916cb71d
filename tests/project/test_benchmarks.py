"""What `make bench` shows beside the peers: the floor, which is none."""

import shutil
import socket
from contextlib import closing
from pathlib import Path

import apsw

from bench import report, smoke
from bench.cases import HEADLINES, REMEDIES
from bench.systems import SYSTEMS
from tests.harness.machine import need
from tests.harness.process import serving

CLIENTS = 8
PUT = b'PUT /api/stores/1 HTTP/1.1\r\nContent-Length: 12\r\n\r\n{"name":"%d"}'
WRONG = (
    """SELECT * FROM changes
      WHERE count != (SELECT max(store_id) FROM changes AS earlier WHERE earlier.seq <= changes.seq)""",
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
            assert service.request("GET", "/api/stores").headers["etag"].startswith(f'"{server.changes()}.')


TIMES = {"storekeeper@1000000": 15.0, "floor@1000000": 10.0, "fastify@10": 12.0, "hapi@10": 24.0}
RESULTS = {
    "cases": {"random-id": {"figures": [{entry: {"rate": 1e6 / us, "us": us} for entry, us in TIMES.items()}]}}
}


def cells(row: str) -> list[str]:
    """Return what stands in a row behind its first column."""
    return [cell.strip() for cell in row.split("|")[2:-1]]


def test_beside_each_goal_stands_what_the_floor_reaches() -> None:
    _, *rows = report.goal_lines(HEADLINES, RESULTS)
    assert [cells(row) for row in rows] == [
        ["≥ 1.5", "0.80 ✗", "0.80 to 0.80", "1.20 ✗"],
        ["≤ 0.67", "1.25 ✗", "1.25 to 1.25", "0.83 ✗"],
    ], "goals that were not measured are left out"


def test_of_a_missed_goal_is_told_how_much_the_floor_and_how_much_we_take_beyond_it() -> None:
    _, _, *rows = report.missed_lines(RESULTS)
    assert [cells(row)[:-1] for row in rows] == [
        ["8.0", "10.0", "15.0", "2.0", "5.0"],
        ["8.0", "10.0", "15.0", "2.0", "5.0"],
    ]


def test_of_each_goal_for_a_rate_or_a_time_is_told_what_it_would_take() -> None:
    assert {goal.case for goal in HEADLINES if report.metric(goal) in {"rate", "us"}} == REMEDIES.keys()


def test_the_chart_shows_peers_and_not_the_floor() -> None:
    ((_, bars),) = report.panels(RESULTS)
    assert [label for label, _ in bars] == [SYSTEMS[name].title for name in ("storekeeper", "fastify", "hapi")]
