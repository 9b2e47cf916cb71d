"""The head cache: plain requests, each whole in one read, cost no parser.

A request is plain if its line and all its fields match strict patterns, which llhttp and the
checks of `request.py` accept. Any other request is `None` here, and `reader.py` reads it from
its start: so this module refuses nothing. `tests/http/test_plain.py` shows that what it takes
means the same to `reader.py`.

Only DECIDING_FIELDS decide anything. The lines of all other fields are checked and cut out; what
is left is looked up in a dictionary of what such lines decide: the fields, the length of the
body, and a plan for each method and route.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

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
    # The framing of the request, and how its connection goes on.
    *(
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"proxy-connection",
        b"transfer-encoding",
        b"upgrade",
    ),
    # What the body is, who asks, from where, and for what.
    *(
        b"accept",
        b"accept-language",
        b"access-control-request-headers",
        b"access-control-request-method",
    ),
    *(
        b"authorization",
        b"content-encoding",
        b"content-type",
        b"idempotency-key",
        b"if-match",
        b"if-none-match",
    ),
    *(b"last-event-id", b"origin", b"referer", b"sec-fetch-site"),
)
"""The fields that decide something, in any part of the service. A plain request has no others."""

MAX_PLAIN_BYTES = MAX_TARGET_BYTES
"""Bytes of a plain request, its body included: below the limits of a target, a head and a small
body."""

MAX_CACHED_BYTES = 16 * 2**20
"""Bytes that the remembered heads may take. When they would take more, all are forgotten."""

MAX_CACHED_HEAD_BYTES = 1024
"""Bytes of the fields of one remembered head."""

PLAN_BYTES = 1024
"""Bytes that a plan takes, without what entity tags take."""

QUOTE_BYTES = 70
"""Bytes that a plan takes for each quotation mark: an entity tag, which has two, is a string in
a set."""

_NOT_PLAIN = frozenset((b"expect", b"transfer-encoding", b"upgrade"))
_CONNECTION = frozenset((b"connection", b"proxy-connection"))  # the same to llhttp
_ONCE = frozenset((b"host", b"content-length"))

_LINE = re.compile(rb"(GET|HEAD|POST|PUT) ((/[!$->@-~]*)(?:\?[!$-~]*)?) HTTP/1\.1")


# Each field begins with the line end before it. A value has no control character but the tab.
_FIELDS = re.compile(rb"(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]++:[^\x00-\x08\x0a-\x1f\x7f]*+)*+")
_DECIDING = frozenset(DECIDING_FIELDS)


class _Head(msgspec.Struct, eq=False):
    """What the fields of a head decide; `length` is that of the body, `size` what the fields
    take, in bytes."""

    fields: Fields
    length: int
    size: int
    plan_size: int
    plans: dict[tuple[bytes, Any], Any]
    """By method and route."""


class PlainReader:
    """Reads plain requests, of all connections of a process.

    `route` returns the route of a path, `plan` the plan of a method, a route and the deciding
    fields.
    """

    def __init__(
        self, route: Callable[[bytes], Any], plan: Callable[[str, Any, Fields], Any]
    ) -> None:
        self._route = route
        self._plan = plan
        self._heads: dict[bytes, _Head] = {}
        self._size = 0

    def read(self, data: bytes) -> Request | None:
        """Return the request that `data` is, with its plan and its deciding fields; None if it
        is not plain."""
        start, end, body = data.partition(b"\r\n\r\n")
        line, found, text = start.partition(b"\r\n")
        parts = _LINE.fullmatch(line)
        if parts is None or not end or len(data) > MAX_PLAIN_BYTES:
            return None
        method, target, path = parts.groups()
        text, id = found + text, b""
        keys: Sequence[bytes] = ()
        head = self._heads.get(text)
        if head is None and text.count(b"\n") <= MAX_FIELDS:
            # No other request has the same ids and keys, so they are no part of the remembered
            # head.
            text, id = cut_ids(text)
            text, keys = cut_keys(text)
            head = self._heads.get(text) or self._find(text)
        if head is None or head.length != len(body) or len(keys) > 1:
            return None
        route = self._route(path)
        plan = head.plans.get((method, route)) or self._make_plan(method, route, head)
        size = head.size + len(target) + len(body)
        request = Request(
            method.decode(), target, head.fields, "1.1", True, body, plan, size, id=id
        )
        if keys and method.startswith(b"P"):  # it may write
            request.key = keys[0].decode()
        elif plan.cacheable and not id:
            request.cache_key = data
        return request

    def _find(self, text: bytes) -> _Head | None:
        """Return what fields decide that are not known in just this form; None if they are not
        plain."""
        if not _FIELDS.fullmatch(text):
            return None
        lines = text.split(b"\r\n")[1:]
        deciding = b"".join(
            [b"\r\n" + line for line in lines if line.partition(b":")[0].lower() in _DECIDING]
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

    def _remember(self, text: bytes, head: _Head) -> None:
        if len(text) <= MAX_CACHED_HEAD_BYTES:
            self._grow(len(text) + head.size)
            self._heads[text] = head

    def _make_plan(self, method: bytes, route: Any, head: _Head) -> Any:
        plan = self._plan(method.decode(), route, head.fields)
        self._grow(head.plan_size)
        head.plans[method, route] = plan
        return plan

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > MAX_CACHED_BYTES:
            self._heads.clear()
            self._size = size


def _decide(text: bytes) -> _Head | None:
    """Return what these lines of deciding fields, each of which is a field, decide; None if they
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
    plan_size = PLAN_BYTES + QUOTE_BYTES * text.count(b'"')
    return _Head(fields, int(length), size_of(b"", fields), plan_size, {})
