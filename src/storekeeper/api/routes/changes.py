"""The route /api/changes: pages and server-sent events (decisions 40, 45, 51).

What listeners share is in `watch.py`; each of them is served at the pace of its client.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sized
from functools import partial
from time import monotonic

from storekeeper.api.plan import Planner, RequestPlan
from storekeeper.api.preconditions import not_modified, read_if_none_match
from storekeeper.api.query import parse_changes_query
from storekeeper.api.routes.watch import Watch, reset
from storekeeper.domain.changes import ChangesQuery, Cursor, parse_cursor
from storekeeper.domain.commands import Tags
from storekeeper.domain.errors import EpochEnded, InvalidInput
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.http.request import Request, field
from storekeeper.http.response import JSON, Deferred, Fields, Response, unavailable
from storekeeper.storage.collection import Collection, State, completed

COMMENT_INTERVAL = 15.0
"""Seconds without a change after which a comment keeps a stream open through proxies."""

SLICE = 100
"""Changes of a page that are read in one loop iteration: about a millisecond."""

_VARY = b"vary: authorization, accept\r\n"
_JSON = JSON + _VARY
_EVENTS = (
    b"content-type: text/event-stream; charset=utf-8\r\nx-accel-buffering: no\r\n"
    # A proxy that compresses would hold events back until it has enough of them.
    b"cache-control: no-cache, no-transform\r\n" + _VARY
)
_NOT_STREAMED = Violation(Reason.EXCLUSIVE, "must be asc for a stream of events")
_REFUSED = re.compile(rb"q=0(\.0*)?")


class Feed:
    """Carries out requests of the changes of a collection; at most `max_listeners` clients
    listen at once."""

    def __init__(self, collection: Collection, *, max_listeners: int) -> None:
        self._collection = collection
        self._max_listeners = max_listeners
        self._watch: Watch | None = None
        """The latest watch; it has ended if it has no listener."""
        self.refused = 0
        self.planners: Mapping[str, Planner] = {"changes": self._plan}

    @property
    def listeners(self) -> Sized:
        """What wakes each open stream."""
        return self._watch.listeners if self._watch else frozenset()

    def _plan(self, _method: str, headers: Fields) -> RequestPlan:
        if _wants_events(field(headers, b"accept") or b""):
            return RequestPlan(partial(self._listen, field(headers, b"last-event-id")))
        return RequestPlan(partial(self._read, read_if_none_match(headers)))

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
            raise InvalidInput("query", {"order": _NOT_STREAMED})
        # Of a client that connects again: a 400 would end it for ever, so what is no cursor is a
        # reset.
        if last_id:
            wanted = wanted._replace(after=parse_cursor(last_id) or Cursor(0, "?"))

        def render(state: State) -> Response:
            if len(self.listeners) >= self._max_listeners:
                self.refused += 1
                return unavailable("Too many clients listen to changes")
            if self._watch is None or not self._watch.listeners:
                self._watch = Watch(self._collection, state)
            watch, awake = self._watch, self._watch.enter()
            stream = self._stream(request, wanted, watch, awake, state)
            return Response(b"", _EVENTS, stream=stream, stop=partial(watch.leave, awake))

        return Deferred(asyncio.ensure_future(completed(self._collection.state())), render)

    async def _stream(
        self,
        request: Request,
        wanted: ChangesQuery,
        watch: Watch,
        awake: asyncio.Event,
        state: State,
    ) -> AsyncGenerator[bytes, None]:
        try:
            place = Cursor(wanted.after.number(state.version, state.epoch), state.epoch)
            # An event without data is not dispatched, but a client that connects again sends its
            # id.
            yield b"retry: 2000\nid: %b\n\n" % str(place).encode()
        except EpochEnded:
            place = Cursor(state.version, state.epoch)
            yield b"retry: 2000\n" + reset(place)
        # Until it has caught up, a listener to one store reads that one's changes alone; then those
        # of all listeners.
        only, with_by = wanted.store, bool(request.token_number)
        seen: State | None = None
        sent = monotonic()
        while awake in watch.listeners:
            awake.clear()
            found = watch.state
            page = None if found == seen else await watch.page(place, only, with_by=with_by)
            # Asked after the page was read: the token may have been revoked meanwhile.
            admitted = request.plan.admit()
            if isinstance(admitted, Response):
                if admitted.status != 503:
                    return
                page = None  # the tokens cannot be read now; the stream stays open
            events = []
            if page is not None:
                events = [
                    event for id, event in page.events if id is None or wanted.store in (None, id)
                ]
                place = page.place
                seen, only = (None, only) if page.more else (found, None)
            if not events and monotonic() - sent >= COMMENT_INTERVAL:
                events = [b":\n\n"]
            if events:
                sent = monotonic()
                yield b"".join(events)
            elif page is None or not page.more:
                await awake.wait()


def _wants_events(accept: bytes) -> bool:
    """Return whether a client names server-sent events, with a weight above 0 (RFC 9110, section
    12.5.1)."""
    for media_range in accept.lower().split(b","):
        kind, *parameters = (part.strip() for part in media_range.split(b";"))
        if kind == b"text/event-stream":
            return not any(_REFUSED.fullmatch(parameter) for parameter in parameters)
    return False
