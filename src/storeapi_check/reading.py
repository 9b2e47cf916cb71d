"""The contract's rules for the liveness route, the list, its filter and reading one store."""

from collections.abc import Iterator
from functools import partial

from storeapi_check.documents import Store
from storeapi_check.service import (
    TRIES,
    UNUSED,
    Made,
    Response,
    Rules,
    Service,
    Skipped,
    Violation,
    number,
)

RULES = Rules()
ALL = "When absent or empty: all stores are returned."
EXACT = (
    "name is exactly equal to the given value (case-sensitive, whole-string comparison)"
    " are returned"
)
DECIMAL = "it is interpreted as a decimal integer and compared with the integer id of the stores."
AWKWARD = (
    "a+b&c=d",
    "100%",
    "%41",
    "'\"`",
    "\\n\\",
    "semi;colon",
    "#1?x=/y",
    "<b>&amp;",
    "[1]{2}|^~",
    "*_%",
    "null",
    "\u00e9\u00df\u0416",
    "\u5e97",
    "\U0001f3ec\U0001f600",
    "two  spaces",
    "a,b:c@d!$()",
    "line\nend\ttab",
)
"""Names that a query, a pattern language or an encoding could misread."""


@RULES.check("Response 200: plain text body consisting of the two characters OK.", writes=False)
def _test_returns_ok(service: Service) -> None:
    response = service.test()
    response.expect(response.status == 200, f"status {response.status}, not 200")
    response.expect(response.content == b"OK", "the body is not the two characters OK")
    media_type = response.header("content-type") or ""
    is_text = media_type.lower().startswith("text/")
    response.expect(is_text, f"the content type is {media_type!r}, which is not text")


RULES.add(
    "list-is-an-array",
    "Response 200: JSON array of Store objects.",
    "",
    Service.count,
    writes=False,
)


@RULES.check(ALL, "Without a name, including stores that were just added.", late=True, adds=2)
def _list_has_every_store(service: Service) -> None:
    made = [service.make(address=address) for address in ("Listed", None)]
    response = service.find()
    for store in made:
        response.shows(store, " in the list")
    lost = sorted(service.mine - {number(store) for store in response.listed.stores})
    response.expect(not lost, f"the stores {lost} were added before, but the list lacks them")


@RULES.check(ALL, "With an empty name.", writes=False)
def _empty_name_lists_all(service: Service) -> None:
    if not service.read_only:
        service.settle()
    before, response = service.count(), service.find("")
    count = response.listed.count
    right = count == before or before < count <= service.count()  # other clients may add stores
    response.expect(right, f"there were {before} stores, the empty name lists {count}")


@RULES.check(EXACT, "The name of a store finds it.", writes=False)
def _filter_finds_exact_name(service: Service) -> None:
    for made in _subjects(service):
        response = _found(service, made.name)
        if response.with_id(made.id):
            return
        still = service.read(made.id).single.get("name") == made.name
        response.expect(not still, f"the store {made.id} has that name, but is not found")


def _other_values(name: str) -> dict[str, tuple[str, list[str]]]:
    """Return the filter values that must not find a store with this name: the name of each
    check, with its scope and values."""
    patterns = [f"{name[:-1]}{sign}" for sign in "_%*?.+"]
    patterns += [
        "%",
        "*",
        "_" * len(name),
        ".*",
        f"^{name}$",
        f"{name}|x",
        f'"{name}"',
        f"{name},{name}",
        "0",
    ]
    parts = [
        name[:-1],
        name[1:],
        name[1:-1],
        name[:5],
        name + "x",
        "x" + name,
        name.split(maxsplit=1)[0],
    ]
    blanks = [
        f"{name} ",
        f" {name}",
        f"{name}\t",
        name.replace(" ", "  "),
        name.replace(" ", ""),
        name.strip(),
    ]
    cases = [name.swapcase(), name.upper(), name.lower(), name.title()]
    return {
        "filter-is-case-sensitive": ("Other cases do not find it.", cases),
        "filter-takes-the-whole-string": (
            "Parts of the name, and more than the name, do not find it.",
            parts,
        ),
        "filter-trims-nothing": ("Blanks count.", blanks),
        "filter-knows-no-pattern": ("No character is a wildcard.", patterns),
    }


def _finds_no_other(check: str, service: Service) -> None:
    names = [next(_subjects(service)).name]
    if not service.read_only:
        names.append(service.spare(f" {service.name()} ").name)
    for name in names:
        _, values = _other_values(name)[check]
        for value in dict.fromkeys(values):
            if value not in {"", name}:
                _found(service, value)


for name, (scope, _) in _other_values("a name").items():
    RULES.add(name, EXACT, scope, partial(_finds_no_other, name), writes=False)


@RULES.check("No match gives an empty array.", writes=False)
def _filter_without_match(service: Service) -> None:
    response = service.find(service.name())
    response.expect(response.listed.count == 0, "a name that no store has finds stores")


@RULES.check(EXACT, "All stores with that name are found.", adds=3)
def _filter_finds_every_match(service: Service) -> None:
    name = service.name()
    made = sorted(service.make(name, address).id for address in ("First", None, "First"))
    response = service.find(name)
    ids = [number(store) for store in response.listed.stores]
    all_found = sorted(map(str, ids)) == sorted(map(str, made))
    response.expect(all_found, f"{made} have that name, found: {ids}")


@RULES.check(EXACT, "Addresses and ids are not compared.")
def _filter_compares_only_names(service: Service) -> None:
    text = service.name()
    store = service.spare(address=text)
    _found(service, text)
    _found(service, str(store.id))


@RULES.check(EXACT, "Whatever characters the name has.")
def _filter_compares_every_character(service: Service) -> None:
    part = service.spare().name[-12:]
    for text in AWKWARD:
        made = service.spare(f"{text} {part}")
        response = _found(service, made.name)
        response.expect(response.with_id(made.id), f"{made.name!r} is not found")
    for text, others in (
        ("01234567890", ["1234567890", "1234567890.0"]),
        ("\u00e9", ["e", "\u00c9", "e\u0301"]),
    ):
        service.spare(f"{text}{part[:8]}")
        for other in others:
            _found(service, f"{other}{part[:8]}")
    service.spare()


@RULES.check(DECIMAL, late=True, writes=False)
def _read_gives_that_store(service: Service) -> None:
    for made in _subjects(service):
        try:
            service.read(made.id).shows(made)
            break
        except Violation:
            same = service.find(made.name).with_id(made.id)
            addresses = [store.get("address") for store in same]
            # In a read-only run, another client may have changed the store since it was listed.
            if not service.read_only or made.address in addresses:
                raise
    written_ids = {f"00{id}": id for id in sorted(service.mine | {made.id})[-10:]}
    written_ids[str(UNUSED)] = UNUSED
    for written, id in written_ids.items():
        response = service.read(written, "open")
        other = number(response.document) if response.ok else None
        response.expect(other in {None, id}, f"{written} is not the id of the store {other}")


def _subjects(service: Service) -> Iterator[Made]:
    """Yield a store to check: one of ours, or in a read-only run one from the list, which is
    read again for each try."""
    if not service.read_only:
        yield service.settle()
        return
    for _ in range(TRIES):
        response = service.find()
        sample = next(filter(_has_name_and_id, response.stores), None)
        if sample is None:
            raise Skipped("the list has no store to look at")
        id = number(sample)
        assert id is not None
        yield Made(id, str(sample["name"]), sample.get("address"), response)


def _has_name_and_id(store: Store) -> bool:
    return bool(str(store.get("name") or "").strip() and number(store))


def _found(service: Service, value: str) -> Response:
    """Return what the filter finds; raise Violation if it finds a store with another name."""
    response = service.find(value)
    for store in response.listed.stores:
        name = store.get("name")
        response.expect(name == value, f"the filter {value!r} finds a store named {name!r}")
    return response
