"""The contract's rules for creating and replacing a store; most are the same for both."""

import json
from collections.abc import Callable
from functools import partial

from storeapi_check.service import (
    AT_ONCE,
    TRIES,
    UNUSED,
    Made,
    Response,
    Rules,
    Service,
    fields,
    number,
)

RULES = Rules()
ADDED = (
    "id = (count of stores before the add) + 1, name from the payload, address from the payload"
    " or null when"
)
CHANGED = (
    "the store with that id gets name from the payload and address from the payload"
    " (null when not sent)."
)
NUMBER = "Assigned on creation as the number of stores existing at that moment plus one."
NO_MORE = f"{NUMBER} Never taken from the client."
THREE = (
    "A store returned by create, update or read always carries exactly three properties:"
    " id, name, address."
)
LENGTH = "name length, POST and PUT /api/stores payload, at most 30 characters"
OPTIONAL = "Optional on create and on update. Must be a string when sent."
NULL = "When not sent, it is stored and returned as null (never left undefined/absent)."
SHAPE = "Request payload: same shape and same validation as POST /api/stores"
MAX_GAP = 25  # how many ids between two of ours to check when other clients create stores too
WISHED_ID = 1_900_000_000  # an id that a client might ask for, far from any in use
Write = Callable[..., Response]
METHODS: tuple[tuple[str, Write], ...] = (("POST", Service.create), ("PUT", Service.update))
WriteCheck = Callable[[Write, Service], None]  # sends a valid payload, by POST or by PUT


def write_and_check(write: Write, service: Service, name: str, address: str | None = None) -> Made:
    """Write a store; raise Violation unless the response and the next read show what was sent."""
    store = write(service, fields(name, address)).made(name, address)
    store.response.shows(store)
    service.read(store.id).shows(store, " when it is read again")
    return store


def both(scope: str, create: str, update: str, adds: int) -> Callable[[WriteCheck], WriteCheck]:
    """Return a decorator that adds a rule for POST, which adds `adds` stores, and one for PUT.

    `create` and `update` are their sentences.
    """

    def add(check: WriteCheck) -> WriteCheck:
        name = check.__name__.replace("_", "-")
        post, put = partial(check, Service.create), partial(check, Service.update)
        RULES.add(f"create{name}", create, f"POST: {scope}", post, adds=adds)
        RULES.add(f"update{name}", update, f"PUT: {scope}", put)
        return check

    return add


@both("Text is returned as it was sent.", ADDED, CHANGED, adds=3)
def _takes_fields_from_payload(write: Write, service: Service) -> None:
    for name, address in (
        ("  {}  ", "  1 Street\r\n\tTown  "),
        ("{} \"'\\<>&", "\" \\ / ' <script> & %41 + \u0007 \u2028"),
        (
            "{} \u00e9\u0416\U0001f3ec e\u0301",
            "Stra\u00dfe \u5e97 \U0001f468\u200d\U0001f469 e\u0301 \ufeff",
        ),
    ):
        write_and_check(write, service, name.format(service.name()), address)


@both("Keys in any order, characters escaped or not.", "Request payload", "Request payload", adds=2)
def _reads_json_escapes(write: Write, service: Service) -> None:
    name, address = service.name(), '\u00e9 \U0001f3ec " \\ / \u0001'
    for escaped in (True, False):
        payload = json.dumps({"address": address, "name": name}, ensure_ascii=escaped)
        response = write(service, payload.encode())
        response.shows(response.made(name, address))


@both("If the service accepts an empty address, it stays empty.", ADDED, CHANGED, adds=1)
def _takes_an_empty_address(write: Write, service: Service) -> None:
    response = write(service, fields(service.name(), ""), "either")
    if not response.ok:
        return
    for shown in (response, service.read(number(response.single) or 0)):
        address = shown.single.get("address")
        shown.expect(address == "", f"the address sent is '', the one returned {address!r}")


@both("In every response that shows the store.", NULL, NULL, adds=1)
def _without_address_gives_null(write: Write, service: Service) -> None:
    name = service.name()
    store = write(service, fields(name)).made(name)
    for response in (store.response, service.read(store.id), service.find(store.name)):
        for shown in response.stores:
            response.expect("address" in shown, "no address was sent; the one returned is absent")
            address = shown["address"]
            response.expect(
                address is None, f"no address was sent; the one returned is {address!r}"
            )


@both("30 are accepted.", LENGTH, LENGTH, adds=1)
def _accepts_30_characters(write: Write, service: Service) -> None:
    write_and_check(write, service, f"{service.name():x<28} x")


@both("30 of two bytes each are accepted.", LENGTH, LENGTH, adds=1)
def _counts_characters_not_bytes(write: Write, service: Service) -> None:
    write_and_check(write, service, f"{service.name():\u00e9<30}")


@both("An address of 300 characters is accepted.", OPTIONAL, OPTIONAL, adds=1)
def _limits_only_the_name(write: Write, service: Service) -> None:
    write_and_check(write, service, service.name(), "Long Road " * 30)


@both("A read by id shows it at once.", ADDED, CHANGED, adds=2)
def _is_seen_by_id(write: Write, service: Service) -> None:
    looked_for = service.spare().id if write is Service.update else service.make().id + 1
    service.read(looked_for, "open")
    write_and_check(write, service, service.name(), "Seen by id")


@both("Its name finds it at once, and no other name does.", ADDED, CHANGED, adds=1)
def _is_seen_by_name(write: Write, service: Service) -> None:
    former, name = service.spare().name, service.name()
    for looked_for in (former, name):
        service.find(looked_for)
    store = write_and_check(write, service, name, "Seen by name")
    service.find(name).shows(store, " when it is found by name")
    if write is Service.update:
        found = service.find(former)
        found.expect(not found.listed.count, "it is still found by its old name")


@RULES.check(
    "Response 200: the newly created Store object (a single object, with id, name, address).",
    adds=1,
)
def _create_returns_the_new_store(service: Service) -> None:
    store = service.make(address="Address")
    store.response.shows(store)


@RULES.check("Response 200: the updated Store object.")
def _update_returns_the_updated_store(service: Service) -> None:
    store = service.spare(address="After")
    store.response.shows(store)


@RULES.check(ADDED, "The same payload again makes another store.", adds=3)
def _create_again_makes_another(service: Service) -> None:
    first = service.make(address="Again")
    for _ in range(2):
        second = service.make(first.name, first.address)
        second.response.expect(
            second.id > first.id, f"after the id {first.id} the same payload got {second.id}"
        )
        first = second


@RULES.check(THREE, "Also if the service accepts a payload with other keys.", adds=1)
def _create_stores_no_other_key(service: Service) -> None:
    payload = fields(service.name(), "Other key") | {"colour": "red"}
    response = service.create(payload, "either")
    if response.ok:
        given = number(response.single) or 0
        updated = service.replace(given, payload, "either")
        for shown in (response, updated, service.read(given), service.find(payload["name"])):
            others = any("colour" in store for store in shown.stores)
            shown.expect(not others, "it has a property other than the three")


@RULES.check("Both fields are replaced, so a client that wants to keep an address sends it again.")
def _update_replaces_both_fields(service: Service) -> None:
    spare, name = service.spare(), service.name()
    for text, address in (
        (name, "Second"),
        (name, "Third"),
        (spare.name, "Third"),
        (name, None),
        (name, "Fourth"),
        (name, None),
        ("Z", name),
        ("0", name),
        (f"{name} null", "null"),
        (name, "0"),
        (name, " "),
    ):
        store = replace_and_check(service, spare, text, address)
        service.read(store.id).shows(store, " when it is read again")


@RULES.check(CHANGED, "The list shows it at once.")
def _update_is_seen_in_list(service: Service) -> None:
    spare, other = service.spare(), service.settle()
    service.find()
    rewritten = [
        replace_and_check(service, spare, service.name(), None),
        replace_and_check(service, other, other.name, other.address),
    ]
    response = service.find()
    for store in rewritten:
        response.shows(store, " in the list")


@RULES.check(CHANGED, "Other stores with the same name stay as they are.", adds=3)
def _update_changes_only_that_store(service: Service) -> None:
    name = service.name()
    first, second, third = (service.make(name, "Same") for _ in range(3))
    replace_and_check(service, second, service.name(), "Changed")
    for other in (first, third):
        service.read(other.id).shows(other, f" after an update of the store {second.id}")


@RULES.check(SHAPE, "The name may be that of another store, or stay the same.", adds=2)
def _update_accepts_what_others_have(service: Service) -> None:
    first, second = service.make(address="Same"), service.make(address="Other")
    for _ in range(2):
        replace_and_check(service, second, first.name, "Same")
    service.read(first.id).shows(first, f" after an update of the store {second.id}")


@RULES.check(NO_MORE, "An update of a store that does not exist adds none.")
def _update_adds_no_store(service: Service) -> None:
    if not service.read(UNUSED, "open").ok:
        name = service.name()
        service.replace(UNUSED, fields(name, "Nowhere"), "open")
        found = service.find(name)
        reason = f"an update of the store {UNUSED}, which does not exist, added a store"
        found.expect(not found.listed.count, reason)


def replace_and_check(service: Service, store: Made, name: str, address: str | None) -> Made:
    """PUT new content; raise Violation unless the response shows what was sent."""
    response = service.replace(store.id, fields(name, address))
    store = Made(store.id, name, address, response)
    response.shows(store)
    return store


# Ids, even while other clients create stores


@RULES.check(NUMBER, "Between two lists, with an update in the middle.", adds=2 * TRIES)
def _create_id_is_count_plus_one(service: Service) -> None:
    for _ in range(TRIES):
        before = service.count()
        first = service.make()
        service.replace(first.id, fields(first.name))
        second = service.make()
        after = service.count()
        known = f"{before} stores before, {after} after, ids {first.id} and {second.id}"
        right = before < first.id < second.id <= after
        second.response.expect(right, f"the id is not the count plus one: {known}")
        if after == before + 2:
            return
        require_others(service, first, second)


def require_others(service: Service, first: Made, second: Made) -> None:
    """Raise Violation unless the ids between two of ours are stores of other clients."""
    second.response.expect(second.id > first.id, f"after the id {first.id} came {second.id}")
    for id in range(first.id + 1, min(second.id, first.id + 1 + MAX_GAP)):
        response = service.read(id)
        known = f"the ids {first.id} and {second.id} were assigned in turn, but {id} is"
        response.expect(response.ok and response.stores, f"{known} not a store")
        strange = service.is_ours(response.stores[0]) and id not in service.mine
        response.expect(not strange, f"{known} a store from a request that must create none")


@RULES.check("Never taken from the client.", "An id in the payload of POST.", adds=4)
def _create_takes_no_id_from_client(service: Service) -> None:
    neighbour = service.make(address="Neighbour")
    for id in (WISHED_ID, neighbour.id, str(neighbour.id)):
        payload = {"id": id, "name": service.name(), "address": "Client's id"}
        response = service.create(payload, "either")
        if response.ok:
            given = number(response.single)
            response.expect(given and given > neighbour.id, f"the store got the id {given}")
            response.expect(given != int(id), "the id is the client's")
    service.read(neighbour.id).shows(neighbour, " after a create with its id in the payload")


@RULES.check("The id is not changed.", "Also if the service accepts an id in the payload.", adds=2)
def _update_keeps_the_id(service: Service) -> None:
    this, other = service.make(address="This"), service.make(address="Other")
    for id in (None, WISHED_ID, other.id, str(other.id)):
        name = service.name()
        payload: dict[str, object] = {"name": name, "address": "Changed"}
        if id is not None:
            payload["id"] = id
        response = service.replace(this.id, payload, "either")
        if response.ok:
            for shown in (response, service.read(this.id), service.find(name)):
                shown.shows(Made(this.id, name, "Changed", response), " after an update")
    where = " after an update of another store with its id in the payload"
    service.read(other.id).shows(other, where)


@RULES.check(NUMBER, "Concurrent creates get different ids.", adds=AT_ONCE)
def _create_at_the_same_time(service: Service) -> None:
    concurrent = [response.made(**payload) for response, payload in service.at_once(service.create)]
    ids = sorted(store.id for store in concurrent)
    reason = f"{AT_ONCE} creates at the same time got the ids {ids}"
    concurrent[-1].response.expect(len(set(ids)) == AT_ONCE, reason)
    for store in concurrent:
        service.read(store.id).shows(store, f" after {AT_ONCE} creates at the same time")
