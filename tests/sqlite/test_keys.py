"""The table of Idempotency-Keys: it stays small, and its index in memory follows it."""

import asyncio
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from storekeeper import key_index
from storekeeper.commands import MAX_KEY_AGE, Command, Create, Replace
from storekeeper.errors import LOCKED, KeyReused, PreconditionFailed
from storekeeper.sqlite import keys, schema, write_queue
from storekeeper.sqlite.committer import CommandResult, Committer
from storekeeper.sqlite.file_identity import FileIdentity
from storekeeper.stores import Payload, Replay, Store
from tests.harness.collection import create, run
from tests.harness.databases import Sqlite, handle
from tests.harness.in_process import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "stores.db"
    schema.prepare(path)
    return path


@pytest.fixture
def committer(path: Path) -> Iterator[Committer]:
    with closing(Committer(schema.connect(path), FileIdentity(path))) as committer:
        yield committer


@pytest.fixture
def other(path: Path) -> Iterator[Committer]:
    """Another process's, in effect."""
    with closing(Committer(schema.connect(path), FileIdentity(path))) as committer:
        yield committer


def keyed(*numbers: int) -> list[Command]:
    return [Create(Payload(f"Store {number}"), key=(str(number), 1)) for number in numbers]


def commit_each(committer: Committer, *numbers: int) -> None:
    """Commit each of these keys in a transaction, and so in a row, of its own."""
    for command in keyed(*numbers):
        commit(committer, [command])


def commit(committer: Committer, commands: list[Command]) -> list[CommandResult]:
    return committer.commit(commands, time.monotonic() + 5)


def rows(committer: Committer) -> list[tuple[int, list[int]]]:
    """Return the numbers of the rows of keys, and the keys in each."""
    found = committer.connection.execute("SELECT n, entries FROM keys ORDER BY n")
    return [(n, [int(key) for key, _, _ in key_index.entries_in(entries)]) for n, entries in found]


def indexed(committer: Committer) -> list[int]:
    """Return the numbers of the rows that the index in memory has, once for each key."""
    index = vars(vars(committer)["_keys"])["_index"]
    return list(vars(index)["_entries"][1::3])


def age(committer: Committer, up_to: int) -> None:
    """Make the first keys older than any that is remembered."""
    committer.connection.execute("UPDATE keys SET at = at - ? WHERE n <= ?", (MAX_KEY_AGE + 1000, up_to))


def test_keys_beyond_the_greatest_number_are_deleted_with_the_next_batch(
    committer: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "MAX_KEYS", 5)
    monkeypatch.setattr(keys, "MAX_KEYS_DELETED", 3)
    commit_each(committer, *range(1, 8))
    assert [n for n, _ in rows(committer)] == [3, 4, 5, 6, 7]
    commit(committer, keyed(*range(11, 15)))
    assert [n for n, _ in rows(committer)] == [6, 7, 11], "at most three at once"
    assert [type(result) for result in commit(committer, keyed(5, 6))] == [Store, Replay]
    commit(committer, keyed(21, 22))
    assert rows(committer) == [(11, [11, 12, 13, 14]), (12, [5]), (14, [21, 22])], "a row goes with its last key"


def test_keys_that_are_too_old_are_deleted_with_the_next_batch(
    committer: Committer, other: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "MAX_KEYS_DELETED", 3)
    commit_each(committer, 1, 2, 3, 4, 5)
    age(committer, 4)
    commit(other, keyed(6))  # the first one knows a later time of its oldest key
    assert [n for n, _ in rows(committer)] == [4, 5, 6]
    commit(other, keyed(7))
    assert [n for n, _ in rows(committer)] == [5, 6, 7]


def test_the_newest_key_is_never_deleted_so_that_no_number_comes_again(committer: Committer) -> None:
    commit_each(committer, 1, 2, 3)
    age(committer, 3)
    committer.delete_old_keys(time.monotonic())
    assert rows(committer) == [(3, [3])]
    committer.delete_old_keys(time.monotonic())
    commit(committer, keyed(3))
    assert rows(committer) == [(4, [3])]


def test_an_idle_service_deletes_old_keys_and_changes_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "KEYS_INTERVAL", 0.01)

    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as collection:
            for command in keyed(1, 2, 3):
                await collection.write(command)
            with closing(apsw.Connection(str(tmp_path / "stores.db"))) as other:
                other.set_busy_timeout(5000)
                before = collection.change_token()
                await asyncio.sleep(0.3)  # a look or two
                assert collection.change_token() == before
                other.execute("UPDATE keys SET at = 1 WHERE n < 3")
                await until(lambda: other.execute("SELECT count(*) FROM keys").get == 1)
                assert other.execute("SELECT max(seq) FROM changes").get == 3

    run(main())


def test_an_idle_service_deletes_all_old_keys_at_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_queue, "KEYS_INTERVAL", 0.5)
    monkeypatch.setattr(keys, "MAX_KEYS_DELETED", 1)

    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as collection:
            for start in range(0, 200, 5):
                await asyncio.gather(*(collection.write(command) for command in keyed(*range(start, start + 5))))
            with closing(apsw.Connection(str(tmp_path / "stores.db"))) as other:
                other.set_busy_timeout(5000)
                other.execute("UPDATE keys SET at = 1")
                await until(lambda: other.execute("SELECT count(*) FROM keys").get == 1)

    run(main())


def test_a_lock_that_keeps_old_keys_from_being_deleted_is_no_failure(path: Path, committer: Committer) -> None:
    commit_each(committer, 1, 2)
    age(committer, 1)
    with closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        committer.delete_old_keys(time.monotonic())
        other.execute("ROLLBACK")
    assert len(rows(committer)) == 2
    committer.delete_old_keys(time.monotonic())
    assert len(rows(committer)) == 1


def test_the_index_follows_other_processes_and_transactions_that_came_to_nothing(
    committer: Committer, other: Committer
) -> None:
    commit(committer, keyed(1))
    commit(other, keyed(2))
    commit(committer, keyed(1, 2))  # only replays: rolled back
    bad = Create(Payload("x" * 31), key=("9", 9))
    commit(committer, [bad])
    commit(other, keyed(3))
    assert {type(result) for result in commit(committer, keyed(1, 2, 3))} == {Replay}
    commit(committer, keyed(4, 5))
    assert indexed(committer) == [1, 2, 3, 5, 5]
    commit(other, keyed(6))
    assert indexed(committer) == [1, 2, 3, 5, 5]
    assert {type(result) for result in commit(committer, keyed(4, 5, 6))} == {Replay}
    assert indexed(committer) == [1, 2, 3, 5, 5, 6]


def test_keys_that_look_the_same_to_the_index_are_told_apart(
    committer: Committer, other: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_index, "hash", lambda _key: 5, raising=False)
    for number in range(3):
        assert [type(result) for result in commit(committer, keyed(number))] == [Store]
    for one in (committer, other):
        results = commit(one, keyed(0, 1, 2))
        assert [(type(result), getattr(result, "id", 0)) for result in results] == [(Replay, n) for n in (1, 2, 3)]


def test_rows_between_which_others_were_deleted_are_found(committer: Committer, other: Committer) -> None:
    """As PostgreSQL leaves them if its clock was wrong once, and as a copy brings them here."""
    commit_each(committer, 1, 2, 3, 4)
    committer.connection.execute("DELETE FROM keys WHERE n IN (2, 3)")
    assert [type(result) for result in commit(other, keyed(1, 4, 2))] == [Replay, Replay, Store]


@pytest.mark.parametrize("left", range(3))
@pytest.mark.parametrize("others", range(4))
def test_an_index_of_a_table_that_was_replaced_is_made_anew(
    committer: Committer, other: Committer, left: int, others: int
) -> None:
    """As by a restore into the file beside a running service: the numbers go back, perhaps not for long."""
    commit_each(committer, 1, 2, 3)
    time.sleep(0.002)  # the clock goes on before anybody writes again
    committer.connection.execute("DELETE FROM keys WHERE n > ?", (left,))
    commit_each(other, *range(11, 11 + others))
    for one in (committer, other, committer):
        kept = [*range(1, left + 1), *range(11, 11 + others)]
        assert {type(result) for result in commit(one, keyed(*kept))} <= {Replay}
    assert [type(result) for result in commit(committer, keyed(3))] == [Store]
    for one in (committer, other):
        assert [type(result) for result in commit(one, keyed(3, *kept))] == [Replay] * (1 + len(kept))


def test_a_new_epoch_makes_the_index_anew(committer: Committer) -> None:
    """A restore may have brought another table whose last row has the same number and time."""
    commit(committer, keyed(1, 2))
    committer.connection.execute("""UPDATE keys SET entries = replace(entries, '"1"', '"7"')""")
    committer.connection.execute("UPDATE collection SET epoch = 'bbbbbbbb'")
    assert [type(result) for result in commit(committer, keyed(7))] == [KeyReused]
    assert [type(result) for result in commit(committer, keyed(1, 2))] == [Store, Replay]


def test_a_process_knows_no_key_of_its_own_that_was_not_committed(committer: Committer, other: Committer) -> None:
    """Else it would take the row of another process for that of its own key."""
    commit(committer, keyed(1))
    committer.connection.set_commit_hook(lambda: True)
    commit(committer, keyed(2))
    committer.connection.set_commit_hook(None)
    commit(other, keyed(3))
    assert [type(result) for result in commit(committer, keyed(2, 3))] == [Store, Replay]
    assert {type(result) for result in commit(committer, keyed(1, 2, 3))} == {Replay}


@pytest.mark.parametrize("moment", range(2))
def test_the_first_key_of_all_may_come_from_another_process_at_any_moment(
    committer: Committer, other: Committer, moment: int
) -> None:
    """Before the statement that brings the index up to date, or behind it."""
    sent: list[str] = []

    def interrupt(_cursor: object, statement: str, _values: object) -> bool:
        if len(sent) == moment and not committer.connection.in_transaction:
            commit(other, keyed(1))
        sent.append(statement)
        return True

    committer.connection.exec_trace = interrupt
    (result,) = commit(committer, keyed(1))
    assert isinstance(result, Replay)
    assert len(rows(committer)) == 1


def test_the_index_is_told_what_was_deleted_while_it_grows(
    committer: Committer, other: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "MAX_KEYS", 40)
    told: list[int] = []
    add = key_index.KeyIndex.add

    def told_of(index: key_index.KeyIndex, keys: list[str], row: int, oldest: int) -> None:
        told.append(oldest)
        add(index, keys, row, oldest)

    monkeypatch.setattr(key_index.KeyIndex, "add", told_of)
    for start in range(0, 2000, 20):
        # Some are deleted by one, some by the other.
        commit((committer, other)[start % 40 == 0], keyed(*range(start, start + 20)))
    for one in (committer, other):
        commit(one, keyed(20_000 + (one is other)))
        assert [len(found) for _, found in rows(one)] == [20, 20, *[1] * (1 + (one is other))]
        assert told[-1] >= 1940


def test_an_index_of_many_keys_is_made_while_nothing_is_written(
    committer: Committer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_each(committer, *range(100))
    age(committer, 10)
    committer.delete_old_keys(time.monotonic())
    monkeypatch.setattr(keys, "MAX_LOADED", 20)

    async def main() -> None:
        async with handle(Sqlite(path.parent)) as collection:
            loaded = vars(vars(collection)["_queue"])["_committer"]
            await until(lambda: vars(vars(loaded)["_keys"])["_known"][0] == 100)
            assert [type(await collection.write(command)) for command in keyed(99, 10, 9)] == [Replay, Replay, Store]

    run(main())
    with closing(Committer(schema.connect(path), FileIdentity(path))) as another:  # nor does a write need that
        assert [type(result) for result in commit(another, keyed(99, 10, 8))] == [Replay, Replay, Store]


def test_the_first_writes_wait_for_the_index_of_all_keys_but_not_for_ever(
    committer: Committer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each of its first writes with a key would read the rest of them, under the lock of all writers."""
    commit_each(committer, *range(100))
    monkeypatch.setattr(keys, "MAX_LOADED", 20)
    monkeypatch.setattr(write_queue.WriteQueue, "_run", lambda _queue: None)

    async def main(loaded: int) -> None:
        async with handle(Sqlite(path.parent)) as collection:
            writes = vars(collection)["_queue"]
            writes._inbox.put([])
            writes._take([])
            assert len(indexed(writes._committer)) == loaded

    run(main(100))
    monkeypatch.setattr(write_queue, "KEYS_TIMEOUT", 0.0)
    run(main(0))


def test_a_process_that_gets_no_keys_follows_those_of_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its first write with a key would read a day of them, and all writers would wait for it."""
    monkeypatch.setattr(write_queue, "KEYS_INTERVAL", 0.05)

    async def main() -> None:
        async with handle(Sqlite(path.parent)) as collection:
            committer = vars(vars(collection)["_queue"])["_committer"]
            for start in (1, 101):
                with closing(Committer(schema.connect(path), FileIdentity(path))) as other:
                    commit_each(other, *range(start, start + 100))
                await until(lambda: len(indexed(committer)) == start + 99)  # noqa: B023 - called at once

    run(main())


def test_a_write_does_not_wait_for_an_index_that_takes_long(
    committer: Committer, other: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_each(committer, *range(50))
    commit(committer, keyed(*range(50, 100)))
    monkeypatch.setattr(keys, "MAX_LOADED", 20)
    monkeypatch.setattr(keys, "LOAD_TIME", 0)
    for loaded in (20, 40, 50, 100):
        assert [type(result) for result in commit(other, keyed(99, 0, 50))] == [Replay] * 3
        assert len(indexed(other)) == loaded
    assert [type(result) for result in commit(other, keyed(99, 100, 1, 100))] == [Replay, Store, Replay, Replay]
    assert [type(result) for result in commit(other, keyed(100))] == [Replay]


def test_a_refused_precondition_is_no_refusal_of_the_database(tmp_path: Path) -> None:
    async def main() -> None:
        async with handle(Sqlite(tmp_path)) as collection:
            await create(collection, Payload("First"))
            queue = vars(collection)["_queue"]
            for before in ("", LOCKED):
                if before:
                    queue.state.reason = before
                with pytest.raises(PreconditionFailed):
                    await collection.write(Replace(1, Payload("x"), if_match=frozenset(['"9.aaaaaaaa"'])))
                assert queue.state.reason == ""

    run(main())


def test_unchanged_writes_of_long_addresses_are_compared_in_the_database(committer: Committer) -> None:
    """A thousand addresses of 1 MiB would be 1 GiB."""
    committer.connection.execute("PRAGMA synchronous = off")
    long = "x" * 2**20
    for _ in range(50):
        commit(committer, [Create(Payload("Long", long))])
    writes: list[Command] = [
        Replace(id, Payload("Long", "y"), if_match=frozenset(['"9.aaaaaaaa"'])) for id in [*range(1, 51)] * 20
    ]
    before = apsw.memory_used(), _resident()
    apsw.memory_high_water(reset=True)
    assert {type(result) for result in commit(committer, writes)} == {PreconditionFailed}
    assert apsw.memory_high_water() - before[0] < 16 * 2**20
    assert _resident() - before[1] < 64 * 2**20


def test_reused_keys_load_no_addresses_even_beside_a_replay_of_the_same_request(committer: Committer) -> None:
    committer.connection.execute("PRAGMA synchronous = off")
    long = "x" * 2**20
    numbers = range(1, 51)
    for number in numbers:
        commit(committer, [Create(Payload("Long", long), key=(str(number), 7))])
    sent: list[Command] = [Create(Payload("Other"), key=(str(number), 8)) for number in numbers]
    sent[0] = Create(Payload("Long", long), key=("1", 7))
    tracemalloc.start()
    try:
        replay, *others = commit(committer, sent)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(replay, Replay)
    assert replay.address == long
    assert {type(result) for result in others} == {KeyReused}
    assert peak < 16 * 2**20


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
