"""The contract's rules for payloads that are rejected; this package only."""

from collections.abc import Callable

from storekeeper.conformance.faults import FAULTS, every_fault
from storekeeper.conformance.rules import Check, expect, rule
from storekeeper.conformance.service import GENERIC, MISSING, Answer, Fault, Service, differs, fields, single

Send = Callable[[Service, Fault], Answer]


VIOLATES = (
    "400, Bad Request, The payload of POST or PUT /api/stores/... violates the store payload rules"
    " (name is not a string, name is missing, name too long, address is not a string)"
)


def create(service: Service, fault: Fault) -> Answer:
    """POST:"""
    return service.create(fault.payload, "invalid", fault)


def update(service: Service, fault: Fault) -> Answer:
    """PUT:"""
    return service.replace(service.settle().id, fault.payload, "invalid", fault)


def rejects(send: Send, way: str, faults: Callable[[Service], list[Fault]]) -> Check:
    """The check that each of these payloads is answered 400."""

    def check(service: Service) -> None:
        for fault in faults(service):
            answer = send(service, fault)
            if answer.ok and send is update:
                made = service.settle()
                service.replace(made.id, fields(made.name, made.address))
            expect(answer, answer.http.status == 400, f"{fault.label} is answered {answer.http.status}, not 400")

    check.__name__ = f"{send.__name__}-rejects-{way}"
    check.__doc__ = f"{VIOLATES}\n\n{send.__doc__} {faults.__doc__}"
    return check


for send in (create, update):
    for way, faults in FAULTS.items():
        rule(writes=True)(rejects(send, way, faults))


@rule(writes=True)
def rejected_create_adds_nothing(service: Service) -> None:
    """Validation happens before the operation; on failure no store is created or changed.

    Rejected creates are not found afterwards.
    """
    for fault in every_fault(service):
        answer = create(service, fault)
        name = fault.payload.get("name")
        if answer.http.status == 400 and isinstance(name, (str, int)) and name:
            found = service.find(str(name))
            ours = [store for store in found.listing.stores if service.is_ours(store)] if found.listing else []
            expect(found, not ours, f"{fault.label} was answered 400, and yet there is such a store now")
    traces = [store for store in service.everything().stores if stray(service, store)]
    expect(service.seen[-1], not traces, f"a payload was answered 400, and yet the list has {traces[:1]}")


@rule(adds=1)
def rejected_update_changes_nothing(service: Service) -> None:
    """Validation happens before the operation; on failure no store is created or changed.

    After a rejected update the store is as before.
    """
    made = service.make(address="Unchanged")
    for fault in every_fault(service):
        answer = service.replace(made.id, fault.payload, "invalid", fault)
        if answer.http.status != 400:
            service.replace(made.id, fields(made.name, made.address))
            continue
        after = service.read(made.id)
        wrong = differs(single(after), made.id, made.name, made.address)
        expect(after, not wrong, f"{fault.label} was answered 400, and yet {wrong}")
    found = service.find(made.name)
    expect(found, found.listing and found.listing.count == 1, "after updates answered 400 its name is not found")


@rule(writes=True)
def update_validates_first(service: Service) -> None:
    """Behavior: payload is validated first.

    A bad payload for a store that does not exist is answered 400.
    """
    if service.read(MISSING, "open").ok:
        return
    for fault in every_fault(service):
        answer = service.replace(MISSING, fault.payload, "invalid", fault)
        known = f"{fault.label} for a store that does not exist is answered {answer.http.status}, not 400"
        expect(answer, answer.http.status == 400, known)


def stray(service: Service, store: dict[str, object]) -> bool:
    """Whether a store bears our marks and came from no create that was answered with it."""
    return service.is_ours(store) and store.get("id") not in service.mine


def detect_mode(service: Service) -> None:
    """Learn from three rejected payloads whether the service gives details; the majority decides."""
    faults = [
        ways(service)[0] for ways in (FAULTS["missing-name"], FAULTS["number-as-name"], FAULTS["31-characters"])
    ]
    documents = [create(service, fault).document for fault in faults]
    generic = [isinstance(document, dict) and document.get("message") == GENERIC for document in documents]
    service.generic = sum(generic) >= 2
