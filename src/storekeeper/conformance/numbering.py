"""The contract's rules for ids and for the number of stores, while other clients may write; this package only."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from storekeeper.conformance import rejecting
from storekeeper.conformance.rules import FAILURE, NO_MORE, NUMBER, Rule, Rules, Skipped
from storekeeper.conformance.service import Made, Response, Service, Violation, fields, made, number

RULES = Rules()
Send = Callable[[Service], Response]
CROWD = 10  # how many stores are created at the same time
QUIET = 5  # how often a moment is looked for in which no other client creates a store
GAP = 25  # how many ids between two of ours are looked at, when other clients create too


@RULES.check(NUMBER, adds=2 * QUIET)
def create_id_is_count_plus_one(service: Service) -> None:
    """Between two lists, with an update in the middle."""
    for _ in range(QUIET):
        before = service.count()
        first = service.make()
        service.replace(first.id, fields(first.name))
        second = service.make()
        after = service.count()
        known = f"{before} stores before, {after} after, ids {first.id} and {second.id}"
        possible = before < first.id < second.id <= after
        second.response.expect(possible, f"the id is not the count plus one: {known}")
        if after == before + 2:
            return
        are_others(service, first, second)


@RULES.check(FAILURE, adds=QUIET + 1)
def rejected_create_takes_no_number(service: Service) -> None:
    """Rejected creates take no id."""
    first = service.make()
    for _ in range(QUIET):
        send_bad(Service.create, service)
        second = service.make()
        are_others(service, first, second)
        if second.id == first.id + 1:
            return
        first = second


def are_others(service: Service, first: Made, second: Made) -> None:
    """Violation unless the ids between two of ours are stores, and other clients' stores."""
    second.response.expect(second.id > first.id, f"after the id {first.id} came {second.id}")
    for id in range(first.id + 1, min(second.id, first.id + 1 + GAP)):
        response = service.read(id)
        known = f"the ids {first.id} and {second.id} were given in turn, and {id} is"
        response.expect(response.ok and response.stores, f"{known} no store")
        strange = service.is_ours(response.stores[0]) and id not in service.mine
        response.expect(not strange, f"{known} a store of a request that creates none")


@RULES.check("Never taken from the client.", adds=4)
def create_takes_no_id_from_client(service: Service) -> None:
    """An id in the payload of POST."""
    neighbour = service.make(address="Neighbour")
    for id in (wished_id(service), neighbour.id, str(neighbour.id)):
        response = service.create({"id": id, "name": service.name(), "address": "Client's id"}, "either")
        if response.ok:
            given = number(response.single)
            response.expect(given and given > neighbour.id, f"the store got the id {given}")
            response.expect(given != int(id), "the id is the client's")
    service.read(neighbour.id).shows(neighbour, " after a create with its id in the payload")


@RULES.check("The id is not changed.", adds=2)
def update_keeps_the_id(service: Service) -> None:
    """Also with an id in the payload, where a service takes one."""
    this, other = service.make(address="This"), service.make(address="Other")
    for id in (None, wished_id(service), other.id, str(other.id)):
        payload = fields(service.name(), "Changed")
        response = service.replace(this.id, payload if id is None else {"id": id, **payload}, "either")
        if response.ok:
            for shown in (response, service.read(this.id), service.find(payload["name"])):
                shown.shows(Made(this.id, payload["name"], "Changed", response), " after an update")
    service.read(other.id).shows(other, " after an update of another store with its id in the payload")


def wished_id(service: Service) -> int:
    """Return an id that a client might wish for, far from any in use."""
    return 1_900_000_000 + int(service.marker[-4:], 16)


@RULES.check(NUMBER, adds=CROWD)
def create_at_the_same_time(service: Service) -> None:
    """Creates at the same time get ids of their own."""
    payloads = [fields(service.name(), f"Crowd {index}") for index in range(CROWD)]
    with ThreadPoolExecutor(CROWD) as pool:
        responses = list(pool.map(service.create, payloads))
    crowd = [made(response, **payload) for response, payload in zip(responses, payloads, strict=True)]
    ids = sorted(store.id for store in crowd)
    responses[-1].expect(len(set(ids)) == CROWD, f"{CROWD} creates at the same time got the ids {ids}")
    for store in crowd:
        service.read(store.id).shows(store, f" after {CROWD} creates at the same time")


# What adds no store adds none under another name either


def send_bad(send: rejecting.Send, service: Service) -> Response:
    """Send a bad payload of each way; Skipped when one is taken, which is a rule of its own."""
    for fault in rejecting.each_way(service):
        response = send(service, fault.payload, fault)
        if response.http.status != 400:
            raise Skipped(f"{fault.label} is not rejected")
    return response


def send_good(service: Service) -> Response:
    """Update a store several times."""
    return [service.spare() for _ in rejecting.WAYS][-1].response


def adds_no_other(send: Send, service: Service) -> None:
    """Violation when the number of stores grows with these requests.

    Other clients may add stores at any time, and they look like those. A service is blamed only when, time after
    time, the growth is in proportion to the requests, and nothing grows while as much time goes by without any.
    """
    for _ in range(QUIET):
        each, took = growth(service, send, 1)
        if not each:
            return
        for times in (0, 3, 0, 2, 0, 4):
            grown, took = growth(service, send, times, 0.0 if times else took)
            if grown != times * each:
                break
        else:
            known = f"{each} for each {len(rejecting.WAYS)} of these, none while none is sent"
            raise Violation(f"requests that create no store add stores: {known}", send(service).http)


def growth(service: Service, send: Send, times: int, seconds: float = 0.0) -> tuple[int, float]:
    """Return how many stores came while this was sent so often, or in these seconds, and how long that took."""
    started, before = time.monotonic(), service.count()
    for _ in range(times):
        send(service)
    time.sleep(max(0.0, started + seconds - time.monotonic()))
    return service.count() - before, time.monotonic() - started


CREATE, UPDATE = partial(send_bad, Service.create), partial(send_bad, Service.update)
RULES += [
    Rule("rejected-create-adds-no-other", FAILURE, "POST: nor under another name.", partial(adds_no_other, CREATE)),
    Rule("rejected-update-adds-no-other", FAILURE, "PUT: nor under another name.", partial(adds_no_other, UPDATE)),
    Rule("update-adds-no-other", NO_MORE, "Nor does an update that succeeds.", partial(adds_no_other, send_good)),
]
