"""The pages of a list: which stores each has, and how they follow one another. Imports apsw and the domain."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import TypeVar

import apsw
import msgspec

PAGE_SIZE = 1000
"""Stores in one page of a list: about 0.2 ms of the event loop."""

R = TypeVar("R")

numbers = msgspec.json.Decoder(list[int]).decode
"""Returns the integers of a JSON array."""


async def following(
    read: Callable[[Sequence[int]], Awaitable[bytes]], pages: Iterator[Sequence[int]]
) -> AsyncIterator[bytes]:
    """Yield what `read` returns for each page, with a comma in front; half a page at a time if it is too big."""
    for page in pages:
        pieces = [page]
        while pieces:
            piece = pieces.pop()
            try:
                part = b"," + await read(piece)
            except apsw.TooBigError:  # the addresses are long
                half = len(piece) // 2
                if not half:
                    raise
                pieces += (piece[half:], piece[:half])
            else:
                yield part


def pages_of_all(ids: range) -> Iterator[range]:
    """Yield the ids of each page: up to a multiple of the size of a page, so that all lists have the same pages."""
    start = ids.start
    while start < ids.stop:
        end = min(start + PAGE_SIZE - (start - 1) % PAGE_SIZE, ids.stop)
        yield range(start, end)
        start = end


def pages_of(ids: bytes) -> Iterator[list[int]]:
    """Yield the ids of each page, from the ids of many stores with commas between them."""
    width = PAGE_SIZE * len(b"123,")  # fewer ids if they have more digits
    start = 0
    while start < len(ids):
        end = ids.find(b",", start + width)
        if end < 0:
            end = len(ids)
        yield numbers(b"[%b]" % ids[start:end])
        start = end + 1


def at_once(pausing: Coroutine[None, None, R]) -> R:
    """Return what a coroutine leads to that awaits nothing but `sleep(0)`; no other task runs meanwhile."""
    while True:
        try:
            pausing.send(None)
        except StopIteration as end:
            result: R = end.value
            return result
