"""A collection in memory that `commands.apply` decides, as in every database. Quick to import."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from storekeeper.api.application import Application, make_application
from storekeeper.api.token_table import TokenTable
from storekeeper.domain import commands
from storekeeper.domain.changes import Cursor
from storekeeper.domain.commands import (
    Before,
    ChangeRow,
    Command,
    Create,
    Remembered,
    Result,
    apply,
    patches,
    replacements,
)
from storekeeper.domain.errors import Unavailable
from storekeeper.domain.queries import Moment, Query, State, check_moment
from storekeeper.domain.search import fold, folded
from storekeeper.domain.selection import Place, Selection, StoreKeys
from storekeeper.domain.stores import Payload, Store
from storekeeper.http.request import Request, identify
from storekeeper.http.response import Deferred, Fields, Response
from storekeeper.settings import Settings
from storekeeper.storage.collection import Listing
from tests.harness.stores import content, shown_with, store_of

EPOCH = "abcdefgh"


@dataclass
class Done:
    """The result of a write, available at once."""

    value: Result | Unavailable

    def result(self) -> Store | None:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def exception(self) -> Exception | None:
        return self.value if isinstance(self.value, Exception) else None


class InMemory:
    """A collection that keeps a list of changes, one per second since 1970; its next call raises
    `fails`."""

    def __init__(self, *payloads: Payload) -> None:
        self.changes: list[ChangeRow] = []
        self.fails: Unavailable | None = None
        self.calls: list[str] = []
        self._remembered: dict[str, Remembered] = {}
        for payload in payloads:
            self.write(Create(payload))

    @property
    def stores(self) -> Sequence[Store]:
        return self._stores(len(self.changes))

    def get(self, id: int) -> Any:
        self._called("get")
        return self._find(id, len(self.changes))

    def get_at(self, id: int, at: Moment) -> Any:
        self._called("get_at")
        return self._find(id, self._version(at))

    def state(self) -> Any:
        self._called("state")
        return State(len(self.stores), len(self.changes), EPOCH)

    def list(self, query: Query) -> Any:
        self._called("list")
        version = len(self.changes) if query.at is None else self._version(query.at)
        stores = self._stores(version)
        if query.selection is not None:
            return self._select(query, query.selection, stores)
        found = [
            store for store in stores if query.name in (None, store.name) and store.id > query.after
        ]
        page = found[: query.limit]
        if query.search is not None:
            return self._search(query, found)
        last = page[-1].id if len(page) < len(found) else None
        return Listing(
            version,
            EPOCH,
            _encoded(page),
            last=last,
            total=len(stores) if query.name is None else None,
        )

    def _search(self, query: Query, stores: Sequence[Store]) -> Any:
        assert query.search is not None
        texts = {
            store.id: folded(store.name, store.address)
            for store in stores
            if store.id != query.search.id
        }
        ids = [id for id, text in texts.items() if all(word in text for word in query.search.words)]
        first, others, last = query.found(ids, len(self.stores))
        page = [self.stores[id - 1] for id in (*first, *others)]
        return Listing(len(self.changes), EPOCH, _encoded(page), last=last)

    def _select(self, query: Query, selection: Selection, stores: Sequence[Store]) -> Any:
        """Sort and filter, but for duplicates; a place is that of now."""
        version = len(self.changes)
        after = selection.changed_after or Cursor(-1)
        place = selection.place
        for cursor in filter(None, (selection.changed_after, place and place.cursor)):
            cursor.number(version, EPOCH)

        def key(store: Store) -> Any:
            return {"id": 0, "name": fold(store.name), "changed": store.version}[
                selection.sort
            ], store.id

        order = sorted(stores, key=key, reverse=selection.is_descending)
        if place is not None:
            order = order[[store.id for store in order].index(place.id) + 1 :]
        found = [
            store
            for store in order
            if store.version > (after.seq if after.seq is not None else version)
            and not (selection.no_address and store.address)
        ]
        page = found[: query.limit]
        following = Place(page[-1].id, Cursor(version, EPOCH)) if len(page) < len(found) else None
        total = None if selection.has_filter else len(stores)
        return Listing(version, EPOCH, _encoded(page), total=total, place=following)

    def keys(self, ids: Sequence[int]) -> Any:
        """Return a key for each store of an even id."""
        self._called("keys")
        rows = [(id, "Till", f"T-{id}") for id in sorted(ids) if id % 2 == 0]
        return StoreKeys(rows, len(self.changes), EPOCH)

    def write(self, command: Command) -> Any:
        if self.fails:
            return Done(self.fails)
        stores = self.stores
        equal = [
            place
            for place, id, *sent in replacements([command])
            if 1 <= id <= len(stores) and sent == content(stores[id - 1])
        ]
        kept: dict[int, tuple[str, str | None]] = {}
        for place, id, name, address, keeps_name, keeps_address in patches([command]):
            if 1 <= id <= len(stores):
                present = stores[id - 1]
                kept[place] = present.name, present.address
                same_name = keeps_name or name == present.name
                if same_name and (keeps_address or address == present.address):
                    equal.append(place)
        versions = {store.id: store.version for store in stores}
        version, known = len(self.changes), self._remembered
        before = Before(len(stores), version, 0, EPOCH, versions, equal, known, kept)
        batch = apply([command], before, 1000 * (len(self.changes) + 1))
        self.changes += batch.changes
        [result] = batch.results
        for key, request, _ in batch.keys:
            assert isinstance(result, Store)
            became = Payload(result.name, result.address)
            self._remembered[key] = Remembered(request, result.id, result.version, became)
        assert command.key is None or commands.keys_of([command]) == [command.key[0]]
        return Done(result)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.fails:
            raise self.fails

    def _stores(self, version: int) -> Sequence[Store]:
        latest = {change[1]: store_of(change, EPOCH) for change in self.changes[:version]}
        return [latest[id] for id in sorted(latest)]

    def _find(self, id: int, version: int) -> Store | None:
        return next((store for store in self._stores(version) if store.id == id), None)

    def _version(self, at: Moment) -> int:
        latest = len(self.changes)
        check_moment(at, latest, EPOCH, 1000 * (latest + 1))
        return (
            at.seq
            if at.seq is not None
            else sum(change[4] <= (at.time or 0) for change in self.changes)
        )


def _encoded(stores: Sequence[Store]) -> bytes:
    shown = [json.dumps(shown_with(store.id, store), ensure_ascii=False) for store in stores]
    return ",".join(shown).replace('": ', '":').replace(', "', ',"').encode()


class Later(InMemory):
    """The same, but every result comes in the next iteration of the event loop."""

    def get(self, id: int) -> Any:
        return _later(super().get(id))

    def get_at(self, id: int, at: Moment) -> Any:
        return _later(super().get_at(id, at))

    def state(self) -> Any:
        return _later(super().state())

    def list(self, query: Query) -> Any:
        return _later(super().list(query))

    def keys(self, ids: Sequence[int]) -> Any:
        return _later(super().keys(ids))


def _later(value: object) -> Any:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(future.set_result, value)
    return future


def ask(
    collection: Any,
    method: str,
    target: str,
    body: bytes = b"",
    *headers: tuple[bytes, bytes],
    **settings: Any,
) -> Response:
    """Return the resource's response to a request."""
    application = _application(collection, **settings)
    response = application.respond(_request(method, target, body, *headers))
    return application.complete(response) if isinstance(response, Deferred) else response


def ask_later(
    collection: Any,
    method: str,
    target: str,
    body: bytes = b"",
    *headers: tuple[bytes, bytes],
    **settings: Any,
) -> Response:
    """Return the response from a collection whose results come later."""

    async def main() -> Response:
        application = _application(collection, **settings)
        response = application.respond(_request(method, target, body, *headers))
        if isinstance(response, Deferred):
            if isinstance(response.future, asyncio.Future):
                await asyncio.wait([response.future])
            return application.complete(response)
        return response

    return asyncio.run(main())


def an_application(*, tokens: bool = False, **settings: Any) -> Application:
    """Return an application without a database that can only plan; with `tokens`, it requires them
    but knows none."""
    collection: Any = InMemory()
    return make_application(
        collection, Settings(**settings), TokenTable(collection) if tokens else None
    )


def a_request(method: str, target: bytes, headers: Fields = (), body: bytes = b"") -> Request:
    """Return a complete request, as a reader makes it."""
    request = Request(method, target, headers, "1.1", True, body)
    identify(request)
    return request


def _application(collection: Any, **settings: Any) -> Application:
    return make_application(collection, Settings(**{"host": "0.0.0.0"} | settings), None)


def _request(method: str, target: str, body: bytes, *headers: tuple[bytes, bytes]) -> Request:
    return a_request(method, target.encode(), [(b"host", b"a"), *headers], body)
