"""The route /api/changes: pages and server-sent events (decisions 40, 45, 51).

While clients listen, one task of the process looks for changes, also for those of other
processes and machines. A page is read once for all listeners at the same place. Each listener is
served at the pace of its client.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from storekeeper.api.plan import Plan, Planner
from storekeeper.api.preconditions import not_modified, read_if_none_match
from storekeeper.api.query import parse_changes_query
from storekeeper.domain.changes import ChangesQuery, Cursor, parse_cursor
from storekeeper.domain.commands import Tags
from storekeeper.domain.errors import EpochEnded, InvalidInput, Unavailable
from storekeeper.http.request import Request, field
from storekeeper.http.response import JSON, NO_CACHE, Deferred, Fields, Response, unavailable
from storekeeper.log.events import Event, emit
from storekeeper.storage.collection import Collection, State, completed

POLL_INTERVAL = 0.2
"""Seconds between two looks for changes, while somebody listens."""

CHECK_INTERVAL = 1.0
"""Seconds after which each listener looks whether its token is still good and a comment is due."""

COMMENT_INTERVAL = 15.0
"""Seconds without a change after which a comment keeps a stream open through proxies."""

MAX_SHARED = 8
"""Pages that are kept for other listeners, until the next change."""

SLICE = 100
"""Changes of a page that are read in one loop iteration: about a millisecond."""

WAKE_SLICE = 32
"""Listeners that are woken in one loop iteration: about a millisecond."""

_VARY = b"vary: authorization, accept\r\n"
_JSON = JSON + _VARY
_EVENTS = (
    b"content-type: text/event-stream; charset=utf-8\r\nx-accel-buffering: no\r\n"
    + NO_CACHE
    + _VARY
)
_REFUSED = re.compile(rb"q=0(\.0*)?")


class _Step(NamedTuple):
    """What follows a place: events, each with the id of its store, None if it is for all; and
    the next place."""

    events: Sequence[tuple[int | None, bytes]]
    place: Cursor
    more: bool = False


class Feed:
    """Carries out requests of the changes of a collection; at most `max_listeners` clients
    listen at once."""

    def __init__(self, collection: Collection, *, max_listeners: int) -> None:
        self._collection = collection
        self._max_listeners = max_listeners
        self.listeners: set[asyncio.Event] = set()
        """What wakes each open stream. A stream ends once it is woken and not in here."""
        self._watching: asyncio.Task[None] | None = None
        self.refused = 0
        self._state: State | None = None
        self._steps: dict[tuple[Cursor, int | None, bool], asyncio.Future[_Step]] = {}
        self.planners: Mapping[str, Planner] = {"changes": self._plan}

    def _plan(self, _method: str, headers: Fields) -> Plan:
        if _wants_events(field(headers, b"accept") or b""):
            return Plan(partial(self._listen, field(headers, b"last-event-id")))
        return Plan(partial(self._read, read_if_none_match(headers)))

    # Pages.

    def _read(self, tags: Tags | None, request: Request) -> Deferred:
        wanted = parse_changes_query(request.target.partition(b"?")[2])
        return Deferred(
            asyncio.ensure_future(self._page(wanted, tags, with_by=bool(request.token_number)))
        )

    async def _page(self, query: ChangesQuery, tags: Tags | None, *, with_by: bool) -> Response:
        changes, end, part = (
            list[bytes](),
            query.after,
            query._replace(limit=min(query.limit, SLICE)),
        )
        while True:
            page = await completed(self._collection.changes(part))
            encoded = page.encode(with_by=with_by, size=sum(map(len, changes)) + len(changes))
            changes += encoded
            if encoded:
                end = Cursor(page.changes[len(encoded) - 1].seq, page.epoch)
            if len(encoded) < part.limit or len(changes) == query.limit:
                break
            part = part._replace(after=end, limit=min(query.limit - len(changes), SLICE))
            await asyncio.sleep(0)
        end = Cursor(end.number(page.version, page.epoch), page.epoch)
        tag = f'"{end.seq}.{page.version}.{page.epoch}{".by" * with_by}"'
        if unchanged := not_modified(tags, tag):
            unchanged.headers += _VARY
            return unchanged
        numbers = str(end).encode(), page.version
        body = b'{"changes":[%b],"next":"%b","head":%d}' % (b",".join(changes), *numbers)
        return Response(body, _JSON, tag=tag.encode())

    # Streams.

    def _listen(self, last_id: bytes | None, request: Request) -> Deferred:
        wanted = parse_changes_query(request.target.partition(b"?")[2])
        if wanted.newest_first:
            raise InvalidInput("query", {"order": '"order" must be asc for a stream of events'})
        # Of a client that connects again: a 400 would end it for ever, so what is no cursor is a
        # reset.
        if last_id:
            wanted = wanted._replace(after=parse_cursor(last_id) or Cursor(0, "?"))

        def render(state: State) -> Response:
            if len(self.listeners) >= self._max_listeners:
                self.refused += 1
                return unavailable("Too many clients listen to changes")
            awake = asyncio.Event()
            self.listeners.add(awake)
            if self._watching is None:
                self._state = state
                self._watching = asyncio.create_task(self._watch())

            def stop() -> None:
                self.listeners.discard(awake)
                awake.set()

            return Response(
                b"", _EVENTS, stream=self._stream(request, wanted, awake, state), stop=stop
            )

        return Deferred(asyncio.ensure_future(completed(self._collection.state())), render)

    async def _stream(
        self, request: Request, wanted: ChangesQuery, awake: asyncio.Event, state: State
    ) -> AsyncGenerator[bytes, None]:
        try:
            place = Cursor(wanted.after.number(state.version, state.epoch), state.epoch)
            # An event without data is not dispatched, but a client that connects again sends its
            # id.
            yield b"retry: 2000\nid: %b\n\n" % str(place).encode()
        except EpochEnded:
            place = Cursor(state.version, state.epoch)
            yield b"retry: 2000\n" + _reset(place)
        # Until it has caught up, a listener to one store reads that one's changes alone; then those
        # of all listeners.
        only, with_by = wanted.store, bool(request.token_number)
        seen: State | None = None
        sent = monotonic()
        while awake in self.listeners:
            awake.clear()
            found = self._state
            step = None if found == seen else await self._step(place, only, with_by)
            # Asked after the page was read: the token may have been revoked meanwhile.
            admitted = request.plan.admit()
            if isinstance(admitted, Response):
                if admitted.status != 503:
                    return
                step = None  # the tokens cannot be read now; the stream stays open
            events = []
            if step is not None:
                events = [
                    event for id, event in step.events if id is None or wanted.store in (None, id)
                ]
                place = step.place
                seen, only = (None, only) if step.more else (found, None)
            if not events and monotonic() - sent >= COMMENT_INTERVAL:
                events = [b":\n\n"]
            if events:
                sent = monotonic()
                yield b"".join(events)
            elif step is None or not step.more:
                await awake.wait()

    async def _step(self, *key: Any) -> _Step | None:
        """Return what follows a place, read once for all listeners there; None if the database
        is away."""
        if (step := self._steps.get(key)) is None:
            if len(self._steps) >= MAX_SHARED:
                self._steps.clear()
            step = self._steps[key] = asyncio.ensure_future(self._read_step(*key))
        try:
            return await asyncio.shield(step)
        except Unavailable:
            return None

    async def _read_step(self, place: Cursor, only: int | None, with_by: bool) -> _Step:
        try:
            page = await completed(self._collection.changes(ChangesQuery(place, store=only)))
        except EpochEnded as ended:
            place = parse_cursor(ended.cursor.encode()) or Cursor()
            return _Step([(None, _reset(place))], place)
        epoch = page.epoch.encode()
        events: list[tuple[int | None, bytes]] = [
            (change.id, b"id: %d.%b\nevent: change\ndata: %b\n\n" % (change.seq, epoch, data))
            for change, data in zip(page.changes, page.encode(with_by=with_by), strict=False)
        ]
        seq = page.changes[len(events) - 1].seq if events else page.version
        return _Step(events, Cursor(seq, page.epoch), seq < page.version)

    async def _watch(self) -> None:
        """Look for changes until nobody listens, and wake the listeners."""
        woken = monotonic()
        while self.listeners:
            await asyncio.sleep(POLL_INTERVAL)
            state = self._state
            try:
                state = await completed(self._collection.state())
            except Unavailable:
                pass
            except Exception as error:  # noqa: BLE001 - the next look may succeed
                emit(Event.BUG, error=error)
            if state == self._state and monotonic() - woken < CHECK_INTERVAL:
                continue
            self._state, woken = state, monotonic()
            self._steps.clear()
            for number, awake in enumerate(list(self.listeners), start=1):
                awake.set()
                if number % WAKE_SLICE == 0:
                    await asyncio.sleep(0)
        self._watching = None


def _wants_events(accept: bytes) -> bool:
    """Return whether a client names server-sent events, with a weight above 0 (RFC 9110, section
    12.5.1)."""
    for media_range in accept.lower().split(b","):
        kind, *parameters = (part.strip() for part in media_range.split(b";"))
        if kind == b"text/event-stream":
            return not any(_REFUSED.fullmatch(parameter) for parameter in parameters)
    return False


def _reset(place: Cursor) -> bytes:
    cursor = str(place).encode()
    return b'id: %b\nevent: reset\ndata: {"cursor":"%b"}\n\n' % (cursor, cursor)
