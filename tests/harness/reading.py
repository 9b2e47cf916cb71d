"""Feeds a careful reader without a connection."""

from storekeeper.http.reader import RequestReader
from storekeeper.http.request import Request


def requests(reader: RequestReader, data: bytes) -> list[Request]:
    """Return the requests that these bytes complete."""
    found: list[Request] = []
    position = 0
    while position < len(data):
        position, request = reader.feed(data, position)
        if request is not None:
            found.append(request)
    return found
