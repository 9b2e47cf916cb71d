"""An import into a collection, whichever database holds it: what rows do, all or nothing, in one
transaction."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storekeeper.domain.commands import Create
from storekeeper.domain.errors import KeyReused, PreconditionFailed
from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.intake import Counts, Import, NeedsMatch, Refused, Resolution, SheetRow
from storekeeper.domain.reasons import Reason
from storekeeper.domain.search import folded
from storekeeper.domain.stores import Payload
from storekeeper.storage import databases, intake, sessions
from tests.harness.collection import run
from tests.harness.databases import KINDS, Database, handle
from tests.harness.imports import counts, import_into, import_or_replay
from tests.harness.loading import rows_of
from tests.harness.transfers import fill_with

TWICE = '"id" occurs more than once in the file, with different content: in line 4 and in line 5'
ALPHA, BETA, GAMMA = Payload("Alpha", "1 Road"), Payload("Beta"), Payload("Gamma", "3 Road")


def table(database: Database, statement: str) -> list[Any]:
    with databases.database(database.url).snapshot() as snapshot:
        return list(snapshot.select(statement))


def stores(database: Database) -> list[Any]:
    return table(database, "SELECT id, name, address, version FROM stores ORDER BY id")


def keys(database: Database) -> list[Any]:
    return table(
        database,
        "SELECT store_id, column_name, value FROM external_ids ORDER BY store_id, column_name",
    )


def version(database: Database) -> str:
    return import_into(database, "id,name\n", "id", dry_run=True).report.version


class TestImport:
    """Whatever holds the stores keeps all of this."""

    def test_into_an_empty_list_every_row_is_a_new_store(self, database: Database) -> None:
        done = import_into(database, "id,name,address\n7,Alpha,1 Road\n7,Beta,\n", token_number=3)
        assert (counts(done), done.ids) == ({"created": 2}, range(1, 3))
        assert stores(database) == [(1, "Alpha", "1 Road", 1), (2, "Beta", None, 2)]
        rows = table(
            database,
            "SELECT seq, store_id, name, address, count, token_number FROM changes ORDER BY seq",
        )
        assert rows == [(1, 1, "Alpha", "1 Road", 1, 3), (2, 2, "Beta", None, 2, 3)]

    def test_a_list_with_stores_is_left_as_it_is_unless_the_rows_say_which_they_mean(
        self, database: Database
    ) -> None:
        fill_with(database, [ALPHA])
        with pytest.raises(NeedsMatch):
            import_into(database, "name\nBeta\n")
        assert counts(import_into(database, "name\nAlpha\n", add=True)) == {"created": 1}
        assert [name for _, name, *_ in stores(database)] == ["Alpha", "Alpha"]

    def test_rows_are_matched_by_id(self, database: Database) -> None:
        fill_with(database, [ALPHA, BETA, GAMMA])
        done = import_into(
            database, "address,id,name\n2 Road,02,Beta\n1 Road,1,Alpha\n4 Road,,Delta\n", "id"
        )
        assert counts(done) == {"created": 1, "replaced": 1, "unchanged": 1, "missing": 1}
        assert (done.before.split(".")[0], done.report.version.split(".")[0], done.ids) == (
            "3",
            "5",
            range(4, 5),
        )
        assert stores(database) == [
            (1, "Alpha", "1 Road", 1),
            (2, "Beta", "2 Road", 4),
            (3, "Gamma", "3 Road", 3),
            (4, "Delta", "4 Road", 5),
        ]

    def test_an_unknown_id_and_one_that_occurs_twice_are_bad_rows(self, database: Database) -> None:
        fill_with(database, [ALPHA, BETA])
        text = "id,name\n9,A\nx,B\n1,C\n01,D\n2,E\n"
        with pytest.raises(Refused) as refused:
            import_into(database, text, "id")
        problems = refused.value.report.problems
        assert [(each.line, each.id, each.reason, each.message) for each in problems] == [
            (2, None, Reason.UNKNOWN_STORE, '"id" names no store'),
            (3, None, Reason.UNKNOWN_STORE, '"id" names no store'),
            (4, 1, Reason.REPEATED, TWICE),
            (5, 1, Reason.REPEATED, TWICE),
        ]
        assert counts(import_into(database, text, "id", skip_bad=True)) == {"replaced": 1, "bad": 4}
        assert stores(database) == [(1, "Alpha", "1 Road", 1), (2, "E", None, 3)]

    def test_rows_are_matched_by_name_and_a_name_of_two_stores_is_never_guessed(
        self, database: Database
    ) -> None:
        fill_with(database, [ALPHA, BETA, BETA])
        text = "name,address\nAlpha,2 Road\nBeta,3 Road\nDelta,\nEcho,1\nEcho,2\n"
        done = import_into(database, text, "name", skip_bad=True)
        assert counts(done) == {"created": 1, "replaced": 1, "bad": 3, "missing": 2}
        assert [(each.line, each.value, each.reason) for each in done.report.problems] == [
            (3, "Beta", Reason.AMBIGUOUS),
            (5, "Echo", Reason.REPEATED),
            (6, "Echo", Reason.REPEATED),
        ]
        assert [store[:3] for store in stores(database)][::3] == [
            (1, "Alpha", "2 Road"),
            (4, "Delta", None),
        ]

    def test_keys_of_an_outside_system_are_remembered_and_match_again(
        self, database: Database
    ) -> None:
        fill_with(database, [ALPHA])
        first = "Store Number ,name\n A7,One\nB8,Two\n"
        assert counts(import_into(database, first, "store number")) == {"created": 2, "missing": 1}
        assert keys(database) == [(2, "Store Number", "A7"), (3, "Store Number", "B8")]
        again = "name,Store Number\nTwo,B8\nNew,a7\nUno,A7\n"
        assert counts(import_into(database, again, "Store Number")) == {
            "created": 1,
            "replaced": 1,
            "unchanged": 1,
            "missing": 1,
        }
        assert keys(database)[-1] == (4, "Store Number", "a7")
        assert [name for _, name, *_ in stores(database)] == ["Alpha", "Uno", "Two", "New"]
        other = import_into(database, "Branch,name\nA7,One\n", "Branch")
        assert counts(other) == {"created": 1, "missing": 4}, "a key is one of its column"

    def test_a_key_that_is_missing_or_too_long_is_a_bad_row(self, database: Database) -> None:
        text = f"Key,name\n ,A\n{'x' * 201},B\n{'x' * 200},C\nK,D\nK,E\n"
        done = import_into(database, text, "Key", skip_bad=True)
        assert counts(done) == {"created": 1, "bad": 4}
        assert [(each.reason, each.message) for each in done.report.problems][:2] == [
            (Reason.REQUIRED, '"Key" is required'),
            (
                Reason.TOO_LONG,
                '"Key" length must be less than or equal to 200 characters long',
            ),
        ]
        assert {each.reason for each in done.report.problems[2:]} == {Reason.REPEATED}
        assert keys(database) == [(1, "Key", "x" * 200)]

    @pytest.mark.parametrize("match", ["id", "name", "Key"])
    def test_a_null_character_in_any_cell_makes_a_bad_row(
        self, database: Database, match: str
    ) -> None:
        """PostgreSQL can keep none: such a row must not get there."""
        fill_with(database, [ALPHA])
        good = {"id": "1", "name": "Alpha", "address": "2", "version": "", "Key": "7"}
        lines = [good | {column: f"{cell}\0"} for column, cell in good.items()]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        with pytest.raises(Refused) as refused:
            import_into(database, text, match)
        told = {each.column for each in refused.value.report.problems}
        assert {"name", "address", "version", match} <= told
        assert stores(database) == [(1, "Alpha", "1 Road", 1)]

    def test_each_row_that_is_not_imported_is_told_with_all_that_is_wrong(
        self, database: Database
    ) -> None:
        told: list[tuple[int, str]] = []
        text = f"id,name,address,version\n1,{'x' * 31},1,?\n2,B,2,\n1,C,3,\n,D,4,\n"
        import_into(
            database,
            text,
            "id",
            skip_bad=True,
            begin_rejects=lambda: lambda *row: told.append(row),
        )
        assert [line for line, _ in told] == [2, 4]
        assert told[0][1].endswith('30 characters long. "version" is not the version of an export')
        assert told[1][1] == TWICE.replace("line 4", "line 2").replace("line 5", "line 4")

    def test_a_column_that_is_absent_is_kept_and_an_empty_cell_clears_the_address(
        self, database: Database
    ) -> None:
        fill_with(database, [ALPHA, BETA, GAMMA])
        import_into(database, "id,name\n1,Uno\n", "id")
        import_into(database, "id,address\n2,2 Road\n3,\n", "id")
        assert [row[1:3] for row in stores(database)] == [
            ("Uno", "1 Road"),
            ("Beta", "2 Road"),
            ("Gamma", None),
        ]
        searched = table(database, "SELECT name, address, folded FROM stores ORDER BY id")
        assert [each for *_, each in searched] == [
            folded(name, address) for name, address, _ in searched
        ]
        changes = table(database, "SELECT name, address FROM changes WHERE seq > 3 ORDER BY seq")
        assert changes == [("Uno", "1 Road"), ("Beta", "2 Road"), ("Gamma", None)]
        with pytest.raises(Refused):
            import_into(database, "id,address\n,4 Road\n", "id")  # a new store needs a name

    def test_an_empty_address_is_as_good_as_none_to_a_spreadsheet(self, database: Database) -> None:
        fill_with(database, [Payload("Alpha", ""), BETA])
        done = import_into(database, "id,name,address\n1,Alpha,\n2,Beta,\n", "id")
        assert counts(done) == {"unchanged": 2}
        assert len(database.changes()) == 2

    def test_a_store_that_changed_after_the_version_of_the_file_is_a_conflict(
        self, database: Database
    ) -> None:
        fill_with(database, [ALPHA, BETA, GAMMA])
        exported = version(database)
        import_into(database, "id,name\n1,By Anna\n", "id")
        text = f"id,name,version\n1,By Bob,{exported}\n2,Beta 2,{exported}\n3,Gamma,{exported}\n"
        with pytest.raises(Refused, match="of 3 rows, 1 in conflict") as refused:
            import_into(database, text, "id")
        [problem] = refused.value.report.problems
        assert (problem.line, problem.id, problem.column) == (2, 1, "version")
        assert len(database.changes()) == 4
        done = import_into(database, text, "id", on_conflict="skip")
        assert counts(done) == {"replaced": 1, "unchanged": 1, "conflicts": 1}
        assert counts(import_into(database, text, "id", on_conflict="overwrite"))["replaced"] == 1
        assert [name for _, name, *_ in stores(database)] == ["By Bob", "Beta 2", "Gamma"]

    @pytest.mark.parametrize("of", ["{}.abcdefgh", "99.{}"])
    def test_a_version_of_another_history_is_a_conflict_unless_nothing_would_change(
        self, database: Database, of: str
    ) -> None:
        fill_with(database, [ALPHA, BETA])
        seq, epoch = version(database).split(".")
        other = of.format(seq if of.startswith("{") else epoch)
        done = import_into(
            database, f"id,name,version\n1,New,{other}\n2,Beta,{other}\n", "id", on_conflict="skip"
        )
        assert counts(done) == {"unchanged": 1, "conflicts": 1}
        assert "is of another history" in done.report.problems[0].message

    def test_a_dry_run_says_what_would_be_done_and_does_nothing(self, database: Database) -> None:
        fill_with(database, [ALPHA, BETA])
        text = "id,name,address\n1,Uno,1 Road\n,Delta,4 Road\n9,Bad,\n"
        done = import_into(database, text, "id", dry_run=True)
        assert counts(done) == {"created": 1, "replaced": 1, "bad": 1, "missing": 1}
        assert [(each.line, each.id, each.old, each.new) for each in done.report.changes] == [
            (2, 1, {"name": "Alpha", "address": "1 Road"}, {"name": "Uno", "address": "1 Road"}),
            (3, 3, None, {"name": "Delta", "address": "4 Road"}),
        ]
        assert done.report.dry_run
        assert len(database.changes()) == 2

    def test_an_import_may_depend_on_the_tag_of_the_list(self, database: Database) -> None:
        fill_with(database, [ALPHA])
        current = version(database)
        with pytest.raises(PreconditionFailed):
            import_into(database, "id,name\n1,New\n", "id", if_match=frozenset(['"0.abcdefgh"']))
        done = import_into(database, "id,name\n1,New\n", "id", if_match=frozenset([f'"{current}"']))
        assert counts(done) == {"replaced": 1}

    def test_an_import_with_the_key_of_an_earlier_one_is_not_carried_out_again(
        self, database: Database
    ) -> None:
        fill_with(database, [ALPHA])
        text = "name\nBeta\nGamma\n"
        done = import_into(database, text, add=True, idempotency_key=("k", 7))
        replay = import_or_replay(database, text, add=True, idempotency_key=("k", 7))
        assert type(replay) is Counts
        assert (replay.created, replay.version) == (2, done.report.version)
        with pytest.raises(KeyReused):
            import_into(database, text, add=True, idempotency_key=("k", 8))
        assert len(stores(database)) == 3

        async def post() -> None:
            async with handle(database) as collection:
                await collection.write(Create(ALPHA, key=("k", 9)))

        with pytest.raises(KeyReused):
            run(post())

    def test_a_repeat_that_is_begun_before_the_first_one_ends_is_a_replay(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Although it would be refused now."""
        look, late = sessions.replayed, list[Callable[[], object]]()

        def look_too_early(*question: Any) -> Any:
            found = look(*question)
            while late:
                late.pop()()
            return found

        def twice(text: str, match: str | None, **options: Any) -> None:
            late.append(lambda: import_into(database, text, match, **options))
            done = import_or_replay(database, text, match, **options)
            assert type(done) is Counts, options

        monkeypatch.setattr(intake, "replayed", look_too_early)
        twice("name,address\nAlpha,1 Road\n", None, idempotency_key=("first", 1))
        current = version(database)
        tag = frozenset([f'"{current}"'])
        twice("id,name\n1,Beta\n", "id", idempotency_key=("tag", 1), if_match=tag)
        seen = version(database)
        decided = (Resolution(2, seen, address="2 Road", present=("name",)),)
        text = "id,name,address,version\n1,Gamma,3 Road,9.another2\n"
        twice(text, "id", idempotency_key=("decided", 1), decisions=decided)
        assert [row[1:] for row in stores(database)] == [("Beta", "2 Road", 3)]

    def test_a_replay_has_the_epoch_of_now(self, database: Database) -> None:
        """Its client depends on that tag next, and an earlier one matches nothing."""
        fill_with(database, [ALPHA])
        text = "name\nBeta\n"
        done = import_into(database, text, add=True, idempotency_key=("k", 7))
        seq, _, before = done.report.version.partition(".")
        epoch = databases.epoch(database.url, renew=True)
        replay = import_or_replay(database, text, add=True, idempotency_key=("k", 7))
        assert type(replay) is Counts
        assert epoch != before
        assert (replay.created, replay.version) == (1, f"{seq}.{epoch}")
        depends = frozenset([f'"{replay.version}"'])
        assert counts(import_into(database, "name\nGamma\n", add=True, if_match=depends))

    def test_a_key_of_a_store_is_none_of_an_import_and_a_dry_run_remembers_none(
        self, database: Database
    ) -> None:
        async def post() -> None:
            async with handle(database) as collection:
                await collection.write(Create(ALPHA, key=("of a store", 7)))

        run(post())
        with pytest.raises(KeyReused):
            import_into(database, "name\nBeta\n", add=True, idempotency_key=("of a store", 7))
        import_into(database, "name\nBeta\n", add=True, idempotency_key=("dry", 7), dry_run=True)
        assert counts(
            import_into(database, "name\nBeta\n", add=True, idempotency_key=("dry", 7))
        ) == {"created": 1}

    def test_what_others_write_before_the_lock_is_seen(self, database: Database) -> None:
        """The plan is made and approved again."""
        fill_with(database, [ALPHA, BETA])
        exported = version(database)
        plans: list[dict[str, int]] = []

        def review(plan: ImportPlan) -> None:
            plans.append(
                {
                    "created": plan.report.created,
                    "conflicts": plan.report.conflicts,
                    "total": plan.numbers.total,
                }
            )
            if len(plans) == 1:
                import_into(database, "id,name\n1,By Anna\n,New\n", "id")

        text = f"id,name,version\n1,By Bob,{exported}\n2,Uno,{exported}\n,Other,\n"
        done = import_into(database, text, "id", review=review, on_conflict="skip")
        assert plans == [
            {"created": 1, "conflicts": 0, "total": 2},
            {"created": 1, "conflicts": 1, "total": 3},
        ]
        assert counts(done) == {"created": 1, "replaced": 1, "conflicts": 1, "missing": 1}
        assert [name for _, name, *_ in stores(database)] == ["By Anna", "Uno", "New", "Other"]

    def test_a_file_that_cannot_be_read_to_its_end_changes_nothing(
        self, database: Database
    ) -> None:
        fill_with(database, [ALPHA])

        def broken() -> Iterator[SheetRow]:
            yield from rows_of([BETA])
            raise ZeroDivisionError

        opened = databases.database(database.url)
        with pytest.raises(ZeroDivisionError), opened.session() as session:
            intake.import_rows(session, broken(), Import(add=True))
        assert len(database.changes()) == 1

    def test_long_files_are_compared_in_parts(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(intake, "CHUNK", 3)
        text = "Key,name\n" + "".join(f"{number},Store {number}\n" for number in range(1, 11))
        assert counts(import_into(database, text, "Key")) == {"created": 10}
        changed = text.replace("Store 7", "Seven").replace("Store 10", "Ten") + "11,Eleven\n"
        assert counts(import_into(database, changed, "Key")) == {
            "created": 1,
            "replaced": 2,
            "unchanged": 8,
        }
        assert [row[0] for row in stores(database)] == list(range(1, 12))
        assert sorted(seq for seq, *_ in database.changes()) == list(range(1, 14))


NAMES = st.sampled_from(["A", "B", "C", "D"])
LISTS = st.lists(st.tuples(NAMES, st.sampled_from([None, "", "1"])), max_size=5)
FILES = st.lists(
    st.tuples(st.sampled_from(["", "1", "2", "3", "9"]), NAMES, st.sampled_from(["", "1", "2"])),
    max_size=5,
)


def expected(
    before: list[tuple[str, str | None]], rows: list[tuple[str, str, str]]
) -> list[tuple[str, str | None]]:
    """Say again, in another way, what an import by ids that skips bad rows makes of a list."""
    after = list(before)
    rows = list(dict.fromkeys(rows))
    for id, name, address in rows:
        if id and sum(each == id for each, *_ in rows) > 1:
            continue
        if not before or not id:
            after.append((name, address or None))
        elif int(id) <= len(before):
            was = before[int(id) - 1][1]
            after[int(id) - 1] = (name, was if address == (was or "") else address or None)
    return after


@pytest.mark.parametrize("kind", KINDS)
def test_any_file_makes_of_any_list_what_its_rows_say(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=30 if kind == "sqlite" else 8)
    @given(before=LISTS, rows=FILES)
    def check(before: list[tuple[str, str | None]], rows: list[tuple[str, str, str]]) -> None:
        with KINDS[kind](tmp_path_factory.mktemp("property")) as database:
            fill_with(database, [Payload(*each) for each in before])
            text = "id,name,address\n" + "".join(f"{','.join(row)}\n" for row in rows)
            done = import_into(database, text, "id", skip_bad=True)
            assert [(name, address) for _, name, address, _ in stores(database)] == expected(
                before, rows
            )
            versions = [row[0] for row in database.changes()]
            assert versions == list(range(1, len(versions) + 1))
            report = done.report
            assert report.rows == len(rows)
            changed = report.created + report.replaced
            assert report.rows == changed + report.unchanged + report.bad + report.repeated
            assert int(re.match(r"\d+", report.version)[0]) == len(versions)  # type: ignore[index]  # it matches

    check()
