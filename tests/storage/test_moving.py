"""`copy --move`: from its first row on nothing is written to the source, unless nothing was
copied. On both databases."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storekeeper.domain.errors import CannotStart, Outcome, StorekeeperError, Unavailable
from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.stores import Payload
from storekeeper.domain.tokens import Token
from storekeeper.storage import copying, databases, tokens
from storekeeper.storage.collection import Collection
from tests.harness.collection import create, get, numbered, run
from tests.harness.databases import Database, Sqlite, opened
from tests.harness.imports import import_into
from tests.harness.loading import add_all

TOKEN = Token(0, "late", "read", "0" * 64, 1)
MOVED = "its list was moved to another database"


def copy(source: str, target: str, *, move: bool = True) -> tuple[int, int, str]:
    return databases.copy(source, target, lambda *_: None, move=move)


async def refuses_writes(collection: Collection) -> None:
    """Check that a running service reads on and writes nothing."""
    with pytest.raises(Unavailable) as refused:
        await create(collection, Payload("Late"))
    assert refused.value.outcome is Outcome.NONE
    assert await collection.refusal_of_writes(probe=False)
    assert await get(collection, 4) is not None
    assert await get(collection, 5) is None


async def serves(collection: Collection) -> None:
    """Have a service write, so that it has what it needs for a write."""
    assert (await create(collection, Payload("Early"))).id == 4


@pytest.fixture
def source(database: Database) -> str:
    async def make() -> None:
        databases.create(database.url, examples=False)
        async with opened(database.url) as collection:
            await add_all(collection, numbered(3))

    run(make())
    return database.url


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/target.db"


def test_a_service_that_runs_on_the_source_writes_nothing_more(source: str, target: str) -> None:
    async def main() -> None:
        async with opened(source) as collection:
            await serves(collection)
            assert copy(source, target)[:2] == (4, 4)
            await refuses_writes(collection)

    run(main())
    assert databases.epoch(source, renew=False) == databases.epoch(target, renew=False)


def test_nothing_else_writes_to_it_and_it_can_still_be_read(
    source: str, target: str, database: Database
) -> None:
    copy(source, target)
    writes: list[Callable[[], Any]] = [
        lambda: databases.database(source).prepare(),
        lambda: tokens.add_token(source, TOKEN),
        lambda: import_into(database, "name\nLate\n", "none"),
    ]
    for write in writes:
        with pytest.raises(CannotStart, match=MOVED):
            write()
    assert tokens.read_tokens(source) == []
    other = f"{target}.other"
    assert copy(source, other, move=False)[:2] == (3, 3)


def test_an_import_that_began_before_writes_nothing_even_if_it_changes_no_store(
    tmp_path: Path, target: str
) -> None:
    """It would only remember what its source gave. PostgreSQL refuses such a move."""
    database = Sqlite(tmp_path)
    import_into(database, "Key,name\n7,A\n", "Key")
    import_into(database, "id,name\n1,B\n", "id")

    def move(_plan: ImportPlan) -> None:
        copy(database.url, target)

    with pytest.raises(Unavailable) as refused:
        import_into(database, "Key,name\n7,B\n", "Key", review=move)
    assert refused.value.outcome is Outcome.NONE
    with databases.database(database.url).snapshot() as snapshot:
        assert list(snapshot.select("SELECT given_name FROM external_ids")) == [("A",)]


def test_a_new_epoch_makes_a_list_of_its_own_of_it(source: str, target: str) -> None:
    epoch = copy(source, target)[2]
    new = databases.epoch(source, renew=True)
    assert new != epoch
    assert databases.epoch(source, renew=False) == new

    async def main() -> None:
        async with opened(source) as collection:
            assert (await create(collection, Payload("Own"))).id == 4

    run(main())
    tokens.add_token(source, TOKEN)
    assert copy(source, f"{target}.again")[:2] == (4, 4)


@pytest.mark.parametrize(
    ("error", "stays_frozen"),
    [
        (copying.VerificationFailed("it differs"), False),
        (KeyboardInterrupt(), False),
        (Unavailable("no response to COMMIT", Outcome.UNKNOWN), True),
    ],
)
def test_writes_stop_before_the_first_row_is_read_and_continue_if_nothing_was_copied(
    source: str,
    target: str,
    error: BaseException,
    stays_frozen: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With an unknown outcome the target may have the list: then both could be written."""
    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else StorekeeperError

    def fail(*_: Any, **_options: Any) -> None:
        with pytest.raises(CannotStart, match=MOVED):
            tokens.add_token(source, TOKEN)
        raise error

    async def main() -> None:
        async with opened(source) as collection:
            await serves(collection)
            with monkeypatch.context() as patched:
                patched.setattr(copying, "copy", fail)
                with pytest.raises(expected):
                    copy(source, target)
            if stays_frozen:
                await refuses_writes(collection)
            else:
                assert (await create(collection, Payload("Again"))).id == 5

    run(main())


def test_a_second_move_that_fails_does_not_allow_what_the_first_refused(
    source: str, target: str
) -> None:
    copy(source, target)
    with pytest.raises(StorekeeperError):
        copy(source, target)  # which has the list
    with pytest.raises(CannotStart, match=MOVED):
        databases.database(source).prepare()


def test_a_list_that_was_moved_is_moved_nowhere_else(source: str, target: str) -> None:
    """Two lists with one epoch would both be written, and give one version to two changes."""
    epoch = copy(source, target)[2]
    with pytest.raises(StorekeeperError, match=MOVED):
        copy(source, f"{target}.second")
    assert not databases.database(f"{target}.second").exists()
    assert databases.epoch(source, renew=True) != epoch
    assert copy(source, f"{target}.second")[:2] == (3, 3)
