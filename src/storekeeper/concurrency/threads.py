"""Blocking work on a thread that no exit waits for. Imports the domain's errors."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from storekeeper.errors import Unavailable

T = TypeVar("T")

LOOK_INTERVAL = 1.0
"""Seconds between two checks of a thread: a lost wake-up of the loop delays the result by no more."""

TOO_MANY = "Too many threads are running"


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run `work` on a daemon thread of its own; return its result, or raise its exception. Raises Unavailable.

    The process may end before the thread, and the database then rolls back what the thread wrote.
    """
    loop = asyncio.get_running_loop()
    outcome: Future[T] = Future()
    woken = asyncio.Event()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as raised:  # noqa: BLE001 - the caller raises it
            outcome.set_exception(raised)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(woken.set)

    thread = threading.Thread(target=run, name="storekeeper-work", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        raise Unavailable(TOO_MANY) from None
    while thread.is_alive() and not outcome.done():
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_INTERVAL):
                await woken.wait()
    if not outcome.done():
        raise Unavailable(TOO_MANY)  # the thread ended before it began
    try:
        return outcome.result()
    finally:
        # Else the error and the frames of both threads would keep each other, with all that they read, in memory.
        outcome = Future()
