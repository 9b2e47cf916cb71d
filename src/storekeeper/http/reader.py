"""Bytes of one connection in, requests or a refusal out. It does no I/O. Imports httptools and events.

phase       | event                              | action                                  | next phase
------------|------------------------------------|-----------------------------------------|-------------------
IDLE        | first byte of a request            | begin a head                            | HEAD
HEAD        | head complete and accepted         | expect its body                         | BODY
BODY        | body complete, keep-alive          | `accept` the request                    | IDLE
BODY        | body complete, close or HTTP/1.0   | `accept` the request                    | DISCARDING
HEAD, BODY  | limit, parse error, timeout        | `refuse`, behind earlier requests       | DISCARDING
DISCARDING  | bytes                              | drop them                               | DISCARDING
"""

from collections.abc import Callable
from enum import IntEnum

import httptools

from storekeeper.events import Event, emit
from storekeeper.http import request as request_head
from storekeeper.http.request import MAX_HEAD_BYTES, Request
from storekeeper.http.response import MAX_BODY_BYTES, Response, internal_error, too_large

MAX_FRAMED_BYTES = 8 * MAX_BODY_BYTES
"""Bytes of a body on the wire, chunk headers included: 1-byte chunks take 6 of them."""


class Phase(IntEnum):
    """What the reader expects next."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    DISCARDING = 3


class RequestReader:
    """The reading half of a connection, over llhttp.

    `accept` is called with each complete request and the length of its body; `refuse`, at most once, with a response
    and whether it must have no content because the request is a HEAD. `clock` is called when a request begins.
    """

    def __init__(
        self,
        accept: Callable[[Request, int], None],
        refuse: Callable[[Response, bool], None],
        clock: Callable[[], float],
    ) -> None:
        self._accept = accept
        self._refuse = refuse
        self._clock = clock
        self._parser = httptools.HttpRequestParser(self)
        self.phase = Phase.IDLE
        self.began = clock()
        """When the current or latest request began, by `clock`."""
        self.expects_continue = False
        """Whether the client waits for a 100 before it sends the body."""
        self._request: Request | None = None
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: bytes | bytearray = b""
        self._body_size = 0
        self._head = b""
        self._head_allowance = 0
        self._framed_bytes = 0
        self._unframed_bytes = 0
        self._upgrading = False
        self._replaying = False

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of memory that an unfinished request takes."""
        if self.phase is Phase.HEAD:
            # The parser's pieces of a head take as much again.
            return 2 * len(self._head) + request_head.FIELD_BYTES * len(self._headers)
        return 0 if self._request is None else self._request.size + self._body_size

    def feed(self, data: bytes) -> None:
        """Parse bytes from the client."""
        if self.phase is Phase.DISCARDING:
            return
        if self.phase is Phase.BODY:
            self._framed_bytes += len(data)
            self._unframed_bytes += len(data)
        self._head_allowance = max(len(data), self._head_allowance if self._head else 0)
        try:
            self._parse(data)
        except httptools.HttpParserCallbackError as error:
            emit(Event.BUG, error=error)
            self.refuse(internal_error())
        except httptools.HttpParserError as error:
            self._head += data
            self._refuse_as(request_head.malformed(error, self._head), head_only=self._is_head_method(error))
        if self.phase is Phase.HEAD:
            self._head += data
            self._check_unfinished_head()
        elif self.phase is Phase.BODY and (
            self._framed_bytes > MAX_FRAMED_BYTES or self._unframed_bytes > MAX_HEAD_BYTES
        ):
            self.refuse(too_large())  # the body, a trailer or a chunk extension

    def refuse(self, response: Response, request: Request | None = None) -> None:
        """Refuse the request that is being read, or `request`, which was just accepted; read nothing more."""
        self._refuse_as(response, head_only=request.method == "HEAD" if request else self._is_head_method())

    def discard(self) -> None:
        """Forget the request that is being read, and drop all further bytes."""
        self.phase = Phase.DISCARDING
        self._request = None
        self._body = b""
        self._body_size = 0
        self._head = b""
        self._headers = []
        self._url = b""
        self.expects_continue = False

    def _refuse_as(self, response: Response, *, head_only: bool) -> None:
        if self.phase is not Phase.DISCARDING:
            self.discard()
            self._refuse(response, head_only)

    def _is_head_method(self, error: httptools.HttpParserError | None = None) -> bool:
        """Tell whether the request that is being read is a HEAD, as far as its request line has arrived."""
        if self._request is not None:
            return self._request.method == "HEAD"
        if self.phase is not Phase.HEAD or self._parser.get_method() != b"HEAD":
            return False
        # Until the target begins, the parser may still report the method of the previous request.
        return bool(self._url) or request_head.names_method(b"HEAD", self._head, error)

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._ignore_upgrade()
                if self.phase is Phase.DISCARDING:
                    return
            else:
                return

    def _ignore_upgrade(self) -> None:
        """Replace the parser by one that has seen no upgrade, at the same position of the stream (decision 28).

        llhttp takes all bytes after the head of an upgrade for another protocol. Clients that offer h2c with
        every plain request send its body there.
        """
        request = self._request
        if request is None:  # refused
            return
        self._upgrading = False
        fields = [b"%b: %b\r\n" % field for field in request.headers if field[0] in request_head.FRAMING]
        head = b"%b / HTTP/1.1\r\n%b\r\n" % (request.method.encode(), b"".join(fields))
        self._parser = httptools.HttpRequestParser(self)
        self._replaying = True
        self._parser.feed_data(head)
        self._replaying = False

    def _check_unfinished_head(self) -> None:
        # A head may begin in the middle of a read, and all bytes of that read count: so allow their number.
        size = len(self._head) - self._head_allowance
        if refusal := request_head.check_unfinished(self._url, size, len(self._headers)):
            self.refuse(refusal)

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Begin a request."""
        if self._replaying or self.phase is Phase.DISCARDING:
            return
        self.phase = Phase.HEAD
        self.began = self._clock()
        self._url = b""
        self._headers = []
        self.expects_continue = False
        self._upgrading = False

    def on_url(self, url: bytes) -> None:
        """Append a piece of the target."""
        if not self._replaying:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Append a field of the head; drop the fields of a trailer (decision 27)."""
        if self.phase is Phase.HEAD:
            self._headers.append((name.lower(), value.rstrip()))  # llhttp leaves trailing blanks

    def on_headers_complete(self) -> None:
        """Check the head; refuse the request at once if it breaks a limit."""
        if self._replaying or self.phase is not Phase.HEAD:
            return
        self.phase = Phase.BODY
        version = self._parser.get_http_version()
        request = self._request = Request(
            self._parser.get_method().decode("ascii"),
            self._url,
            self._headers,
            version,
            keep_alive=version == "1.1" and self._parser.should_keep_alive(),
        )
        large = self._head or self._head_allowance > MAX_HEAD_BYTES
        self._head = b""
        self._framed_bytes = 0
        self._unframed_bytes = 0
        self._body_size = 0
        self._body = b""
        if refusal := (request_head.check_size(request) if large else None) or request_head.check(request):
            self.refuse(refusal)
            return
        self._upgrading = self._parser.should_upgrade()
        self.expects_continue = request_head.expects_continue(request)

    def on_body(self, body: bytes) -> None:
        """Append a piece of the body."""
        if self.phase is not Phase.BODY:
            return
        self._body_size += len(body)
        self._unframed_bytes = 0
        self.expects_continue = False
        # Nearly every body is one piece. As objects, pieces of two bytes each would take fifty times their size.
        if not self._body:
            self._body = body
        else:
            if type(self._body) is bytes:
                self._body = bytearray(self._body)
            self._body += body
        if self._body_size > MAX_BODY_BYTES:
            self.refuse(too_large())

    def on_message_complete(self) -> None:
        """Pass the complete request on."""
        request = self._request
        if self.phase is not Phase.BODY or self._upgrading or request is None:
            return
        size = self._body_size
        if size:
            request.body = bytes(self._body)
        # So that an idle connection takes no memory for its last request.
        self._request = None
        self._headers = []
        self._url = b""
        self._body = b""
        self._body_size = 0
        self.expects_continue = False
        self.phase = Phase.IDLE
        self._accept(request, size)
        if not request.keep_alive and self.phase is Phase.IDLE:
            self.phase = Phase.DISCARDING
