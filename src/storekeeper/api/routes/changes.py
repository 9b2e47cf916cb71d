"""The routes /api/changes and /api/changes/stream: pages and events (decisions 40, 45, 51).

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
from storekeeper.api.routes.watch import Page, Watch, reset
from storekeeper.domain.changes import ChangesQuery, Cursor, parse_cursor
from storekeeper.domain.commands import Tags
from storekeeper.domain.errors import EpochEnded, InvalidInput
from storekeeper.domain.queries import State
from storekeeper.domain.reasons import Reason, Violation
from storekeeper.http.request import Request, field
from storekeeper.http.response import JSON, Deferred, Fields, Response, unavailable
from storekeeper.storage.collection import Collection, completed

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
        self.planners: Mapping[str, Planner] = {
            "changes": self._plan,
            "stream": self._plan_stream,
        }

    @property
    def listeners(self) -> Sized:
        """What wakes each open stream."""
        return self._watch.listeners if self._watch else frozenset()

    def _plan(self, method: str, headers: Fields) -> RequestPlan:
        if _wants_events(field(headers, b"accept") or b""):
            return self._plan_stream(method, headers)
        return RequestPlan(partial(self._read, read_if_none_match(headers)))

    def _plan_stream(self, _method: str, headers: Fields) -> RequestPlan:
        return RequestPlan(partial(self._listen, field(headers, b"last-event-id")))

    # Pages.

    def _read(self, tags: Tags | None, request: Request) -> Deferred:
        wanted = parse_changes_query(request.target.partition(b"?")[2])
        return Deferred(
            asyncio.ensure_future(self._page(wanted, tags, with_by=_may_see_who(request)))
        )

    async def _page(self, query: ChangesQuery, tags: Tags | None, *, with_by: bool) -> Response:
        changes: list[bytes] = []
        end = query.after
        part = query._replace(limit=min(query.limit, SLICE))
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
        suffix = ".by" if with_by else ""
        tag = f'"{end.seq}.{page.version}.{page.epoch}{suffix}"'
        if unchanged := not_modified(tags, tag):
            unchanged.headers += _VARY
            return unchanged
        listed, following = b",".join(changes), str(end).encode()
        body = b'{"changes":[%b],"next":"%b","head":%d}' % (listed, following, page.version)
        return Response(body, _JSON, tag=tag.encode())

    # Streams.

    def _listen(self, last_id: bytes | None, request: Request) -> Deferred:
        wanted = parse_changes_query(request.target.partition(b"?")[2])
        if wanted.newest_first:
            raise InvalidInput("query", {"order": _NOT_STREAMED})
        # A client that connects again would end for ever with a 400, so it gets a reset if this is
        # not a cursor.
        if last_id:
            wanted = wanted._replace(after=parse_cursor(last_id) or Cursor(0, "?"))

        def render(state: State) -> Response:
            if len(self.listeners) >= self._max_listeners:
                self.refused += 1
                return unavailable("Too many clients listen to changes")
            if self._watch is None or not self._watch.listeners:
                self._watch = Watch(self._collection, state)
            listener = _Listener(request, wanted, self._watch)
            return Response(b"", _EVENTS, stream=listener.stream(state), stop=listener.stop)

        return Deferred(asyncio.ensure_future(completed(self._collection.state())), render)


def _may_see_who(request: Request) -> bool:
    """Return whether a request is shown who wrote: it has a token, or comes from a person whom a
    trusted proxy named."""
    return bool(request.token_number) or request.user is not None


class _Listener:
    """A client that listens: what it has seen, and what follows."""

    def __init__(self, request: Request, wanted: ChangesQuery, watch: Watch) -> None:
        self._request = request
        self._with_by = _may_see_who(request)
        self._watch = watch
        self._awake = watch.enter()
        self._store = wanted.store
        self._place = wanted.after
        self._read_store = wanted.store
        """Until it has caught up, a listener to one store reads only that store's changes; then
        those of all stores, with the other listeners."""
        self._seen: State | None = None
        """The collection whose changes it has all seen."""
        self._sent = monotonic()

    def stop(self) -> None:
        """End the stream."""
        self._watch.leave(self._awake)

    async def stream(self, state: State) -> AsyncGenerator[bytes, None]:
        """Yield events, until the client leaves or its token ends; `state` is the current one."""
        yield self._begin(state)
        while self._awake in self._watch.listeners:
            self._awake.clear()
            found = self._watch.state
            page = None
            if found != self._seen:
                page = await self._watch.page(self._place, self._read_store, with_by=self._with_by)
            # After the page was read, because the token may have been revoked meanwhile.
            admitted = self._request.plan.admit()
            if isinstance(admitted, Response):
                if admitted.status != 503:
                    return
                page = None  # the tokens cannot be read now; the stream stays open
            events = self._follow(page, found) if page else []
            if not events and monotonic() - self._sent >= COMMENT_INTERVAL:
                events.append(b":\n\n")
            if events:
                self._sent = monotonic()
                yield b"".join(events)
            elif page is None or not page.more:
                await self._awake.wait()

    def _begin(self, state: State) -> bytes:
        try:
            number = self._place.number(state.version, state.epoch)
        except EpochEnded:
            self._place = Cursor(state.version, state.epoch)
            return b"retry: 2000\n" + reset(self._place)
        self._place = Cursor(number, state.epoch)
        # An event without data is not dispatched, but a client that connects again sends its id.
        return b"retry: 2000\nid: %b\n\n" % str(self._place).encode()

    def _follow(self, page: Page, found: State) -> list[bytes]:
        """Move on to the end of a page; return its events for this client."""
        self._place = page.place
        if page.more:
            self._seen = None
        else:
            self._seen = found
            self._read_store = None
        return [event for id, event in page.events if id is None or self._store in (None, id)]


def _wants_events(accept: bytes) -> bool:
    """Return whether a client names server-sent events, with a weight above 0 (RFC 9110, section
    12.5.1)."""
    for media_range in accept.lower().split(b","):
        kind, *parameters = (part.strip() for part in media_range.split(b";"))
        if kind == b"text/event-stream":
            return not any(_REFUSED.fullmatch(parameter) for parameter in parameters)
    return False
