"""Reads that may look at all stores: each in a transaction of its own, for a limited time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from storekeeper.concurrency.batcher import RESPONSE_TIMEOUT
from storekeeper.domain import search
from storekeeper.domain.errors import NO_RESPONSE, Unavailable
from storekeeper.storage.postgres.pipeline import ConnectionLost, Execute, StatementError
from storekeeper.storage.postgres.pool import Pool, to_unavailable

STATEMENTS = {
    b"search timeout": f"SET LOCAL statement_timeout = {int(search.TIMEOUT * 1000)}",
}
"""What such a read executes after its BEGIN."""

_QUERY_CANCELED = "57014"
"""The SQLSTATE of a statement that took too long."""


@asynccontextmanager
async def long_read(pool: Pool, refusal: str) -> AsyncIterator[Execute]:
    """Yield what executes statements on one connection.

    A statement that takes too long ends it with Unavailable, whose message is `refusal`.
    """
    deadline = asyncio.get_running_loop().time() + RESPONSE_TIMEOUT
    async with pool.connection(deadline) as connection:
        try:
            yield partial(connection.execute, deadline=deadline)
        except StatementError as error:
            if error.sqlstate == _QUERY_CANCELED:
                raise Unavailable(refusal) from None
            raise to_unavailable(error, read=True) from None
        except ConnectionLost:
            raise Unavailable(NO_RESPONSE) from None
