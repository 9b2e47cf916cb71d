"""Rows of sheets that come back are merged with their stores field by field, whichever database
holds the list: by their version, or by what their source last gave."""

from typing import Any

import pytest

from storekeeper.domain.errors import InvalidInput, Unavailable
from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.intake import Refused, Resolution
from storekeeper.domain.reasons import Reason
from storekeeper.domain.stores import Payload
from storekeeper.storage import databases
from tests.harness.databases import Database
from tests.harness.imports import counts, import_into, undone
from tests.harness.transfers import fill_with


def select(database: Database, statement: str) -> list[Any]:
    with databases.database(database.url).snapshot() as snapshot:
        return list(snapshot.select(statement))


def content(database: Database) -> list[Any]:
    return select(database, "SELECT name, address FROM stores ORDER BY id")


def version(database: Database) -> str:
    return import_into(database, "id,name\n", "id", dry_run=True).report.version


def edit(database: Database, id: int, name: str, address: str) -> None:
    """Change a store as another person does."""
    import_into(database, f'id,name,address\n{id},"{name}","{address}"\n', "id")


def sheet(*rows: tuple[object, ...], columns: str = "Key,name,address") -> str:
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    return "\n".join([columns, *lines, ""])


def nightly(database: Database, *rows: tuple[object, ...], **options: Any) -> ImportPlan:
    """Import what a source gives: rows of key, name and address."""
    return import_into(database, sheet(*rows), "Key", **options)


OLD, MINE, THEIRS = "1 Old Road", "2 My Road", "3 Their Road"
VERSIONED = "id,name,address,version"


class TestVersions:
    """Rows with a version."""

    def test_changes_of_different_fields_are_both_kept(self, database: Database) -> None:
        fill_with(database, [Payload("Alpha", OLD)])
        exported = version(database)
        edit(database, 1, "Alpha", THEIRS)
        row = sheet((1, "Alpha Central", OLD, exported), columns=VERSIONED)
        assert counts(import_into(database, row, "id")) == {"replaced": 1}
        assert content(database) == [("Alpha Central", THEIRS)]
        assert counts(import_into(database, row, "id")) == {"unchanged": 1}

    def test_a_row_that_nobody_edited_reverts_nothing(self, database: Database) -> None:
        fill_with(database, [Payload("Alpha", OLD)])
        exported = version(database)
        edit(database, 1, "Beta", THEIRS)
        row = sheet((1, "Alpha", OLD, exported), columns=VERSIONED)
        for on_conflict in ("refuse", "skip", "overwrite"):
            done = import_into(database, row, "id", on_conflict=on_conflict)
            assert counts(done) == {"unchanged": 1}
        assert content(database) == [("Beta", THEIRS)]
        done = import_into(database, row, "id", on_conflict="ignore-version")
        assert counts(done) == {"replaced": 1}
        assert content(database) == [("Alpha", OLD)]

    def test_a_field_that_both_changed_is_a_conflict_that_says_all(
        self, database: Database
    ) -> None:
        fill_with(database, [Payload("Alpha", OLD)])
        exported = version(database)
        edit(database, 1, "Beta", THEIRS)
        row = sheet((1, "Gamma", MINE, exported), columns=VERSIONED)
        with pytest.raises(Refused, match="of 1 row, 1 in conflict") as refused:
            import_into(database, row, "id")
        [problem] = refused.value.report.problems
        assert (problem.line, problem.id, problem.reason) == (2, 1, Reason.CONFLICT)
        conflict = problem.conflict
        assert conflict
        assert conflict.fields == ["name", "address"]
        assert conflict.base == {"name": "Alpha", "address": OLD}
        assert conflict.present == {"name": "Beta", "address": THEIRS}
        assert conflict.row == {"name": "Gamma", "address": MINE}
        assert conflict.seen == version(database)
        assert conflict.at.endswith("Z")
        assert counts(import_into(database, row, "id", on_conflict="skip")) == {"conflicts": 1}
        assert content(database) == [("Beta", THEIRS)]

    def test_overwrite_decides_only_the_field_in_conflict(self, database: Database) -> None:
        fill_with(database, [Payload("Alpha", OLD)])
        exported = version(database)
        edit(database, 1, "Beta", THEIRS)
        row = sheet((1, "Alpha", MINE, exported), columns=VERSIONED)
        done = import_into(database, row, "id", on_conflict="overwrite")
        assert counts(done) == {"replaced": 1}
        assert content(database) == [("Beta", MINE)]

    def test_what_both_changed_alike_is_no_conflict(self, database: Database) -> None:
        fill_with(database, [Payload("Alpha", OLD)])
        exported = version(database)
        edit(database, 1, "Alpha", THEIRS)
        row = sheet((1, "Alpha", f" {THEIRS} ", exported), columns=VERSIONED)
        assert counts(import_into(database, row, "id")) == {"unchanged": 1}

    def test_what_cannot_be_written_in_a_sheet_keeps_its_bytes(self, database: Database) -> None:
        """Blanks at the ends, a blank name, CR LF, and an empty address."""
        before = [Payload("  ", " a\r\nb\t"), Payload("\u00a0Alpha ", ""), Payload("Beta", None)]
        fill_with(database, before)
        exported = version(database)
        rows = [(1, "", "a\nb"), (2, "Alpha", ""), (3, "Beta", "")]
        text = sheet(*((*row, exported) for row in rows), columns=VERSIONED)
        assert counts(import_into(database, text, "id")) == {"unchanged": 3}
        edit(database, 2, "\u00a0Alpha ", THEIRS)
        assert counts(import_into(database, text, "id")) == {"unchanged": 3}
        assert content(database)[0] == ("  ", " a\r\nb\t")

    @pytest.mark.parametrize("of", ["{}.abcdefgh", "99.{}"])
    def test_without_its_base_each_field_that_differs_is_a_conflict(
        self, database: Database, of: str
    ) -> None:
        fill_with(database, [Payload("Alpha", OLD), Payload("Beta", OLD)])
        seq, epoch = version(database).split(".")
        other = of.format(seq if of.startswith("{") else epoch)
        text = sheet((1, "Alpha", MINE, other), (2, "Beta", OLD, other), columns=VERSIONED)
        done = import_into(database, text, "id", on_conflict="skip")
        assert counts(done) == {"unchanged": 1, "conflicts": 1}
        [problem] = done.report.problems
        assert problem.conflict
        assert (problem.conflict.fields, problem.conflict.base) == (["address"], None)
        done = import_into(database, text, "id", on_conflict="overwrite")
        assert content(database) == [("Alpha", MINE), ("Beta", OLD)]

    @pytest.mark.parametrize("match", ["name", "Key"])
    def test_a_row_of_another_store_than_it_is_matched_with_has_no_base(
        self, database: Database, match: str
    ) -> None:
        """Two stores exchanged their names and numbers since the export."""
        fill_with(database, [Payload("A", OLD), Payload("B", THEIRS)])
        columns = "id,name,address,Key"
        first = sheet((1, "A", OLD, "a"), (2, "B", THEIRS, "b"), columns=columns)
        keyed = import_into(database, first, "id", attach="Key")
        exported = version(database)
        undone(database, keyed)
        swapped = sheet((1, "B", OLD, "b"), (2, "A", THEIRS, "a"), columns=columns)
        import_into(database, swapped, "id", attach="Key")
        rows = ((1, "A", OLD, "a"), (2, "B", THEIRS, "b"))
        text = sheet(*((*row, exported) for row in rows), columns=f"{columns},version")
        done = import_into(database, text, match, on_conflict="skip")
        assert counts(done) == {"conflicts": 2}
        assert content(database) == [("B", OLD), ("A", THEIRS)]
        problem = done.report.problems[0]
        assert problem.conflict
        assert problem.conflict.base is None
        assert problem.message.startswith('The "id" of the row is not that of store 2, which its ')
        assert counts(import_into(database, text, "id")) == {"unchanged": 2}
        mine = sheet(("1.0", "B", MINE, "b", exported), columns=f"{columns},version")
        assert counts(import_into(database, mine, match)) == {"replaced": 1, "missing": 1}
        assert content(database) == [("B", MINE), ("A", THEIRS)]

    def test_a_store_that_is_younger_than_the_version_has_no_base(self, database: Database) -> None:
        fill_with(database, [Payload("Alpha", OLD)])
        exported = version(database)
        import_into(database, "name,address\nNew,4 New Road\n", add=True)
        text = sheet((2, "Newer", "4 New Road", exported), columns=VERSIONED)
        done = import_into(database, text, "id", on_conflict="skip")
        assert counts(done) == {"conflicts": 1, "missing": 1}

    def test_an_absent_column_and_a_missing_cell_keep_what_is_there(
        self, database: Database
    ) -> None:
        fill_with(database, [Payload("Alpha", OLD)])
        import_into(database, "id,name,address\n1,Beta\n", "id")
        import_into(database, "id,address\n1,2 My Road\n", "id")
        assert content(database) == [("Beta", MINE)]


class TestSources:
    """Rows with the key of a source, which remembers what it gave."""

    def test_a_correction_outlives_each_night(self, database: Database) -> None:
        nightly(database, ("7", "Alpha", OLD), ("8", "Beta", OLD))
        edit(database, 1, "Alpha Central", OLD)
        for _ in range(3):
            done = nightly(database, ("7", "Alpha", OLD), ("8", "Beta", OLD))
            assert counts(done) == {"unchanged": 2}
        done = nightly(database, ("7", "Alpha", THEIRS), ("8", "Beta", OLD))
        assert counts(done) == {"replaced": 1, "unchanged": 1}
        assert content(database) == [("Alpha Central", THEIRS), ("Beta", OLD)]

    def test_what_both_changed_is_told_each_night_until_somebody_decides(
        self, database: Database
    ) -> None:
        nightly(database, ("7", "Alpha", OLD))
        edit(database, 1, "Alpha", MINE)
        for _ in range(2):
            done = nightly(database, ("7", "Alpha", THEIRS), on_conflict="skip")
            assert counts(done) == {"conflicts": 1}
            [problem] = done.report.problems
            assert problem.conflict
            assert problem.conflict.base == {"name": "Alpha", "address": OLD}
        nightly(database, ("7", "Alpha", THEIRS), on_conflict="overwrite")
        assert content(database) == [("Alpha", THEIRS)]
        assert counts(nightly(database, ("7", "Alpha", THEIRS))) == {"unchanged": 1}

    @pytest.mark.parametrize("decided", [MINE, THEIRS, "5 Other Road"])
    def test_a_decision_holds_from_then_on(self, database: Database, decided: str) -> None:
        nightly(database, ("7", "Alpha", OLD))
        edit(database, 1, "Alpha", MINE)
        row = ("7", "Alpha", THEIRS)
        refused = nightly(database, row, on_conflict="skip").report.problems[0]
        assert refused.conflict
        decision = Resolution(2, refused.conflict.seen, address=decided)
        done = nightly(database, row, decisions=(decision,))
        assert counts(done) == ({"unchanged": 1} if decided == MINE else {"replaced": 1})
        assert content(database) == [("Alpha", decided)]
        assert counts(nightly(database, row)) == {"unchanged": 1}
        assert content(database) == [("Alpha", decided)]

    @pytest.mark.parametrize("decided", [MINE, "5 Other Road"])
    def test_a_decision_comes_before_what_all_other_conflicts_become(
        self, database: Database, decided: str
    ) -> None:
        rows = (("7", "Alpha", OLD), ("8", "Beta", OLD))
        nightly(database, *rows)
        edit(database, 1, "Alpha", MINE)
        edit(database, 2, "Beta", MINE)
        rows = (("7", "Alpha", THEIRS), ("8", "Beta", THEIRS))
        decision = Resolution(2, 3, address=decided)
        nightly(database, *rows, on_conflict="overwrite", decisions=(decision,))
        assert content(database) == [("Alpha", decided), ("Beta", THEIRS)]

    @pytest.mark.parametrize("side", ["present", "row"])
    def test_a_side_is_taken_whole_where_the_report_shows_it_cut(
        self, database: Database, side: str
    ) -> None:
        sides = {"present": "p" * 5000, "row": "r" * 5000}
        nightly(database, ("7", "Alpha", OLD))
        edit(database, 1, "Alpha", sides["present"])
        decision = Resolution(2, 2, **{side: ("address",)})  # type: ignore[arg-type]  # one of two
        row = ("7", "Alpha", sides["row"])
        nightly(database, row, decisions=(decision,))
        assert content(database) == [("Alpha", sides[side])]
        assert counts(nightly(database, row)) == {"unchanged": 1}

    def test_a_decision_holds_only_for_the_version_that_was_seen(self, database: Database) -> None:
        nightly(database, ("7", "Alpha", OLD))
        edit(database, 1, "Alpha", MINE)
        decision = Resolution(2, version(database), address=THEIRS)
        edit(database, 1, "Alpha", "9 Newest Road")
        done = nightly(database, ("7", "Alpha", THEIRS), on_conflict="skip", decisions=(decision,))
        assert counts(done) == {"conflicts": 1}
        of_other = Resolution(2, f"{version(database).split('.')[0]}.abcdefgh", address=THEIRS)
        done = nightly(database, ("7", "Alpha", THEIRS), on_conflict="skip", decisions=(of_other,))
        assert counts(done) == {"conflicts": 1}
        assert content(database) == [("Alpha", "9 Newest Road")]

    @pytest.mark.parametrize("side", ["present", "row"])
    @pytest.mark.parametrize("given", [MINE, THEIRS])
    def test_a_decision_holds_although_the_source_gave_something_else_since(
        self, database: Database, given: str, side: str
    ) -> None:
        """The store still has the version that was seen; only what the source gave is newer."""
        nightly(database, ("7", "Alpha", OLD))
        edit(database, 1, "Alpha", MINE)
        keep = Resolution(2, 2, present=("address",))
        assert counts(nightly(database, ("7", "Alpha", given), decisions=(keep,))) == {
            "unchanged": 1
        }
        sides = {"present": MINE, "row": THEIRS}
        decision = Resolution(2, 2, **{side: ("address",)})  # type: ignore[arg-type]  # one of two
        nightly(database, ("7", "Alpha", THEIRS), decisions=(decision,))
        assert content(database) == [("Alpha", sides[side])]

    def test_a_decision_that_is_made_meanwhile_is_not_overwritten(self, database: Database) -> None:
        """It changes no store, only what the source gave; on_conflict is compared with that."""
        nightly(database, ("7", "Alpha", OLD))
        edit(database, 1, "Alpha", MINE)
        row = ("7", "Alpha", THEIRS)
        plans: list[int] = []

        def decide(plan: ImportPlan) -> None:
            plans.append(plan.report.replaced)
            if len(plans) == 1:
                nightly(database, row, decisions=(Resolution(2, 2, present=("address",)),))

        nightly(database, row, on_conflict="overwrite", review=decide)
        assert plans == [1, 0]
        assert content(database) == [("Alpha", MINE)]

    def test_a_key_that_goes_while_rows_are_compared_ends_no_import(
        self, database: Database
    ) -> None:
        """Another client undoes what gave the store its key."""
        fill_with(database, [Payload("Alpha", OLD)])
        adopted = nightly(database, ("a", "Alpha", OLD), adopt=True)
        edit(database, 1, "Alpha", THEIRS)

        def detach(_line: int, _why: str) -> None:
            undone(database, adopted)

        with pytest.raises(Unavailable, match="A key of the file went meanwhile"):
            nightly(database, ("a", "Alpha", MINE), begin_rejects=lambda: detach)
        assert content(database) == [("Alpha", THEIRS)]

    def test_a_decision_of_one_field_leaves_the_other_in_conflict(self, database: Database) -> None:
        nightly(database, ("7", "Alpha", OLD))
        edit(database, 1, "Beta", MINE)
        decision = Resolution(2, version(database), address=THEIRS)
        done = nightly(database, ("7", "Gamma", THEIRS), on_conflict="skip", decisions=(decision,))
        assert counts(done) == {"conflicts": 1}
        [problem] = done.report.problems
        assert problem.conflict
        assert problem.conflict.fields == ["name"]

    def test_rows_with_a_version_do_not_change_what_a_source_gave(self, database: Database) -> None:
        nightly(database, ("7", "Alpha", OLD))
        text = sheet(("7", "Alpha", MINE, version(database)), columns="Key,name,address,version")
        import_into(database, text, "Key")
        assert content(database) == [("Alpha", MINE)]
        assert counts(nightly(database, ("7", "Alpha", OLD))) == {"unchanged": 1}
        assert content(database) == [("Alpha", MINE)]

    def test_long_names_are_remembered_whole(self, database: Database) -> None:
        long, longer = "x" * 40, "y" * 40
        nightly(database, ("7", long, OLD), cut_names=True)
        assert content(database) == [("x" * 30, OLD)]
        assert counts(nightly(database, ("7", long, OLD))) == {"unchanged": 1}
        with pytest.raises(Refused):
            nightly(database, ("7", longer, OLD))
        done = nightly(database, ("7", longer, OLD), cut_names=True)
        assert counts(done) == {"replaced": 1}
        edit(database, 1, "Mine", OLD)
        assert counts(nightly(database, ("7", longer, OLD))) == {"unchanged": 1}

    def test_a_name_that_was_cut_at_a_blank_still_is_what_the_source_gave(
        self, database: Database
    ) -> None:
        long = "x" * 29 + " street"
        nightly(database, ("7", long, OLD), cut_names=True)
        assert content(database) == [("x" * 29, OLD)]
        assert counts(nightly(database, ("7", "Short", OLD))) == {"replaced": 1}

    def test_a_file_without_a_field_does_not_forget_it(self, database: Database) -> None:
        nightly(database, ("7", "Alpha", OLD))
        import_into(database, "Key,name\n7,Beta\n", "Key")
        edit(database, 1, "Beta", MINE)
        assert counts(nightly(database, ("7", "Beta", OLD))) == {"unchanged": 1}
        assert content(database) == [("Beta", MINE)]

    def test_a_key_without_memory_is_no_base(self, database: Database) -> None:
        """As those that an earlier version knew."""
        nightly(database, ("7", "Alpha", OLD))
        with databases.write_session(database.url) as session:
            session.write("UPDATE external_ids SET given_name = NULL, given_address = NULL")
        done = nightly(database, ("7", "Alpha", THEIRS), on_conflict="skip")
        assert counts(done) == {"conflicts": 1}
        assert counts(nightly(database, ("7", "Alpha", OLD))) == {"unchanged": 1}
        assert counts(nightly(database, ("7", "Alpha", THEIRS))) == {"replaced": 1}


class TestRows:
    """The rows of one file among each other."""

    def test_identical_rows_count_once(self, database: Database) -> None:
        text = sheet(("1", "A", OLD), ("2", "B", OLD), ("1", "A", OLD), ("1", " A ", OLD))
        assert counts(import_into(database, text, "Key")) == {"created": 2, "repeated": 2}
        assert counts(import_into(database, text, "Key")) == {"unchanged": 2, "repeated": 2}
        done = import_into(database, "name\nA\nA\n", add=True)
        assert counts(done) == {"created": 2}

    def test_stores_of_an_export_that_look_the_same_stay_two(self, database: Database) -> None:
        done = import_into(database, "id,name\n1,A\n2,A\n2,A\n")
        assert counts(done) == {"created": 2, "repeated": 1}

    def test_one_key_with_two_contents_is_two_bad_rows_that_name_both_lines(
        self, database: Database
    ) -> None:
        done = nightly(database, ("1", "A", OLD), ("2", "B", OLD), ("1", "A", MINE), skip_bad=True)
        assert counts(done) == {"created": 1, "bad": 2}
        messages = {problem.message for problem in done.report.problems}
        assert len(messages) == 1
        assert messages.pop().endswith("with different content: in line 2 and in line 4")


class TestNames:
    """Rows with a name that is read otherwise than its store has it."""

    NAMES = (" blanks\u00a0", "two\r\nlines", "\rthree\r", "plain")

    def test_an_export_of_them_finds_its_stores_again(self, database: Database) -> None:
        fill_with(database, [Payload(name, OLD) for name in self.NAMES])
        rows = [(name, OLD) for name in self.NAMES]
        done = import_into(database, sheet(*rows, columns="name,address"), "name")
        assert counts(done) == {"unchanged": 4}
        rows = [(name, MINE) for name in self.NAMES]
        done = import_into(database, sheet(*rows, columns="name,address"), "name")
        assert counts(done) == {"replaced": 4}
        assert content(database) == [(name, MINE) for name in self.NAMES]

    def test_no_row_means_one_of_two_stores_with_names_that_are_read_alike(
        self, database: Database
    ) -> None:
        fill_with(database, [Payload("A", OLD), Payload("A ", OLD), Payload("a", OLD)])
        done = import_into(database, f"name,address\nA,{MINE}\n", "name", skip_bad=True)
        assert counts(done) == {"bad": 1, "missing": 3}
        assert done.report.problems[0].reason is Reason.AMBIGUOUS
        assert content(database) == [("A", OLD), ("A ", OLD), ("a", OLD)]

    def test_rows_with_names_that_are_read_alike_are_not_two_stores(
        self, database: Database
    ) -> None:
        fill_with(database, [Payload("two\nlines", OLD)])
        rows = [("two\nlines", MINE), ("two\r\nlines", THEIRS)]
        text = sheet(*rows, columns="name,address")
        done = import_into(database, text, "name", skip_bad=True)
        assert counts(done) == {"bad": 2}
        assert content(database) == [("two\nlines", OLD)]


class TestKeys:
    """How stores get the keys of an outside system."""

    def test_a_column_is_the_one_that_the_list_knows(self, database: Database) -> None:
        import_into(database, "Store No,name\n1,A\n", "Store No")
        done = import_into(database, " store NO ,name\n1,A\n2,B\n", "store no")
        assert counts(done) == {"created": 1, "unchanged": 1}
        columns = select(database, "SELECT DISTINCT column_name FROM external_ids")
        assert columns == [("Store No",)]
        with databases.write_session(database.url) as session:
            session.write(
                "INSERT INTO external_ids (store_id, column_name, value)"
                " VALUES (2, 'STORE NO', '9')"
            )
        assert counts(import_into(database, "STORE NO,name\n9,B\n", "STORE NO"))["unchanged"] == 1
        with pytest.raises(InvalidInput, match='say which one, of "STORE NO", "Store No"'):
            import_into(database, "store no,name\n9,B\n", "store no")

    def test_a_row_adopts_the_store_that_is_like_it(self, database: Database) -> None:
        fill_with(database, [Payload("Café  ALPHA", OLD), Payload("Beta", OLD)])
        rows = (("7", "Cafe\u0301 alpha", OLD), ("8", "Gamma", OLD))
        assert counts(nightly(database, *rows, dry_run=True)) == {"created": 2, "missing": 2}
        done = nightly(database, *rows, adopt=True)
        assert counts(done) == {"created": 1, "replaced": 1, "adopted": 1, "missing": 1}
        assert content(database)[0] == ("Café  ALPHA", OLD), "it keeps its spelling"
        assert len(database.changes()) == 4
        assert counts(nightly(database, *rows, adopt=True)) == {"unchanged": 2, "missing": 1}
        done = nightly(database, ("7", "Cafe\u0301 alpha", THEIRS), rows[1])
        assert counts(done) == {"replaced": 1, "unchanged": 1, "missing": 1}
        assert content(database)[0] == ("Café  ALPHA", THEIRS)

    def test_nothing_is_adopted_where_it_is_not_the_only_reading(self, database: Database) -> None:
        fill_with(database, [Payload("A"), Payload("A"), Payload("B"), Payload("C")])
        import_into(database, "id,name,Key\n4,C,old\n", "id", attach="Key")
        rows = (("1", "A", ""), ("2", "b", ""), ("3", "B ", ""), ("4", "C", ""))
        done = nightly(database, *rows, adopt=True, skip_bad=True)
        assert counts(done) == {"bad": 4, "missing": 4}
        reasons = [problem.reason for problem in done.report.problems]
        alike = Reason.ROWS_ALIKE
        assert reasons == [Reason.LIKE_SEVERAL, alike, alike, Reason.OTHER_KEY]
        messages = [problem.message for problem in done.report.problems]
        assert messages[0] == "Several stores are like the row, such as 1 and 2"
        assert messages[3] == 'Store 4 has the "Key" old already, which is not 4'

    def test_stores_that_are_matched_by_id_get_keys_exactly(self, database: Database) -> None:
        fill_with(database, [Payload("A"), Payload("B"), Payload("C")])
        text = "id,name,ID No\n1,A,a1\n2,B,\n,D,d4\n"
        done = import_into(database, text, "id", attach="ID No")
        assert counts(done) == {
            "created": 1, "replaced": 1, "unchanged": 1, "adopted": 1, "missing": 1
        }  # fmt: skip
        found = select(database, "SELECT store_id, value FROM external_ids ORDER BY store_id")
        assert found == [(1, "a1"), (4, "d4")]
        text = "id,name,ID No\n1,A,a1\n2,B,a1\n3,C,c3\n4,D,c3\n"
        with pytest.raises(Refused) as refused:
            import_into(database, text, "id", attach="ID No")
        reasons = [(each.line, each.reason) for each in refused.value.report.problems]
        repeated = Reason.REPEATED
        assert reasons == [(2, repeated), (3, repeated), (4, repeated), (5, repeated)]
        text = "id,name,ID No\n1,A,b1\n2,B,d4\n"
        done = import_into(database, text, "id", attach="ID No", skip_bad=True)
        reasons = [(each.line, each.reason) for each in done.report.problems]
        assert reasons == [(2, Reason.OTHER_KEY), (3, Reason.TAKEN)]
