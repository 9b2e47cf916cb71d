"""Mutants whose reads are wrong: the list, its filter and one store."""

import re
import unicodedata
from collections.abc import Callable

from tests.storeapi_check.mutants import breaks, mutant
from tests.storeapi_check.reference import Reference, Response, Store

# The list


@mutant("a new store is not in the list at once", "list-has-every-store")
class Late(Reference):
    shown = 3

    def all(self) -> list[Store]:
        return self.stores[: self.shown]

    def handle(self, method: str, target: str, body: bytes) -> Response:
        response = super().handle(method, target, body)
        self.shown = len(self.stores) - (method == "POST")
        return response


@mutant("the list does not show updates", "update-is-seen-in-list")
class Stale(Reference):
    kept: tuple[int, list[Store]] = (0, [])

    def all(self) -> list[Store]:
        if self.kept[0] != len(self.stores):
            self.kept = (len(self.stores), [dict(store) for store in self.stores])
        return self.kept[1]


@mutant("the list is one request behind", "list-has-every-store")
class LateList(Reference):
    kept: tuple[Store, ...] = ()

    def all(self) -> list[Store]:
        before, self.kept = self.kept, tuple(self.stores)
        return list(before)


LISTS: dict[str, Callable[[list[Store]], list[Store]]] = {
    "at most 50 stores": lambda stores: stores[:50],
    "the list without addressless": lambda stores: [store for store in stores if store["address"]],
    "the list has the last twice": lambda stores: stores + stores[-1:],
}
for wrong, choose in LISTS.items():
    breaks(wrong, "list-has-every-store", all=lambda self, c=choose: c(self.stores))
breaks(
    "the list as an object",
    "list-is-an-array",
    listing=lambda self, _: self.success("list", {"all": self.all()}),
)
NO_LISTS: dict[str, object] = {"nothing": [], "an object": {}}
for wrong, value in NO_LISTS.items():
    breaks(
        f"the empty name lists {wrong}",
        "empty-name-lists-all",
        handle=lambda self, method, target, body, v=value: (
            self.success("list", v)
            if target.endswith("?name=")
            else Reference.handle(self, method, target, body)
        ),
    )


# The filter


def plain(text: str) -> str:
    """The text without accents."""
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


def composed(text: str) -> str:
    """The text with each letter and its accent as one character, as JavaScript's `localeCompare`
    takes it."""
    return unicodedata.normalize("NFC", text)


def like(have: str, name: str) -> bool:
    """SQL's LIKE, its case kept."""
    pattern = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in name)
    return re.fullmatch(pattern, have, re.DOTALL) is not None


def regular(have: str, name: str) -> bool:
    """Whether the name matches as a regular expression, if it is one."""
    try:
        return re.fullmatch(name, have) is not None
    except re.error:
        return False


WHOLE, PATTERNS = "filter-takes-the-whole-string", "filter-knows-no-pattern"
BLANKS, CHARACTERS = "filter-trims-nothing", "filter-compares-every-character"
MATCHES: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "by prefix": (WHOLE, lambda have, name: have.startswith(name)),
    "by part": (WHOLE, lambda have, name: name in have),
    "ignoring case": ("filter-is-case-sensitive", lambda have, name: have.lower() == name.lower()),
    "ignoring case of other letters": (
        CHARACTERS,
        lambda have, name: (
            re.fullmatch(re.escape(have), name, 0)
            or (not name.isascii() and have.lower() == name.lower())
        ),
    ),
    "ignoring accents": (CHARACTERS, lambda have, name: plain(have) == plain(name)),
    "in the composed form": (CHARACTERS, lambda have, name: composed(have) == composed(name)),
    "trimming the value": (BLANKS, lambda have, name: have == name.strip() or have == name),
    "trimming the name": (BLANKS, lambda have, name: name in (have, have.strip())),
    "with one blank for two": (
        BLANKS,
        lambda have, name: " ".join(name.split()) == " ".join(have.split()),
    ),
    "by pattern of SQL": (PATTERNS, like),
    "by regular expression": (PATTERNS, lambda have, name: have == name or regular(have, name)),
    "by glob": (PATTERNS, lambda have, name: name in {have, "*"}),
    "by nothing with an emoji": (
        CHARACTERS,
        lambda have, name: have == name and max(name) < "\U00010000",
    ),
}


for wrong, (check, compare) in MATCHES.items():
    breaks(
        f"filter {wrong}",
        check,
        matches=lambda self, store, name, c=compare: bool(c(store["name"], name)),
    )
SEVERAL: dict[str, Callable[[list[Store]], list[Store]]] = {
    "only the first of several matches": lambda stores: stores[:1],
    "only the last of several matches": lambda stores: stores[-1:],
    "one match per address": lambda stores: list(
        {store["address"]: store for store in stores}.values()
    ),
}
for wrong, choose in SEVERAL.items():
    breaks(
        wrong,
        "filter-finds-every-match",
        matching=lambda self, name, c=choose: c(Reference.matching(self, name)),
    )
for key in ("address", "id"):
    breaks(
        f"filter by {key} too",
        "filter-compares-only-names",
        matches=lambda self, store, name, k=key: name in (store["name"], str(store[k])),
    )
breaks("filter that finds nothing", "filter-finds-exact-name", matching=lambda self, name: [])
breaks("filter ignored", "filter-without-match", matching=lambda self, name: self.stores)


def no_match(response: Callable[[Reference], Response]) -> Callable[..., Response]:
    """Another response when a filter finds nothing."""
    return lambda self, name: (
        response(self) if name and not self.matching(name) else Reference.listing(self, name)
    )


NO_MATCH: dict[str, Callable[[Reference], Response]] = {
    "null": lambda self: self.success("filter", None),
    "all": lambda self: self.success("list", self.stores),
}
for wrong, response in NO_MATCH.items():
    breaks(f"{wrong} without a match", "filter-without-match", listing=no_match(response))
breaks(
    "the filter does not see updates",
    "update-is-seen-by-name",
    matches=lambda self, store, name: self.memory.setdefault(store["id"], store["name"]) == name,
)


def remembered(self: Reference, name: str) -> list[Store]:
    found = [] if name in self.memory else Reference.matching(self, name)
    return found or self.memory.setdefault(name, [])


breaks(
    "the filter remembers that no store had a name", "create-is-seen-by-name", matching=remembered
)


def former_names(self: Reference, store: Store, name: str) -> bool:
    names = self.memory.setdefault(store["id"], set())
    names.add(store["name"])
    return name in names


breaks("the filter also finds former names", "update-is-seen-by-name", matches=former_names)

# One store


def finds(choose: Callable[[list[Store], str], Store | None]) -> Callable[..., Store | None]:
    """Another way to look a store up by the text of its id."""
    return lambda self, text: choose(self.stores, text) if text.isdigit() else None


def by_id(stores: list[Store], id: int) -> Store | None:
    return next((store for store in stores if store["id"] == id), None)


def octal(stores: list[Store], text: str) -> Store | None:
    """The store whose id is written with leading zeros in octal, as C reads it."""
    base = 8 if text.startswith("0") and not {"8", "9"} & set(text) else 10
    return by_id(stores, int(text, base))


def too_far(stores: list[Store], text: str) -> Store | None:
    """The store before the one that has the id."""
    return stores[int(text) - 2] if by_id(stores, int(text)) else None


breaks("id as octal", "read-gives-that-store", find=finds(octal))
breaks("one store too far", "read-gives-that-store", find=finds(too_far))
breaks(
    "the last store for an id that none has",
    "read-gives-that-store",
    find=finds(lambda stores, text: by_id(stores, int(text)) or stores[-1]),
)


def remembers(status: int) -> Callable[..., Response]:
    """The first response of this status to an id stays."""

    def read(self: Reference, id: str) -> Response:
        response = self.memory.get(id) or Reference.read(self, id)
        return self.memory.setdefault(id, response) if response.status == status else response

    return read


breaks("a store that was read stays as it was", "update-is-seen-by-id", read=remembers(200))
breaks("an id that was missing stays so", "create-is-seen-by-id", read=remembers(404))
