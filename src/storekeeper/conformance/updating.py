"""The contract's rules for replacing a store; this package only."""

from storekeeper.conformance.creating import has_null, service_id, texts
from storekeeper.conformance.rules import expect, rule
from storekeeper.conformance.service import (
    MISSING,
    Answer,
    Made,
    Service,
    differs,
    fields,
    ids_of,
    listed,
    number,
    single,
)


def change(service: Service, id: int, name: str, address: str | None = None) -> Made:
    """PUT, and Violation when the answer has other values than were sent."""
    answer = service.replace(id, fields(name, address))
    matches(answer, Made(id, name, address, answer))
    return Made(id, name, address, answer)


def matches(answer: Answer, made: Made, where: str = "") -> None:
    """Violation unless the answer, or the one store of its list, has these values."""
    if answer.listing is not None:
        stores = [store for store in listed(answer).stores if number(store) == made.id]
        expect(answer, len(stores) == 1, f"the store {made.id} is there {len(stores)} times{where}")
    wrong = differs(stores[0] if answer.listing else single(answer), made.id, made.name, made.address)
    expect(answer, not wrong, f"its {wrong}{where}")


@rule(writes=True)
def update_answers_the_updated_store(service: Service) -> None:
    """Response 200: the updated Store object."""
    made = service.spare(address="Before")
    change(service, made.id, service.name(), "After")


@rule(writes=True)
def update_replaces_both_fields(service: Service) -> None:
    """Both fields are replaced, so a client that wants to keep an address sends it again."""
    made = service.spare(address="First")
    name = service.name()
    for new, address in (
        (name, "Second"),
        (name, "Third"),
        (made.name, "Third"),
        (name, None),
        (name, "Fourth"),
    ):
        changed = change(service, made.id, new, address)
        matches(service.read(made.id), changed, " when it is read again")


@rule(writes=True)
def update_is_seen_by_id(service: Service) -> None:
    """On success the store with that id gets name from the payload and address from the payload (null
    when not sent).

    It is read so at once.
    """
    made = service.spare(address="Before")
    service.read(made.id)
    changed = change(service, made.id, service.name(), "After")
    matches(service.read(made.id), changed, " when it is read by id")


@rule(writes=True)
def update_is_seen_by_name(service: Service) -> None:
    """On success the store with that id gets name from the payload and address from the payload (null
    when not sent).

    It is found by the new name at once, and not by the old.
    """
    made = service.spare(address="Before")
    service.find(made.name)
    changed = change(service, made.id, service.name(), "After")
    matches(service.find(changed.name), changed, " when it is found by name")
    answer = service.find(made.name)
    expect(answer, not ids_of(listed(answer).stores), "it is still found by its old name")


@rule(writes=True)
def update_is_seen_in_list(service: Service) -> None:
    """On success the store with that id gets name from the payload and address from the payload (null
    when not sent).

    The list has it so at once.
    """
    made, other = service.spare(address="Before"), service.settle()
    service.everything()
    changed = [change(service, made.id, service.name()), change(service, other.id, other.name, other.address)]
    answer = service.send("list", "GET", "/api/stores")
    for one in changed:
        matches(answer, one, " in the list")


@rule(writes=True)
def update_without_address_gives_null(service: Service) -> None:
    """When not sent, it is stored and returned as null (never left undefined/absent).

    After an update: never the address from before.
    """
    made = service.spare(address="To be forgotten")
    for name in (made.name, service.name()):
        service.replace(made.id, fields(made.name, "To be forgotten"))
        answer = service.replace(made.id, fields(name))
        has_null(service, Made(made.id, name, None, answer), name)


@rule(writes=True)
def update_takes_fields_from_payload(service: Service) -> None:
    """On success the store with that id gets name from the payload and address from the payload (null
    when not sent).

    Text comes back as it was sent.
    """
    made = service.spare()
    short = [("Z", made.name), ("0", made.name), (f"{made.name} null", "null"), (made.name, "0"), (made.name, " ")]
    for name, address in [*texts(service), *short]:
        changed = change(service, made.id, name, address)
        matches(service.read(made.id), changed, " when it is read again")
    for escaped in (True, False):
        payload = {"address": "\u00e9 \U0001f3ec", "name": made.name}
        answer = service.replace(made.id, payload, escaped=escaped)
        matches(answer, Made(made.id, made.name, payload["address"], answer))


@rule(writes=True)
def update_takes_an_empty_address(service: Service) -> None:
    """On success the store with that id gets name from the payload and address from the payload (null
    when not sent).

    An empty address, where a service takes one, stays empty.
    """
    made = service.spare(address="Before")
    answer = service.replace(made.id, fields(made.name, ""), "either")
    for shown in [answer, service.read(made.id)] if answer.ok else []:
        address = single(shown).get("address")
        expect(shown, address == "", f"the address sent is '', the one returned {address!r}")


@rule(writes=True)
def update_accepts_30_characters(service: Service) -> None:
    """name length, POST and PUT /api/stores payload, at most 30 characters

    PUT takes 30.
    """
    change(service, service.spare().id, service.name().ljust(30, "x"))


@rule(writes=True)
def update_counts_characters_not_bytes(service: Service) -> None:
    """name length, POST and PUT /api/stores payload, at most 30 characters

    PUT takes 30 letters of two bytes each.
    """
    change(service, service.spare().id, service.name().ljust(30, "\u00e9"))


@rule(writes=True)
def update_limits_only_the_name(service: Service) -> None:
    """Optional on create and on update. Must be a string when sent.

    PUT takes an address of 300 characters.
    """
    made = service.spare()
    change(service, made.id, made.name, "Long Road " * 30)


@rule(adds=3)
def update_keeps_the_id(service: Service) -> None:
    """The id is not changed.

    Also with an id in the payload, where a service takes one.
    """
    made, other = service.make(address="This"), service.make(address="Other")
    for address in ("Again", None):
        changed = change(service, made.id, service.name(), address)
        matches(service.read(made.id), changed, " when it is read again")
    for id in (service_id(service), other.id, str(other.id)):
        name = service.name()
        answer = service.replace(made.id, {"id": id, "name": name, "address": "Client's id"}, "either")
        if answer.ok:
            changed = Made(made.id, name, "Client's id", answer)
            for shown in (answer, service.read(made.id), service.find(name)):
                matches(shown, changed, " after an update with an id in the payload")
    matches(service.read(other.id), other, " after an update of another store with its id in the payload")


@rule(adds=3)
def update_changes_only_that_store(service: Service) -> None:
    """On success the store with that id gets name from the payload and address from the payload (null
    when not sent).

    Others of the same name stay as they are.
    """
    name = service.name()
    stores = [service.make(name, "Same") for _ in range(3)]
    change(service, stores[1].id, service.name(), "Changed")
    for other in (stores[0], stores[2]):
        matches(service.read(other.id), other, f" after an update of the store {stores[1].id}")


@rule(adds=2)
def update_accepts_what_others_have(service: Service) -> None:
    """Request payload: same shape and same validation as POST /api/stores (name required, max 30
    characters; address optional string).

    A name may be that of another store, or stay.
    """
    first, second = service.make(address="Same"), service.make(address="Other")
    for _ in range(2):
        change(service, second.id, first.name, "Same")
    matches(service.read(first.id), first, f" after an update of the store {second.id}")


@rule(writes=True)
def update_adds_no_store(service: Service) -> None:
    """Assigned on creation as the number of stores existing at that moment plus one. Never taken from
    the client.

    An update of a store that does not exist adds none.
    """
    if service.read(MISSING, "open").ok:
        return
    name = service.name()
    service.replace(MISSING, fields(name, "Nowhere"), "open")
    answer = service.find(name)
    ids = ids_of(listed(answer).stores)
    expect(answer, not ids, f"an update of the store {MISSING}, which does not exist, added the store {ids}")
