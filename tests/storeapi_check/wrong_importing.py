"""Mutants that import sheets, and lose what others changed, or say other than what they do."""

from collections.abc import Callable
from typing import Any

from tests.storeapi_check.importing import Importing
from tests.storeapi_check.mutants import breaks
from tests.storeapi_check.reference import Response, Store

MERGES = "an-import-merges-each-field"
CONFLICT = "a-conflict-changes-nothing"
DECISION = "a-decision-holds-for-the-version-it-names"
SOURCE = "a-source-is-merged-with-what-it-gave"
UNDO = "an-undo-takes-back-what-is-left-of-an-import"


def _refuses_and_writes(
    self: Importing, problems: list[Store], store: Store, row: Store
) -> Response:
    self.write(store, {**store, "address": row["address"]}, "")
    return Importing.refused(self, problems, store, row)


def _row(self: Importing, store: Store, row: Store) -> Store:
    return {**store, "address": row["address"]}


def _any_run(self: Importing, first: str, last: str) -> Any:
    return next(iter(self.runs.values()))


def _only_imports(self: Importing, first: str, last: str) -> Any:
    return self.runs.pop((first, last), None) if len(self.runs) == 1 else None


WRONG: dict[str, tuple[str, dict[str, Callable[..., Any]]]] = {
    "a row takes back what others changed": (
        MERGES,
        {"merged_field": lambda self, base, present, row: row},
    ),
    "a field that only the sheet changed is kept": (
        MERGES,
        {"merged_field": lambda self, base, present, row: present},
    ),
    "the same import again is a change": (MERGES, {"is_change": lambda self, store, after: True}),
    "a dry run imports": (MERGES, {"is_dry": lambda self, query: False}),
    "conflicts are written": (CONFLICT, {"is_conflict": lambda self, base, present, row: False}),
    "a conflict lacks its base": (CONFLICT, {"shown": lambda self, base: None}),
    "an import is refused and written": (CONFLICT, {"refused": _refuses_and_writes}),
    "skipped rows are written": (CONFLICT, {"skipped": _row}),
    "old decisions hold": (DECISION, {"holds": lambda self, decisions, store: bool(decisions)}),
    "no decision holds": (DECISION, {"holds": lambda self, decisions, store: False}),
    "a source is forgotten": (SOURCE, {"base": lambda self, row, key: None}),
    "a source's skipped rows are its base": (SOURCE, {"remembers_skipped": lambda self: True}),
    "a store to adopt is created again": (SOURCE, {"like": lambda self, row: None}),
    "an undo leaves keys": (SOURCE, {"detach": lambda self, key: None}),
    "an undo takes back what others changed": (
        UNDO,
        {"stays": lambda self, present, made: False},
    ),
    "an undo undoes nothing": (UNDO, {"stays": lambda self, present, made: True}),
    "an undo takes any range": (UNDO, {"run": _any_run}),
    "an undo cannot be undone": (UNDO, {"run": _only_imports}),
    "a dry run undoes": (UNDO, {"is_dry_undo": lambda self, query: False}),
}


for wrong, (rule, methods) in WRONG.items():
    breaks(wrong, rule, of=Importing, **methods)
