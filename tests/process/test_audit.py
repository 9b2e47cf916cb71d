"""The log tells what happens to tokens and to the history, by any process, on both databases."""

import os
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from storekeeper.domain.commands import Create
from storekeeper.domain.errors import CannotStart, Unavailable
from storekeeper.domain.stores import Payload
from storekeeper.domain.tokens import Token
from storekeeper.log import events
from storekeeper.log.events import Event
from storekeeper.process import audit, service
from storekeeper.process.audit import OVERLAP, Audit, Facts, Shared, as_it_was, compare, shown
from storekeeper.settings import Settings
from storekeeper.storage import backups, databases
from storekeeper.storage.tokens import add_token, revoke_token
from tests.harness.client import until
from tests.harness.collection import create
from tests.harness.command import run as run_command
from tests.harness.databases import Database, handle, make, opened
from tests.harness.process import serving
from tests.harness.tokens import now

ADDED, USED, REVOKED = Event.TOKEN_ADDED, Event.TOKEN_USED, Event.TOKEN_REVOKED
EXPIRED, LOST, BACK = Event.TOKEN_EXPIRED, Event.TOKEN_LOST, Event.TOKEN_VALID_AGAIN

Line = tuple[Event, dict[str, Any]]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    """What is logged, without the times at which it happened and the processes."""
    found: list[Line] = []

    def emit(event: Event, **fields: Any) -> None:
        fields.pop("pid", None)
        fields.pop("at", None)
        found.append((event, fields))

    monkeypatch.setattr(audit, "emit", emit)
    return found


def taken(lines: list[Line]) -> list[Line]:
    """Return the lines so far, and forget them."""
    found = lines.copy()
    lines.clear()
    return found


ACTIVE = Token(1, "till", "write", "h", created=1)
STATES = {
    "absent": None,
    "active": ACTIVE,
    "used": replace(ACTIVE, used=5),
    "revoked": replace(ACTIVE, revoked=5),
    "used and revoked": replace(ACTIVE, used=5, revoked=5),
    "expired": replace(ACTIVE, expires=15),
}
HAPPENED = {
    "absent": [[], [ADDED], [ADDED, USED], [ADDED, REVOKED], [ADDED, USED, REVOKED],
               [ADDED, EXPIRED]],
    "active": [[LOST], [], [USED], [REVOKED], [USED, REVOKED], [EXPIRED]],
    "used": [[LOST], [], [], [REVOKED], [REVOKED], [EXPIRED]],
    "revoked": [[LOST], [BACK], [USED, BACK], [], [USED], [BACK, EXPIRED]],
    "used and revoked": [[LOST], [BACK], [BACK], [], [], [BACK, EXPIRED]],
    "expired": [[LOST], [], [USED], [REVOKED], [USED, REVOKED], [EXPIRED]],
}  # fmt: skip


@pytest.mark.parametrize("before", STATES)
def test_each_way_from_one_state_of_a_token_to_another_is_told(before: str) -> None:
    """It expires at 15, between the looks at 10 and 20."""

    def facts(at: int, token: Token | None) -> Facts:
        return Facts(at, 1, "e", {} if token is None else {token.hash: token})

    found = [
        [each.event for each in compare(facts(10, STATES[before]), facts(20, after))]
        for after in STATES.values()
    ]
    assert found == HAPPENED[before]


def test_the_times_of_tokens_tell_what_an_earlier_look_would_have_found() -> None:
    tokens = {"h": replace(ACTIVE, revoked=15, used=4), "i": Token(2, "wall", "read", "i", 12)}
    facts = Facts(20, 1, "e", tokens)
    assert as_it_was(facts, 20) == facts
    was = as_it_was(facts, 10)
    assert was.tokens == {"h": replace(ACTIVE, used=4)}
    assert [(each.event, each.at) for each in compare(was, facts)] == [(REVOKED, 15), (ADDED, 12)]


class TestAudit:
    """On both databases."""

    async def test_what_commands_do_beside_a_service_is_logged_once(
        self, database: Database, lines: list[Line]
    ) -> None:
        async with handle(database) as collection, handle(database) as other:
            shared = Shared(2)
            workers = [Audit(collection, shared), Audit(other, shared)]

            async def looked() -> list[Line]:
                for worker in workers:
                    await worker.look()
                return taken(lines)

            assert await looked() == []
            until_ = now() + 86_400_000
            add_token(database.url, Token(0, "till", "write", "h", now(), until_, created_by="eve"))
            till = {"name": "till"}
            added = {**till, "scope": "write", "expires": shown(until_), "by": "eve"}
            assert await looked() == [(ADDED, added)]
            await collection.mark_used([1], now())
            assert await looked() == [(USED, till)]
            revoke_token(database.url, "till", now(), "adam")
            assert await looked() == [(REVOKED, {**till, "by": "adam"})]
            await create(collection, Payload("A"))
            was = (await collection.traces()).epoch
            epoch = databases.epoch(database.url, renew=True)
            numbers = {"was": was, "epoch": epoch, "version": 1}
            assert await looked() == [(Event.EPOCH_CHANGED, numbers)]
            assert await looked() == []

    async def test_a_look_at_what_has_not_changed_reads_no_token(self, database: Database) -> None:
        async with handle(database) as collection:
            looks = Audit(collection, Shared())
            await looks.look()
            calls: list[str] = []

            class Counted:
                def __getattr__(self, name: str) -> Any:
                    calls.append(name)
                    return getattr(collection, name)

            looks._collection = Counted()
            await create(collection, Payload("A"))
            await looks.look()
            assert calls == ["traces"]

    async def test_a_start_tells_what_happened_since_a_service_last_wrote(
        self, database: Database, lines: list[Line]
    ) -> None:
        make(database.url)
        long_ago = now() - 10 * OVERLAP
        for name, created in (("old", long_ago), ("new", now())):
            add_token(database.url, Token(0, name, "read", name, created))
        revoke_token(database.url, "old", now(), "adam")
        async with handle(database) as collection:
            await collection.mark_used([1], long_ago + 2 * OVERLAP)
            await Audit(collection, Shared()).look()
        assert taken(lines) == [
            (REVOKED, {"name": "old", "by": "adam"}),
            (ADDED, {"name": "new", "scope": "read"}),
        ]

    async def test_a_worker_that_replaces_others_continues_after_their_last_look(
        self, database: Database, lines: list[Line]
    ) -> None:
        shared = Shared(2)
        async with handle(database) as collection:
            await Audit(collection, shared).look()
            was = (await collection.traces()).epoch
        time.sleep(0.002)  # else it has the time of that look
        add_token(database.url, Token(0, "till", "read", "h", now()))
        epoch = databases.epoch(database.url, renew=True)
        async with handle(database) as collection:
            await Audit(collection, shared).look()
        assert taken(lines) == [
            (Event.EPOCH_CHANGED, {"was": was, "epoch": epoch, "version": 0}),
            (ADDED, {"name": "till", "scope": "read"}),
        ]

    async def test_without_the_database_nothing_is_told_and_nothing_is_forgotten(
        self, database: Database, lines: list[Line], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with handle(database) as collection:
            looks = Audit(collection, Shared())
            await looks.look()
            add_token(database.url, Token(0, "till", "read", "h", now()))

            async def away() -> Any:
                raise Unavailable("away")

            for method in ("traces", "all_tokens"):
                with monkeypatch.context() as patch:
                    patch.setattr(collection, method, away)
                    await looks.look()
                    assert taken(lines) == []
            await looks.look()
            assert taken(lines) == [(ADDED, {"name": "till", "scope": "read"})]


def test_one_of_two_workers_logs_within_seconds_who_added_a_token(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers=2", "--auth=all") as service:
        url = f"sqlite:///{tmp_path}/stores.db"
        done = run_command("token", "add", "till", "--scope=read", "--database", url)
        assert done.returncode == 0
        until(lambda: 'event="token added" name=till scope=read by=' in service.log)
        assert f" epoch={databases.epoch(url, renew=False)}\n" in service.log
        assert service.stop() == 0
        # Both log it if they find it in the same microsecond.
        assert 1 <= service.log.count("token added") <= 2


async def test_a_restore_from_before_is_told_at_the_next_start(
    tmp_path: Path, lines: list[Line]
) -> None:
    url = f"sqlite:///{tmp_path}/stores.db"
    make(url)
    async with opened(url) as collection:
        await collection.write(Create(Payload("A")))
        shared = Shared(2)
        await Audit(collection, shared).look()
    backups.back_up(url, tmp_path / "kept.db", lambda *_: None)
    async with opened(url) as collection:
        await collection.write(Create(Payload("B")))
        await Audit(collection, shared).look()
        was = (await collection.traces()).epoch
    backups.restore(tmp_path / "kept.db", url, lambda *_: None)
    assert taken(lines) == []
    async with opened(url) as collection:
        await Audit(collection, Shared()).look()
        epoch = (await collection.traces()).epoch
        assert taken(lines) == [(Event.RESTORED, {"version": 1, "epoch": epoch})]
        await Audit(collection, shared).look()
        assert taken(lines)[:2] == [
            (Event.RESTORED, {"version": 1, "epoch": epoch}),
            (Event.EPOCH_CHANGED, {"was": was, "epoch": epoch, "version": 1}),
        ]


def test_the_last_line_of_a_service_says_what_to_fix_after_what_was_suppressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that fails each second may have left lines that were suppressed."""
    said: list[bytes] = []
    log = SimpleNamespace(write=said.append, flush=lambda _: None)
    monkeypatch.setattr(events, "_log", lambda: log)
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(events, "suppressed", Counter({Event.DATABASE_UNREACHABLE: 2}))
    service._exit(Settings(database=f"sqlite:///{tmp_path}/gone.db"), CannotStart("fix this"))
    assert ended == [2]
    assert [line.split()[0] for line in said][1:] == [b"storekeeper:"]
    assert b"suppressed=2" in said[0]
