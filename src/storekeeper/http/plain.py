"""The short way for plain requests: one whole request in one read, with nothing that needs care. Imports httptools.

llhttp checks the bytes, as on the careful way (`reader.py`), but does not call back for each field: only the fields
of DECIDING_FIELDS are looked for. For a request that is not plain, `read` returns None, and the careful way reads it
from its start. So this way refuses nothing; `tests/http/test_plain.py` shows that what it accepts means the same on
the careful way.

What llhttp has accepted is remembered: the fields of a head, with a plan for each shape of a request line that came
with them; and whole requests that came again. A shape is the method and the path without the digits at its end, so
another id, or a new `x-request-id`, needs no new plan. Why other clients' requests cannot change what one means:

1. A head ends at the first empty line, and its request line at the first CR: both ends are known without llhttp.
2. A line is taken only if it matches `_LINE`, or has a shape that was taken before, and other digits at its end.
   llhttp accepts all these lines, and what fields mean does not depend on which of them stands before.
3. Fields are remembered only if a new llhttp parser has accepted them behind such a line, up to the end of their head
   and no further. llhttp accepts a CR and an LF only at the end of a line, so each line is one field. Or see 8.
4. If fields are valid, so are the deciding ones alone: llhttp gives a meaning to none of the other names.
5. The fields alone decide the length of the body; each time, it is compared with the bytes that are there.
6. A plan depends on the method, the route and the deciding fields, and is remembered with the fields. In the
   application's shapes, neither the digits at the end of the path nor the query decide the route.
7. A GET with one If-None-Match, or a write with one Idempotency-Key, is the head without that line, and a condition
   of the plan. llhttp gives these names no meaning, and accepts in any value what the plan accepts in that one.
8. Fields are valid, and have the same deciding fields, if they differ from accepted ones in values alone: those of
   names that decide nothing, or of the one in 7, with characters that llhttp accepts in any value (RFC 9110, section
   5.5). They are looked up by their text without these values.
"""

import re
from collections.abc import Callable, Collection
from typing import Any

import httptools
import msgspec

from storekeeper.http.generations import Generations
from storekeeper.http.request import FIELD_BYTES, MAX_FIELDS, MAX_TARGET_BYTES, Request, is_host, size_of
from storekeeper.http.response import Fields

DECIDING_FIELDS = (
    # The framing of the request, and how its connection goes on.
    *(b"connection", b"content-length", b"expect", b"host", b"keep-alive", b"proxy-connection", b"te", b"trailer"),
    *(b"transfer-encoding", b"upgrade"),
    # What the body is, who asks, from where, and for what.
    *(b"accept", b"accept-language", b"access-control-request-headers", b"access-control-request-method"),
    *(b"authorization", b"content-encoding", b"content-type", b"idempotency-key", b"if-match", b"if-none-match"),
    *(b"last-event-id", b"origin", b"referer", b"sec-fetch-site"),
)
"""The fields that decide something, in any part of the service. A plain request has no others."""

MAX_PLAIN_BYTES = MAX_TARGET_BYTES
"""Bytes of a plain request, its body included: below the limits of a target, a head and a small body."""

MAX_CACHED_BYTES = 4 * 2**20
"""Bytes that the remembered requests may take."""

MAX_FIELDS_BYTES = 16 * 2**20
"""Bytes that the remembered fields may take, with plans for all shapes of a line."""

MAX_CACHED_HEAD_BYTES = 1024
"""Bytes of one remembered request, or of its fields."""

PLANS_BYTES = 7 * 1024
"""Bytes that the plans of one head's fields take, without what entity tags take."""

QUOTE_BYTES = 70
"""Bytes that a plan takes for each quotation mark: an entity tag, which has two, is a string in a set."""

MAX_PLANS = 6
"""Plans that fields are remembered with: one for each shape."""

_HEAD = b"%b\r%b\n\r\n"
_DIGITS = b"0123456789"
_WITHOUT_CONTROLS = bytes([32 if byte in {*range(32), 127} - {9, 10} else byte for byte in range(256)])
_NOT_PLAIN = frozenset((b"expect", b"transfer-encoding", b"upgrade"))
_CONNECTION = frozenset((b"connection", b"proxy-connection"))  # the same to llhttp
_LINE = re.compile(rb"((GET|HEAD|POST|PUT) /[!$->@-~]*)(?:\?[!$-~]*)? HTTP/1\.1")


def _any_case(name: bytes) -> bytes:
    # The flag for it would make every branch of the pattern slower.
    return b"".join([b"[%c%c]" % (letter, letter - 32) if letter > 96 else b"%c" % letter for letter in name])


_FIRST_LETTERS = b"".join({_any_case(name[:1])[1:-1] for name in DECIDING_FIELDS})
_FIELD = re.compile(rb"\n(?=[%b])(?:%b):[^\r]*\r" % (_FIRST_LETTERS, b"|".join(map(_any_case, DECIDING_FIELDS))))

_KEY = (b"idempotency-key", b"\r\nIdempotency-Key:", b"\r\nidempotency-key:")
_TAGS = (b"if-none-match", b"\r\nIf-None-Match:", b"\r\nif-none-match:")
_APART = {b"G": _TAGS, b"H": _TAGS, b"P": _KEY}
"""By the first letter of a method, a field of which many clients send another value each time, as they write it."""

LEARN_EVERY = 8
"""One of so many heads with unknown fields is learned from: where they have nothing in common, that costs little."""

Planner = Callable[[str, bytes, Fields], Any]
"""Returns the plan for a head: its method, target and deciding fields; None if the application needs all fields.

`parse` of a plan, if it has one, returns the condition in a value of the field of `_APART`, None if invalid."""


class _Deciding(msgspec.Struct, eq=False):
    """The deciding fields of a head, names in lower case; `length` is that of the body, in bytes."""

    fields: Fields
    length: int
    size: int
    """Bytes that Python takes for a request with these fields and no target."""

    names: frozenset[bytes]
    plans: dict[bytes, tuple[str, Any]]
    """By the shape of a line its method and its plan."""


class _Layout(msgspec.Struct, eq=False):
    """The lines of a head's fields, each from its LF on. `open`: those of differing values that decide nothing."""

    lines: list[bytes]
    names: list[bytes]  # with their colons
    open: list[tuple[int, bytes]]
    """Places of lines, and how these begin."""

    apart: int
    """The place of the line that is read apart, as in 7 of this module's docstring; -1: there is none."""

    name: bytes
    """The name of the field in that line, in lower case, or b""."""

    methods: bytes
    """The first letters of the methods that it holds for, if a line is read apart."""

    def close(self, text: bytes) -> tuple[bytes, bytes] | None:
        """Return `text` without open values and without the line that is read apart, and that line or b"".

        None if the text, with an LF for each of `lines`, is laid out otherwise.
        """
        lines = text.split(b"\r")
        if len(lines) != len(self.lines):
            return None
        for place, start in self.open:
            line = lines[place]
            if not line.startswith(start) or line.translate(_WITHOUT_CONTROLS) != line:
                return None
            lines[place] = start
        apart = lines.pop(self.apart) if self.name else b""
        return (b"\r".join(lines), apart) if apart.startswith(self.names[self.apart]) else None


class PlainReader:
    """Reads plain requests, of all connections of a process; `plan` is the application's.

    `shapes` are methods and paths, without the digits behind a last slash, whose plans depend on the fields alone.
    """

    def __init__(self, plan: Planner, shapes: Collection[bytes] = ()) -> None:
        self._plan = plan
        self._shapes = shapes
        self._complete = False
        self._requests: Generations[Request] = Generations(MAX_CACHED_BYTES, _size_of_request)
        self._fields: Generations[_Deciding] = Generations(MAX_FIELDS_BYTES, _size_of_fields)
        self._young_fields, self._old_fields = self._fields.young, self._fields.old
        self._layouts: dict[int, _Layout] = {}  # by how many lines they have
        self._unknown = self._fitting = 0
        self.requests = self._requests.young
        """The remembered requests, by all their bytes; they have no body."""

    def read(self, data: bytes) -> Request | None:
        """Return the request that `data` is, with its plan and its deciding fields, one of them perhaps as condition.

        None if it is not one whole plain request.
        """
        head, end, body = data.partition(b"\n\r\n")
        line, _, text = head.partition(b"\r")  # each field is from an LF to a CR
        if not end or len(data) > MAX_PLAIN_BYTES:
            return None
        deciding = self._young_fields.get(text)
        if deciding is None and (text not in self._old_fields or (deciding := self._fields.get(text)) is None):
            return self._read_unknown(line, text, body)
        request = self._read_line(line, deciding, body)
        if request is not None and not body and len(data) <= MAX_CACHED_HEAD_BYTES and self._requests.seen(data):
            self._requests.put(data, request)
        return request

    def on_headers_complete(self) -> None:
        """Note that a head is whole; called by the parser."""
        self._complete = True

    def _read_unknown(self, line: bytes, text: bytes, body: bytes) -> Request | None:
        """Return the request, whose fields are not remembered in just this form; None if they are not plain."""
        layout = self._layouts.get(text.count(b"\n")) if self._layouts else None
        if layout is not None and layout.open and (closed := layout.close(text)) is not None:
            rest, sent = closed
            deciding = self._young_fields.get(rest) or self._fields.get(rest)
            if deciding is not None and not sent:
                self._fitting += 1
                if self._fitting % LEARN_EVERY == 0:
                    self._remember(text, deciding)  # it may come again as it is
                return self._read_line(line, deciding, body)
            if deciding is not None and line[:1] in layout.methods:
                return self._read_line(line, deciding, body, layout.name, sent[len(layout.names[layout.apart]) :])
        rest, name, value = text, b"", b""
        if (known := _APART.get(line[:1])) is not None:
            apart, written, lower = known
            before, found, behind = text.partition(written)
            if not found:
                before, found, behind = text.partition(lower)
            if found:
                name, (value, end, after) = apart, behind.partition(b"\r")
                rest = before + end + after
        deciding = self._young_fields.get(rest) or self._fields.get(rest)
        if deciding is None:
            deciding = self._read_fields(line, rest)
            if deciding is None or name in deciding.names:  # two fields of that name count together
                return None
            self._learn(layout, text, name, deciding)
        return self._read_line(line, deciding, body, name, value)

    def _learn(self, known: _Layout | None, text: bytes, apart: bytes, deciding: _Deciding) -> None:
        """Learn the layout of fields, which are valid; `apart` is the name of the one that was read apart, or b""."""
        self._unknown += 1  # heads that fit do not count: others that alternate with them would never be learned from
        if self._unknown % LEARN_EVERY == 0 and len(text) <= MAX_CACHED_HEAD_BYTES:
            # Count CRs, because an LF may be in the value that is read apart.
            known = self._layouts[text.count(b"\r")] = _learned(known, text.split(b"\r"), apart)
        if known is not None and known.open and known.name == apart and (closed := known.close(text)) is not None:
            self._remember(closed[0], deciding)

    def _read_line(
        self, line: bytes, deciding: _Deciding, body: bytes, apart: bytes = b"", value: bytes = b""
    ) -> Request | None:
        """Return the request with this line, these fields, the one read `apart`, and this body; None if not plain."""
        if deciding.length != len(body):
            return None
        start, _, version = line.rpartition(b" ")
        shape = start.rstrip(_DIGITS)
        planned = deciding.plans.get(shape)
        if planned is None or version != b"HTTP/1.1" or shape.endswith(b"/") is (shape == start):
            planned = self._plan_line(line, deciding)
        if planned is None:
            return None
        method, plan = planned
        target = start[len(method) + 1 :]
        size, condition = deciding.size + len(target), None
        if apart:
            value = value.strip(b" \t")
            if apart in deciding.names or not plan.parse or (condition := plan.parse(value)) is None:
                return None
            size += FIELD_BYTES + len(apart) + len(value)
        return Request(method, target, deciding.fields, "1.1", True, body, plan, size, condition)

    def _plan_line(self, line: bytes, deciding: _Deciding) -> tuple[str, Any] | None:
        found = _LINE.fullmatch(line)
        if found is None:
            return None
        path, method = found.groups()
        shape = path.rstrip(_DIGITS)
        is_shape = shape in self._shapes and shape.endswith(b"/") is (shape != path)
        if is_shape and (planned := deciding.plans.get(shape)):
            return planned
        target = line[len(method) + 1 : line.rfind(b" ")]
        plan = self._plan(method.decode(), target, deciding.fields)
        if plan is None:
            return None
        planned = method.decode(), plan
        if is_shape:
            deciding.plans[shape] = planned
        return planned

    def _read_fields(self, line: bytes, written: bytes) -> _Deciding | None:
        """Return the deciding fields of a head with this line and these `written` fields; None if it is not plain."""
        # Behind an empty line, which llhttp skips, the fields would begin with the request line.
        if not _LINE.fullmatch(line) or written.count(b"\n") >= MAX_FIELDS:  # one more may have been taken apart
            return None
        found = _FIELD.findall(written)
        text = b"".join(found)
        known = self._fields.get(text)
        deciding = known or _deciding(found)
        if deciding is None or not self._is_valid(_HEAD % (line, written)):
            return None
        if known is None:
            self._remember(text, deciding)
        if written != text:
            self._remember(written, deciding)
        return deciding

    def _remember(self, text: bytes, deciding: _Deciding) -> None:
        if len(text) <= MAX_CACHED_HEAD_BYTES and self._fields.seen(text):
            self._fields.put(text, deciding)

    def _is_valid(self, head: bytes) -> bool:
        """Tell whether llhttp takes `head` for a whole head."""
        self._complete = False
        try:
            # A new parser each time: one that waits for a body would take the next head for that body.
            httptools.HttpRequestParser(self).feed_data(head)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return False
        return self._complete


def _deciding(lines: list[bytes]) -> _Deciding | None:
    """Return the deciding fields that these lines are, if they are valid; None if one of them is not plain."""
    fields = []
    has_host, length = False, b"0"
    for line in lines:
        written, _, padded = line[1:].partition(b":")
        name, value = written.lower(), padded.lstrip(b" \t").rstrip()
        if name == b"host":
            if has_host or not is_host(value):
                return None
            has_host = True
        elif name == b"content-length":
            length = value
        elif name in _NOT_PLAIN or (name in _CONNECTION and value.lower() != b"keep-alive"):
            return None
        fields.append((name, value))
    if not (has_host and length.isdigit() and len(length) < 8):
        return None
    return _Deciding(fields, int(length), size_of(b"", fields), frozenset([name for name, _ in fields]), {})


def _learned(known: _Layout | None, lines: list[bytes], apart: bytes) -> _Layout:
    """Return the layout of these lines and of the `known` layout's; the field named `apart` is read apart."""
    names = [line[: line.find(b":") + 1] for line in lines]
    lower = [name[1:-1].lower() for name in names]
    if known is None or (known.names, known.name) != (names, apart):
        methods = b"".join([method for method, (name, *_) in _APART.items() if apart in (name, b"")])
        known = _Layout(lines, names, [], lower.index(apart) if apart else -1, apart, methods)
    places = {place for place, _ in known.open}
    for place, (one, other) in enumerate(zip(lines, known.lines, strict=True)):
        if one != other and lower[place] not in DECIDING_FIELDS:
            places.add(place)
    known.open = [(place, names[place]) for place in sorted(places)]
    return known


def _size_of_fields(text: bytes, deciding: _Deciding) -> int:
    return len(text) + deciding.size + PLANS_BYTES + MAX_PLANS * QUOTE_BYTES * text.count(b'"')


def _size_of_request(data: bytes, request: Request) -> int:
    # Its plan may be its own, or outlive the fields that it was remembered with.
    return len(data) + request.size + QUOTE_BYTES * data.count(b'"')
