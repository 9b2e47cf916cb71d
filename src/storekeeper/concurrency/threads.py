"""Blocking work beside the event loop, on a thread that no exit waits for. Imports nothing of the project."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class NoThread(RuntimeError):
    """The system makes no more threads now."""


async def run_in_thread(work: Callable[[threading.Event], T]) -> T:
    """Run `work` on a daemon thread of its own; return its result, or raise its exception, or NoThread.

    `work` is given an event that is set when the caller was cancelled: it should return soon then, and commit
    nothing. If it cannot, because it is blocked, the process ends without it, and the database rolls back.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    stop = threading.Event()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # None only beside an error, or if T allows it

    def run() -> None:
        result, error = None, None
        try:
            result = work(stop)
        except BaseException as raised:  # noqa: BLE001 - the caller raises it
            error = raised
        with suppress(RuntimeError):  # the loop is closed, and nothing waits
            loop.call_soon_threadsafe(settle, result, error)

    try:
        threading.Thread(target=run, name="storekeeper-work", daemon=True).start()
    except RuntimeError as error:
        raise NoThread(str(error)) from None
    try:
        return await done
    finally:
        stop.set()
