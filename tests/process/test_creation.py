"""No start begins a list in the place of another: not the next one, no worker, on no server."""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from storekeeper.domain.errors import Missing
from storekeeper.process.service import application
from storekeeper.storage.sqlite import schema
from tests.harness.cases import thorough
from tests.harness.client import until
from tests.harness.databases import make_file
from tests.harness.process import COMMAND, READY, TIMEOUT, Running, environment, kill_group, serving

_PASS = """import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.argv[2], sys.argv[2:])"""


@contextmanager
def started(listener: socket.socket, *args: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a service with a socket that listens, as systemd does when a client comes."""
    number = listener.fileno()
    process = subprocess.Popen(
        [sys.executable, "-c", _PASS, str(number), *COMMAND, "serve", *args],
        env=environment({}),
        pass_fds=[number],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill_group(process)
        assert process.stderr is not None
        process.stderr.close()


@pytest.mark.parametrize("workers", [1, *thorough(2)])
def test_a_start_for_a_client_after_the_file_was_deleted_begins_no_list(
    tmp_path: Path, workers: int
) -> None:
    """The log of the list is empty then, and nothing is left of it."""
    path = tmp_path / "stores.db"
    make_file(path)
    args = (f"--database=sqlite:///{path}", f"--workers={workers}")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with started(listener, *args) as process:
            service = Running(process, port, tmp_path / "log")
            assert service.request("POST", "/api/stores", {"name": "Acknowledged"}).status == 200
            assert service.stop() == 0
        for file in schema.files(path):
            file.unlink(missing_ok=True)
        for _ in range(2):
            with (
                socket.create_connection(("127.0.0.1", port)) as client,
                started(listener, *args) as process,
            ):
                client.sendall(b"GET /api/stores HTTP/1.1\r\nhost: a\r\n\r\n")
                assert process.stderr is not None
                assert process.stderr.read().decode() == f"storekeeper: {Missing(str(path))}\n"
                assert process.wait(TIMEOUT) == 2
            assert not path.exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_start_that_may_make_its_list_makes_it_once_and_uses_it_afterwards(
    tmp_path: Path, workers: int
) -> None:
    args = (f"--workers={workers}", "--examples")
    for count in (3, 4):
        with serving(tmp_path, *args, create=True) as service:
            assert len(service.request("GET", "/api/stores").json) == count
            assert service.request("POST", "/api/stores", {"name": "New"}).status == 200
            assert ("the new database" in service.log) == (count == 3)
            assert service.stop() == 0


def test_a_service_that_is_told_no_database_makes_one_where_it_is(tmp_path: Path) -> None:
    with TemporaryFile() as log:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--port=0"],
            cwd=tmp_path,
            env=environment({}),
            stderr=log,
            start_new_session=True,
        )
        try:

            def written() -> bytes:
                log.seek(0)
                return log.read()

            until(lambda: READY.search(written()) is not None)
        finally:
            kill_group(process)
    assert (tmp_path / "storekeeper.db").stat().st_size > 0


def test_another_server_is_told_in_one_line_that_there_is_no_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "stores.db"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOREKEEPER_AUTH", "open")
    monkeypatch.setenv("STOREKEEPER_DATABASE", f"sqlite:///{path}")
    with pytest.raises(SystemExit) as ended:
        application()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"storekeeper: {Missing(str(path))}\n"
    assert not path.exists()
    monkeypatch.delenv("STOREKEEPER_DATABASE")
    application()
    assert re.fullmatch(r"storekeeper\.db", " ".join(file.name for file in tmp_path.iterdir()))
