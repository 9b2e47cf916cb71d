import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.harness.command import run
from tests.harness.process import COMMAND, serving


@pytest.mark.parametrize(
    ("adapter", "detail"),
    [
        *(("--fast-lane", "detailed"), ("--no-fast-lane", "generic")),
        pytest.param("--fast-lane", "generic", marks=pytest.mark.thorough),
        pytest.param("--no-fast-lane", "detailed", marks=pytest.mark.thorough),
    ],
)
def test_the_service_conforms_in_both_modes_and_through_both_adapters(
    adapter: str, detail: str, tmp_path: Path
) -> None:
    with serving(tmp_path, adapter, "--error-detail", detail) as service:
        done = run("check", f"http://127.0.0.1:{service.port}", "--json", "--yes")
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert report["mode"] == detail
    assert report["counts"]["passed"] > 70


def asked(url: str, response: bytes) -> tuple[int, str]:
    """Check a service on a terminal, and respond to the question; return the exit status and what was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*COMMAND, "check", url], stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
            if shown.endswith(b"[y/N] "):
                os.write(ours, response)
    except OSError:
        pass  # that is how a terminal ends
    os.close(ours)
    return process.wait(30), shown.decode()


def test_a_check_adds_stores_to_a_list_in_use_only_if_it_may(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        url = f"http://127.0.0.1:{service.port}"
        service.request("POST", "/api/stores", {"name": "Ours"})
        done = run("check", url)
        [line] = done.stderr.decode().splitlines()
        assert done.returncode == 2
        assert done.stdout == b""
        assert "stores that nobody can delete: say --yes if it may, or --read-only" in line
        status, shown = asked(url, b"n\n")
        assert status == 2
        assert "that nobody can delete. Go on? [y/N] " in shown
        assert "storekeeper: nothing was added" in shown
        assert run("check", "--read-only", f"{url}/api/stores/").returncode == 0
        assert len(service.request("GET", "/api/stores").json) == 1, "something was added"
        assert asked(url, b"y\n")[0] == 0
        assert len(service.request("GET", "/api/stores").json) > 1


def test_a_check_of_the_examples_alone_asks_nobody(tmp_path: Path) -> None:
    """Until somebody has added or changed a store."""
    with serving(tmp_path, "--examples") as service:
        url = f"http://127.0.0.1:{service.port}"
        harbour = service.request("GET", "/api/stores/2").json
        service.request("PUT", "/api/stores/2", {"name": "Ours"})
        assert run("check", url).returncode == 2
        service.request("PUT", "/api/stores/2", {"name": harbour["name"], "address": harbour["address"]})
        assert run("check", url).returncode == 0
        assert run("check", url).returncode == 2
