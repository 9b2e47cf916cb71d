"""Work that blocks, beside the event loop, on a thread that no exit waits for. Imports nothing of the project."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[threading.Event], T]) -> T:
    """Do `work` on a thread of its own; give its result, or raise what it raises.

    Its argument is set when nobody waits any more: then it should end soon, and must not make anything last. If it
    cannot, because what it calls blocks, the process ends without it, and the database undoes what it had begun.
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
            done.set_result(result)  # type: ignore[arg-type]  # None only beside an error, or if it is what T is

    def run() -> None:
        result, error = None, None
        try:
            result = work(stop)
        except BaseException as raised:  # noqa: BLE001 - it is raised where it is waited for
            error = raised
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="storekeeper-aside", daemon=True).start()
    try:
        return await done
    finally:
        stop.set()
