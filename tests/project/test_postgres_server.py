"""The PostgreSQL of the tests leaves nothing on the machine."""

from pathlib import Path

import pytest

from tests.harness.databases import postgres
from tests.harness.postgres_server import running

SEGMENTS = Path("/proc/sysvipc/shm")


@pytest.mark.skipif(not SEGMENTS.exists(), reason="only Linux lists the segments")
def test_a_server_that_was_killed_leaves_no_shared_memory() -> None:
    """A machine has some thousand segments, and none of its servers starts when they are used up."""
    postgres()
    with running() as server:
        assert server.process is not None
        creator = str(server.process.pid)
        segment = (server.data / "postmaster.pid").read_text().splitlines()[6].split()[1]
        assert (segment, creator) in segments()
        server.kill()
    assert (segment, creator) not in segments()


def segments() -> set[tuple[str, str]]:
    """Return the number of each segment, and who made it."""
    rows = [line.split() for line in SEGMENTS.read_text().splitlines()[1:]]
    return {(row[1], row[4]) for row in rows}
