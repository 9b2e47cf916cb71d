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


class BatchTooLarge(Exception):
    """The patches of a batch of several commands keep more than `commands.MAX_KEPT_BYTES`; nothing
    was written."""


class Writer(Protocol):
    """Carries out writes that have waited since `since`, on the loop's clock. Each method raises
    Unavailable."""

    async def commit(self, commands: Sequence[Command], since: float) -> Sequence[Result]:
        """Apply commands as one transaction; return what each led to, once it is durable. Raises
        InvalidWrite, BatchTooLarge."""

    async def probe(self, since: float) -> None:
        """Write PROBE_BYTES, and delete them."""


class WriteQueue(Batcher[Write, Store | None]):
    """The writes that wait. `state` says whether the database refuses them; `observe` is called
    after each transaction."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(self._serve_writes, max_batch=MAX_BATCH, size=_size, gather=True)
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
        """Take no more writes; return when all are settled, and a probe under way."""
        await super().close()
        await self.state.close()

    async def _probe(self) -> None:
        """Queue a probe, unless the writes that wait will show as much."""
        if self.count == 0 or self.state.reason:
            await self.add(None)

    async def _serve_writes(
        self, batch: Sequence[Write], since: float
    ) -> Sequence[Result | Exception]:
        """Commit the commands of a batch, then probe; return the result of each write, or why it
        was refused. The result of a probe is None."""
        results: list[Result | Exception] = []
        commands = [write for write in batch if write is not None]
        if commands:
            began = time.monotonic()
            results = await self._commit(commands, since)
            self.observe(results, time.monotonic() - began)
        for place, write in enumerate(batch):
            if write is None:
                results.insert(place, await self._refusal_of_probe(since))
        return results

    async def _refusal_of_probe(self, since: float) -> Unavailable | None:
        try:
            await self._writer.probe(since)
        except Unavailable as error:
            return error
        return None

    async def _commit(self, commands: Sequence[Command], since: float) -> list[Result | Exception]:
        if self._failure:
            return [Unavailable(self._failure)] * len(commands)
        try:
            results = await self._writer.commit(commands, since)
        except Unavailable as error:
            self.state.refused(str(error))
            return [error] * len(commands)
        except BatchTooLarge:
            half = len(commands) // 2
            first = await self._commit(commands[:half], since)
            return first + await self._commit(commands[half:], since)
        except InvalidWrite as invalid:
            if len(commands) == 1:
                # Not in a variable: from Python 3.12 on, the error has this frame.
                return list(invalid.args)
        else:
            if self._failure:
                return [Unavailable(self._failure, Outcome.UNKNOWN)] * len(commands)
            self.state.accepted()
            return list(results)
        return await self._commit_each(commands, since)

    async def _commit_each(
        self, commands: Sequence[Command], since: float
    ) -> list[Result | Exception]:
        """Commit each in a transaction of its own, so that only the invalid one fails."""
        results: list[Result | Exception] = []
        for command in commands:
            results += await self._commit([command], since)
        return results


class QueuedWrites:
    """What a `Collection` promises about its writes, which go through a queue."""

    _queue: WriteQueue

    def write(self, command: Command) -> Future[Store | None]:
        return self._queue.add(command)

    async def refusal_of_writes(self, *, probe: bool) -> str:
        return await self._queue.state.refusal(probe=probe)

    def writes_refused(self) -> str:
        return self._queue.state.reason

    def observe_writes(self, observer: WriteObserver) -> None:
        self._queue.observe = observer

    def queued_writes(self) -> tuple[int, int]:
        return self._queue.count, self._queue.refused


def _size(write: Write) -> int:
    if write is None:
        return 0
    return memory_size(write)
