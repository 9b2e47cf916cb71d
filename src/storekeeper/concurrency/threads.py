"""Blocking work on a thread that no exit waits for."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from math import inf
from typing import Any, TypeVar

from storekeeper.domain.errors import Unavailable

R = TypeVar("R")
T = TypeVar("T")

LOOK_INTERVAL = 0.5
"""Seconds between two checks of a thread: a lost wake-up of the loop delays the result by no
more."""

TOO_MANY = "Too many threads are running"


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run `work` on a daemon thread of its own; return its result, or raise its exception.
    Raises Unavailable.

    The process may end before the thread; then the database rolls back what the thread wrote.
    """
    future: Future[T] = Future()
    thread = threading.Thread(
        target=run_into, args=(future, work), name="storekeeper-work", daemon=True
    )
    try:
        thread.start()
    except RuntimeError:
        raise Unavailable(TOO_MANY) from None
    if not await is_done(future, thread):
        raise Unavailable(TOO_MANY)  # the thread ended before it began
    thread.join()  # it is about to end, and keeps what it worked with until then
    try:
        return future.result()
    finally:
        # Otherwise the error and the frames of both threads would keep each other in memory, with
        # everything that they read.
        future = Future()


async def run_with(
    open_resource: Callable[[], AbstractContextManager[R]], work: Callable[[R], T]
) -> T:
    """Run `work` with a resource that is opened and closed on the same thread. Raises as
    `run_in_thread` does."""

    def run() -> T:
        with open_resource() as resource:
            return work(resource)

    return await run_in_thread(run)


def run_into(future: Future[T], work: Callable[[], T]) -> None:
    """Run `work`; set what it returns or raises as the result of the future."""
    try:
        future.set_result(work())
    except BaseException as raised:  # noqa: BLE001 - the thread that waits raises it
        future.set_exception(raised)
    finally:
        # Otherwise the error, its frames and the future would keep each other in memory, with
        # everything that `work` refers to, until the garbage collector runs.
        del future, work


async def is_done(future: Future[Any], thread: threading.Thread, seconds: float = inf) -> bool:
    """Wait at most these seconds until a thread has completed the future; return whether it
    has."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def wake(_: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(woken.set)

    future.add_done_callback(wake)
    while not future.done() and thread.is_alive() and seconds > 0:
        pause = min(LOOK_INTERVAL, seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await woken.wait()
        seconds -= pause  # not by the clock: while this process stood still, so did the thread
    return future.done()
