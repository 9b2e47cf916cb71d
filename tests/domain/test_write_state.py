"""How a process finds out that its writes are accepted again, for both databases."""

import asyncio

import pytest

from storekeeper import write_state
from storekeeper.events import Event
from storekeeper.write_state import WriteState
from tests.harness.in_process import run, until


def test_writes_that_fail_now_and_then_are_probed_no_more_often_than_those_that_always_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interval = 0.02
    monkeypatch.setattr(write_state, "PROBE_INTERVAL", interval)
    monkeypatch.setattr(write_state, "emit", lambda *_, **__: None)

    async def scenario() -> None:
        probes: list[float] = []
        loop = asyncio.get_running_loop()

        def fail() -> None:
            probes.append(loop.time())
            state.probed("The database is locked")

        state = WriteState(fail)
        for _ in range(20):
            state.probed("")
            state.refused("The database is locked")
        await until(lambda: len(probes) >= 5)
        state.close()
        assert probes[4] - probes[0] > 3 * interval

    run(scenario())


def test_after_its_end_nothing_is_probed_or_told_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_state, "PROBE_INTERVAL", 0.0)
    told: list[object] = []
    monkeypatch.setattr(write_state, "emit", lambda event, **_: told.append(event))

    async def scenario() -> None:
        for refused_before in (True, False):
            probes: list[None] = []
            state = WriteState(lambda probes=probes: probes.append(None))  # type: ignore[misc]
            if refused_before:
                state.refused("The disk is full")
                assert told.pop() is Event.WRITES_REFUSED
            state.close()
            state.refused("The disk does not respond")
            state.probed("The disk does not respond")
            state.probed("")
            await asyncio.sleep(0.01)
            assert not told
            assert not probes

    run(scenario())
