"""Work on a thread: its result reaches the caller."""

import asyncio
import time
import weakref
from concurrent.futures import Future
from functools import partial

import pytest

from storekeeper.concurrency import threads
from storekeeper.concurrency.threads import run_in_thread


def test_what_a_thread_returns_or_raises_reaches_the_caller() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    assert asyncio.run(run_in_thread(lambda: 5)) == 5
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run_in_thread(fail))


def test_a_lost_wake_up_of_the_loop_does_not_lose_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "LOOK_INTERVAL", 0.01)

    def work() -> int:
        time.sleep(0.03)
        return 1

    async def main() -> int:
        monkeypatch.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", lambda *_: None)
        async with asyncio.timeout(10):
            return await run_in_thread(work)

    assert asyncio.run(main()) == 1


def test_the_thread_has_let_go_of_its_work_when_the_result_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_into = threads.run_into

    def run_into_and_linger(outcome: Future[int], work: partial[int]) -> None:
        run_into(outcome, work)
        time.sleep(0.05)

    async def main() -> bool:
        work = partial(int)
        running, kept = run_in_thread(work), weakref.ref(work)
        del work
        await running
        return kept() is not None

    monkeypatch.setattr(threads, "run_into", run_into_and_linger)
    assert not asyncio.run(main())
