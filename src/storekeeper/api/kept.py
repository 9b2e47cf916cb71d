"""Answers kept ready: the finished bytes of GETs, while nothing has changed. Imports `api` and the domain.

A kept answer is as good as a new one, across processes too: before the first request that is read in a turn of
the event loop is answered, the collection is asked whether anything was written since, and if so all is dropped.
Whatever is read in that turn had begun to arrive before the question, so that it cannot miss a write that was
acknowledged before it was sent. Only the first request of a read gets a kept answer: one behind it, or one that
waited for its turn, may have come later. Where libuv may read on within a turn, each read asks.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable

from storekeeper.api.exchange import LONGEST, Recording, Request
from storekeeper.errors import StorekeeperError

MOST_BYTES = 24 * 2**20
"""What all kept answers together may take."""

MOST_HEADS = 8 * 2**20
"""Bytes that all remembered heads may take, with what they mean."""

LONGEST_HEAD = 1024
"""Bytes of a head that is remembered."""

_UNCOMMON = (b"transfer-encoding", b"expect", b"upgrade", b"connection")

MOST_CONNECTIONS = 900 if sys.platform == "linux" else 450
"""With more of them libuv may poll again within a turn: it takes 1024 events at a time, which elsewhere than on Linux
are two for a connection that can be read and written."""

LARGE_READ = 64 * 1024
"""After a read of this size or more libuv may read on within a turn."""

_NEVER = -1


class Kept:
    """The kept answers of one process. `stamp` is the collection's.

    `heads` has the bytes of heads that were parsed once, with what they are and the length of the body that
    follows; `answers` has by target what follows `prefix`, the status line and the date of now.
    """

    def __init__(self, stamp: Callable[[], int | None]) -> None:
        self._stamp = stamp
        self._loop = asyncio.get_running_loop()
        self.heads: dict[bytes, tuple[Request, int]] = {}
        self.answers: dict[bytes, bytes] = {}
        self.prefix = b""
        self.fresh = False
        self.seen: int = _NEVER
        self.recording = False
        self.date: Iterable[tuple[bytes, bytes]] | None = None
        self._bytes = 0
        self._heads_size = 0

    def look(self, date: list[tuple[bytes, bytes]], connections: int) -> None:
        """Drop everything if the collection may have changed; `fresh` until this turn of the loop ends.

        Only to be called as something is read: elsewhere in the loop `fresh` would outlive the turn, because what
        is called soon would run after the next poll.
        """
        try:
            stamp = self._stamp()
        except StorekeeperError:
            stamp = None  # the request itself will meet the error, and answer it
        if stamp is None or stamp != self.seen:
            self.drop()
            self.seen = _NEVER if stamp is None else stamp
        if date is not self.date:
            self.set_date(date)
        if connections < MOST_CONNECTIONS:
            self.fresh = True
            self._loop.call_soon(self._turn_over)

    def set_date(self, date: list[tuple[bytes, bytes]]) -> None:
        """Set what all answers say that are sent from now on."""
        self.date = date
        self.prefix = b"HTTP/1.1 200 OK\r\n" + b"".join(b"%b: %b\r\n" % field for field in date)

    def record(self) -> Recording | None:
        """Begin to record a long answer, whose first part was read after the latest look; None: not now.

        One at a time, so that many clients of a long list do not each hold a copy.
        """
        if self.recording or self.seen == _NEVER:
            return None
        self.recording = True
        return Recording(self.seen)

    def finish(self, recording: Recording, target: bytes, *, whole: bool) -> None:
        """End a recording, and keep it if nothing was written since it began."""
        self.recording = False
        if whole and recording.seen == self.seen and recording.size <= LONGEST:
            self.keep(target, b"".join(recording.parts))

    def keep(self, target: bytes, answer: bytes) -> None:
        """Keep an answer that was read after the latest look; if something was written between, the next drops it."""
        if self.seen == _NEVER or len(answer) > LONGEST:
            return
        self._bytes += len(answer) + len(target)
        if self._bytes > MOST_BYTES:
            self.drop()
            self._bytes = len(answer) + len(target)
        self.answers[target] = answer

    def know(self, data: bytes, request: Request, length: int) -> None:
        """Remember what the head of these bytes is, if they are just this request with a body of that `length`."""
        end = data.find(b"\r\n\r\n") + 4
        if len(data) != end + length or end > LONGEST_HEAD:
            return
        if any(name in _UNCOMMON for name, _ in request.headers):
            return
        size = end + request.size
        if self._heads_size + size > MOST_HEADS:
            self.heads.clear()
            self._heads_size = 0
        self._heads_size += size
        # Without the body, which would stay in memory with it.
        self.heads[data[:end]] = (request.with_body(b""), length)

    def drop(self) -> None:
        """Forget all answers."""
        self.answers.clear()
        self._bytes = 0

    def _turn_over(self) -> None:
        self.fresh = False
