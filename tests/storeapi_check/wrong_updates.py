"""Mutants whose updates do something else."""

from collections.abc import Callable
from typing import Any

from tests.storeapi_check.mutants import breaks, mutant
from tests.storeapi_check.reference import Reference, Response, Store

replace, update = Reference.replace, Reference.update
REPLACES: dict[str, tuple[str, Callable[[Any, Store, Any], object]]] = {
    "takes the client's id": (
        "update-keeps-the-id",
        lambda self, store, payload: (
            replace(self, store, payload),
            store.update(id=payload.get("id", store["id"])),
        ),
    ),
    "numbers the store again": (
        "update-keeps-the-id",
        lambda self, store, payload: (
            replace(self, store, payload),
            store.update(id=len(self.stores) + 1),
        ),
    ),
    "changes all of that name": (
        "update-changes-only-that-store",
        lambda self, store, payload: [
            replace(self, one, payload) for one in self.matching(store["name"])
        ],
    ),
    "changes the first of that name": (
        "update-changes-only-that-store",
        lambda self, store, payload: replace(self, self.matching(store["name"])[0], payload),
    ),
}
for wrong, (check, act) in REPLACES.items():
    breaks(
        f"an update {wrong}",
        check,
        replace=lambda self, store, payload, a=act: a(self, store, payload),
    )


def elsewhere(self: Reference, id: str, payload: Any) -> Response:
    return update(self, str(payload.get("id", id)) if isinstance(payload, dict) else id, payload)


def echoed(self: Reference, id: str, payload: Any) -> Response:
    response = update(self, id, payload)
    echo = response.status == 200 and "id" in payload
    return self.success("update", {"address": None, **payload}) if echo else response


def unique(self: Reference, id: str, payload: Any) -> Response:
    valid = not self.problems(payload, "update")
    if valid and [store for store in self.matching(payload["name"]) if str(store["id"]) != id]:
        return self.error("update", 409, "Conflict", "taken")
    return update(self, id, payload)


def different(self: Reference, id: str, payload: Any) -> Response:
    store = self.find(id)
    if (
        store
        and not self.problems(payload, "update")
        and self.values(payload, store, "").items() <= store.items()
    ):
        return self.error("update", 409, "Conflict", "the same")
    return update(self, id, payload)


def upserted(self: Reference, id: str, payload: Any) -> Response:
    if self.problems(payload, "update") or self.find(id):
        return update(self, id, payload)
    self.stores.append(
        {"id": int(id) if id.isdigit() else 0, **self.values(payload, None, "update")}
    )
    return self.success("update", self.stores[-1])


def created(self: Reference, id: str, payload: Any) -> Response:
    missing = not self.problems(payload, "update") and self.find(id) is None
    return self.create(payload) if missing else update(self, id, payload)


def shown_before(self: Reference, id: str, payload: Any) -> Response:
    before = dict(self.find(id) or {})
    response = update(self, id, payload)
    return self.success("update", before) if response.status == 200 else response


for wrong, check, method in (
    ("goes to the payload's id", "update-keeps-the-id", elsewhere),
    ("returns the payload's id", "update-keeps-the-id", echoed),
    ("to a taken name is refused", "update-accepts-what-others-have", unique),
    ("that changes nothing is refused", "update-accepts-what-others-have", different),
    ("adds the store that is missing", "update-adds-no-store", upserted),
    ("of a missing store creates one", "update-adds-no-store", created),
    ("returns what was before", "update-returns-the-updated-store", shown_before),
):
    breaks(f"an update {wrong}", check, update=method)


@mutant("an update is applied by the next", "update-is-seen-by-id")
class Behind(Reference):
    waiting: tuple[Store, Store] | None = None

    def update(self, id: str, payload: Any) -> Response:
        if self.waiting:
            self.waiting[0].update(self.waiting[1])
        self.waiting = None
        store = self.find(id)
        if self.problems(payload, "update") or store is None:
            return super().update(id, payload)
        self.waiting = store, self.values(payload, store, "update")
        return self.success("update", {**store, **self.waiting[1]})


@mutant(
    "an update with the address before the name",
    "create-reads-json-escapes",
    "update-reads-json-escapes",
)
class InOrder(Reference):
    def parse(self, body: bytes) -> Any:
        payload = super().parse(body)
        return {} if isinstance(payload, dict) and [*payload][:1] == ["address"] else payload
