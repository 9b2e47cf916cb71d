"""A connection in pipeline mode: statements in, results out, one round trip each.

psycopg opens it; then libpq carries the statements, several in one round trip. libpq says exactly
which of them were sent, completed or lost; that decides the outcome in a client's response.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.pq.abc import PGconn, PGresult

from storekeeper.domain.errors import NO_RESPONSE

Statement = tuple[bytes, Sequence[str | int]]
"""The name of a prepared statement, and its parameters."""

Result = PGresult
"""The result of a statement; `rows` returns its rows."""

Execute = Callable[..., Awaitable[list[Result]]]
"""Executes statements in one round trip, on a connection and by a deadline that it knows."""

_OK = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)

_OTHER_TYPES = b"RevalidateCachedQuery"
"""The server's function that refuses a prepared statement whose columns have changed their types,
until the session ends. Its SQLSTATE, 0A000, does not show that: it means anything that a server
does not support."""


class ConnectionLost(Exception):
    """The connection is gone, or was dropped at the deadline. If `sent`, the statements may have
    been carried out."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(reason)


class StatementError(Exception):
    """The server refused to prepare or execute the statement at `index`; it carried out no later
    one."""

    def __init__(self, index: int, result: PGresult) -> None:
        self.index = index
        self.sqlstate = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        super().__init__(result.get_error_message())


class PipelineConnection:
    """An open connection, for one round trip at a time. `lost` is why it was closed, or empty.

    `warned` says whether the server warned while it carried out the last statement of the latest
    round trip; `since` is when it was opened, on the loop's clock. A statement is prepared at its
    first use: that waits for the locks of its tables, and must not keep others from other tables.
    """

    def __init__(self, connection: PGconn, statements: Mapping[bytes, str]) -> None:
        self.lost = ""
        self.warned = False
        self._warned_at = -1
        self._unprepared = dict(statements)
        self.on_lost: Callable[[PipelineConnection], None] = lambda _: None
        self._loop = asyncio.get_running_loop()
        self.since = self._loop.time()
        self._pg = connection
        self._socket = self._pg.socket
        self._pg.nonblocking = 1
        self._pg.notice_handler = self._notice
        self._pg.enter_pipeline_mode()
        self._results: list[Result] = []
        self._pending: asyncio.Future[None] = self._loop.create_future()
        # Also while no statement is under way, so that the end of the server is noticed.
        self._loop.add_reader(self._socket, self._readable)

    @property
    def idle(self) -> bool:
        """Whether it is in no transaction."""
        return self._pg.transaction_status == pq.TransactionStatus.IDLE

    async def set_up(self, setup: Sequence[str], deadline: float) -> None:
        """Set the session up; raise as `execute` does."""

        def send() -> None:
            for text in setup:
                self._pg.send_query_params(text.encode(), None)

        for index, result in enumerate(await self._exchange(send, deadline)):
            if result.status not in _OK:
                self.drop("it could not be set up")
                raise StatementError(index, result)

    async def execute(self, *statements: Statement, deadline: float) -> list[Result]:
        """Carry out statements in one round trip; raise ConnectionLost, or StatementError for the
        first that fails.

        `deadline` is on the loop's clock. Raises ValueError, and sends nothing, for a text with
        U+0000.
        """
        encoded = [
            (name, [str(parameter).encode() for parameter in parameters])
            for name, parameters in statements
        ]
        if any(b"\0" in text for _, texts in encoded for text in texts):
            raise ValueError("U+0000 ends a text for libpq")
        prepared: dict[int, bytes] = {}  # by the place of the result

        def send() -> None:
            for place, (name, parameters) in enumerate(encoded):
                if name in self._unprepared and name not in prepared.values():
                    # Only here: the statements before it may set how long it waits, or must take
                    # the first lock.
                    self._pg.send_prepare(name, self._unprepared[name].encode())
                    prepared[place + len(prepared)] = name
                self._pg.send_query_prepared(name, parameters, None, pq.Format.BINARY)

        results = await self._exchange(send, deadline)
        self.warned = self._warned_at == len(results) - 1
        executed: list[Result] = []
        for place, result in enumerate(results):
            if result.status not in _OK:
                if result.error_field(pq.DiagnosticField.SOURCE_FUNCTION) == _OTHER_TYPES:
                    self.drop("what it had prepared is invalid")
                    # Nothing after it was carried out, nor a COMMIT.
                    raise ConnectionLost(self.lost, sent=False)
                raise StatementError(len(executed), result)
            if place in prepared:
                del self._unprepared[prepared[place]]
            else:
                executed.append(result)
        return executed

    def drop(self, reason: str) -> None:
        """Close the connection; statements under way are lost."""
        if self.lost:
            return
        self.lost = reason
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._pg.finish()
        if not self._pending.done():
            self._pending.set_exception(ConnectionLost(reason, sent=True))
        self.on_lost(self)

    async def _exchange(self, send: Callable[[], None], deadline: float) -> list[Result]:
        if self.lost:
            raise ConnectionLost(self.lost, sent=False)
        self._results = []
        self._warned_at = -1
        self._pending = self._loop.create_future()
        timer = self._loop.call_at(deadline, self._give_up)
        try:
            send()
            self._pg.pipeline_sync()
            self._flush()
        except psycopg.Error as error:
            self.drop(str(error))  # libpq may have sent some of it before
        try:
            await self._pending
        except asyncio.CancelledError:
            self.drop("cancelled")
            raise
        finally:
            timer.cancel()
        return self._results

    def _give_up(self) -> None:
        self._readable()  # if this process stood still, the results may be there
        if not self._pending.done():
            self.drop(NO_RESPONSE)

    def _flush(self) -> None:
        try:
            if self._pg.flush():
                self._loop.add_writer(self._socket, self._flush)
            else:
                self._loop.remove_writer(self._socket)
        except psycopg.Error as error:
            self.drop(str(error))

    def _readable(self) -> None:
        try:
            self._pg.consume_input()
            after_none = False
            while not self._pg.is_busy():
                result = self._pg.get_result()
                if result is None:
                    if after_none:
                        break
                elif result.status != pq.ExecStatus.PIPELINE_SYNC:
                    self._results.append(result)
                elif not self._pending.done():
                    self._pending.set_result(None)
                # libpq returns one None between the results of two statements.
                after_none = result is None
        except psycopg.Error as error:
            self.drop(str(error))
        if not self.lost and self._pg.status == pq.ConnStatus.BAD:
            self.drop(self._pg.get_error_message())

    def _notice(self, notice: PGresult) -> None:
        if notice.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED) == b"WARNING":
            # The index of the statement that has no result yet.
            self._warned_at = len(self._results)


def rows(result: Result) -> list[tuple[Any, ...]]:
    """Return the rows that a statement returned."""
    transformer = Transformer()
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)


def array(values: Iterable[str | int | None]) -> str:
    """Return an array as the text of a parameter."""
    return "{" + ",".join([_element(value) for value in values]) + "}"


def _element(value: str | int | None) -> str:
    if type(value) is str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if value is None:
        return "NULL"
    return str(value)
