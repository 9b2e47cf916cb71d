"""The contract's rules for the liveness route, the list, its filter and reading one store; this package only."""

from collections.abc import Iterator

from storekeeper.conformance.documents import Store
from storekeeper.conformance.rules import Skipped, expect, rule
from storekeeper.conformance.service import (
    MISSING,
    Answer,
    Made,
    Service,
    Violation,
    differs,
    ids_of,
    listed,
    number,
    single,
)

TRIES = 4
"""How often something is looked at again because other clients may have written in between."""
AWKWARD = (
    *(
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
    ),
    *("\u00e9\u00df\u0416", "\u5e97", "\U0001f3ec\U0001f600", "two  spaces", "a,b:c@d!$()", "line\nend\ttab"),
)
"""Text that a query, a pattern language or an encoding could take for something else."""


@rule()
def test_answers_ok(service: Service) -> None:
    """Response 200: plain text body consisting of the two characters OK."""
    answer = service.test()
    expect(answer, answer.http.status == 200, f"status {answer.http.status}, not 200")
    expect(answer, answer.http.content == b"OK", "the body is not the two characters OK")
    kind = answer.http.header("content-type") or ""
    expect(answer, kind.lower().startswith("text/"), f"the content type is {kind!r}, which is no text")


@rule()
def list_is_an_array(service: Service) -> None:
    """Response 200: JSON array of Store objects."""
    service.everything()


@rule(late=True, adds=2)
def list_has_every_store(service: Service) -> None:
    """When absent or empty: all stores are returned.

    Without a name: also those just added.
    """
    made = [service.make(address=address) for address in ("Listed", None)]
    answer = service.send("list", "GET", "/api/stores")
    for one in made:
        same = [store for store in listed(answer).stores if store.get("name") == one.name]
        expect(answer, len(same) == 1, f"{one.name!r} was just added; the list has it {len(same)} times")
        wrong = differs(same[0], one.id, one.name, one.address)
        expect(answer, not wrong, f"in the list its {wrong}")
    lost = sorted(service.mine - set(ids_of(listed(answer).stores)))
    expect(answer, not lost, f"the stores {lost} were added before; the list lacks them")


@rule()
def empty_name_lists_all(service: Service) -> None:
    """When absent or empty: all stores are returned.

    With an empty name.
    """
    if not service.read_only:
        service.settle()
    before = service.everything().count
    answer = service.find("")
    count = listed(answer).count
    expect(answer, count >= before, f"{before} stores were there, the empty name lists {count}")
    if count > before:
        after = service.everything().count
        expect(answer, count <= after, f"the empty name lists {count} stores, of {after}")


@rule()
def filter_finds_exact_name(service: Service) -> None:
    """When given: only stores whose name is exactly equal to the given value (case-sensitive, whole-string
    comparison) are returned.

    The name of a store finds it.
    """
    for made in subjects(service):
        answer = service.find(made.name)
        only(answer, made.name)
        if made.id in ids_of(listed(answer).stores):
            return
        still = single(service.read(made.id)).get("name") == made.name
        expect(answer, not still, f"the store {made.id} has that name and is not found")


@rule()
def filter_is_case_sensitive(service: Service) -> None:
    """When given: only stores whose name is exactly equal to the given value (case-sensitive, whole-string
    comparison) are returned.

    Other cases do not find it.
    """
    name = some_name(service)
    near(service, name, [name.swapcase(), name.upper(), name.lower(), name.title()])


@rule()
def filter_takes_the_whole_string(service: Service) -> None:
    """When given: only stores whose name is exactly equal to the given value (case-sensitive, whole-string
    comparison) are returned.

    Parts of the name, and more than the name, do not find it.
    """
    name = some_name(service)
    near(service, name, [name[:-1], name[1:], name[1:-1], name[:5], name + "x", "x" + name, name.split()[0]])


@rule()
def filter_trims_nothing(service: Service) -> None:
    """When given: only stores whose name is exactly equal to the given value (case-sensitive, whole-string
    comparison) are returned.

    Blanks count.
    """
    name = some_name(service)
    near(service, name, [f"{name} ", f" {name}", f"{name}\t", name.replace(" ", "  "), name.replace(" ", "")])
    if not service.read_only:
        made = service.settle()
        service.replace(made.id, {"name": f" {made.name} ", "address": made.address})
        near(service, "", [made.name, f" {made.name}", f"{made.name} "])
        service.replace(made.id, {"name": made.name, "address": made.address})


@rule()
def filter_knows_no_pattern(service: Service) -> None:
    """When given: only stores whose name is exactly equal to the given value (case-sensitive, whole-string
    comparison) are returned.

    No character is a wildcard.
    """
    name = some_name(service)
    ends = [f"{name[:-1]}{sign}" for sign in "_%*?.+"]
    whole = ["%", "*", "_" * len(name), ".*", f"^{name}$", f"{name}|x", f'"{name}"', f"{name},{name}", "0"]
    near(service, name, [*ends, *whole])


@rule()
def filter_without_match(service: Service) -> None:
    """No match gives an empty array."""
    answer = service.find(service.name())
    expect(answer, answer.http.status == 200, f"status {answer.http.status}, not 200")
    expect(answer, listed(answer).count == 0, "a name that nobody has finds stores")


@rule(adds=3)
def filter_finds_every_match(service: Service) -> None:
    """When given: only stores whose name is exactly equal to the given value (case-sensitive, whole-string
    comparison) are returned.

    All stores of that name are found.
    """
    name = service.name()
    made = {service.make(name, address).id for address in ("First", None, "First")}
    answer = service.find(name)
    ids = ids_of(listed(answer).stores)
    expect(
        answer,
        sorted(map(str, ids)) == sorted(map(str, made)),
        f"{sorted(made)} have that name, found: {ids}",
    )


@rule(writes=True)
def filter_compares_only_names(service: Service) -> None:
    """When given: only stores whose name is exactly equal to the given value (case-sensitive, whole-string
    comparison) are returned.

    Addresses and ids are no names.
    """
    text = service.name()
    made = service.spare(address=text)
    for value in (text, str(made.id)):
        only(service.find(value), value)


@rule(writes=True)
def filter_compares_every_character(service: Service) -> None:
    """When given: only stores whose name is exactly equal to the given value (case-sensitive, whole-string
    comparison) are returned.

    Whatever characters it has.
    """
    made = service.spare()
    for text in AWKWARD:
        name = f"{text} {made.name[-12:]}"
        service.replace(made.id, {"name": name})
        answer = service.find(name)
        only(answer, name)
        expect(answer, made.id in ids_of(listed(answer).stores), f"{name!r} is not found")
    for name, others in (("0123456789012", ["123456789012", "123456789012.0"]), ("\u00e9", ["e", "\u00c9"])):
        service.replace(made.id, {"name": f"{name}{made.name[6:14]}"})
        near(service, "", [f"{other}{made.name[6:14]}" for other in others])
    service.replace(made.id, {"name": made.name})


@rule(late=True)
def read_gives_that_store(service: Service) -> None:
    """Path parameter `id`: arrives as text; it is interpreted as a decimal integer and compared with the
    integer id of the stores.
    """
    for made in subjects(service):
        answer = service.read(made.id)
        wrong = differs(single(answer), made.id, made.name, made.address)
        if not wrong:
            break
        again = [store for store in service.found(made.name) if number(store) == made.id]
        changed = service.read_only and not (again and not differs(again[0], made.id, made.name, made.address))
        expect(answer, changed, f"its {wrong}")
    zeros = [(f"00{id}", id) for id in sorted({made.id, *service.mine})[-10:]]
    for written, id in (*zeros, (str(MISSING), MISSING)):
        answer = service.read(written, "open")
        other = number(answer.document) if answer.ok else None
        expect(answer, other in {None, id}, f"{written} is not the id of the store {other}")


def subjects(service: Service) -> Iterator[Made]:
    """A store to look at: one of ours, or in a read-only run one of the list, taken anew at each try."""
    if not service.read_only:
        yield service.settle()
        return
    for _ in range(TRIES):
        answer = service.send("list", "GET", "/api/stores")
        samples = [store for store in listed(answer).shapes.values() if usable(store)]
        if not samples:
            raise Skipped("the list has no store to look at")
        yield Made(number(samples[0]) or 0, samples[0]["name"], samples[0].get("address"), answer)


def usable(store: Store) -> bool:
    """Whether a store has a name to filter by and an id to read by."""
    return bool(isinstance(store.get("name"), str) and store["name"].strip() and number(store))


def some_name(service: Service) -> str:
    """A name that a store has."""
    return next(subjects(service)).name


def near(service: Service, name: str, values: list[str]) -> None:
    """Violation when one of these values finds a store of another name; the name itself is left out."""
    for value in dict.fromkeys(values):
        if value not in {"", name}:
            only(service.find(value), value)


def only(answer: Answer, value: str) -> None:
    """Violation when a filter's answer has a store of another name."""
    for store in listed(answer).stores:
        if store.get("name") != value:
            raise Violation(f"the filter {value!r} finds a store named {store.get('name')!r}", answer.http)
