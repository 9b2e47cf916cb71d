"""What arrives in one iteration of the event loop is handled together, in one read transaction.

The event loop calls what `call_soon` was given after it has read all sockets that were ready. So
the transaction begins after every request that it serves has arrived: each read sees all that was
acknowledged before its client sent it, by whichever process.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from storekeeper.log.events import Event, emit


class _Connection(Protocol):
    """What is needed of a connection."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    def handle(self) -> None: ...


MAX_NOTED_BYTES = 2**20
"""Bytes of an iteration that are noted before they are handled: what waits must not take much."""


class Arrivals:
    """The connections that have something to handle, in the order in which they came.

    `begin` begins a batch of reads, or within one a later moment: it is given how many connections
    there are, and returns after how many seconds it must be called again. `end` ends the batch.
    """

    def __init__(self, begin: Callable[[int], float], end: Callable[[], None]) -> None:
        self._begin = begin
        self._end = end
        self._connections: dict[_Connection, None] = {}
        self._size = 0

    def add(self, connection: _Connection, size: int = 0) -> None:
        """Have a connection handle what it has, with `size` new bytes, after all that arrives in
        this iteration, or before that is too much."""
        if not self._connections:
            connection.loop.call_soon(self._handle)
        self._connections[connection] = None
        self._size += size
        if self._size > MAX_NOTED_BYTES:
            self._handle()

    def _handle(self) -> None:
        if not self._connections:  # they were too much to wait
            return
        connections, self._connections = self._connections, {}
        self._size = 0
        ends_at = perf_counter() + self._begin(len(connections))
        try:
            for connection in connections:
                if perf_counter() > ends_at:
                    ends_at = perf_counter() + self._begin(len(connections))
                try:
                    connection.handle()
                except Exception as error:  # noqa: BLE001 - a bug ends this connection, and no other
                    emit(Event.BUG, error=error)
                    connection.transport.abort()
        finally:
            self._end()
