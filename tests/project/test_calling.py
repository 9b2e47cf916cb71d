"""What the pages on calling the service show, and the programs in `examples/`, do what the pages
say."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Error, Page

from storekeeper.domain.stores import Payload
from tests.harness import browser
from tests.harness.client import load, until
from tests.harness.command import run
from tests.harness.databases import make
from tests.harness.machine import need
from tests.harness.nginx import nginx
from tests.harness.pages import ROOT, Step, blocks, follower, steps
from tests.harness.process import Running, free_port, serving
from tests.harness.tokens import add_token

CALLING, MIRROR = ROOT / "docs/calling.md", ROOT / "docs/mirror.md"
ADDRESS = "http://127.0.0.1:8080"
EDIT_IN_A_PAGE, ADD = (
    "\n".join(lines) for _, language, lines in blocks(CALLING) if language == "js"
)
CLIENT, EDIT, READ_ALL = (
    "\n".join(lines) for _, language, lines in blocks(CALLING) if language == "python"
)
WITH_A_TOKEN = "Send a token"
AFTER_A_RESTORE = "When a backup was restored"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start a service with the example stores."""
    with serving(tmp_path_factory.mktemp("calling"), "--examples") as started:
        yield started


def here(text: str, port: int) -> str:
    assert "127.0.0.1" not in text.replace(ADDRESS, "")
    return text.replace(ADDRESS, f"http://127.0.0.1:{port}")


def differences(taken: list[Step], folder: Path, port: int, **env: str) -> list[str]:
    """Run commands of a page in a folder against a service; return where they differ from what
    the page says."""
    with follower(folder, **env) as shell:
        found = [step.difference(*shell.run(step.at(port).command)) for step in taken]
    return [difference for difference in found if difference]


def python(program: str, port: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", here(program, port)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def version(service: Running) -> str:
    return service.request("HEAD", "/api/stores").headers["etag"]


# docs/calling.md


def test_every_command_on_calling_prints_what_the_page_says(tmp_path: Path) -> None:
    with_token = steps(CALLING, WITH_A_TOKEN)
    others = [step for step in steps(CALLING) if step not in with_token]
    assert len(others) >= 9
    with serving(tmp_path, "--examples") as open_to_all:
        assert differences(others, tmp_path, open_to_all.port) == []
    assert len(json.loads((tmp_path / "stores.json").read_text())) == 3, "304 leaves it as it was"
    assert len((tmp_path / "stores.csv").read_text().splitlines()) == 5
    make(f"sqlite:///{tmp_path}/closed.db", examples=True)
    token = add_token(f"sqlite:///{tmp_path}/closed.db", "caller", "write")
    with serving(tmp_path, "--auth=all", database=f"sqlite:///{tmp_path}/closed.db") as closed:
        assert closed.request("GET", "/api/stores/2").status == 401
        assert differences(with_token, tmp_path, closed.port, STOREKEEPER_TOKEN=token) == []


def test_an_edit_by_curl_without_a_tag_is_not_sent(service: Running, tmp_path: Path) -> None:
    """curl leaves out a field without a value: the PUT would be a plain one."""
    before = version(service)
    for step in steps(CALLING, "Edit a store"):
        if "PUT" in step.command:
            bash = ["bash", "-c", step.at(service.port).command]
            done = subprocess.run(
                bash, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
            )
            assert "tag: parameter null or not set" in done.stderr
    assert version(service) == before


def test_the_client_does_what_the_page_says(tmp_path: Path) -> None:
    with serving(tmp_path, "--examples") as fresh:
        done = python(CLIENT, fresh.port)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "4 stores; ['West Gate Kiosk']",
        "5 West Gate Kiosk 1 West Road",
        "6 West Gate Kiosk None",
    ]


def test_the_client_in_javascript_edits_and_adds_once_though_responses_are_lost(
    service: Running,
) -> None:
    source = (ROOT / "examples/client.js").read_text()
    program = """async ([source, url]) => {
      const blob = new Blob([source], { type: "text/javascript" });
      const { Stores, Refused } = await import(URL.createObjectURL(blob));
      const real = window.fetch, stores = new Stores(url);
      let count = 0;
      window.fetch = async (...request) => {
        const response = await real(...request);
        if (count++ % 3 === 0) throw new TypeError("lost on the way back");
        return response;
      };
      const made = await stores.create({ name: "Counter", address: "0" });
      const up = (store) => ({ address: String(Number(store.address) + 1) });
      await Promise.all([1, 2, 3, 4].map(() => stores.edit(made.id, up)));
      const refused = await stores.create({ name: "" }).catch((error) => error);
      window.fetch = real;
      return [made.id, (await stores.get(made.id)).address, (await stores.search("counter")).length,
              (await stores.list()).length,
              refused instanceof Refused, refused.status, refused.keys];
    }"""
    with browser.page() as (page, _):
        page.goto(f"http://127.0.0.1:{service.port}/health/live")
        found = page.evaluate(program, [source, f"http://127.0.0.1:{service.port}"])
    count = len(service.request("GET", "/api/stores").json)
    assert found == [count, "4", 1, count, True, 400, ["name"]]


def test_a_program_edits_what_it_read_and_applies_its_change_again_when_somebody_was_faster(
    service: Running,
) -> None:
    done = python(EDIT, service.port)
    assert done.stdout == "{'id': 3, 'name': 'Airport', 'address': None}\n", done.stderr
    faster = """
def faster(store):
    if store["name"] != "Theirs":
        api.put("/api/stores/3", json={"name": "Theirs", "address": "3 Their Street"})
    return {**store, "name": "Ours after " + store["name"]}
with httpx.Client(base_url="http://127.0.0.1:8080") as api:
    edit(api, 3, faster)"""
    assert python(EDIT + faster, service.port).stderr == ""
    expected = {"id": 3, "name": "Ours after Theirs", "address": "3 Their Street"}
    assert service.request("GET", "/api/stores/3").json == expected


def test_a_page_edits_and_adds_and_takes_no_refusal_for_a_success(
    service: Running, tmp_path: Path
) -> None:
    with browser.page() as (page, _):
        edit_in(page, service)
        add_in(page, tmp_path)


def edit_in(page: Page, service: Running) -> None:
    edit = here(EDIT_IN_A_PAGE, service.port)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(f"http://127.0.0.1:{service.port}/docs")
    page.evaluate(f"async () => {{ {edit}\n}}")
    assert said == [f"Saved {service.request('HEAD', '/api/stores/1').headers['etag']}"]
    assert service.request("GET", "/api/stores/1").json["address"] == "4 Main Street"
    stale = edit.replace('read.headers.get("ETag")', "'\"1.aaaaaaaa\"'").replace("4 Main", "5 Main")
    page.evaluate(f"async () => {{ {stale}\n}}")
    assert said[-1] == "Another client changed it: show both"
    for old, new, message in (
        ("({ name,", "({ name: '',", '"name" is required'),
        ("stores/1", "stores/9999", "Store 9999 not found"),
    ):
        with pytest.raises(Error, match=message):
            page.evaluate(f"async () => {{ {edit.replace(old, new)}\n}}")
    assert service.request("GET", "/api/stores/1").json["address"] == "4 Main Street"


def add_in(page: Page, folder: Path) -> None:
    """Add once: continue until a proxy finds the service, and then give up. The pauses are shorter
    here."""
    port = free_port()
    with nginx(folder, port, settings="access_log access.log;") as proxy:
        add = f"async () => {{ {here(ADD, proxy)}\n}}"
        page.goto(f"http://127.0.0.1:{proxy}/health/live")
        page.evaluate(
            "() => { const wait = setTimeout; window.setTimeout = (then) => wait(then, 1); }"
        )
        with pytest.raises(Error, match="the service is unavailable"):
            page.evaluate(add)
        until(
            lambda: (
                (folder / "access.log").read_text().count('POST /api/stores HTTP/1.1" 502 ') == 5
            )
        )
        page.goto(f"http://127.0.0.1:{proxy}/health/live")
        page.evaluate(f"() => {{ window.added = ({add})(); }}")
        until(
            lambda: (folder / "access.log").read_text().count('POST /api/stores HTTP/1.1" 502 ') > 5
        )
        with serving(folder, f"--port={port}") as service:
            page.evaluate("() => window.added")
            with pytest.raises(Error, match='"name" is required'):
                page.evaluate(add.replace("South Gate", ""))
            assert [store["name"] for store in service.request("GET", "/api/stores").json] == [
                "South Gate"
            ]


def test_a_walk_over_pages_takes_no_part_of_the_list_for_all_of_it(
    service: Running, tmp_path: Path
) -> None:
    done = python(READ_ALL, service.port)
    assert re.fullmatch(r"[3-9] stores\n", done.stdout), done.stderr
    with nginx(tmp_path, service.port, settings="if ($arg_after = 2) { return 503; }") as proxy:
        done = python(READ_ALL, proxy)
    assert (done.returncode, done.stdout) == (1, "")
    assert "503" in done.stderr


# docs/mirror.md


def mirror(port: int, folder: Path, *options: str, **env: str) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        str(ROOT / "examples/mirror.py"),
        f"http://127.0.0.1:{port}",
        "ours.db",
        *options,
    ]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env=os.environ | env, stdout=pipe, stderr=pipe, text=True
    )


def mirror_once(port: int, folder: Path, **env: str) -> tuple[int, str]:
    """Run the mirror to its end; return its status, and what it says about an error."""
    process = mirror(port, folder, **env)
    error = process.communicate(timeout=30)[1]
    return process.returncode, error


def mirrored(folder: Path) -> list[dict[str, object]]:
    with closing(sqlite3.connect(folder / "ours.db")) as ours:
        rows = ours.execute("SELECT id, name, address FROM stores ORDER BY id").fetchall()
    return [{"id": id, "name": name, "address": address} for id, name, address in rows]


def test_every_command_on_a_mirror_prints_what_the_page_says_also_after_a_restore(
    tmp_path: Path,
) -> None:
    if shutil.which("sqlite3") is None:
        need("sqlite3", "sqlite3 is not installed")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    url, backup, port = f"sqlite:///{tmp_path}/stores.db", str(tmp_path / "backup.db"), free_port()
    restored = steps(MIRROR, AFTER_A_RESTORE)
    with serving(tmp_path, "--examples", f"--port={port}", database=url) as service:
        assert (
            differences([step for step in steps(MIRROR) if step not in restored], tmp_path, port)
            == []
        )
        assert run("backup", backup, "--database", url).returncode == 0
        service.request("POST", "/api/stores", {"name": "Castle Hill"})
        assert mirror_once(port, tmp_path) == (0, "")
        assert len(mirrored(tmp_path)) == 4
    assert run("restore", backup, "--database", url).returncode == 0
    with serving(tmp_path, f"--port={port}", database=url) as service:
        service.request("POST", "/api/stores", {"name": "Old Mill"})
        assert differences(restored, tmp_path, port) == []
        assert mirrored(tmp_path) == service.request("GET", "/api/stores").json


def test_a_mirror_that_is_killed_again_and_again_misses_no_change(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/stores.db"
    token = add_token(url, "mirror", "read")
    with serving(tmp_path, "--auth=all", database=url) as service:
        load(url, (Payload(f"Store {number}", None) for number in range(1200)))
        for count in range(1, 4):
            process = mirror(service.port, tmp_path, "--follow", STOREKEEPER_TOKEN=token)
            assert process.stdout
            load(url, (Payload(f"Later {number}", f"{count}") for number in range(count * 400)))
            if count > 1:
                process.stdout.readline()
            process.kill()
            process.communicate()
        assert mirror_once(service.port, tmp_path, STOREKEEPER_TOKEN=token) == (0, "")
        wanted = service.request(
            "GET", "/api/stores", headers={"authorization": f"Bearer {token}"}
        ).json
        assert mirrored(tmp_path) == wanted
    assert mirror_once(service.port, tmp_path) == (1, "not now: [Errno 111] Connection refused\n")
