"""Mutants whose creates and updates do something else."""

import html
import time
from collections.abc import Callable
from typing import Any

from tests.storeapi_check.mutants import breaks, mutant
from tests.storeapi_check.reference import Reference, Response, Store

# Ids

IDS: dict[str, tuple[str, Callable[[list[Store], Any], Any]]] = {
    "the count": ("create-id-is-count-plus-one", lambda stores, _: len(stores)),
    "the count plus two": ("create-id-is-count-plus-one", lambda stores, _: len(stores) + 2),
    "every second number": ("create-id-is-count-plus-one", lambda stores, _: 2 * len(stores)),
    "the time": ("create-id-is-count-plus-one", lambda stores, _: time.time_ns()),
    "the count of names plus one": (
        "create-again-makes-another",
        lambda stores, _: len({store["name"] for store in stores}) + 1,
    ),
    "the client's": (
        "create-takes-no-id-from-client",
        lambda stores, payload: payload.get("id", len(stores) + 1),
    ),
    "the client's if a string": (
        "create-takes-no-id-from-client",
        lambda stores, payload: (
            payload["id"] if isinstance(payload.get("id"), str) else len(stores) + 1
        ),
    ),
    "the client's if higher": (
        "create-takes-no-id-from-client",
        lambda stores, payload: max(len(stores) + 1, int(payload.get("id", 0))),
    ),
}
for wrong, (check, choose) in IDS.items():
    breaks(
        f"the id is {wrong}", check, next_id=lambda self, payload, c=choose: c(self.stores, payload)
    )


@mutant("rejected creates take a number", "rejected-create-takes-no-number")
class Consumes(Reference):
    taken = 3

    def create(self, payload: Any) -> Response:
        self.taken += 1
        return super().create(payload)

    def next_id(self, payload: Any) -> Any:
        return self.taken


@mutant("rejected updates take a number", "rejected-create-takes-no-number")
class RejectedConsumes(Reference):
    rejected = 0

    def update(self, id: str, payload: Any) -> Response:
        self.rejected += bool(self.problems(payload, "update"))
        return super().update(id, payload)

    def next_id(self, payload: Any) -> Any:
        return len(self.stores) + 1 + self.rejected


@mutant("updates take a number", "create-id-is-count-plus-one")
class UpdateConsumes(Reference):
    taken = 3

    def next_id(self, payload: Any) -> Any:
        self.taken += 1
        return self.taken

    def replace(self, store: Store, payload: Any) -> None:
        self.taken += 1
        super().replace(store, payload)


@mutant("creates at the same time get one id", "create-at-the-same-time")
class Races(Reference):
    def handle(self, method: str, target: str, body: bytes) -> Response:
        return (
            self.create(self.parse(body))
            if method == "POST"
            else super().handle(method, target, body)
        )

    def next_id(self, payload: Any) -> Any:
        number = len(self.stores) + 1
        time.sleep(0.005)
        return number


# Creates


def upserts(self: Reference, payload: Any) -> Store:
    for store in self.matching(payload["name"]):
        self.replace(store, payload)
        return store
    return Reference.add(self, payload)


def upserts_by_id(self: Reference, payload: Any) -> Store:
    store = self.find(str(payload.get("id")))
    if store is None:
        return Reference.add(self, payload)
    self.replace(store, payload)
    return store


def forgets(self: Reference, payload: Any) -> Store:
    return {"id": self.next_id(payload), **self.values(payload, None, "create")}


def unique(self: Reference, payload: Any) -> Response:
    name = payload.get("name") if isinstance(payload, dict) else None
    taken = isinstance(name, str) and self.matching(name)
    return (
        self.error("create", 409, "Conflict", "taken") if taken else Reference.create(self, payload)
    )


breaks("a create with a taken name updates", "create-again-makes-another", add=upserts)
breaks(
    "a create with the id of a store updates it",
    "create-takes-no-id-from-client",
    add=upserts_by_id,
)
breaks("a create with a taken name is refused", "create-again-makes-another", create=unique)
breaks("creates are answered and not kept", "create-is-seen-by-id", add=forgets)

# What is stored of a payload

TEXTS: dict[str, tuple[str, Callable[[str], str]]] = {
    "trimmed": ("takes-fields-from-payload", str.strip),
    "trimmed at its end": ("takes-fields-from-payload", str.rstrip),
    "escaped for HTML": ("takes-fields-from-payload", html.escape),
    "in ASCII": (
        "takes-fields-from-payload",
        lambda text: text.encode("ascii", "replace").decode(),
    ),
    "without line ends": ("takes-fields-from-payload", lambda text: text.replace("\r\n", "\n")),
    "without emoji": (
        "takes-fields-from-payload",
        lambda text: "".join(c for c in text if c < "\U00010000"),
    ),
    "with percents decoded": ("takes-fields-from-payload", lambda text: text.replace("%41", "A")),
    "in lower case": ("takes-fields-from-payload", str.lower),
    "cut at 255": ("limits-only-the-name", lambda text: text[:255]),
}


IN_ADDRESSES = {"cut at 255", "without line ends", "with percents decoded"}


def sent(change: Callable[[str], str]) -> Callable[[str | None], str | None]:
    """A change of what was sent; null stays."""
    return lambda value: value if value is None else change(value)


def stores(operation: str, key: str, change: Callable[[Any], Any]) -> Callable[..., Store]:
    """Another value stored for one field by one operation."""

    def values(self: Reference, payload: Any, before: Store | None, asked: str) -> Store:
        store = Reference.values(self, payload, before, asked)
        return {**store, key: change(store[key])} if asked == operation else store

    return values


ADDRESSES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "an empty address becomes null": ("takes-an-empty-address", lambda value: value or None),
    "the address is not stored": ("takes-fields-from-payload", lambda _: None),
    "no address is stored as empty": ("without-address-gives-null", lambda value: value or ""),
}
for operation in ("create", "update"):
    for wrong, (check, text) in TEXTS.items():
        for key in ("address",) if wrong in IN_ADDRESSES else ("name", "address"):
            breaks(
                f"{operation}: {key} {wrong}",
                f"{operation}-{check}",
                values=stores(operation, key, sent(text)),
            )
    for wrong, (check, change) in ADDRESSES.items():
        breaks(
            f"{operation}: {wrong}",
            f"{operation}-{check}",
            values=stores(operation, "address", change),
        )
    breaks(
        f"{operation}: other keys are stored",
        "create-stores-no-other-key",
        values=lambda self, payload, before, asked, o=operation: (
            {**Reference.values(self, payload, before, asked), **(payload if asked == o else {})}
            if "colour" in payload
            else Reference.values(self, payload, before, asked)
        ),
    )
NULLS: dict[str, Callable[[Any], Any]] = {
    "a blank address": lambda value: value if value and value.strip() else None,
    "the text null": lambda value: None if value == "null" else value,
}
for wrong, change in NULLS.items():
    replaced = stores("update", "address", change)
    breaks(f"update: {wrong} becomes null", "update-replaces-both-fields", values=replaced)
breaks(
    "update: the address is kept when none is sent",
    "update-without-address-gives-null",
    values=lambda self, payload, before, asked: (
        {
            **(before or {"address": None}),
            **{key: payload[key] for key in ("name", "address") if key in payload},
        }
    ),
)


def keeps_address(self: Reference, payload: Any, before: Store | None, asked: str) -> Store:
    """The address stays when none is sent and the name is the same."""
    store = Reference.values(self, payload, before, asked)
    same = before is not None and before["name"] == payload["name"] and "address" not in payload
    return {**store, "address": before["address"]} if before and same else store


KEEPS: dict[str, Callable[[Any, Any, Store | None, str], Store]] = {
    "the address is kept when the name stays": keeps_address,
    "only the name is replaced": lambda self, payload, before, asked: (
        {
            "name": payload["name"],
            "address": before["address"] if before else payload.get("address"),
        }
    ),
    "only the address is replaced": lambda self, payload, before, asked: (
        {"name": before["name"] if before else payload["name"], "address": payload.get("address")}
    ),
}
for wrong, values in KEEPS.items():
    breaks(f"update: {wrong}", "update-replaces-both-fields", values=values)
