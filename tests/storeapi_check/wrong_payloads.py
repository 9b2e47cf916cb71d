"""Mutants that accept what they must reject, or reject it wrongly."""

from collections.abc import Callable
from typing import Any

from tests.storeapi_check.mutants import breaks
from tests.storeapi_check.reference import GenericReference, Problem, Reference, Response

# What is accepted and what is not

for operation in ("create", "update"):
    for limit, check in ((29, "accepts-30-characters"), (255, "rejects-31-characters")):
        breaks(
            f"{operation}: a limit of {limit}",
            f"{operation}-{check}",
            limit=lambda self, asked, o=operation, n=limit: n if asked == o else 30,
        )
    for wrong, check, length in (
        ("bytes", "counts-characters-not-bytes", lambda name: len(name.encode())),
        ("trimmed names", "rejects-31-characters", lambda name: len(name.strip())),
        (
            "ASCII letters only",
            "rejects-31-characters",
            lambda name: sum(c.isascii() for c in name),
        ),
    ):
        breaks(
            f"{operation}: the limit counts {wrong}",
            f"{operation}-{check}",
            name_problems=lambda self, payload, asked, o=operation, n=length: counted(
                self, payload, asked, n if asked == o else len
            ),
        )


def counted(
    self: Reference, payload: Any, operation: str, length: Callable[[str], int]
) -> list[Problem]:
    """The rules for a name, its length taken another way."""
    problems = Reference.name_problems(self, payload, operation)
    name = payload.get("name")
    if not isinstance(name, str) or not name:
        return problems
    return (
        [("name", '"name" length must be less than or equal to 30 characters long')]
        if length(name) > 30
        else []
    )


Accepts = Callable[[Any], bool]
ACCEPTED: dict[str, tuple[str, str, Accepts]] = {
    "no name": ("name", "rejects-missing-name", lambda payload: "name" not in payload),
    "Name for name": ("name", "rejects-missing-name", lambda payload: "Name" in payload),
    "an empty name": ("name", "rejects-empty-name", lambda payload: payload.get("name") == ""),
    "a number as name": (
        "name",
        "rejects-number-as-name",
        lambda p: type(p.get("name")) in (int, float),
    ),
    "a fraction as name": (
        "name",
        "rejects-number-as-name",
        lambda p: type(p.get("name")) is float,
    ),
    "null as name": (
        "name",
        "rejects-other-type-as-name",
        lambda p: "name" in p and p["name"] is None,
    ),
    "true as name": ("name", "rejects-other-type-as-name", lambda p: p.get("name") is True),
    "an array as name": (
        "name",
        "rejects-other-type-as-name",
        lambda p: isinstance(p.get("name"), list),
    ),
    "an object as name": (
        "name",
        "rejects-other-type-as-name",
        lambda p: isinstance(p.get("name"), dict),
    ),
    "any address": ("address", "rejects-address-of-other-type", lambda _: True),
    "an array as address": (
        "address",
        "rejects-address-of-other-type",
        lambda p: isinstance(p["address"], list),
    ),
    "an object as address": (
        "address",
        "rejects-address-of-other-type",
        lambda p: isinstance(p["address"], dict),
    ),
}


def accepting(operation: str, key: str, accepts: Accepts) -> Callable[..., list[Problem]]:
    """The rules of a payload without the one that a kind of value breaks."""

    def problems(self: Reference, payload: Any, asked: str) -> list[Problem]:
        found = Reference.problems(self, payload, asked)
        if (
            asked != operation
            or not isinstance(payload, dict)
            or key not in {field for field, _ in found}
        ):
            return found
        return [problem for problem in found if problem[0] != key] if accepts(payload) else found

    return problems


for operation in ("create", "update"):
    for wrong, (key, check, accepts) in ACCEPTED.items():
        breaks(
            f"{operation}: {wrong} is accepted",
            f"{operation}-{check}",
            problems=accepting(operation, key, accepts),
            values=lambda self, payload, before, asked: {
                "name": str(payload.get("name", "")),
                "address": payload.get("address") and str(payload["address"]),
            },
        )
    for wrong, refuses in {
        "names of one letter": lambda payload: len(payload["name"]) == 1,
        "names with emoji": lambda payload: max(payload["name"]) >= "\U00010000",
        "names that begin with a blank": lambda payload: payload["name"].startswith(" "),
        "addresses with line ends": lambda payload: "\n" in (payload.get("address") or ""),
        "a missing address": lambda payload: "address" not in payload,
        "addresses over 255": lambda payload: len(payload.get("address") or "") > 255,
    }.items():
        if operation == "update" or wrong != "names of one letter":
            breaks(
                f"{operation}: {wrong} are refused",
                "success-has-status-200",
                problems=lambda self, payload, asked, o=operation, r=refuses: (
                    Reference.problems(self, payload, asked)
                    or ([("name", '"name" is wrong')] if asked == o and r(payload) else [])
                ),
            )


# What happens all the same


def stores_anyway(when: Callable[[Any], bool]) -> Callable[..., Response]:
    """Creates are validated after they were done."""

    def create(self: Reference, payload: Any) -> Response:
        if self.problems(payload, "create") and isinstance(payload, dict) and when(payload):
            store = {"name": str(payload.get("name")), "address": payload.get("address")}
            self.stores.append({"id": len(self.stores) + 1, **store})
        return Reference.create(self, payload)

    return create


for wrong, when in {
    "every payload": lambda _: True,
    "a payload without a name": lambda payload: "name" not in payload,
    "a payload of the wrong address": lambda payload: (
        not isinstance(payload.get("address", ""), str)
    ),
    "a payload of a long name": lambda payload: (
        isinstance(payload.get("name"), str) and len(payload["name"]) > 30
    ),
}.items():
    breaks(
        f"create: {wrong} is rejected and stored",
        "rejected-create-adds-nothing",
        create=stores_anyway(when),
    )
breaks(
    "create: every payload is rejected and stored, in generic mode",
    "rejected-create-adds-nothing",
    of=GenericReference,
    create=stores_anyway(lambda _: True),
)


def changes_anyway(*keys: str) -> Callable[..., Response]:
    """Updates are validated after these fields were changed."""

    def update(self: Reference, id: str, payload: Any) -> Response:
        store = self.find(id)
        if store and isinstance(payload, dict):
            store.update({key: payload[key] for key in keys if isinstance(payload.get(key), str)})
        return Reference.update(self, id, payload)

    return update


for keys in (("name",), ("address",), ("name", "address")):
    breaks(
        f"update: rejected after {keys}",
        "rejected-update-changes-nothing",
        update=changes_anyway(*keys),
    )


def forgets_address(self: Reference, id: str, payload: Any) -> Response:
    store = self.find(id)
    if store and self.problems(payload, "update"):
        store["address"] = None
    return Reference.update(self, id, payload)


def looks_first(self: Reference, id: str, payload: Any) -> Response:
    return Reference.update(self, id, payload) if self.find(id) else self.missing("update")


breaks(
    "update: a rejected one forgets the address",
    "rejected-update-changes-nothing",
    update=forgets_address,
)
breaks(
    "update: the store is looked for before the payload is validated",
    "update-validates-first",
    update=looks_first,
)

# What is added under another name


def adds_another(operation: str, when: Callable[[Any], bool]) -> Callable[..., Response]:
    """A write adds a store that no client asked for, and whose name and address are of its own."""

    def act(self: Reference, *asked: Any) -> Response:
        response: Response = getattr(Reference, operation)(self, *asked)
        if when(response.status):
            number = len(self.stores) + 1
            self.stores.append({"id": number, "name": f"Archive {number}", "address": None})
        return response

    return act


REJECTED = "rejected-create-adds-no-other", "rejected-update-adds-no-other"
OTHERS: dict[str, tuple[tuple[str, ...], tuple[str, ...], Callable[[int], bool]]] = {
    "every rejected write adds another store": (
        REJECTED,
        ("create", "update"),
        lambda status: status == 400,
    ),
    "every update adds another store": (
        ("update-adds-no-other",),
        ("update",),
        lambda status: status == 200,
    ),
}
for wrong, (checks, operations, when) in OTHERS.items():
    methods: dict[str, Any] = {operation: adds_another(operation, when) for operation in operations}
    breaks(wrong, *checks, **methods)
