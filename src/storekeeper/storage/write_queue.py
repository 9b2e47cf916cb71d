"""Group commit: all writes that wait are one transaction.

64 creates cost what one costs: on SQLite one fsync, on PostgreSQL two round trips.
"""

import time
from asyncio import Future
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from storekeeper.concurrency.batcher import Batcher
from storekeeper.domain.commands import Command, Result, memory_size
from storekeeper.domain.errors import Outcome, Unavailable
from storekeeper.domain.stores import Store
from storekeeper.storage.collection import WriteObserver
from storekeeper.storage.write_state import WriteState

MAX_BATCH = 1000
"""Commands at which a batch is full."""

Write: TypeAlias = Command | None
"""A command, or None: a probe of writes."""


class InvalidWrite(Exception):
    """A write of a batch is invalid, as the error in `args` says; nothing was written."""


class Writer(Protocol):
    """Writes to a database; `deadline` is on the loop's clock. Each method raises Unavailable."""

    async def commit(self, commands: Sequence[Command], deadline: float) -> Sequence[Result]:
        """Carry out commands as one transaction; return what each led to, once it is durable.
        Raises InvalidWrite."""

    async def probe(self, deadline: float) -> None:
        """Write PROBE_BYTES, and delete them."""


class WriteQueue(Batcher[Write, Store | None]):
    """The writes that wait. `state` says whether the database refuses them; `observe` is told of
    each transaction."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(self._write, max_batch=MAX_BATCH, size=_size, gather=True)
        self._writer = writer
        self._failure = ""
        self.state = WriteState(self._probe)
        self.observe: WriteObserver = lambda _results, _seconds: None

    def fail(self, reason: str) -> None:
        """Acknowledge nothing more, not even writes under way."""
        self._failure = reason
        self.state.refused(reason)
        self.refuse(reason)

    async def close(self) -> None:
        """Take no more; return when all writes are settled, and a probe under way."""
        await super().close()
        await self.state.close()

    async def _probe(self) -> None:
        if (
            not self.count or self.state.reason
        ):  # else the results of the writes that wait will tell
            await self.add(None)

    async def _write(self, batch: Sequence[Write], deadline: float) -> Sequence[Result | Exception]:
        """Return what each command led to, or why it was refused; probes come after them, and
        lead to None."""
        commands = [write for write in batch if write is not None]
        began, results = time.monotonic(), list[Result | Exception]()
        if commands:
            results = await self._commit(commands, deadline)
            self.observe(results, time.monotonic() - began)
        if len(commands) == len(batch):
            return results
        probed, done = await self._refusal_of_probe(deadline), iter(results)
        return [probed if write is None else next(done) for write in batch]

    async def _refusal_of_probe(self, deadline: float) -> Unavailable | None:
        try:
            await self._writer.probe(deadline)
        except Unavailable as error:
            return error
        return None

    async def _commit(
        self, commands: Sequence[Command], deadline: float
    ) -> list[Result | Exception]:
        if self._failure:
            return [Unavailable(self._failure)] * len(commands)
        try:
            results = await self._writer.commit(commands, deadline)
            if self._failure:
                raise Unavailable(self._failure, Outcome.UNKNOWN)
            self.state.accepted()
            return list(results)
        except Unavailable as error:
            self.state.refused(str(error))
            return [error] * len(commands)
        except InvalidWrite as invalid:
            if len(commands) == 1:
                return list(
                    invalid.args
                )  # not in a name: from Python 3.12 on, the error has this frame
        # Each gets a transaction of its own, so that only the invalid one fails.
        return [
            result for command in commands for result in await self._commit([command], deadline)
        ]


class QueuedWrites:
    """What a `Collection` promises of its writes, which go through a queue."""

    _queue: WriteQueue

    def write(self, command: Command) -> Future[Store | None]:
        return self._queue.add(command)

    async def refusal_of_writes(self, *, probe: bool) -> str:
        return await self._queue.state.refusal(probe=probe)

    def observe_writes(self, observer: WriteObserver) -> None:
        self._queue.observe = observer

    def queued_writes(self) -> tuple[int, int]:
        return self._queue.count, self._queue.refused


def _size(write: Write) -> int:
    return 0 if write is None else memory_size(write)
