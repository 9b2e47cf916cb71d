"""Handles on a SQLite database in a separate process, for tests that break the file under them.

    python -m tests.harness.probe PATH QUESTION,QUESTION... [nobody]

opens a handle for each question, reports that, waits for a line, asks each question, prints the
results as JSON, and closes the handles. With `nobody`, the process has no privileges.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from storekeeper.concurrency.interruption import Interruption
from storekeeper.domain.changes import ChangesQuery
from storekeeper.domain.errors import StorekeeperError, Unavailable
from storekeeper.domain.queries import Moment
from storekeeper.domain.stores import Payload
from storekeeper.storage import write_state
from storekeeper.storage.collection import Collection
from storekeeper.storage.sqlite import SqliteCollection, writer
from tests.harness.collection import MANY, create, get, now, numbered, replace, stores
from tests.harness.databases import make_file
from tests.harness.loading import load_into

LOAD = 3000


async def _batch(collection: Collection) -> Any:
    """Read the numbers, then a store of the same moment."""
    collection.begin_reads()
    try:
        collection.numbers()
        found = collection.get(1)
    finally:
        collection.end_reads()
    return await found if asyncio.isfuture(found) else found


async def _get_at(collection: Collection) -> Any:
    found = collection.get_at(1, Moment(1))
    return await found if asyncio.isfuture(found) else found


async def _changes(collection: Collection) -> Any:
    found = collection.changes(ChangesQuery())
    return await found if asyncio.isfuture(found) else found


async def _state(collection: Collection) -> Any:
    found = collection.state()
    return await found if asyncio.isfuture(found) else found


async def _tokens(collection: Collection) -> Any:
    return await collection.tokens()


async def _refusal_of_writes(collection: Collection) -> None:
    if reason := await collection.refusal_of_writes(probe=True):
        raise Unavailable(reason)


QUESTIONS: dict[str, Callable[[Collection], Awaitable[Any]]] = {
    "get": lambda collection: get(collection, MANY),
    "get_at": _get_at,
    "list": stores,
    "state": _state,
    "changes": _changes,
    "write": lambda collection: asyncio.gather(
        create(collection, Payload("New", "x" * 200)),
        replace(collection, 1, Payload("Replaced", "x" * 200)),
    ),
    "in_session": lambda collection: collection.in_session(
        lambda session: load_into(session, numbered(LOAD)), 0.3
    ),
    "figures": lambda collection: collection.figures(),
    "with_snapshot": lambda collection: collection.with_snapshot(
        lambda snapshot: list(snapshot.rows("stores")), Interruption()
    ),
    "tokens": _tokens,
    "keys": lambda collection: now(collection.keys([1])),
    "all_tokens": lambda collection: collection.all_tokens(),
    "traces": lambda collection: collection.traces(),
    "restored": lambda collection: collection.restored(),
    "mark_used": lambda collection: collection.mark_used([1], 1),
    "begin_reads": _batch,
    "numbers": _batch,
    "end_reads": _batch,
    "check": lambda collection: collection.check(),
    "refusal_of_writes": _refusal_of_writes,
    "close": lambda collection: collection.close(),
}
"""One question for each method of Collection."""


async def _ask(collection: Collection, question: str) -> str:
    try:
        async with asyncio.timeout(20):
            await QUESTIONS[question](collection)
    except Unavailable as error:
        return f"{error.outcome}: {error}"
    except Exception as error:  # noqa: BLE001 - the test wants to see it
        return f"foreign {type(error).__name__}: {error}"
    return "response"


async def main() -> None:
    path, questions, *rights = sys.argv[1:]
    # Not the real values: a test has no time for them.
    vars(writer)["LOCK_TIMEOUT"] = 0.3
    SqliteCollection.in_session.__defaults__ = (0.3,)
    vars(write_state)["PROBE_INTERVAL"] = 0.0
    vars(write_state)["CHECK_TIMEOUT"] = 5.0
    if rights and os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    if not rights:
        make_file(Path(path))
    failures: dict[str, list[object]] = {question: [] for question in questions.split(",")}
    opened = {
        question: SqliteCollection(Path(path), failures[question].append) for question in failures
    }
    print("ready", flush=True)
    for _ in iter(sys.stdin.readline, "\n"):
        responses = {
            question: await _ask(collection, question) for question, collection in opened.items()
        }
        told = {question: [str(error) for error in failures[question]] for question in opened}
        print(
            json.dumps({question: [responses[question], told[question]] for question in opened}),
            flush=True,
        )
    for collection in opened.values():
        await collection.close()
    print("closed", flush=True)


if __name__ == "__main__":
    try:
        uvloop.run(main())
    except StorekeeperError as error:
        print(error, flush=True)
