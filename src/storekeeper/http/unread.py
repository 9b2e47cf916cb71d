"""What a connection has received and not read, and how much memory all it received takes."""

from storekeeper.http.limits import SMALL_BYTES, ReceiveBudget
from storekeeper.http.reader import Phase, RequestReader
from storekeeper.http.request import Request
from storekeeper.http.response import unavailable

_METHOD_BYTES = len("HEAD ")
"""Bytes of a request that tell whether it is a HEAD, whose refusal has no content."""

NO_ROOM = unavailable("Too many large requests")


class Unread:
    """The bytes of one connection that its reader has not read yet.

    They, a request that is not complete, and one without a complete response count in `budget`.
    """

    __slots__ = ("_budget", "_reader", "data", "is_refused", "position", "request")

    def __init__(self, reader: RequestReader, budget: ReceiveBudget) -> None:
        self._reader = reader
        self._budget = budget
        self.request: Request | None = None
        """The request that has no complete response."""
        self.data = b""
        """The bytes that arrived together with them, and they; empty if nothing is unread."""
        self.position = 0
        """Where in `data` they begin."""
        self.is_refused = False
        """Whether there was no room for them: only their beginning is left."""

    def __len__(self) -> int:
        return len(self.data) - self.position

    def has_request(self) -> bool:
        """Return whether a request begins in them; an empty line begins none."""
        return bool(self.data[self.position :].strip(b"\r\n"))

    def clear(self) -> None:
        """Forget them."""
        self.data = b""
        self.position = 0
        self.is_refused = False

    def feed(self) -> Request | None:
        """Have them read, up to the end of one request at most; return that if it is complete."""
        position, request = self._reader.feed(self.data, self.position)
        if position < len(self.data):
            self.position = position
        else:
            self.clear()
        return request

    def shrink(self) -> None:
        """Keep only what the refusal of their first request depends on."""
        self.data = self.data[self.position :][:_METHOD_BYTES]
        self.position = 0
        self.is_refused = True

    def count(self) -> None:
        """Count all that is here; if there is no room, give way."""
        if not self._hold() and len(self) + self._reader.unfinished_bytes:
            self.give_way()

    def _hold(self) -> bool:
        incomplete = len(self) + self._reader.unfinished_bytes
        size = incomplete + (self.request.size if self.request else 0)
        return self._budget.hold(self, size, may_give_way=incomplete > 0)

    def has_room_for(self, request: Request) -> bool:
        """Return whether a complete request can be begun; if not, it is counted as refused."""
        # For small ones there is always room: that is what the reserve is for.
        if request.size <= SMALL_BYTES:
            return True
        if self._budget.hold(self, request.size, may_give_way=True):
            return True
        self._budget.refused += 1
        return False

    def give_way(self) -> None:
        """Refuse the request that is incomplete, or the next one, once it is its turn."""
        if self.request is not None:
            self.shrink()
        else:
            self._budget.refused += 1
            self._refuse()
        self._hold()

    def _refuse(self) -> None:
        """Refuse the request that is being read, or the first one of these bytes."""
        self.shrink()
        if self._reader.phase is Phase.IDLE:
            self._reader.feed(self.data)
        self.clear()
        self._reader.refuse(NO_ROOM)
