"""The contract's rules for creating a store; this package only."""

from concurrent.futures import ThreadPoolExecutor

from storekeeper.conformance.faults import every_fault
from storekeeper.conformance.rules import expect, rule
from storekeeper.conformance.service import Made, Service, Violation, differs, fields, number, single

CROWD = 10
"""How many stores are created at the same time."""
QUIET = 5
"""How many windows are looked for in which no other client creates a store."""
GAP = 25
"""How many ids between two of ours are looked at, when other clients create too."""


@rule(adds=1)
def create_answers_the_new_store(service: Service) -> None:
    """Response 200: the newly created Store object (a single object, with id, name, address)."""
    made = service.make(address="Address")
    keeps(made)


@rule(adds=3)
def create_takes_fields_from_payload(service: Service) -> None:
    """On success a new store is added with id = (count of stores before the add) + 1, name from the
    payload, address from the payload or null when not sent.

    Text comes back as it was sent.
    """
    for name, address in texts(service):
        made = service.make(name, address)
        keeps(made)
        answer = service.read(made.id)
        wrong = differs(single(answer), made.id, name, address)
        expect(answer, not wrong, f"read again, its {wrong}")


@rule(adds=2)
def create_reads_json_escapes(service: Service) -> None:
    """Request payload (JSON object):

    Keys in any order, characters escaped or not.
    """
    address = '\u00e9 \U0001f3ec " \\ / \u0001'
    for escaped in (True, False):
        name = service.name()
        payload = {"address": address, "name": name}
        answer = service.create(payload, escaped=escaped)
        wrong = differs(single(answer), number(answer.document) or 0, name, address)
        expect(answer, not wrong, f"its {wrong}")


@rule(adds=1)
def create_takes_an_empty_address(service: Service) -> None:
    """On success a new store is added with id = (count of stores before the add) + 1, name from the
    payload, address from the payload or null when not sent.

    An empty address, where a service takes one, stays empty.
    """
    name = service.name()
    answer = service.create(fields(name, ""), "either")
    if answer.ok:
        for shown in (answer, service.read(number(single(answer)) or 0)):
            address = single(shown).get("address")
            expect(shown, address == "", f"the address sent is '', the one returned {address!r}")


@rule(adds=1)
def create_without_address_gives_null(service: Service) -> None:
    """When not sent, it is stored and returned as null (never left undefined/absent).

    After a create.
    """
    made = service.make()
    has_null(service, made, made.name)


@rule(adds=1)
def create_accepts_30_characters(service: Service) -> None:
    """name length, POST and PUT /api/stores payload, at most 30 characters

    POST takes 30.
    """
    name = f"{service.name()} ".ljust(30, "x")
    answer = service.create(fields(name))
    wrong = differs(single(answer), number(answer.document) or 0, name, None)
    expect(answer, not wrong, f"its {wrong}")


@rule(adds=1)
def create_counts_characters_not_bytes(service: Service) -> None:
    """name length, POST and PUT /api/stores payload, at most 30 characters

    POST takes 30 letters of two bytes each.
    """
    name = service.name().ljust(30, "\u00e9")
    answer = service.create(fields(name))
    expect(answer, single(answer).get("name") == name, "the name is not the one sent")


@rule(adds=1)
def create_limits_only_the_name(service: Service) -> None:
    """Optional on create and on update. Must be a string when sent.

    POST takes an address of 300 characters.
    """
    keeps(service.make(address="Long Road " * 30))


@rule(adds=2)
def create_is_seen_by_id(service: Service) -> None:
    """On success a new store is added with id = (count of stores before the add) + 1, name from the
    payload, address from the payload or null when not sent.

    It is read by its id at once.
    """
    before = service.make()
    service.read(before.id + 1, "open")
    made = service.make(address="Seen by id")
    answer = service.read(made.id)
    wrong = differs(single(answer), made.id, made.name, made.address)
    expect(answer, not wrong, f"read by id, its {wrong}")


@rule(adds=1)
def create_is_seen_by_name(service: Service) -> None:
    """On success a new store is added with id = (count of stores before the add) + 1, name from the
    payload, address from the payload or null when not sent.

    It is found by its name at once.
    """
    name = service.name()
    service.find(name)
    made = service.make(name, "Seen by name")
    answer = service.find(made.name)
    stores = answer.listing.stores if answer.listing else []
    expect(answer, len(stores) == 1, f"{made.name!r} was just added; the filter finds {len(stores)} stores")
    wrong = differs(stores[0], made.id, made.name, made.address)
    expect(answer, not wrong, f"found by name, its {wrong}")


@rule(adds=3)
def create_again_makes_another(service: Service) -> None:
    """On success a new store is added with id = (count of stores before the add) + 1, name from the
    payload, address from the payload or null when not sent.

    The same payload again makes another store.
    """
    first = service.make(address="Again")
    for _ in range(2):
        second = service.make(first.name, first.address)
        expect(second.answer, second.id > first.id, f"after the id {first.id} the same payload got {second.id}")
        first = second


@rule(adds=2 * QUIET)
def create_id_is_count_plus_one(service: Service) -> None:
    """Assigned on creation as the number of stores existing at that moment plus one."""
    for _ in range(QUIET):
        before = service.everything().count
        first = service.make()
        service.replace(first.id, fields(first.name))
        second = service.make()
        after = service.everything().count
        bounds(before, first, second, after)
        if after == before + 2:
            return
        in_between(service, first, second)


@rule(adds=QUIET + 1)
def rejected_create_takes_no_number(service: Service) -> None:
    """Validation happens before the operation; on failure no store is created or changed.

    Rejected creates take no id.
    """
    faults = every_fault(service)
    first = service.make()
    for _ in range(QUIET):
        for fault in faults:
            service.create(fault.payload, "invalid", fault)
        second = service.make()
        in_between(service, first, second)
        if second.id == first.id + 1:
            return
        first = second


@rule(adds=4)
def create_takes_no_id_from_client(service: Service) -> None:
    """Never taken from the client.

    An id in the payload of POST.
    """
    neighbour = service.make(address="Neighbour")
    for id in (service_id(service), neighbour.id, str(neighbour.id)):
        name = service.name()
        answer = service.create({"id": id, "name": name, "address": "Client's id"}, "either")
        if answer.ok:
            given = number(single(answer))
            expect(answer, given and given > neighbour.id, f"the store got the id {given}")
            expect(answer, given != number({"id": id}), "the id is the client's")
    answer = service.read(neighbour.id)
    wrong = differs(single(answer), neighbour.id, neighbour.name, neighbour.address)
    expect(answer, not wrong, f"after a create with its id the store has changed: {wrong}")


@rule(adds=1)
def create_stores_no_other_key(service: Service) -> None:
    """A store returned by create, update or read always carries exactly three properties: id, name, address.

    Also where a service takes a payload with other keys.
    """
    name = service.name()
    payload = {"name": name, "address": "Other key", "colour": "red"}
    answer = service.create(payload, "either")
    if answer.ok:
        given = number(single(answer)) or 0
        updated = service.replace(given, payload, "either")
        found = service.find(name)
        for shown in (answer, updated, service.read(given), found):
            kept = any("colour" in store for store in shown.stores)
            expect(shown, not kept, "it has a property that is none of the three")


@rule(adds=CROWD)
def create_at_the_same_time(service: Service) -> None:
    """Assigned on creation as the number of stores existing at that moment plus one.

    Creates at the same time get ids of their own.
    """
    payloads = [fields(service.name(), f"Crowd {index}") for index in range(CROWD)]
    with ThreadPoolExecutor(CROWD) as pool:
        answers = list(pool.map(service.create, payloads))
    ids = [number(single(answer)) or 0 for answer in answers]
    expect(answers[-1], len(set(ids)) == CROWD, f"{CROWD} creates at the same time got the ids {sorted(ids)}")
    for id, payload in zip(ids, payloads, strict=True):
        answer = service.read(id)
        wrong = differs(single(answer), id, payload["name"], payload["address"])
        expect(answer, not wrong, f"after {CROWD} creates at the same time {wrong}")


def keeps(made: Made) -> None:
    """Violation when the answer to a create has other values than were sent."""
    wrong = differs(single(made.answer), made.id, made.name, made.address)
    expect(made.answer, not wrong, f"the new store's {wrong}")


def has_null(service: Service, made: Made, name: str) -> None:
    """Violation when a store's address is anything but a null that is there, in the answer or looked up."""
    for answer in (made.answer, service.read(made.id), service.find(name)):
        stores = answer.listing.stores if answer.listing else answer.stores
        for store in stores:
            shown = repr(store["address"]) if "address" in store else "absent"
            expect(answer, shown == "None", f"no address was sent; the one returned is {shown}")


def texts(service: Service) -> list[tuple[str, str]]:
    """Names and addresses that must come back as they are."""
    return [
        (f"  {service.name()}  ", "  1 Street\r\n\tTown  "),
        (f"{service.name()} \"'\\<>&", "\" \\ / ' <script> & %41 + \u0007 \u2028"),
        (
            f"{service.name()} \u00e9\u0416\U0001f3ec e\u0301",
            "Stra\u00dfe \u5e97 \U0001f468\u200d\U0001f469 e\u0301 \ufeff",
        ),
    ]


def bounds(before: int, first: Made, second: Made, after: int) -> None:
    """Violation when two ids cannot be the count plus one, between a list before them and one after."""
    if not before < first.id < second.id <= after:
        known = f"{before} stores before, {after} after, ids {first.id} and {second.id}"
        raise Violation(f"the id is not the count plus one: {known}", second.answer.http)


def in_between(service: Service, first: Made, second: Made) -> None:
    """Violation unless the ids between two of ours are stores, and other clients' stores."""
    expect(second.answer, second.id > first.id, f"after the id {first.id} came {second.id}")
    for id in range(first.id + 1, min(second.id, first.id + 1 + GAP)):
        answer = service.read(id)
        known = f"the ids {first.id} and {second.id} were given in turn, "
        expect(answer, answer.ok and answer.stores, known + f"and {id} is no store")
        strange = service.is_ours(answer.stores[0]) and id not in service.mine
        expect(answer, not strange, known + f"and {id} is a store of a request that creates none")


def service_id(service: Service) -> int:
    """An id that a client might wish for, far from any in use."""
    return 1_900_000_000 + int(service.marker[-4:], 16)
