"""The pages of a list: which stores each has, and how they follow one another. Imports apsw and the domain."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

import apsw
import msgspec

PAGE_SIZE = 1000
"""Stores in one page of a list: about 0.2 ms of the event loop."""

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


def pages_of(ids: Sequence[int], start: int = 0) -> Iterator[Sequence[int]]:
    """Yield the ids of each page, from the index `start` on.

    In a long range each ends at a multiple of the size of a page, so that all lists have the same pages.
    """
    aligned = isinstance(ids, range) and len(ids) > PAGE_SIZE
    while start < len(ids):
        end = start + PAGE_SIZE - ((ids[start] - 1) % PAGE_SIZE if aligned else 0)
        yield ids[start:end]
        start = end
