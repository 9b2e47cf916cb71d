"""The client, with and without asyncio, on a real service that loses responses."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from storekeeper.client import (
    AsyncClient,
    AsyncMirror,
    Client,
    ClientError,
    Conflict,
    EpochEnded,
    KeyReused,
    NoAccess,
    NotFound,
    Refused,
    Store,
    Unavailable,
    core,
)
from storekeeper.domain.stores import Payload
from tests.harness.client import load
from tests.harness.databases import KINDS
from tests.harness.in_process import inside
from tests.harness.process import Running, serving
from tests.harness.tokens import add_token

CLIENTS, INCREMENTS = 8, 15
CSV = "text/csv"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("client")
    url = f"sqlite:///{folder}/stores.db"
    load(url, (Payload(f"Store {number}", f"{number} Road") for number in range(1, 2102)))
    with serving(folder, database=url) as started:
        yield started


@pytest.fixture
def client(service: Running) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{service.port}", patience=20) as made:
        yield made


def test_lists_are_whole_and_of_one_moment(client: Client) -> None:
    stores = client.list()
    assert [store.id for store in stores] == list(range(1, len(stores) + 1))
    assert len(stores) >= 2101
    assert stores.stores[1] == Store(2, "Store 2", "2 Road")
    made = client.create("Only one")
    assert len(client.list(at=stores.cursor)) == len(stores)
    assert [store.id for store in client.list(name="Only one")] == [made.id]
    assert [change.store.name for change in client.changes(stores.cursor)] == ["Only one"]
    assert [store.id for store in client.search("store 2000")] == [2000]
    assert client.search("nowhere at all") == ()


def test_one_store_is_read_added_edited_and_patched(client: Client) -> None:
    made = client.create("Café", "1 Road\u2028Town")
    assert client.get(made.id) == made
    assert client.edit(made.id, lambda store: store) == made
    edited = client.edit(made.id, lambda store: replace(store, address=None))
    assert (edited.name, edited.address) == ("Café", None)
    assert edited.tag != made.tag
    patched = client.patch(made.id, address="2 Road")
    assert (patched.name, patched.address) == ("Café", "2 Road")
    assert client.patch(made.id, address=None, tag=patched.tag).address is None
    then = made.tag.strip('"')
    assert replace(client.get(made.id, at=then), tag="") == replace(made, tag="")
    history = client.changes(store=made.id, latest=True)
    assert [change.store.address for change in history] == [None, "2 Road", None, made.address]
    assert history.changes[-1].previous is None
    assert history.changes[0].previous == Store(made.id, "Café", "2 Road")


def test_an_edit_is_made_again_on_what_another_client_saved(client: Client) -> None:
    made = client.create("Old", "1 Road")

    def rename(store: Store) -> Store:
        if store.address == "1 Road":
            client.patch(made.id, address="2 Road")
        return replace(store, name="New")

    edited = client.edit(made.id, rename)
    assert (edited.name, edited.address) == ("New", "2 Road")


def test_each_refusal_has_its_error_and_changes_nothing(client: Client, tmp_path: Path) -> None:
    made = client.create("Refusals", key="refusals")
    before = client.list().cursor
    assert client.create("Refusals", key="refusals") == made
    with pytest.raises(KeyReused):
        client.create("Another", key="refusals")
    with pytest.raises(Conflict, match="has changed") as conflict:
        client.patch(made.id, name="Late", tag='"1.aaaaaaaa"')
    assert conflict.value.tag == made.tag
    with pytest.raises(NotFound):
        client.get(10**12)
    with pytest.raises(NotFound):
        client.edit(10**12, lambda store: store)
    with pytest.raises(Refused, match="must be less") as refused:
        client.create("x" * 31)
    assert (refused.value.status, refused.value.keys) == (400, ("name",))
    with pytest.raises(EpochEnded) as ended:
        client.changes("1.aaaaaaaa")
    assert ended.value.cursor == before == client.list().cursor
    report = client.import_file(b"id,name\n1,Renamed\n", CSV, {"match": "id", "dry-run": ""})
    assert (report["dryRun"], report["replaced"]) == (True, 1)
    url = f"sqlite:///{tmp_path}/closed.db"
    token = add_token(url, "reads", "read")
    with serving(tmp_path, "--auth=all", database=url) as closed:
        address = f"http://127.0.0.1:{closed.port}"
        with Client(address) as nobody, pytest.raises(NoAccess):
            nobody.list()
        with Client(address, token=token) as reader:
            assert len(reader.list()) == 0
            with pytest.raises(NoAccess):
                reader.create("Never")


def test_a_service_that_is_away_is_unavailable_and_the_key_is_told() -> None:
    def away(_: httpx.Request) -> httpx.Response:
        return httpx.Response(503, json={"message": "The database is locked"})

    with Client(patience=0, http_client=_client(away)) as client:
        with pytest.raises(Unavailable, match="locked") as lost:
            client.create("Perhaps", key="mine")
        assert lost.value.key == "mine"
    # A page of a proxy, with status 200, is not the service's response.
    with (
        Client(
            patience=0, http_client=_client(lambda _: httpx.Response(200, html="Log in"))
        ) as one,
        pytest.raises(Unavailable, match="status 200"),
    ):
        one.get(1)
    with Client("ftp://127.0.0.1") as wrong, pytest.raises(ClientError, match="protocol"):
        wrong.get(1)


def _client(respond: Callable[[httpx.Request], httpx.Response]) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(respond), base_url="http://stores")


class Losing(httpx.AsyncBaseTransport):
    """Loses each third request, or its response after it was carried out."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.count = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.count += 1
        lost = self.count % 6
        if lost == 1:
            raise httpx.ConnectError("lost on the way")
        response = await self._inner.handle_async_request(request)
        if lost == 4:
            raise httpx.ReadTimeout("lost on the way back")
        return response


@asynccontextmanager
async def losing(folder: Path, url: str) -> AsyncIterator[AsyncClient]:
    async with inside(folder, database=url) as service:
        inner: Any = httpx.ASGITransport(app=service.service)
        http = httpx.AsyncClient(transport=Losing(inner), base_url="http://127.0.0.1")
        async with AsyncClient(http_client=http, patience=60) as client:
            yield client


@pytest.mark.parametrize("kind", KINDS)
async def test_eight_clients_that_count_up_are_all_counted_though_responses_are_lost(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each create is done once; a mirror ends with just what there is."""
    monkeypatch.setattr(core, "PAUSES", (0.001,))
    with KINDS[kind](tmp_path) as database:
        async with losing(tmp_path, database.url) as client:
            counter = await client.create("Counter", "0")
            mirror = AsyncMirror(client, ":memory:")
            await mirror.update()

            async def count_up(number: int) -> None:
                for _ in range(INCREMENTS):
                    await client.edit(counter.id, counted)
                await client.create(f"Client {number}")

            await asyncio.gather(*map(count_up, range(CLIENTS)))
            assert (await client.get(counter.id)).address == str(CLIENTS * INCREMENTS)
            stores = await client.list()
            assert len(stores) == 1 + CLIENTS
            done = await mirror.update()
            assert (done.stores, done.changes) == (0, CLIENTS * INCREMENTS + CLIENTS)
            copied = mirror.database.execute("SELECT * FROM stores ORDER BY id").fetchall()
            assert copied == [(store.id, store.name, store.address) for store in stores]


def counted(store: Store) -> Store:
    return replace(store, address=str(int(store.address or "") + 1))


def test_threads_that_count_up_are_all_counted(client: Client) -> None:
    counter = client.create("Counter", "0")
    with ThreadPoolExecutor(CLIENTS) as pool:
        done = [pool.submit(client.edit, counter.id, counted) for _ in range(CLIENTS * 5)]
    assert all(each.result() for each in done)
    assert client.get(counter.id).address == str(CLIENTS * 5)


async def test_changes_are_followed_with_and_without_asyncio(service: Running) -> None:
    address = f"http://127.0.0.1:{service.port}"
    async with AsyncClient(address) as client:
        cursor = (await client.list()).cursor
        followed = client.follow(cursor)
        names = [f"Followed {number}" for number in range(3)]
        for name in names:
            await client.create(name)
        found = [await anext(followed) for _ in names]
        assert [change.store.name for change in found] == names  # type: ignore[union-attr]
        await _close(followed)
    with Client(address) as other:
        again = other.follow(cursor)
        assert [next(again) for _ in names] == found
        live = other.follow(found[1].cursor)
        assert next(live) == found[2]


async def _close(followed: Any) -> None:
    close: Callable[[], Awaitable[None]] = followed.aclose
    await close()
