"""What the listeners to changes share while there are any: a look for changes, and pages."""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

from storekeeper.domain.changes import ChangesQuery, Cursor, parse_cursor
from storekeeper.domain.errors import EpochEnded, Unavailable
from storekeeper.domain.queries import State
from storekeeper.log.events import Event, emit
from storekeeper.storage.collection import Collection, completed

POLL_INTERVAL = 0.2
"""Seconds between two looks for changes, while clients listen."""

CHECK_INTERVAL = 1.0
"""Seconds after which each listener checks whether its token is still valid, and a comment due."""

MAX_SHARED = 8
"""Pages that are kept for other listeners, until the next change."""

WAKE_SLICE = 32
"""Listeners that are woken in one loop iteration: about a millisecond."""


class Page(NamedTuple):
    """The events after a place, each with the id of its store, None if it is for all; and the next
    place."""

    events: Sequence[tuple[int | None, bytes]]
    place: Cursor
    more: bool = False


class Watch:
    """One task looks for changes while clients listen, and wakes them.

    A watch begins with its first listener and ends with its last one; the next listener begins
    another. So a client that comes later never sees what an earlier watch has read: there may have
    been a change in between that no watch looked for.
    """

    def __init__(self, collection: Collection, state: State) -> None:
        self._collection = collection
        self.state = state
        """What the latest look found."""
        self.listeners: set[asyncio.Event] = set()
        """What wakes each open stream. A stream ends once it is woken and not in here."""
        self._pages: dict[tuple[Cursor, int | None, bool], asyncio.Future[Page]] = {}
        """What was read since the latest look, for all listeners at the same place."""
        self._task = asyncio.create_task(self._look_and_wake())

    def enter(self) -> asyncio.Event:
        """Add a listener; return what wakes it."""
        awake = asyncio.Event()
        self.listeners.add(awake)
        return awake

    def leave(self, awake: asyncio.Event) -> None:
        """Remove a listener, and wake its stream, which then ends."""
        self.listeners.discard(awake)
        awake.set()
        if not self.listeners:
            self._pages.clear()

    async def page(self, place: Cursor, only: int | None, *, with_by: bool) -> Page | None:
        """Return what follows a place, for one store or for all; None if the database is away."""
        key = place, only, with_by
        page = self._pages.get(key)
        if page is None:
            if len(self._pages) >= MAX_SHARED:
                self._pages.clear()
            page = self._pages[key] = asyncio.ensure_future(self._read(*key))
        try:
            return await asyncio.shield(page)
        except Unavailable:
            return None

    async def _read(self, place: Cursor, only: int | None, with_by: bool) -> Page:
        try:
            page = await completed(self._collection.changes(ChangesQuery(place, store=only)))
        except EpochEnded as ended:
            place = parse_cursor(ended.cursor.encode()) or Cursor()
            return Page([(None, reset(place))], place)
        epoch = page.epoch.encode()
        events: list[tuple[int | None, bytes]] = [
            (change.id, b"id: %d.%b\nevent: change\ndata: %b\n\n" % (change.seq, epoch, data))
            for change, data in zip(page.changes, page.encode(with_by=with_by), strict=False)
        ]
        seq = page.version
        if events:
            seq = page.changes[len(events) - 1].seq
        return Page(events, Cursor(seq, page.epoch), seq < page.version)

    async def _look_and_wake(self) -> None:
        woken = monotonic()
        while True:
            await asyncio.sleep(POLL_INTERVAL)
            if not self.listeners:
                return
            state = await self._look()
            if state == self.state and monotonic() - woken < CHECK_INTERVAL:
                continue
            self.state, woken = state, monotonic()
            self._pages.clear()
            for number, awake in enumerate(list(self.listeners), start=1):
                awake.set()
                if number % WAKE_SLICE == 0:
                    await asyncio.sleep(0)

    async def _look(self) -> State:
        try:
            return await completed(self._collection.state())
        except Unavailable:
            pass
        except Exception as error:  # noqa: BLE001 - the next look may succeed
            emit(Event.BUG, error=error)
        return self.state


def reset(place: Cursor) -> bytes:
    """Return the event that tells a client to read the list again, and to continue from `place`."""
    cursor = str(place).encode()
    return b'id: %b\nevent: reset\ndata: {"cursor":"%b"}\n\n' % (cursor, cursor)
