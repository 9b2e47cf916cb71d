"""The route /api/changes: pages and server-sent events (decisions 40, 45, 51). Imports `http` and the domain.

While clients listen, one task of the process looks for changes, also for those of other processes and machines. A
page is read once for all listeners at the same place. Each listener is served at the pace of its client.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from time import monotonic
from typing import Literal

from storekeeper.api.conditions import not_modified, parse_tags
from storekeeper.api.errors import deferred
from storekeeper.api.plan import Plan, Planner
from storekeeper.api.query import NOW, ChangesRequest, parse_changes_query, parse_cursor
from storekeeper.changes import ChangesPage, ChangesQuery
from storekeeper.collection import Collection, Moment, State
from storekeeper.collection import completed as _completed
from storekeeper.commands import Tags
from storekeeper.errors import CLOSED, EpochEnded, InvalidInput, Unavailable
from storekeeper.events import Event, emit
from storekeeper.http.request import Request, field
from storekeeper.http.response import JSON, Deferred, Fields, Headers, Response, unavailable
from storekeeper.tables import MAX_INTEGER

POLL_INTERVAL = 0.2
"""Seconds between two looks for changes, while somebody listens."""

CHECK_INTERVAL = 1.0
"""Seconds after which each listener looks whether its token is still good and a comment is due."""

COMMENT_INTERVAL = 15.0
"""Seconds without a change after which a comment keeps a stream open through proxies."""

MAX_PAGES = 8
"""Pages that are kept for other listeners, until the next change."""

_WAKE_SLICE = 32
"""Listeners that are woken in one loop iteration: a few milliseconds."""

_VARY = (b"vary", b"authorization, accept")
_JSON: Headers = (*JSON, _VARY)
_EVENTS: Headers = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
    _VARY,
)


class Listener:
    """An open stream: what wakes it, and the one way to end it."""

    def __init__(self, listeners: set["Listener"]) -> None:
        self._listeners = listeners
        self.awake = asyncio.Event()
        self.began = monotonic()
        self.stopped = False
        listeners.add(self)

    def stop(self) -> None:
        """End the stream."""
        self.stopped = True
        self._listeners.discard(self)
        self.awake.set()


class Feed:
    """Carries out requests of the changes of a collection; at most `max_listeners` clients listen at once.

    `is_draining` returns whether the service stops, so that no new client may listen.
    """

    def __init__(
        self,
        collection: Collection,
        *,
        generic: bool,
        max_listeners: int,
        is_draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._collection = collection
        self._generic = generic
        self._max_listeners = max_listeners
        self._is_draining = is_draining
        self._state, self._read_at = State(0, 0, ""), 0.0
        self._pages: dict[tuple[int, int | None], asyncio.Future[ChangesPage]] = {}
        self._watching: asyncio.Task[None] | None = None
        self.listeners: set[Listener] = set()
        self.refused = 0
        self.planners: Mapping[str, Planner] = {"changes": self._plan}

    def _plan(self, _method: str, headers: Fields) -> Plan:
        if b"text/event-stream" in (field(headers, b"accept") or b"").lower():
            return Plan(lambda request: self._listen(request, field(headers, b"last-event-id")))
        tags = parse_tags(field(headers, b"if-none-match") or b"")
        return Plan(lambda request: self._read(request, tags))

    # Pages.

    def _read(self, request: Request, tags: Tags | None) -> Deferred:
        wanted = parse_changes_query(request.target.partition(b"?")[2])
        with_by = bool(request.token_number)
        page = asyncio.ensure_future(self._page(wanted, tags, with_by=with_by))
        return deferred(page, lambda response: response, generic=self._generic)

    async def _page(self, wanted: ChangesRequest, tags: Tags | None, *, with_by: bool) -> Response:
        state = await _completed(self._collection.state())
        start = _start(wanted, state.version, state.epoch)
        older = wanted.order == "desc"
        page = ChangesPage((), state.version, state.epoch)
        if older or start < state.version:  # else nothing has changed since, and these numbers are enough
            query = ChangesQuery(start, wanted.limit, wanted.store, older)
            page = await _completed(self._collection.changes(query))
            _start(wanted, page.version, page.epoch)  # the database may have been restored in between
        changes = page.encode(with_by=with_by)
        end = page.changes[len(changes) - 1].seq if changes else min(start, page.version)
        tag = f'"{end}.{page.version}.{page.epoch}{".by" * with_by}"'
        if tags is not None and (unchanged := not_modified(tags, tag)):
            unchanged.headers += (_VARY,)
            return unchanged
        body = b'{"changes":[%b],"next":"%d.%b","head":%d}'
        numbers = end, page.epoch.encode(), page.version
        return Response(body % (b",".join(changes), *numbers), _JSON, tag=tag.encode())

    # Streams.

    def _listen(self, request: Request, last_id: bytes | None) -> Deferred:
        wanted = parse_changes_query(request.target.partition(b"?")[2])
        if wanted.order == "desc":
            raise InvalidInput("query", {"order": '"order" must be asc for a stream of events'})
        if last_id is not None:  # that of a client that connects again; what is none of ours is answered with a reset
            wanted = wanted._replace(after=parse_cursor(last_id) or Moment(0, "?"))

        def render(state: State) -> Response:
            if request.method == "HEAD":
                return Response(b"", _EVENTS)
            if self._is_draining():
                return unavailable(CLOSED)
            if len(self.listeners) >= self._max_listeners:
                self.refused += 1
                return unavailable("Too many clients listen to changes")
            listener = Listener(self.listeners)
            if self._watching is None:
                self._state, self._read_at = state, 0.0
                self._watching = asyncio.create_task(self._watch())
            return Response(b"", _EVENTS, stream=self._stream(request, wanted, listener, state), stop=listener.stop)

        state = self._collection.state()
        return deferred(asyncio.ensure_future(_completed(state)), render, generic=self._generic)

    async def _stream(
        self, request: Request, wanted: ChangesRequest, listener: Listener, state: State
    ) -> AsyncGenerator[bytes, None]:
        epoch, store, with_by = state.epoch, wanted.store, bool(request.token_number)
        try:
            place = _start(wanted, state.version, epoch)
            # An event without data is not dispatched, but a client that connects again sends its id.
            yield b"retry: 2000\nid: %d.%b\n\n" % (place, epoch.encode())
        except EpochEnded:
            place = state.version
            yield b"retry: 2000\n" + _reset(place, epoch)
        sent = monotonic()
        while not listener.stopped:
            listener.awake.clear()
            part, after = await self._next(listener, place, epoch, store, with_by=with_by)
            # Asked after the page was read: the token may have been revoked meanwhile.
            admission = _admission(request)
            if admission == "refused":
                return
            if admission == "admitted":
                place, epoch = after
            else:
                part = b""
            if not part and monotonic() - sent >= COMMENT_INTERVAL:
                part = b":\n\n"
            if part:
                sent = monotonic()
                yield part
            else:
                await listener.awake.wait()

    async def _next(
        self, listener: Listener, place: int, epoch: str, store: int | None, *, with_by: bool
    ) -> tuple[bytes, tuple[int, str]]:
        """Return the events behind a place, perhaps none, and the place behind them with its epoch."""
        state, nothing = self._state, (b"", (place, epoch))
        if state.epoch != epoch or state.version < place:
            is_restored = self._read_at > listener.began
            return (_reset(state.version, state.epoch), state[1:]) if is_restored else nothing
        if state.version == place:
            return nothing
        try:
            page = await self._shared_page(place, store)
        except Unavailable:  # the stream stays open
            return nothing
        if page.epoch != epoch or page.version < place:  # the next look will find it
            return nothing
        encoded = page.encode(with_by=with_by)
        events = [
            b"id: %d.%b\nevent: change\ndata: %b\n\n" % (change.seq, epoch.encode(), data)
            for change, data in zip(page.changes, encoded, strict=False)
        ]
        return b"".join(events), (page.changes[len(events) - 1].seq if events else page.version, epoch)

    async def _shared_page(self, after: int, store: int | None) -> ChangesPage:
        """Return the page behind a change, read once for all listeners that are there."""
        if (page := self._pages.get((after, store))) is None:
            if len(self._pages) >= MAX_PAGES:
                self._pages.clear()
            read = self._collection.changes(ChangesQuery(after, store=store))
            page = self._pages[after, store] = asyncio.ensure_future(_completed(read))
        return await asyncio.shield(page)

    async def _watch(self) -> None:
        """Look for changes until nobody listens, and wake the listeners."""
        woken = monotonic()
        while self.listeners:
            await asyncio.sleep(POLL_INTERVAL)
            state, began = self._state, monotonic()
            try:
                state = await _completed(self._collection.state())
                self._read_at = began
            except Unavailable:
                pass
            except Exception as error:  # noqa: BLE001 - the next look may succeed
                emit(Event.BUG, error=error)
            if state == self._state and monotonic() - woken < CHECK_INTERVAL:
                continue
            self._state, woken = state, monotonic()
            self._pages.clear()
            for number, listener in enumerate(list(self.listeners), start=1):
                listener.awake.set()
                if number % _WAKE_SLICE == 0:
                    await asyncio.sleep(0)
        self._watching = None


def _start(wanted: ChangesRequest, version: int, epoch: str) -> int:
    """Return the number behind which a page begins. Raises EpochEnded if the client has to read the list again."""
    if wanted.after is None:
        return MAX_INTEGER if wanted.order == "desc" else 0
    if wanted.after == NOW:
        return version
    seq = wanted.after.seq or 0
    if wanted.after.epoch not in ("", epoch) or seq > version:
        cursor = f"{version}.{epoch}"
        raise EpochEnded(f"The cursor is of another history: read the list, then go on from {cursor}", cursor)
    return seq


def _admission(request: Request) -> Literal["admitted", "unknown", "refused"]:
    """Return whether a client may have changes now: unknown while the tokens cannot be read."""
    admitted = request.plan.admit()
    if not isinstance(admitted, Response):
        return "admitted"
    return "unknown" if admitted.status == 503 else "refused"


def _reset(version: int, epoch: str) -> bytes:
    cursor = b"%d.%b" % (version, epoch.encode())
    return b'id: %b\nevent: reset\ndata: {"cursor":"%b"}\n\n' % (cursor, cursor)
