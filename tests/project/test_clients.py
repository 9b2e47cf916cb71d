"""Every recipe of `docs/clients.md` is run as it stands, against a service of its own, in the order of the page."""

import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error

from storekeeper import databases
from storekeeper.stores import Payload
from tests.harness import browser
from tests.harness.client import load, until
from tests.harness.command import run
from tests.harness.nginx import nginx
from tests.harness.pages import ROOT, blocks
from tests.harness.process import Running, kill_group, serving
from tests.harness.tokens import add_token

PAGE = ROOT / "docs/clients.md"
ALL = [(f"{language}, line {begin}", language, "\n".join(lines)) for begin, language, lines in blocks(PAGE)]
RECIPES = [recipe for recipe in ALL if "Bearer" not in recipe[2] and "storekeeper changes" not in recipe[2]]
WITH_TOKEN = [recipe for recipe in ALL if "Bearer" in recipe[2]]
NAMES = ("Old Town", "North Gate", "South Gate", "Unique")
ADDRESS = "http://127.0.0.1:8080"


@dataclass(frozen=True)
class Token:
    """The text of a token, and the folder of its service's database."""

    folder: Path
    text: str

    @property
    def field(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.text}"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start a service with the example stores."""
    with serving(tmp_path_factory.mktemp("clients"), "--examples") as started:
        yield started


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Token:
    """Make a token, for a service of its own."""
    folder = tmp_path_factory.mktemp("token")
    return Token(folder, add_token(f"sqlite:///{folder}/stores.db", "recipes", "write"))


@pytest.fixture(scope="module")
def closed(token: Token, service: Running) -> Iterator[Running]:
    """Start a service that wants a token for everything, and names the origin of the other one."""
    origin = f"http://127.0.0.1:{service.port}"
    with serving(token.folder, "--examples", "--auth=all", f"--cors-origin={origin}") as started:
        yield started


def here(recipe: str, service: Running) -> str:
    assert ADDRESS in recipe
    return recipe.replace(ADDRESS, f"http://127.0.0.1:{service.port}")


def check_names(service: Running, recipe: str) -> None:
    """See that each store that a recipe adds is there once."""
    names = [store["name"] for store in service.request("GET", "/api/stores").json]
    for name in NAMES:
        assert f'"{name}"' not in recipe or names.count(name) == 1


@pytest.mark.parametrize(
    ("language", "recipe"),
    [pytest.param(language, text, id=name) for name, language, text in RECIPES if language != "js"],
)
def test_a_recipe_does_what_it_says(service: Running, language: str, recipe: str, tmp_path: Path) -> None:
    program = {"bash": ["bash", "-euc"], "python": [sys.executable, "-c"]}[language]
    (tmp_path / "erp.csv").write_text("number,name,address\n")
    done = subprocess.run(
        [*program, here(recipe, service)], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    if printed := re.search(r"\d+ stores", done.stdout):
        assert int(printed[0].split()[0]) >= 3
    check_names(service, recipe)
    if "Saved" in recipe:
        assert done.stdout.startswith("Saved: ")
    if "http_code}\\n" in recipe:
        assert done.stdout == "304\n"


def test_a_store_without_an_address_is_edited_by_what_was_read_of_it(service: Running) -> None:
    added = service.request("POST", "/api/stores", {"name": "No address"}).json["id"]
    recipe = here(next(text for _, language, text in RECIPES if language == "python" and "def edit" in text), service)
    again = f'print(edit({added}, lambda store: {{**store, "name": "None yet"}}))'
    subprocess.run([sys.executable, "-c", f"{recipe}\n{again}"], capture_output=True, timeout=30, check=True)
    assert service.request("GET", f"/api/stores/{added}").json == {"id": added, "name": "None yet", "address": None}


@pytest.mark.parametrize(
    "recipe", ["Edit a store safely", "Add a store exactly once", "Import and export from elsewhere"]
)
def test_a_recipe_without_the_program_that_makes_its_tag_or_key_writes_nothing(
    service: Running, closed: Running, token: Token, recipe: str, tmp_path: Path
) -> None:
    """curl leaves out a field without a value: the write would be a plain one."""
    section = PAGE.read_text().partition(f"\n## {recipe}\n")[2]
    text = section.partition("```bash\n")[2].partition("\n```")[0]
    for program in ("curl", "cat", "cut"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    started = closed if "TOKEN" in text else service
    env = {"PATH": str(tmp_path), "STOREKEEPER_TOKEN": token.text}
    bash = [str(shutil.which("bash")), "-c", here(text, started)]
    before = started.request("GET", "/api/stores", headers=token.field)
    done = subprocess.run(bash, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert ": parameter null or not set" in done.stderr
    assert "Saved" not in done.stdout
    assert started.request("GET", "/api/stores", headers=token.field).headers["etag"] == before.headers["etag"]


def test_the_recipes_for_pages_do_what_they_say_in_a_browser(service: Running) -> None:
    recipes = [text for _, language, text in RECIPES if language == "js"]
    with browser.page() as (page, faults):
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(f"http://127.0.0.1:{service.port}/docs")
        for recipe in recipes:
            page.evaluate(f"async () => {{ {here(recipe, service)} }}")
        assert not faults
    assert len(said) == len(recipes)
    check_names(service, "".join(recipes))
    assert "4 Main Street" in service.request("GET", "/api/stores/1").json["address"]


def adding(service: str) -> dict[str, str]:
    """Return the recipes that add a store once, by their languages, for a service at another address."""
    section = PAGE.read_text().partition("\n## Add a store exactly once\n")[2].partition("\n## ")[0]
    found = re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)
    return {language: text.replace(ADDRESS, service) for language, text in found}


@pytest.mark.parametrize("language", ["bash", "python"])
def test_a_recipe_that_adds_goes_on_until_a_proxy_finds_the_service(language: str, tmp_path: Path) -> None:
    program = {"bash": ["bash", "-euc"], "python": [sys.executable, "-c"]}[language]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "nginx").mkdir()
    with nginx(tmp_path / "nginx", port, settings="access_log access.log;") as proxy:
        recipe = adding(f"http://127.0.0.1:{proxy}")[language]
        with subprocess.Popen([*program, recipe], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
            until(lambda: '" 502 ' in (tmp_path / "nginx/access.log").read_text())
            with serving(tmp_path, f"--port={port}") as service:
                said, _ = run.communicate(timeout=30)
                check_names(service, recipe)
    assert run.returncode == 0
    assert '"id":1' in said.replace("'", '"').replace(" ", "")


def without_name(recipe: str) -> str:
    return re.sub(r'"(Old Town|North Gate|South Gate)"', '""', recipe)


@pytest.mark.parametrize("language", ["bash", "python"])
def test_a_recipe_that_adds_takes_no_refusal_for_a_store(service: Running, language: str, tmp_path: Path) -> None:
    program = {"bash": ["bash", "-uc"], "python": [sys.executable, "-c"]}[language]
    recipe = without_name(adding(f"http://127.0.0.1:{service.port}")[language])
    before = service.request("GET", "/api/stores").headers["etag"]
    done = subprocess.run([*program, recipe], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert {"bash": "is required", "python": "400 Bad Request"}[language] in done.stderr
    assert service.request("GET", "/api/stores").headers["etag"] == before


def test_a_page_that_adds_takes_no_refusal_for_a_store_and_ends_when_the_service_stays_away(
    service: Running, tmp_path: Path
) -> None:
    """Its pauses are shorter here."""
    away = "location = /api/stores { return 503; } access_log access.log;"
    with nginx(tmp_path, service.port, settings=away) as proxy, browser.page() as (page, _):
        page.goto(f"http://127.0.0.1:{service.port}/docs")
        with pytest.raises(Error, match='"name" is required'):
            page.evaluate(f"async () => {{ {without_name(adding(f'http://127.0.0.1:{service.port}')['js'])} }}")
        page.goto(f"http://127.0.0.1:{proxy}/docs")
        page.evaluate("() => { const wait = setTimeout; window.setTimeout = (then) => wait(then, 1); }")
        with pytest.raises(Error, match="the service is away"):
            page.evaluate(f"async () => {{ {adding(f'http://127.0.0.1:{proxy}')['js']} }}")
    assert (tmp_path / "access.log").read_text().count('" 503 ') == 5


def test_a_poller_goes_on_when_the_service_is_away_for_a_moment() -> None:
    section = PAGE.read_text().partition("\n## Poll cheaply\n")[2]
    recipe = section.partition("```python\n")[2].partition("```")[0]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    nobody = recipe.replace(ADDRESS, f"http://127.0.0.1:{port}")
    done = subprocess.run([sys.executable, "-c", nobody], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 stores, as of \n", "")


class Night:
    """The recipe of the nightly sync, run as often as a test wants."""

    def __init__(self, folder: Path, service: Running) -> None:
        self.folder, self.service = folder, service
        text = next(text for _, _, text in RECIPES if "erp.csv" in text)
        self.program = compile(here(text, service), "clients.md", "exec")
        self.ours = sqlite3.connect(folder / "sync.db", isolation_level=None)

    def run(self, *rows: str) -> int | str | None:
        """Run it for these rows of the other system, which marks its files as Excel does; return its status."""
        (self.folder / "erp.csv").write_text("\n".join(["number,name,address", *rows, ""]), "utf-8-sig")
        names: dict[str, Any] = {}
        with pytest.raises(SystemExit) as ended:
            exec(self.program, names)
        names["ours"].close()
        names["api"].close()
        return ended.value.code

    def stores(self) -> list[tuple[str, str | None]]:
        """Return the stores that it added, in order."""
        return [(store["name"], store["address"]) for store in self.service.request("GET", "/api/stores").json[3:]]


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Night]:
    """The sync with a service that has the example stores alone."""
    monkeypatch.chdir(tmp_path)
    with serving(tmp_path, "--examples", "--unknown-keys=reject") as started:
        one = Night(tmp_path, started)
        with closing(one.ours):
            yield one


def test_a_sync_that_was_stopped_adds_no_store_twice_also_when_its_keys_are_forgotten(night: Night) -> None:
    rows = ("10,Alpha,1 A Street", "11,Beta,")
    assert night.run(*rows) == 0
    expected = [("Alpha", "1 A Street"), ("Beta", None)]
    assert night.stores() == expected
    lost = "UPDATE sent SET id = NULL"
    for what_happened in (lost, f"{lost}, key = 'forgotten-' || number, began = began - 90000"):
        night.ours.execute(what_happened)
        assert night.run(*rows) == 0
        assert night.stores() == expected
        assert night.ours.execute("SELECT number, id FROM sent").fetchall() == [("10", 4), ("11", 5)]


def test_a_row_that_changed_before_its_store_was_known_changes_the_store_and_adds_none(night: Night) -> None:
    assert night.run("10,Alpha,1 A Street") == 0
    night.ours.execute("UPDATE sent SET id = NULL")
    assert night.run("10,Alpha Prime,1 A Street") == 0
    assert night.stores() == [("Alpha Prime", "1 A Street")]


def test_a_sync_keeps_what_people_changed_where_the_row_did_not(night: Night) -> None:
    assert night.run("10,Alpha,1 A Street", "11,Beta,2 B Street") == 0
    night.service.request("PUT", "/api/stores/4", {"name": "Alpha", "address": "1 A Street, rear"})
    assert night.run("10,Alpha Prime,1 A Street", "11,Beta,") == 0
    assert night.stores() == [("Alpha Prime", "1 A Street, rear"), ("Beta", None)]
    tag = night.service.request("GET", "/api/stores").headers["etag"]
    assert night.run("10,Alpha Prime,1 A Street", "11,Beta,") == 0
    assert night.service.request("GET", "/api/stores").headers["etag"] == tag


def test_a_sync_changes_nothing_once_a_backup_was_restored_and_ids_may_be_those_of_other_stores(night: Night) -> None:
    assert night.run("10,Alpha,1 A Street") == 0
    epoch = run("epoch", "--new", f"--database=sqlite:///{night.folder}/stores.db")
    assert epoch.returncode == 0
    tag = night.service.request("GET", "/api/stores").headers["etag"]
    for rows in (("10,Alpha Prime,1 A Street",), ("10,Alpha,1 A Street", "11,Beta,")):
        assert "come from a backup" in str(night.run(*rows))
    assert night.service.request("GET", "/api/stores").headers["etag"] == tag
    night.ours.execute("DELETE FROM seen")
    assert night.run("10,Alpha Prime,1 A Street") == 0
    assert night.stores() == [("Alpha Prime", "1 A Street")]


def test_a_row_that_breaks_a_rule_is_told_stops_no_other_and_may_be_mended(
    night: Night, capsys: pytest.CaptureFixture[str]
) -> None:
    assert night.run(f"10,{'x' * 31},", "11,Beta,") == 1
    assert "10: " in (told := capsys.readouterr().err)
    assert "30 characters" in told
    assert night.run("10,Alpha,", "11,Beta,") == 0
    assert night.stores() == [("Beta", None), ("Alpha", None)]


def names_with_token(closed: Running, token: Token) -> list[str]:
    stores: list[dict[str, str]] = closed.request("GET", "/api/stores", headers=token.field).json
    return [store["name"] for store in stores if store["name"].startswith("Token")]


def test_the_recipes_with_a_token_do_what_they_say_and_an_import_adds_each_line_once(
    closed: Running, token: Token, tmp_path: Path
) -> None:
    programs = {"bash": ["bash", "-euc"], "python": [sys.executable, "-c"]}

    def said(language: str, recipe: str, text: str) -> "subprocess.CompletedProcess[str]":
        command = [*programs[language], here(recipe, closed)]
        env = {**os.environ, "STOREKEEPER_TOKEN": text}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=30, check=False)

    recipes = [(language, text) for _, language, text in WITH_TOKEN if language != "js"]
    assert len(recipes) == 4
    for language, recipe in recipes:
        refused = said(language, recipe, "skt_wrong")
        assert refused.returncode != 0 or "0 stores" in refused.stdout
        for _ in range(1 + ("Idempotency-Key" in recipe)):
            done = said(language, recipe, token.text)
            assert (done.returncode, done.stderr) == (0, "")
            assert token.text not in done.stdout
    assert done.stdout == "6 stores on 3 pages\n"
    assert names_with_token(closed, token) == ["Token Street", "Token Square", "Token Harbour", "Token Mill"]


def test_a_recipe_that_reads_pages_takes_no_part_of_the_list_for_all_of_it(service: Running, tmp_path: Path) -> None:
    (tmp_path / "pages.jsonl").write_text("those of yesterday\n")
    walks = {language: text for _, language, text in ALL if "limit=2" in text or "snapshot(2)" in text}
    away = "if ($arg_after = 2) { return 503; }"
    with nginx(tmp_path, service.port, settings=away) as port:
        for language, program in {"bash": ["bash", "-uc"], "python": [sys.executable, "-c"]}.items():
            walk = [*program, walks[language].replace(ADDRESS, f"http://127.0.0.1:{port}")]
            env = {**os.environ, "STOREKEEPER_TOKEN": "none"}
            done = subprocess.run(
                walk, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=30, check=False
            )
            assert (done.returncode, done.stdout) == (1, ""), language
    assert (tmp_path / "pages.jsonl").read_text() == "those of yesterday\n"


def test_a_page_that_reads_or_edits_takes_no_refusal_for_a_success(service: Running, tmp_path: Path) -> None:
    with nginx(tmp_path, service.port, settings="if ($arg_after = 2) { return 503; }") as port:
        recipes = [
            text.replace(ADDRESS, f"http://127.0.0.1:{port}") for _, language, text in RECIPES if language == "js"
        ]
        edit, _, walk, _ = recipes
        refused = {
            'not saved: "name" is required': edit.replace("({ name,", "({ name: '',"),
            "not read: 404": edit.replace("/stores/1", "/stores/9999"),
            "not all pages came: 503": walk,
        }
        before = service.request("GET", "/api/stores").headers["etag"]
        with browser.page() as (page, _):
            page.goto(f"http://127.0.0.1:{port}/docs")
            for said, recipe in refused.items():
                with pytest.raises(Error, match=said):
                    page.evaluate(f"async () => {{ {recipe} }}")
    assert service.request("GET", "/api/stores").headers["etag"] == before


def test_the_recipe_for_pages_of_another_site_sends_the_token_it_was_given(
    closed: Running, service: Running, token: Token
) -> None:
    (recipe,) = [text for _, language, text in WITH_TOKEN if language == "js"]
    with browser.page() as (page, faults):
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(f"http://127.0.0.1:{service.port}/health/live")  # /docs may connect to its own service alone
        page.evaluate("sessionStorage.setItem('storekeeper-token', 'mistyped')")
        with pytest.raises(Error):
            page.evaluate(f"async () => {{ {here(recipe, closed)} }}")
        assert page.evaluate("sessionStorage.getItem('storekeeper-token')") is None, "it is asked for again"
        faults.clear()
        page.evaluate("text => sessionStorage.setItem('storekeeper-token', text)", token.text)
        page.evaluate(f"async () => {{ {here(recipe, closed)} }}")
        assert not [fault for fault in faults if "404" not in fault], "but for the icon of that page"
    assert any(line.endswith(" 200") for line in said)
    assert names_with_token(closed, token).count("Token Gate") == 1


class Hook:
    """A receiver of changes that refuses the first try of each; `taken` are their numbers."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.refused: list[int] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                seq = json.loads(self.rfile.read(int(self.headers["content-length"])))["seq"]
                is_first = seq not in hook.refused
                (hook.refused if is_first else hook.taken).append(seq)
                self.send_response(503 if is_first else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@contextmanager
def posting(folder: Path, url: str, hook: Hook) -> Iterator[None]:
    """Run the recipe that posts changes, without its pauses; kill all of it in the end."""
    (text,) = [text for _, _, text in ALL if "storekeeper changes" in text]
    assert len(text.splitlines()) == 6
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    address = f"http://127.0.0.1:{hook.server.server_port}"
    env = {**os.environ, "PATH": path, "STOREKEEPER_DATABASE": url, "HOOK": address}
    with (folder / "errors").open("ab") as errors:
        process = subprocess.Popen(
            ["bash", "-c", text.replace("sleep 5", "sleep 0.05")],
            cwd=folder,
            env=env,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield
    finally:
        kill_group(process)


def test_the_recipe_for_a_webhook_leaves_out_no_change_whenever_it_is_killed(tmp_path: Path) -> None:
    url, hook = f"sqlite:///{tmp_path}/stores.db", Hook()
    load(url, (Payload(f'Store "{number}"', "back\\slash\n") for number in range(4)))
    try:
        for count in (1, 2, 6, 8):
            with posting(tmp_path, url, hook):
                until(partial(lambda count: len(set(hook.taken)) >= count, count))
                if count == 8:
                    until((tmp_path / "sent.cursor").exists)
            if count == 2:
                load(url, [Payload(f"Later {number}", "x" * 200_000) for number in range(4)])
        assert sorted(set(hook.taken)) == list(range(1, 9))
        assert (tmp_path / "errors").read_text() == ""
        new = databases.epoch(url, renew=True)
        with posting(tmp_path, url, hook):
            until(lambda: f"go on from 8.{new}" in (tmp_path / "errors").read_text())
            (tmp_path / "sent.cursor").write_text(f"8.{new}")
            load(url, [Payload("After the restore")])
            until(lambda: hook.taken[-1] == 9)
    finally:
        hook.server.shutdown()
        hook.server.server_close()
