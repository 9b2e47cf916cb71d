"""This service passes the kit, which adds stores only where it may."""

import json
from pathlib import Path

import pytest

from tests.harness.command import run, run_on_terminal
from tests.harness.process import serving


@pytest.mark.parametrize("detail", ["detailed", "generic"])
def test_the_service_conforms_in_both_modes(detail: str, tmp_path: Path) -> None:
    with serving(tmp_path, "--error-detail", detail) as service:
        done = run("check", f"http://127.0.0.1:{service.port}", "--json", "--yes")
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert report["mode"] == detail
    assert report["counts"]["passed"] > 70


def test_a_check_adds_stores_to_a_list_in_use_only_if_it_may(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        url = f"http://127.0.0.1:{service.port}"
        service.request("POST", "/api/stores", {"name": "Ours"})
        done = run("check", url)
        [line] = done.stderr.decode().splitlines()
        assert done.returncode == 2
        assert done.stdout == b""
        assert (
            "cannot be deleted: repeat with --yes to allow that; nothing was added; --read-only"
            in line
        )
        done = run_on_terminal("check", url, typed=b"n\n")
        assert done.returncode == 2
        assert b"stores, which cannot be deleted. Continue? [y/N] " in done.stderr
        assert b"storekeeper: nothing was added" in done.stderr
        assert run("check", "--read-only", f"{url}/api/stores/").returncode == 0
        assert len(service.request("GET", "/api/stores").json) == 1, "something was added"
        assert run_on_terminal("check", url, typed=b"y\n").returncode == 0
        assert len(service.request("GET", "/api/stores").json) > 1


def test_a_check_of_the_examples_alone_asks_nobody(tmp_path: Path) -> None:
    """Until a client has added or changed a store."""
    with serving(tmp_path, "--examples") as service:
        url = f"http://127.0.0.1:{service.port}"
        harbour = service.request("GET", "/api/stores/2").json
        service.request("PUT", "/api/stores/2", {"name": "Ours"})
        assert run("check", url).returncode == 2
        service.request(
            "PUT", "/api/stores/2", {"name": harbour["name"], "address": harbour["address"]}
        )
        assert run("check", url).returncode == 0
        assert run("check", url).returncode == 2
