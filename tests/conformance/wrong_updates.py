"""Mutants whose updates do something else."""

from typing import Any

from tests.conformance.mutants import mutant
from tests.conformance.reference import Answer, Reference, Store


@mutant("an update takes the client's id", "update-keeps-the-id")
class TakesId(Reference):
    """The payload's id is stored."""

    def replace(self, store: Store, payload: Any) -> None:
        super().replace(store, payload)
        store["id"] = payload.get("id", store["id"])


@mutant("an update numbers the store anew", "update-keeps-the-id")
class Renumbers(Reference):
    """The store becomes the last."""

    def replace(self, store: Store, payload: Any) -> None:
        super().replace(store, payload)
        store["id"] = len(self.stores) + 1


@mutant("an update goes to the payload's id", "update-keeps-the-id")
class Elsewhere(Reference):
    """The id of the payload wins over that of the path."""

    def update(self, id: str, payload: Any) -> Answer:
        return super().update(str(payload.get("id", id)) if isinstance(payload, dict) else id, payload)


@mutant("an update answers the payload's id", "update-keeps-the-id")
class Echoes(Reference):
    """The answer is the payload, and the store is right."""

    def update(self, id: str, payload: Any) -> Answer:
        answer = super().update(id, payload)
        if answer.status == 200 and "id" in payload:
            return self.success("update", {"address": None, **payload})
        return answer


@mutant("an update changes all of that name", "update-changes-only-that-store")
class ChangesAll(Reference):
    """All stores of the old name are changed."""

    def replace(self, store: Store, payload: Any) -> None:
        for one in self.matching(store["name"]):
            super().replace(one, payload)


@mutant("an update changes the first of that name", "update-changes-only-that-store")
class ChangesFirst(Reference):
    """The store is looked up by its name."""

    def replace(self, store: Store, payload: Any) -> None:
        super().replace(self.matching(store["name"])[0], payload)


@mutant("an update to a taken name is refused", "update-accepts-what-others-have")
class UniqueUpdate(Reference):
    """Names are unique."""

    def update(self, id: str, payload: Any) -> Answer:
        if not self.problems(payload, "update"):
            others = [store for store in self.matching(payload["name"]) if str(store["id"]) != id]
            if others:
                return self.error("update", 409, "Conflict", "taken")
        return super().update(id, payload)


@mutant("an update that changes nothing is refused", "update-accepts-what-others-have")
class Unchanged(Reference):
    """The same values twice are an error."""

    def update(self, id: str, payload: Any) -> Answer:
        store = self.find(id)
        if (
            store
            and not self.problems(payload, "update")
            and self.values(payload, store, "update").items() <= store.items()
        ):
            return self.error("update", 409, "Conflict", "the same")
        return super().update(id, payload)


@mutant("an update adds the store that is missing", "update-adds-no-store")
class Adds(Reference):
    """PUT is taken for an upsert."""

    def missing(self, operation: str) -> Answer:
        if operation == "update":
            self.stores.append({"id": self.asked, **self.values(self.payload, None, "update")})
            return self.success("update", self.stores[-1])
        return super().missing(operation)

    def update(self, id: str, payload: Any) -> Answer:
        self.asked, self.payload = int(id) if id.isdigit() else 0, payload
        return super().update(id, payload)


@mutant("an update of a missing store creates one", "update-adds-no-store")
class Creates(Reference):
    """What cannot be updated is created."""

    def update(self, id: str, payload: Any) -> Answer:
        if not self.problems(payload, "update") and self.find(id) is None:
            return self.create(payload)
        return super().update(id, payload)


@mutant("an update answers what was before", "update-answers-the-updated-store")
class AnswersBefore(Reference):
    """The answer shows the old values."""

    def update(self, id: str, payload: Any) -> Answer:
        before = dict(self.find(id) or {})
        answer = super().update(id, payload)
        return self.success("update", before) if answer.status == 200 else answer


@mutant("an update is applied by the next", "update-is-seen-by-id")
class Behind(Reference):
    """The answer is right, the store changes one write later."""

    waiting: tuple[Store, Store] | None = None

    def update(self, id: str, payload: Any) -> Answer:
        if self.waiting:
            self.waiting[0].update(self.waiting[1])
        self.waiting = None
        store = self.find(id)
        if self.problems(payload, "update") or store is None:
            return super().update(id, payload)
        self.waiting = store, self.values(payload, store, "update")
        return self.success("update", {**store, **self.waiting[1]})


@mutant("an update with the address before the name", "create-reads-json-escapes", "update-reads-json-escapes")
class InOrder(Reference):
    """Only payloads that begin with the name are read."""

    def parse(self, body: bytes) -> Any:
        payload = super().parse(body)
        return {} if isinstance(payload, dict) and [*payload][:1] == ["address"] else payload
