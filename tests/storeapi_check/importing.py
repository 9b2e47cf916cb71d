"""A reference that also imports sheets, and undoes imports: what `wrong_importing` breaks."""

import csv
import email
import io
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.storeapi_check.announcing import EPOCH
from tests.storeapi_check.reference import JSON, Response, Store
from tests.storeapi_check.sorting import Sorting

FIELDS = ("name", "address")
COUNTS = ("created", "replaced", "unchanged", "conflicts", "bad", "adopted")
Run = list[tuple[int, Store, Store, str]]
Query = dict[str, str]


class Importing(Sorting):
    """A service that keeps the contract, with imports and their undo.

    `numbers` has which store each key means, `given` what a source last gave for it, `runs` what
    each import and undo did: stores before and after it, and the keys that they got.
    """

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, int] = {}
        self.given: dict[str, Store] = {}
        self.runs: dict[tuple[str, str], Run] = {}

    def handle(self, method: str, target: str, body: bytes) -> Response:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        if (method, parts.path) == ("POST", "/api/imports"):
            return self.import_(query, *self.parts(body))
        if (method, parts.path) == ("POST", "/api/imports/undo"):
            return self.undo(query)
        return super().handle(method, target, body)

    def parts(self, body: bytes) -> tuple[list[Store], str]:
        """Return the decisions that came with a sheet, and the sheet."""
        kind = self.sent["content-type"]
        if not kind.startswith("multipart/"):
            return [], body.decode()
        whole = f"Content-Type: {kind}\r\n\r\n".encode() + body
        parts = list(email.message_from_bytes(whole).walk())[1:]
        first, second = (str(part.get_payload()) for part in parts)
        return self.parse(first.encode()), second

    # Imports, of sheets of one row

    def import_(self, query: Query, decisions: list[Store], text: str) -> Response:
        [row] = csv.DictReader(io.StringIO(text))
        key, counts = row.get("Check") or "", dict.fromkeys(COUNTS, 0)
        store = self.meant(row, key)
        adopts = store is None and "adopt" in query
        if adopts:
            store = self.like(row)
        if store is None:
            return self.created(query, row, key)
        base = self.like(row) if adopts else self.base(row, key)
        after, fields = self.merged_row(base, store, row)
        is_decided = bool(fields) and self.holds(decisions, store)
        if is_decided:
            after, fields = {**after, "address": decisions[0]["address"]}, []
        problems = [self.problem(fields, base, store, row)] if fields else []
        if problems and query.get("on-conflict") != "skip":
            return self.refused(problems, store, row)
        if problems:
            counts["conflicts"] = 1
            after = self.skipped(store, row)
        elif adopts or self.is_change(store, after):
            counts |= {"replaced": 1, "adopted": int(adopts)}
        else:
            counts["unchanged"] = 1
        if self.is_dry(query):
            return self.report(counts, [], problems)
        if key and (not problems or self.remembers_skipped()):
            self.given[key] = {field: row[field] for field in FIELDS}
        run: Run = []
        if counts["replaced"] or after != store:
            run.append(self.write(store, after, key if adopts else ""))
        return self.report(counts, run, problems)

    def meant(self, row: Store, key: str) -> Store | None:
        return self.find(str(self.numbers.get(key, "")) if key else row["id"])

    def like(self, row: Store) -> Store | None:
        texts = {field: row[field] for field in FIELDS}
        return next((store for store in self.stores if texts.items() <= store.items()), None)

    def created(self, query: Query, row: Store, key: str) -> Response:
        counts = dict.fromkeys(COUNTS, 0) | {"created": 1}
        if not self.is_dry(query):
            store = self.add({field: row[field] for field in FIELDS})
            self.numbers[key] = store["id"]
            self.written(self.success("create", store), store["id"])
        return self.report(counts, [], [])

    def base(self, row: Store, key: str) -> Store | None:
        if key:
            return self.given.get(key)
        stores = self.history[int(row["version"].partition(".")[0])].stores
        return next(store for store in stores if store["id"] == int(row["id"]))

    def merged_row(self, base: Store | None, present: Store, row: Store) -> tuple[Store, list[str]]:
        """Return what a store becomes, and its fields in conflict."""
        after, fields = dict(present), []
        for field in FIELDS:
            sides = [base[field] if base else None, present[field], row[field]]
            if self.is_conflict(*sides):
                fields.append(field)
            else:
                after[field] = self.merged_field(*sides)
        return after, fields

    def is_conflict(self, base: Any, present: Any, row: Any) -> bool:
        return len({base, present, row}) == 3

    def merged_field(self, base: Any, present: Any, row: Any) -> Any:
        return present if row == base else row

    def holds(self, decisions: list[Store], store: Store) -> bool:
        seen = [decision["seen"] for decision in decisions]
        return f"{self.versions[store['id']]}.{EPOCH}" in seen

    def is_change(self, store: Store, after: Store) -> bool:
        return store != after

    def is_dry(self, query: Query) -> bool:
        return "dry-run" in query

    def remembers_skipped(self) -> bool:
        return False

    def skipped(self, store: Store, row: Store) -> Store:
        """Return what a store becomes whose row is skipped."""
        return store

    def problem(self, fields: list[str], base: Store | None, store: Store, row: Store) -> Store:
        sides = {"base": self.shown(base), "present": store, "row": row}
        return {"line": 2, "conflict": {"fields": fields, **sides}}

    def shown(self, base: Store | None) -> Store | None:
        return base

    def refused(self, problems: list[Store], store: Store, row: Store) -> Response:
        body = self.error_body("other", 422, "Unprocessable Entity", "1 in conflict")
        return self.send("other", 422, self.encode(body | {"problems": problems}), JSON)

    def write(self, store: Store, after: Store, key: str) -> tuple[int, Store, Store, str]:
        before = dict(store)
        if key:
            self.numbers[key] = store["id"]
        store.update({field: after[field] for field in FIELDS})
        self.written(self.success("update", store), store["id"])
        return store["id"], before, dict(store), key

    def report(self, counts: dict[str, int], run: Run, problems: list[Store]) -> Response:
        return self.done({**counts, "problems": problems}, run)

    def done(self, body: Store, run: Run) -> Response:
        body |= {"from": None, "to": None}
        if run:
            first, last = f"{self.version - len(run) + 1}.{EPOCH}", f"{self.version}.{EPOCH}"
            self.runs[first, last] = run
            body |= {"from": first, "to": last}
        return self.send("other", 200, self.encode(body), JSON)

    # Undo

    def undo(self, query: Query) -> Response:
        run = self.run(query["from"], query["to"])
        if run is None:
            return self.error("other", 400, "Bad Request", "not an import")
        undone: Run = []
        kept = 0
        for id, before, after, key in run:
            store = self.find(str(id)) or {}
            fields = [field for field in FIELDS if self.stays(store[field], after[field])]
            kept += any(store[field] != after[field] for field in FIELDS)
            result = {**before, **{field: store[field] for field in fields}}
            if not self.is_dry_undo(query):
                undone.append(self.write(store, result, ""))
                self.detach(key)
        return self.done({"undone": len(run), "kept": kept, "created": 0}, undone)

    def run(self, first: str, last: str) -> Run | None:
        return self.runs.get((first, last))

    def stays(self, present: Any, made: Any) -> bool:
        return bool(present != made)

    def is_dry_undo(self, query: Query) -> bool:
        return "dry-run" in query

    def detach(self, key: str) -> None:
        if key:
            del self.numbers[key], self.given[key]
