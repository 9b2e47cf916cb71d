"""Bytes of one connection in, requests or a refusal out. It does no I/O.

The careful way: `plain.py` is the short one. README.md next to this file has the phases.
"""

import re
from collections.abc import Callable
from enum import IntEnum

import httptools

from storekeeper.http import request as request_head
from storekeeper.http.request import (
    MAX_HEAD_BYTES,
    SMALL_BODY_BYTES,
    BodyLimit,
    Refusal,
    Request,
    identify,
)
from storekeeper.http.response import INTERNAL_ERROR, Response, too_large
from storekeeper.log.events import Event, emit

_MAX_SIZE_LINE = 16
"""Uncounted bytes of a line with a chunk's size: the size, zeros that some proxies put before
it, the line end."""


class Phase(IntEnum):
    """What the reader expects next."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    DISCARDING = 3


MAX_FED_BYTES = 8 * 1024
"""Bytes of one connection that are parsed at once, in up to 9 ms: the transport may bring
megabytes."""

_EMPTY_LINES = re.compile(rb"[\r\n]+")


class RequestReader:
    """The reading half of a connection, over llhttp.

    `refuse` is called at most once, with the refusal of what was read of a request. `clock` is
    called when a request begins. `early_refusal` is called with a request that may have a large
    body, before that is read; it returns the refusal if the head decides that, otherwise None.
    `body_limit` returns the limits of a target's route.
    """

    def __init__(
        self,
        refuse: Callable[[Refusal], None],
        clock: Callable[[], float],
        early_refusal: Callable[[Request], Response | None] = lambda _: None,
        body_limit: Callable[[bytes], BodyLimit] = lambda _: BodyLimit(),
    ) -> None:
        self._refuse = refuse
        self._clock = clock
        self._early_refusal = early_refusal
        self._body_limit = body_limit
        self._parser = httptools.HttpRequestParser(self)
        # `request.check` refuses the versions that are not served.
        self._parser.set_dangerous_leniencies(lenient_version=True)
        self.phase = Phase.IDLE
        self._complete: Request | None = None
        """The request that the bytes which are fed have just completed."""
        self.began = clock()
        """When the current or latest request began, by `clock`."""
        self.heard = self.began
        """When the latest byte of the body came, if it goes to an upload."""
        self._forget()

    def _forget(self) -> None:
        """Forget a request, so that an idle connection takes no memory for its last one."""
        self._line = b""
        """What has arrived of the current line."""
        self._has_line = False
        self._is_head = False
        self._head_bytes = 0
        self._request: Request | None = None
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: bytes | bytearray = b""
        self._body_bytes = 0
        self.limit = BodyLimit()
        self._expected = 0
        """Bytes of a body or chunk that follow."""
        self._extra_bytes = self._trailers = 0
        self._is_last_chunk = False
        self.expects_continue = False
        """Whether the client waits for a 100 before it sends the body."""

    @property
    def is_reading(self) -> bool:
        """Whether a request has begun and is not complete."""
        return self.phase is Phase.HEAD or self.phase is Phase.BODY

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of memory that an unfinished request takes."""
        if self.phase is Phase.HEAD:
            # The parser's pieces of a head take as much again.
            return (
                2 * self._head_bytes
                + len(self._line)
                + request_head.FIELD_BYTES * len(self._headers)
            )
        return 0 if self._request is None else self._request.size + len(self._body)

    def overdue(self, now: float) -> str:
        """Return why an unfinished request is to be refused at `now`, by `clock`; "" if it is
        not."""
        if now - self.began > (timeout := self.limit.timeout):
            return f"The request was not whole within {timeout:g} seconds"
        is_uploading = self._request is not None and self._request.upload is not None
        if is_uploading and now - self.heard > (timeout := self.limit.pause_timeout):
            return f"Nothing of the request came for {timeout:g} seconds"
        return ""

    def feed(self, data: bytes, start: int = 0) -> tuple[int, Request | None]:
        """Parse bytes from the client from `start` on: a body or chunk as it comes, all else line
        by line.

        So each limit applies at the same byte, however the network cuts them. Return where the
        unread bytes begin, and the request that ends there, if one does: nothing after it is
        read. At most about MAX_FED_BYTES of a long one are read.
        """
        end = min(len(data), start + MAX_FED_BYTES)
        self._complete = None
        try:
            while start < end and not self._complete and self.phase is not Phase.DISCARDING:
                start = self._take(data, start)
        except httptools.HttpParserCallbackError as error:
            emit(Event.BUG, error=error)
            self.refuse(INTERNAL_ERROR)
        except httptools.HttpParserUpgrade:
            pass  # after a CONNECT, which was refused
        except httptools.HttpParserError as error:
            self.refuse(request_head.malformed(error, self._line))
        request, self._complete = self._complete, None
        return len(data) if self.phase is Phase.DISCARDING else start, request

    def _take(self, data: bytes, start: int) -> int:
        """Parse the next piece of `data`, up to the end of a line at most; return where it ends."""
        if self._expected:
            end = min(len(data), start + self._expected)
            self._expected -= end - start
            self._parser.feed_data(data[start:end])
            return end
        # Before a request.
        if self.phase is Phase.IDLE and (empty := _EMPTY_LINES.match(data, start)):
            return empty.end()
        end = data.find(b"\n", start) + 1 or len(data)
        piece = data[start:end]
        self._line += piece
        if self.phase is Phase.HEAD and self._has_line:
            self._take_field(piece)
        elif self.phase is Phase.BODY:
            self._take_framing(piece)
        else:
            self._take_request_line()
        if piece.endswith(b"\n"):
            self._line = b""
        return end

    def _take_request_line(self) -> None:
        if self.phase is Phase.IDLE:
            self.phase = Phase.HEAD
            self.began = self._clock()
        line = self._line
        self._is_head = line.startswith(b"HEAD ")
        if refusal := request_head.check_line(line):
            self.refuse(refusal)
        elif line.endswith(b"\n") or not request_head.may_be_line(line):
            self._has_line = True
            self._parser.feed_data(request_head.escape(line))

    def _take_field(self, piece: bytes) -> None:
        self._head_bytes += len(piece)
        if self._head_bytes > MAX_HEAD_BYTES + len(b"\r\n"):
            self.refuse(request_head.TOO_MANY_HEADERS)
            return
        whole = piece.endswith(b"\n")
        if self._line[:1] in (b"u", b"U"):
            if not whole:
                return
            # llhttp would take all bytes after the head of an upgrade for another protocol; but
            # clients that offer h2c with every plain request send its body there (decision 28).
            piece = self._line
            if piece[:8].lower() == b"upgrade:":
                piece = b"x-" + piece
        self._parser.feed_data(piece)
        if whole and self.phase is Phase.HEAD:
            # The parser would call back for this field only when the next line begins: too late for
            # a refusal.
            name, _, value = self._line.partition(b":")
            self._headers.append((name.lower(), value.strip()))
            if len(self._headers) > request_head.MAX_FIELDS:
                self.refuse(request_head.TOO_MANY_HEADERS)

    def _take_framing(self, piece: bytes) -> None:
        """Parse what frames a chunked body; limit all of it but the sizes of the chunks
        (decision 49).

        The sizes need no limit: each chunk has at least one byte of the body, and the body has a
        limit.
        """
        self._extra_bytes += len(piece)
        if self._is_last_chunk:
            if piece.endswith(b"\n"):
                self._trailers += 1
            if len(self._line) == len(piece) and piece[:1] not in b"\r\n \t:":
                piece = b"x-" + piece  # the parser would take a trailer for a field of the head
        self._parser.feed_data(piece)
        limit = MAX_HEAD_BYTES
        if not piece.endswith(b"\n"):
            limit += _MAX_SIZE_LINE + len(b"\r\n")
        if self._extra_bytes > limit or self._trailers > request_head.MAX_FIELDS:
            self.refuse(request_head.TOO_MANY_HEADERS)

    def refuse(self, response: Response) -> None:
        """Refuse the request that is being read; read nothing more."""
        if self.phase is Phase.DISCARDING:
            return
        refusal = self._refusal(response)
        self.discard()
        self._refuse(refusal)

    def _refusal(self, response: Response) -> Refusal:
        if self._request is not None:
            return request_head.refuse(self._request, response)
        method = "HEAD" if self._is_head else ""
        if self._url:
            method = self._parser.get_method().decode()
        return Refusal(response, method, self._headers, request_head.id_of(self._headers))

    def discard(self) -> None:
        """Forget the request that is being read, and drop all further bytes."""
        if self._request is not None and self._request.upload is not None:
            self._request.upload.release()
        self.phase = Phase.DISCARDING
        self._forget()

    def close(self) -> None:
        """Drop all further bytes, and the references to the parser and the connection, which
        refer to this reader."""
        self.discard()
        del self._parser, self._refuse

    # Called by the parser.

    def on_url(self, url: bytes) -> None:
        """Append a piece of the target."""
        self._url += url

    def on_headers_complete(self) -> None:
        """Check the head; refuse the request at once if it breaks a limit."""
        self.phase = Phase.BODY
        version = self._parser.get_http_version()
        if "1.1" < version <= "1.9":
            version = "1.1"  # RFC 9110, section 2.5
        request = self._request = Request(
            self._parser.get_method().decode("ascii"),
            self._url,
            self._headers,
            version,
            keep_alive=version == "1.1" and self._parser.should_keep_alive(),
            size=request_head.size_of(self._url, self._headers),
        )
        identify(request)
        if refusal := request_head.check(request):
            self.refuse(refusal)
            return
        fields = dict(reversed(self._headers))  # of those with one name the first
        # llhttp ensures that it is digits, that there is one, and that there is no
        # Transfer-Encoding.
        length, expect = fields.get(b"content-length", b"0"), fields.get(b"expect", b"")
        self.limit = self._body_limit(request.target)
        if request_head.exceeds(length, self.limit.max_bytes):
            refusal = too_large(self.limit.max_bytes)
        # A large body may follow, or one that the client holds back.
        elif (
            int(length) > SMALL_BODY_BYTES or b"expect" in fields or b"transfer-encoding" in fields
        ):
            refusal = self._early_refusal(request)
        if refusal is not None:
            self.refuse(refusal)
            return
        self.heard = self._clock()
        self._expected = int(length)
        # RFC 9110, section 10.1.1.
        self.expects_continue = expect.lower() == b"100-continue" and version == "1.1"

    def on_body(self, body: bytes) -> None:
        """Append a piece of the body."""
        if self.phase is not Phase.BODY:
            return
        self.expects_continue = False
        self._body_bytes += len(body)
        if self._body_bytes > self.limit.max_bytes:
            self.refuse(too_large(self.limit.max_bytes))
        elif self._request is not None and self._request.upload is not None:
            self.heard = self._clock()
            if refusal := self._request.upload.append(body):
                self.refuse(refusal)
        # Nearly every body is one piece. As objects, pieces of two bytes each would take fifty
        # times their size.
        elif not self._body:
            self._body = body
        else:
            if type(self._body) is bytes:
                self._body = bytearray(self._body)
            self._body += body

    def on_chunk_header(self) -> None:
        """Expect the data of a chunk, or trailers; called at the end of the line with its size."""
        if not self._line:
            return
        size = self._line.partition(b";")[0].rstrip()
        self._expected = int(size, 16)
        self._is_last_chunk = not self._expected
        # Neither this size nor the line end after the data is extra.
        self._extra_bytes -= min(len(size) + len(b"\r\n"), _MAX_SIZE_LINE)
        if self._expected:
            self._extra_bytes -= len(b"\r\n")

    def on_message_complete(self) -> None:
        """Keep the complete request for `feed`."""
        request = self._request
        if self.phase is not Phase.BODY or request is None:
            return
        request.body = bytes(self._body)
        request.size += len(request.body)
        self._forget()
        self.phase = Phase.IDLE
        self._complete = request
        if not request.keep_alive:
            self.phase = Phase.DISCARDING
