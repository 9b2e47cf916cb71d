"""What a connection has received and not read: raw bytes behind an incomplete response."""

from storekeeper.http.reader import Phase, RequestReader
from storekeeper.http.request import Request
from storekeeper.http.response import Response

_METHOD_BYTES = len("HEAD ")
"""Bytes of a request that tell whether it is a HEAD, whose refusal has no content."""


class Unread:
    """The bytes of one connection that its reader has not read yet."""

    __slots__ = ("_position", "_reader", "data", "is_refused")

    def __init__(self, reader: RequestReader) -> None:
        self._reader = reader
        self.data = b""
        """The bytes that arrived together with them, and they; empty if nothing is unread."""
        self._position = 0
        self.is_refused = False
        """Whether there was no room for them: only their beginning is left."""

    def __len__(self) -> int:
        return len(self.data) - self._position

    @property
    def incomplete_bytes(self) -> int:
        """Bytes that belong to no complete request, or to none that has begun."""
        return len(self) + self._reader.unfinished_bytes

    def has_request(self) -> bool:
        """Return whether a request begins in them; an empty line begins none."""
        return bool(self.data[self._position :].strip(b"\r\n"))

    def append(self, data: bytes) -> None:
        """Add what arrived."""
        self.data += data

    def clear(self) -> None:
        """Forget them."""
        self.data = b""
        self._position = 0
        self.is_refused = False

    def feed(self) -> Request | None:
        """Have them read, up to the end of one request at most; return that if it is complete."""
        position, request = self._reader.feed(self.data, self._position)
        if position < len(self.data):
            self._position = position
        else:
            self.clear()
        return request

    def shrink(self) -> None:
        """Keep only what the refusal of their first request depends on."""
        self.data = self.data[self._position :][:_METHOD_BYTES]
        self._position = 0
        self.is_refused = True

    def refuse(self, response: Response) -> None:
        """Refuse the request that is being read, or the first one of these bytes."""
        self.shrink()
        if self._reader.phase is Phase.IDLE:
            self._reader.feed(self.data)
        self.clear()
        self._reader.refuse(response)
