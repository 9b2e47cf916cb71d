"""The short way for plain requests: one whole request in one read, with nothing that needs care. Imports httptools.

llhttp checks the bytes, as on the careful way (`reader.py`), but does not call back for each field: only the fields
of DECIDING_FIELDS are looked for. What is not plain gets None here, and the careful way reads it from its start. So
this way refuses nothing, and `tests/http/test_plain.py` shows that what it accepts means the same on the careful way.
"""

import re

import httptools

from storekeeper.http.request import MAX_FIELDS, MAX_TARGET_BYTES, Request, is_host

DECIDING_FIELDS = (
    # The framing of the request, and how its connection goes on.
    *(b"connection", b"content-length", b"expect", b"host", b"keep-alive", b"te", b"trailer"),
    *(b"transfer-encoding", b"upgrade"),
    # What the body is, who asks, from where, and for what.
    *(b"accept", b"accept-language", b"access-control-request-headers", b"access-control-request-method"),
    *(b"authorization", b"content-encoding", b"content-type", b"idempotency-key", b"if-match", b"if-none-match"),
    *(b"last-event-id", b"origin", b"referer", b"sec-fetch-site"),
)
"""The fields that decide something, in any part of the service. A plain request has no others."""

MAX_PLAIN_BYTES = MAX_TARGET_BYTES
"""Bytes of a plain request, its body included: below the limits of a target, a head and a small body."""

_NOT_PLAIN = frozenset((b"expect", b"transfer-encoding", b"upgrade"))
_LINE = re.compile(rb"(GET|HEAD|POST|PUT) (/[!$-~]*) HTTP/1\.1\r(?=\n)")
_FIRST_LETTERS = bytes({name[0] for name in DECIDING_FIELDS})
_FIELD = re.compile(rb"(?i)\n(?=[%b])(%b):[ \t]*([^\r]*)" % (_FIRST_LETTERS, b"|".join(DECIDING_FIELDS)))


class PlainReader:
    """Reads plain requests, of all connections of a process."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._complete = False

    def read(self, data: bytes) -> Request | None:
        """Return the request that `data` is, with its deciding fields; None if `data` is no whole plain request."""
        line = _LINE.match(data)
        end = data.find(b"\r\n\r\n") + 4
        if line is None or end < 4 or len(data) > MAX_PLAIN_BYTES or data.count(b"\n", 0, end) > MAX_FIELDS:
            return None
        fields = _deciding_fields(data, line.end(), end, len(data) - end)
        if fields is None:
            return None
        method, target = line.groups()
        request = Request(method.decode(), target, fields, "1.1", keep_alive=True, body=data[end:])
        return request if self._is_valid(data) else None

    def on_message_complete(self) -> None:
        """Note that the request is whole; called by the parser."""
        self._complete = True

    def _is_valid(self, data: bytes) -> bool:
        self._complete = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._complete = False
        if not self._complete:
            self._parser = httptools.HttpRequestParser(self)
        return self._complete


def _deciding_fields(data: bytes, start: int, end: int, body_size: int) -> list[tuple[bytes, bytes]] | None:
    """Return the deciding fields of a head, names in lower case; None if one of them is not plain."""
    fields = []
    has_host, length = False, b"0"
    for written, padded in _FIELD.findall(data, start, end):
        name, value = written.lower(), padded.rstrip()
        if name == b"host":
            if has_host or not is_host(value):
                return None
            has_host = True
        elif name == b"content-length":
            length = value
        elif name in _NOT_PLAIN or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
        fields.append((name, value))
    return fields if has_host and length.isdigit() and len(length) < 8 and int(length) == body_size else None
