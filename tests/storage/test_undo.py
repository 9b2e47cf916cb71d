"""Imports are undone, and undos too, field by field, whichever database holds the list."""

from typing import Any

import pytest

from storekeeper.domain.errors import EpochEnded, InvalidInput, KeyReused
from storekeeper.domain.stores import Payload
from storekeeper.domain.undo import Undo, UndoCounts, UndoPlan
from storekeeper.storage import databases, sessions, verification
from storekeeper.storage import undo as undoing
from storekeeper.storage.undo import undo
from tests.harness.databases import Database
from tests.harness.imports import counts, cursor, import_into, undo_range, undone
from tests.harness.transfers import fill_with


def select(database: Database, statement: str) -> list[Any]:
    with databases.database(database.url).snapshot() as snapshot:
        return list(snapshot.select(statement))


def content(database: Database) -> list[Any]:
    return select(database, "SELECT name, address FROM stores ORDER BY id")


def keys(database: Database) -> list[Any]:
    return select(
        database,
        "SELECT store_id, value, given_name, given_address FROM external_ids ORDER BY store_id",
    )


def numbers(plan: UndoPlan) -> tuple[int, int, int]:
    report = plan.report
    return report.undone, report.kept, report.created


OLD, NEW, LATER = "1 Old Road", "2 New Road", "3 Later Road"


class TestUndo:
    """On both databases."""

    def test_what_still_is_as_the_import_made_it_becomes_what_it_was(
        self, database: Database
    ) -> None:
        fill_with(database, [Payload("A", OLD), Payload("B", OLD), Payload("C")])
        text = f"id,name,address\n1,Aa,{NEW}\n2,B,{NEW}\n3,C,\n,New,\n"
        done = import_into(database, text, "id")
        assert counts(done) == {"created": 1, "replaced": 2, "unchanged": 1}
        import_into(database, f"id,address\n1,{LATER}\n", "id")
        planned = undone(database, done, dry_run=True)
        assert numbers(planned) == (2, 2, 1)
        assert content(database)[1] == ("B", NEW)
        plan = undone(database, done)
        assert numbers(plan) == (2, 2, 1)
        assert content(database) == [("A", LATER), ("B", OLD), ("C", None), ("New", None)]
        stays = [(kept.id, kept.created, kept.fields) for kept in plan.report.stays]
        assert stays == [(1, False, ["address"]), (4, True, [])]
        changes = [(each.id, each.old["name"], each.new["name"]) for each in plan.report.changes]
        assert changes == [(1, "Aa", "A"), (2, "B", "B")]
        assert verification.verify(database.url) == []
        assert numbers(undone(database, done)) == (0, 3, 1), "once"

    def test_an_undo_can_be_undone_and_that_too(self, database: Database) -> None:
        fill_with(database, [Payload("A", OLD), Payload("B")])
        done: Any = import_into(database, f"id,name,address\n1,Aa,{NEW}\n2,Bb,\n", "id")
        states = [content(database)]
        for _ in range(4):
            done = undone(database, done)
            assert numbers(done) == (2, 0, 0)
            states.append(content(database))
        assert states[0::2] == [[("Aa", NEW), ("Bb", None)]] * 3
        assert states[1::2] == [[("A", OLD), ("B", None)]] * 2

    def test_keys_and_memory_return_with_it(self, database: Database) -> None:
        fill_with(database, [Payload("A", OLD)])
        rows = f"Key,name,address\n7,A,{OLD}\n8,New,{OLD}\n"
        adopted = import_into(database, rows, "Key", adopt=True)
        second = import_into(database, rows.replace(OLD, NEW), "Key")
        assert counts(second) == {"replaced": 2}
        after = keys(database)
        assert after == [(1, "7", "A", NEW), (2, "8", "New", NEW)]
        back = undone(database, second)
        assert keys(database) == [(1, "7", "A", OLD), (2, "8", "New", OLD)]
        assert content(database) == [("A", OLD), ("New", OLD)]
        again = undone(database, back)
        assert keys(database) == after
        undone(database, again)
        without = undone(database, adopted)
        assert numbers(without) == (1, 1, 1)
        assert keys(database) == [(2, "8", "New", OLD)]
        undone(database, without)
        assert keys(database) == [(1, "7", "A", OLD), (2, "8", "New", OLD)]
        assert counts(import_into(database, rows, "Key")) == {"unchanged": 2}
        assert verification.verify(database.url) == []

    def test_memory_that_has_moved_on_since_stays(self, database: Database) -> None:
        """So that the next night does not write over what the undo gave back."""
        rows = "Key,name,address\n7,A,{}\n"
        import_into(database, rows.format(OLD), "Key")
        done = import_into(database, rows.format(NEW), "Key")
        import_into(database, rows.format(LATER), "Key")
        import_into(database, f"id,address\n1,{NEW}\n", "id")
        back = undone(database, done)
        assert numbers(back) == (1, 0, 0)
        assert keys(database) == [(1, "7", "A", LATER)]
        assert counts(import_into(database, rows.format(LATER), "Key")) == {"unchanged": 1}
        assert content(database) == [("A", OLD)]
        undone(database, back)
        assert keys(database) == [(1, "7", "A", LATER)]
        assert content(database) == [("A", NEW)]

    def test_a_key_that_another_store_has_by_now_stays_there(self, database: Database) -> None:
        fill_with(database, [Payload("A"), Payload("B")])
        first = import_into(database, "id,name,Key\n1,A,7\n", "id", attach="Key")
        back = undone(database, first)
        import_into(database, "id,name,Key\n2,B,7\n", "id", attach="Key")
        again = undone(database, back)
        assert numbers(again) == (0, 1, 0)
        assert [kept.fields for kept in again.report.stays] == [["key"]]
        assert [row[:2] for row in keys(database)] == [(2, "7")]

    def test_only_the_range_of_one_import_or_undo_can_be_undone(self, database: Database) -> None:
        fill_with(database, [Payload("A"), Payload("B"), Payload("C")])
        done = import_into(database, "id,name\n1,X\n2,Y\n", "id")
        epoch = done.report.version.split(".")[1]
        for first, last in ((4, 4), (3, 5), (5, 5), (0, 0)):
            with pytest.raises(InvalidInput, match="the first and the last change of one import"):
                undo_range(database, f"{first}.{epoch}", f"{last}.{epoch}")
        for others in (("4.abcdefgh", "5.abcdefgh"), (f"4.{epoch}", f"9.{epoch}")):
            with pytest.raises(EpochEnded):
                undo_range(database, *others)
        assert content(database)[0] == ("X", None)
        assert isinstance(undo_range(database, "4", "5"), UndoPlan)

    def test_a_repeat_with_its_key_undoes_nothing_more(self, database: Database) -> None:
        fill_with(database, [Payload("A")])
        done = import_into(database, "id,name\n1,X\n", "id")
        report = done.report
        plan = undone(database, done, idempotency_key=("k", 1))
        replay = undo_range(database, report.first, report.last, idempotency_key=("k", 1))
        assert type(replay) is UndoCounts
        assert (replay.undone, replay.version) == (1, plan.report.version)
        with pytest.raises(KeyReused):
            undo_range(database, report.first, report.last, idempotency_key=("k", 2))
        assert len(database.changes()) == 3

    def test_a_repeat_that_is_begun_before_the_first_one_ends_is_a_replay(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill_with(database, [Payload("A")])
        done = import_into(database, "id,name\n1,X\n", "id")
        tag = frozenset([f'"{done.report.version}"'])
        options = {"idempotency_key": ("k", 1), "if_match": tag}
        look, late = sessions.replayed, [lambda: undone(database, done, **options)]

        def look_too_early(*question: Any) -> Any:
            found = look(*question)
            while late:
                late.pop()()
            return found

        monkeypatch.setattr(undoing, "replayed", look_too_early)
        repeat = undo_range(database, done.report.first, done.report.last, **options)
        assert type(repeat) is UndoCounts
        assert len(database.changes()) == 3

    def test_it_is_recorded_who_imported_what_and_who_undid_it(self, database: Database) -> None:
        fill_with(database, [Payload("A")])
        done = import_into(
            database, "id,name\n1,X\n", "id", file="stores.csv", user="anna", token_number=3
        )
        undone(database, done, user="bert")
        rows = select(
            database,
            "SELECT first_seq, last_seq, undoes, file, token_number, user_name FROM imports"
            " ORDER BY first_seq",
        )
        assert rows == [
            (1, 1, None, None, 0, None),
            (2, 2, None, "stores.csv", 3, "anna"),
            (3, 3, 2, "stores.csv", 0, "bert"),
        ]

    def test_what_others_write_before_the_lock_is_seen(self, database: Database) -> None:
        fill_with(database, [Payload("A", OLD), Payload("B", OLD)])
        done = import_into(database, f"id,address\n1,{NEW}\n2,{NEW}\n", "id")
        plans = []

        def review(plan: UndoPlan) -> None:
            plans.append(plan.report.undone)
            if len(plans) == 1:
                import_into(database, f"id,address\n1,{LATER}\n", "id")

        report = done.report
        with databases.database(database.url).session() as session:
            undo(session, Undo(cursor(report.first), cursor(report.last)), review=review)
        assert plans == [2, 1]
        assert content(database) == [("A", LATER), ("B", OLD)]
