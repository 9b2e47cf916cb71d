"""A client that does nothing on its own: no retry, no pool, no redirect."""

import asyncio
from typing import NamedTuple

TIMEOUT = 15.0
"""Seconds for one response: three times what the service promises."""


class Lost(Exception):
    """The connection ended, or the time ran out, before the response was complete."""


class Response(NamedTuple):
    """A response; `tag` is as it was sent, "" if there is none."""

    status: int
    body: bytes
    tag: str = ""
    replayed: bool = False

    @property
    def version(self) -> int | None:
        """The version in the tag; None if the tag is not one of ours."""
        number = self.tag.strip('"').partition(".")[0]
        return int(number) if number.isdecimal() else None


class Client:
    """One keep-alive HTTP/1.1 connection. Requests that are sent at once are pipelined."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    @classmethod
    async def connect(cls, port: int) -> "Client":
        """Connect to 127.0.0.1; raises OSError."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def exchange(
        self, method: str, target: str, body: bytes = b"", fields: str = ""
    ) -> Response:
        """Return the response to a request with these extra lines in its head; raise Lost if there
        is none."""
        framing = (
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
        )
        head = f"{method} {target} HTTP/1.1\r\nhost: localhost\r\n{framing}{fields}\r\n"
        if self._writer.transport.is_closing():  # uvloop raises RuntimeError at a write to it
            raise Lost
        self._writer.write(head.encode() + body)
        try:
            async with asyncio.timeout(TIMEOUT), self._turn:
                received = (await self._reader.readuntil(b"\r\n\r\n")).lower()
                status = int(received[9:12])
                content = b"" if status == 304 else await self._body(received)
                replayed = b"\r\nidempotent-replayed: true\r\n" in received
                return Response(status, content, _field(received, b"etag"), replayed)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as error:
            raise Lost from error

    async def _body(self, head: bytes) -> bytes:
        if b"transfer-encoding: chunked" not in head:
            _, _, rest = head.partition(b"\r\ncontent-length: ")
            return await self._reader.readexactly(int(rest.partition(b"\r\n")[0]))
        parts = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append(await self._reader.readexactly(size + 2))
        await self._reader.readexactly(2)
        return b"".join(part[:-2] for part in parts)

    def close(self) -> None:
        self._writer.transport.abort()


def _field(head: bytes, name: bytes) -> str:
    _, _, rest = head.partition(b"\r\n" + name + b": ")
    return rest.partition(b"\r\n")[0].decode()
