"""The flow of one connection's bytes: when each direction is paused, and what waits to be sent."""

import asyncio

from storekeeper.http.limits import SendBudget

MAX_UNCOUNTED_BYTES = 1024
"""Unsent bytes of a connection that its transport does not report, so that they do not count.
With 0, the transport would not write the responses of one loop iteration together, which costs
0.5 us for each small one."""


class Flow:
    """Pauses reading where the service must not take more, and writing where the client does
    not."""

    __slots__ = ("_send_budget", "_writable", "read_paused", "transport", "write_paused")

    def __init__(self, transport: asyncio.Transport, send_budget: SendBudget) -> None:
        self.transport = transport
        self._send_budget = send_budget
        self.read_paused = False
        self.write_paused = False
        """Whether earlier bytes still wait for the client."""
        self._writable: asyncio.Future[None] | None = None
        transport.set_write_buffer_limits(high=MAX_UNCOUNTED_BYTES)

    def pause_reading(self) -> None:
        """Have the transport bring no more bytes; then a client that leaves is not seen."""
        if not self.read_paused and not self.transport.is_closing():
            self.read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Have the transport bring bytes again."""
        if self.read_paused and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()

    def write(self, *parts: bytes) -> int:
        """Write parts of a response; return their size.

        Nothing is written while the transport closes, which it may long before `connection_lost`.
        """
        if self.transport.is_closing():
            return 0
        self.transport.writelines(parts)
        size = sum(map(len, parts))
        if self.write_paused:
            self._send_budget.lease(self, size)
        return size

    def pause_writing(self) -> None:
        """Note that the client does not read what it was sent; the transport says so."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Note that the kernel has taken all unsent bytes but 256 at most, or that it never
        will."""
        self.write_paused = False
        self._send_budget.release(self)
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def end_writing(self) -> None:
        """Tell the client that nothing more will be sent."""
        if not self.transport.is_closing() and self.transport.can_write_eof():
            self.transport.write_eof()

    async def drain(self) -> None:
        """Return once more may be written. One stream waits at a time."""
        if self.write_paused:
            self._writable = asyncio.get_running_loop().create_future()
            await self._writable


def client_of(transport: asyncio.Transport) -> tuple[str, int] | None:
    """Return the address and port of a client, None on a Unix socket."""
    address = transport.get_extra_info("peername")
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None
