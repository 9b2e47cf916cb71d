"""The body of an import that comes with decisions: multipart/mixed, first JSON, then the file
(decision 63)."""

import mmap
import os
from email.message import Message
from email.parser import BytesHeaderParser
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from storekeeper.api.routes.spool import Spool
from storekeeper.domain.errors import InvalidInput
from storekeeper.domain.intake import Resolution
from storekeeper.domain.problems import MAX_SHOWN_LENGTH
from storekeeper.domain.reasons import Reason, Violation

MULTIPART = "multipart/mixed"

MAX_DECISIONS_BYTES = 4 * 2**20
"""Bytes of the decisions on conflicts that come with an import."""

_MAX_HEAD_BYTES = 8 * 1024
_COPIED = 2**20

_decode = msgspec.json.Decoder(tuple[Resolution, ...]).decode


class Part(NamedTuple):
    """A part of a body: its headers, and where its content begins and ends."""

    head: Message
    start: int
    end: int


def take_decisions(spool: Spool, boundary: str) -> tuple[tuple[Resolution, ...], Message]:
    """Return the decisions in a body, and the headers of its file; leave only that in the spool.
    Raises InvalidInput."""
    spool.flush()
    if not os.fstat(spool.fileno()).st_size:
        raise _invalid("The body is empty")
    with mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ) as body:
        first, second = _two_parts(body, boundary)
        if first.end - first.start > MAX_DECISIONS_BYTES:
            raise _invalid(f"The decisions have more than {MAX_DECISIONS_BYTES:,} bytes")
        text = body[first.start : first.end]
    try:
        decisions = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _invalid(f"The first part must be a list of decisions as JSON: {error}") from None
    for each in decisions:
        _check(each)
    _keep_only(spool, second)
    return decisions, second.head


def _check(decision: Resolution) -> None:
    """Raise InvalidInput for a decision that cannot be meant."""
    texts = {"name": decision.name, "address": decision.address}
    given = [field for field, text in texts.items() if text is not UNSET]
    decided = [*given, *decision.present, *decision.row]
    if len(decided) > len(set(decided)):
        raise _invalid(f"The decision on line {decision.line} must decide each field once")
    for text in texts.values():
        if not isinstance(text, str):
            continue
        if "\0" in text:
            raise _invalid(f"The decision on line {decision.line} must not contain null characters")
        if len(text) == MAX_SHOWN_LENGTH + 1 and text.endswith("…"):
            raise _invalid(
                f"The decision on line {decision.line} has a text that is cut, as reports show long"
                ' ones: to mean it whole, name its field in "present" or in "row"'
            )


def _two_parts(body: mmap.mmap, boundary: str) -> tuple[Part, Part]:
    mark = b"--" + boundary.encode("latin-1", "replace")
    first = body.find(mark)
    if first < 0 or (first > 0 and body[first - 2 : first] != b"\r\n"):
        raise _invalid("The body has no part that begins with the boundary of its Content-Type")
    one = _part(body, first + len(mark), mark)
    two = _part(body, one.end + 2 + len(mark), mark)
    end = two.end + 2 + len(mark)
    if body[end : end + 2] != b"--":
        raise _invalid("The body must have two parts: the decisions as JSON, and the file")
    return one, two


def _part(body: mmap.mmap, start: int, mark: bytes) -> Part:
    """Return the part whose boundary ends at `start`."""
    if body[start : start + 2] != b"\r\n":
        raise _invalid("The body must have two parts: the decisions as JSON, and the file")
    # Without headers, the blank line comes at once.
    blank = body.find(b"\r\n\r\n", start, start + _MAX_HEAD_BYTES)
    end = body.find(b"\r\n" + mark, blank + 2)
    if blank < 0 or end < 0:
        raise _invalid("A part of the body does not end")
    return Part(BytesHeaderParser().parsebytes(body[start + 2 : blank + 2]), blank + 4, end)


def _keep_only(spool: Spool, part: Part) -> None:
    """Move a part to the beginning of a file, and cut the file after it."""
    for start in range(part.start, part.end, _COPIED):
        spool.seek(start)
        data = spool.read(min(_COPIED, part.end - start))
        spool.seek(start - part.start)
        spool.write(data)
    spool.truncate(part.end - part.start)


def _invalid(sentence: str) -> InvalidInput:
    return InvalidInput("payload", whole=Violation(Reason.MALFORMED, sentence=sentence))
