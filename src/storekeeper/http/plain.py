"""The head cache: plain requests, each whole in one read, cost no parser.

A request is plain if its line and all its fields match strict patterns, which llhttp and the
checks of `request.py` accept. Any other request is `None` here, and `reader.py` reads it from
its start: so this module refuses nothing. `tests/http/test_plain.py` shows that what it takes
means the same to `reader.py`.

Only DECIDING_FIELDS decide anything. The lines of all other fields are checked and cut out; what
is left is looked up in a dictionary of what such lines say.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from storekeeper.http.request import (
    MAX_FIELDS,
    MAX_TARGET_BYTES,
    Request,
    cut_ids,
    cut_keys,
    is_host,
    size_of,
)
from storekeeper.http.response import Fields

DECIDING_FIELDS = (
    # The framing of the request, and how its connection continues.
    b"connection",
    b"content-length",
    b"expect",
    b"host",
    b"proxy-connection",
    b"transfer-encoding",
    b"upgrade",
    # What the body is, who asks, from where, and for what.
    b"accept",
    b"accept-language",
    b"access-control-request-headers",
    b"access-control-request-method",
    b"authorization",
    b"content-encoding",
    b"content-type",
    b"idempotency-key",
    b"if-match",
    b"if-none-match",
    b"last-event-id",
    b"origin",
    b"referer",
    b"sec-fetch-site",
)
"""The fields that decide something, in any part of the service. A plain request has no others."""

MAX_PLAIN_BYTES = MAX_TARGET_BYTES
"""Bytes of a plain request, its body included: below the limits of a target, a head and a small
body."""

MAX_CACHED_BYTES = 8 * 2**20
"""Bytes that the remembered heads may take. When they would take more, all are forgotten."""

MAX_CACHED_HEAD_BYTES = 1024
"""Bytes of the fields of one remembered head."""

_NOT_PLAIN = frozenset((b"expect", b"transfer-encoding", b"upgrade"))
_CONNECTION = frozenset((b"connection", b"proxy-connection"))  # the same to llhttp
_ONCE = frozenset((b"host", b"content-length"))

_LINE = re.compile(rb"(GET|HEAD|POST|PUT|PATCH) (/[!$->@-~]*(?:\?[!$-~]*)?) HTTP/1\.1")


# Each field begins with the line end before it. A value has no control character but the tab.
_FIELDS = re.compile(rb"(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]++:[^\x00-\x08\x0a-\x1f\x7f]*+)*+")
_DECIDING = frozenset(DECIDING_FIELDS)


class Head(msgspec.Struct, eq=False):
    """What the fields of a plain request say. Equal fields have the same head while it is
    remembered."""

    fields: Fields
    length: int
    """Bytes of the body."""

    size: int
    """Bytes that Python takes for a request with these fields, without its target and body."""

    is_remembered: bool = False
    """Whether later requests with these fields may have this very head."""


class PlainReader:
    """Reads plain requests, of all connections of a process. `more` are further fields that decide
    something."""

    def __init__(self, more: Iterable[bytes] = ()) -> None:
        self._deciding = _DECIDING.union(more)
        self._heads: dict[bytes, Head] = {}
        self._size = 0

    def read(self, data: bytes) -> Request | None:
        """Return the request that `data` is, with its deciding fields; None if it is not
        plain."""
        start, end, body = data.partition(b"\r\n\r\n")
        line, found, text = start.partition(b"\r\n")
        parts = _LINE.fullmatch(line)
        if parts is None or not end or len(data) > MAX_PLAIN_BYTES:
            return None
        method, target = parts.groups()
        text, id = found + text, b""
        keys: Sequence[bytes] = ()
        head = self._heads.get(text)
        if head is None and text.count(b"\n") <= MAX_FIELDS:
            # No other request has the same ids and keys, so they are not part of the remembered
            # head.
            text, id = cut_ids(text)
            text, keys = cut_keys(text)
            head = self._heads.get(text) or self._find(text)
        if head is None or head.length != len(body) or len(keys) > 1:
            return None
        size = head.size + len(target) + len(body)
        request = Request(
            method.decode(), target, head.fields, "1.1", True, body, head, size=size, id=id
        )
        if method.startswith(b"P"):  # it may write
            request.key = keys[0].decode() if keys else ""
        elif not id:
            request.cache_key = data
        return request

    def _find(self, text: bytes) -> Head | None:
        """Return what fields decide that are not known in just this form; None if they are not
        plain."""
        if not _FIELDS.fullmatch(text):
            return None
        lines = text.split(b"\r\n")[1:]
        deciding = b"".join(
            [b"\r\n" + line for line in lines if line.partition(b":")[0].lower() in self._deciding]
        )
        head = self._heads.get(deciding)
        if head is None:
            head = _decide(deciding)
            if head is None:
                return None
            self._remember(deciding, head)
        if text != deciding:
            self._remember(text, head)  # most clients send the same fields again
        return head

    def _remember(self, text: bytes, head: Head) -> None:
        if len(text) <= MAX_CACHED_HEAD_BYTES:
            self._size += len(text) + head.size
            if self._size > MAX_CACHED_BYTES:
                self._heads.clear()
                self._size = len(text) + head.size
            self._heads[text] = head
            head.is_remembered = True


def _decide(text: bytes) -> Head | None:
    """Return what these lines of deciding fields, if each is a field, decide; None if they
    are not plain."""
    lines = [line.partition(b":") for line in text.split(b"\r\n")[1:]]
    fields = [(name.lower(), value.strip(b" \t")) for name, _, value in lines]
    names = [name for name, _ in fields]
    if any(names.count(name) > 1 for name in _ONCE):
        return None
    for name, value in fields:
        if name in _NOT_PLAIN or (name in _CONNECTION and value.lower() != b"keep-alive"):
            return None
        if name == b"host" and not is_host(value):
            return None
    length = dict(fields).get(b"content-length", b"0")
    if b"host" not in names or not length.isdigit() or len(length) > len(str(MAX_PLAIN_BYTES)):
        return None
    return Head(fields, int(length), size_of(b"", fields))
