"""The service in a process that is another application's, and in the tests of its callers."""

import gc
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from storekeeper.client import AsyncClient, Client, core
from storekeeper.domain.errors import CannotStart
from storekeeper.service import mounted
from storekeeper.testing import stores_service  # noqa: F401 - a fixture
from tests.harness.nginx import nginx
from tests.harness.pages import ROOT, blocks
from tests.harness.process import serving

PAGE = ROOT / "docs/embedding.md"


def client_of(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1")


async def test_a_host_mounts_it_as_the_page_says_and_its_process_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = next("\n".join(lines) for _, language, lines in blocks(PAGE) if language == "python")
    names: dict[str, Any] = {}
    exec(program.replace("sqlite:///stores.db", f"sqlite:///{tmp_path}/stores.db"), names)
    host, stores = names["app"], names["stores"]
    tuned: list[str] = []
    for module, name in ((gc, "freeze"), (gc, "set_threshold"), (sys, "setswitchinterval")):
        monkeypatch.setattr(module, name, lambda *_, name=name: tuned.append(name))
    async with host.router.lifespan_context(host), client_of(host) as browser:
        assert len((await browser.get("/shops/api/stores")).json()) == 3
        made = await browser.post("/shops/api/stores", json={"name": "Fourth"})
        assert made.json()["id"] == 4
        assert made.headers["content-location"] == "/shops/api/stores/4"
        page = await browser.get("/shops/api/stores?limit=3")
        assert page.links["next"]["url"] == "/shops/api/stores?limit=3&after=3"
        assert (await browser.get(page.links["next"]["url"])).json() == [made.json()]
        assert tuned == []
    async with stores.running(), client_of(stores) as again:
        assert len((await again.get("/api/stores")).json()) == 4


async def test_a_database_that_fails_ends_no_host(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/stores.db"
    stores = mounted(database=database, create=True, examples=False, auth="open")
    async with stores.running(), client_of(stores) as browser:
        assert (await browser.post("/api/stores", json={"name": "A"})).status_code == 200
        (tmp_path / "stores.db").unlink()

        async def is_refused() -> bool:
            return (await browser.post("/api/stores", json={"name": "B"})).status_code == 503

        assert await is_refused()
        assert await is_refused()


async def test_a_request_before_the_start_says_what_is_missing(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/stores.db"
    stores = mounted(database=database, create=True, auth="open")
    async with client_of(stores) as browser:
        with pytest.raises(RuntimeError, match="Storekeeper has not started: run its lifespan"):
            await browser.get("/api/stores")
    with pytest.raises(CannotStart, match="auth is all, writes or open"):
        mounted(database=database)
    with pytest.raises(CannotStart, match="there is no such database"):
        mounted(database=f"sqlite:///{tmp_path}/none.db", auth="open")
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app=stores), base_url="http://a")
    async with stores.running(), AsyncClient(http_client=http) as client:
        assert (await client.create("By the client")).id == 4


def test_the_fixture_serves_a_list_of_its_own(stores_service: str) -> None:  # noqa: F811
    with Client(stores_service) as client:
        assert client.create("First").id == 1
        assert [store.name for store in client.list()] == ["First"]


@pytest.mark.parametrize("time", ["first", "second"])
def test_each_test_gets_another_list(stores_service: str, time: str) -> None:  # noqa: F811
    with Client(stores_service) as client:
        assert client.create(time).id == 1


def test_behind_a_proxy_links_begin_with_the_root_path(tmp_path: Path) -> None:
    """And the client, whose address has that path, reads page by page."""
    with (
        serving(tmp_path, "--root-path=/shops", "--examples") as service,
        nginx(tmp_path, service.port, "/shops/") as proxy,
        httpx.Client(base_url=f"http://127.0.0.1:{proxy}") as browser,
    ):
        page = browser.get("/shops/api/stores?limit=2")
        link = page.links["next"]["url"]
        assert link == "/shops/api/stores?limit=2&after=2"
        assert [store["id"] for store in browser.get(link).json()] == [3]
        for method in ("PUT", "PATCH"):
            body = {"name": f"By {method}"}
            written = browser.request(method, "/shops/api/stores/3", json=body)
            assert written.headers["content-location"] == "/shops/api/stores/3"
        with (
            pytest.MonkeyPatch.context() as patch,
            Client(f"http://127.0.0.1:{proxy}/shops") as client,
        ):
            patch.setattr(core, "PAGE", 1)
            assert [store.id for store in client.list()] == [1, 2, 3]
