import asyncio
import threading

import pytest

from storekeeper.concurrency import threads
from storekeeper.concurrency.threads import run_in_thread


def test_what_a_thread_returns_or_raises_reaches_the_caller() -> None:
    def fail(_stop: threading.Event) -> None:
        raise ZeroDivisionError

    assert asyncio.run(run_in_thread(lambda _stop: 5)) == 5
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run_in_thread(fail))


def test_a_lost_wake_up_of_the_loop_does_not_lose_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LOOK_INTERVAL", 0.01)

    async def main() -> int:
        monkeypatch.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", lambda *_: None)
        async with asyncio.timeout(10):
            return await run_in_thread(lambda stop: int(not stop.wait(0.03)))

    assert asyncio.run(main()) == 1


def test_a_caller_that_is_cancelled_tells_the_thread() -> None:
    told = threading.Event()

    def work(stop: threading.Event) -> None:
        if stop.wait(10):
            told.set()

    async def main() -> None:
        asked = asyncio.create_task(run_in_thread(work))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(main())
    assert told.wait(10)
