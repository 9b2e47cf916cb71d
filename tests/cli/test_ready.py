"""`storekeeper ready`: what an image without curl asks."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.harness.client import until
from tests.harness.command import run
from tests.harness.process import Running, free_port, refused, serving


def test_a_service_that_is_ready_is_status_0_and_says_nothing(service: Running) -> None:
    port = str(service.port)
    for args in (
        [f"http://127.0.0.1:{port}"],
        [f"http://localhost:{port}/"],
        ["--port", port],
        ["--host", "0.0.0.0", "--port", port],
    ):
        done = run("ready", *args)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), args
    assert run("ready", env={"STOREKEEPER_PORT": port}).returncode == 0


def test_one_that_is_not_ready_is_status_1_and_one_line_says_why(service: Running) -> None:
    done = run("ready", f"http://127.0.0.1:{service.port}/no/such/prefix")
    assert done.returncode == 1
    assert done.stderr == b"storekeeper: not ready: /health/ready responds with 404: Not Found\n"
    done = run("ready", f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert done.stderr.startswith(b"storekeeper: not ready: ")
    assert b"refused" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_a_service_on_a_unix_socket_is_asked_there(open_folder: Path) -> None:
    path = str(open_folder / "s.sock")
    assert run("ready", "--uds", path).returncode == 1
    with serving(open_folder, "--uds", path, ready=False) as service:
        until(lambda: "listens on unix:" in service.log)
        done = run("ready", "--uds", path)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert run("ready", env={"STOREKEEPER_UDS": path}).returncode == 0


def test_what_is_no_http_is_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(30)

        def respond() -> None:
            client, _ = other.accept()
            with client:
                client.recv(1000)
                client.sendall(b"hello\r\n\r\n")

        with ThreadPoolExecutor(1) as pool:
            pool.submit(respond)
            done = run("ready", f"http://127.0.0.1:{other.getsockname()[1]}")
    assert done.returncode == 1
    assert b"not ready" in done.stderr


def test_what_is_no_address_is_status_2() -> None:
    rests = ("", "a:b", "[::1", "u:p@a", "a?b", "a b")
    for url in ("stores", "ftp://a", *(f"http://{rest}" for rest in rests)):
        assert refused(run("ready", url)) == [
            "storekeeper: URL: expected an address such as http://127.0.0.1:8080"
        ]
