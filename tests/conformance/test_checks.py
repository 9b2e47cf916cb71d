import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.client import HTTPConnection
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from storekeeper.conformance import examine
from storekeeper.conformance.client import Client
from storekeeper.conformance.report import Report
from storekeeper.conformance.running import RULES, Run
from storekeeper.conformance.service import Service
from tests.conformance.announcing import Announcing
from tests.conformance.mutants import MUTANTS, Mutant
from tests.conformance.reference import GenericReference, Local, Reference, served
from tests.conformance.variants import VARIANTS, Html, Lenient, Silent500, Strict, Units

for module in sorted(Path(__file__).parent.glob("wrong_*.py")):
    import_module(f"tests.conformance.{module.stem}")  # each adds its mutants
ADDS_NO_OTHER = frozenset({"rejected-create-adds-no-other", "rejected-update-adds-no-other", "update-adds-no-other"})
LATE = {rule.name for rule in RULES if rule.late}


@contextmanager
def others_write(url: str, pause: float = 0.0) -> Iterator[None]:
    """Let another client create stores all the time, with a pause between them in seconds."""
    stop, wrote = threading.Event(), threading.Event()

    def write() -> None:
        connection = HTTPConnection(urlsplit(url).netloc)
        while not stop.is_set():
            connection.request("POST", "/api/stores", b'{"name": "Somebody else"}')
            connection.getresponse().read()
            wrote.set()
            stop.wait(pause)
        connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert wrote.wait(10)
        yield
    finally:
        stop.set()
        thread.join()


def report(reference: Reference) -> Report:
    """What a whole run says of a reference in this process."""
    return Run(Service(Local(reference))).report("http://reference")


def alone(client: Client, names: frozenset[str]) -> set[str]:
    """Run these checks, and say which of them fail; of others only those whose responses they look at."""
    run = Run(Service(client))
    run.first_contact()
    run.prepare()
    asked = [rule for rule in RULES if rule.name in names or (names & LATE and not rule.late)]
    results = [run.result(rule) for rule in asked]
    return {result.rule.name for result in results if result.state == "failed"} & names


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_service_that_breaks_a_sentence_fails_its_check(mutant: Mutant) -> None:
    """The check needs no other check to see it, unless it is one that looks at all responses."""
    assert alone(Local(mutant.service()), mutant.checks) == mutant.checks


def test_every_check_has_a_mutant_that_fails_it() -> None:
    killed = {check for mutant in MUTANTS for check in mutant.checks}
    assert {rule.name for rule in RULES} - killed == set()
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("service", [Reference, GenericReference, Announcing])
@pytest.mark.parametrize("busy", [False, True])
def test_a_service_that_keeps_the_contract_conforms(service: type[Reference], busy: bool) -> None:
    """Also while somebody else creates stores; what does not apply to its mode is skipped."""
    with served(service()) as url, others_write(url) if busy else nullcontext():
        seen = examine(url)
    assert {result.rule.name: result.note for result in seen.failed} == {}
    assert seen.mode == ("generic" if service.generic else "detailed")
    detailed = {result.rule.name for result in seen.results if result.note == "the service is in generic mode"}
    assert bool(detailed) == service.generic


@pytest.mark.parametrize(
    "name",
    ["the id is the count plus two", "rejected creates take a number", "updates take a number", "at most 50 stores"],
)
def test_wrong_ids_are_seen_while_others_write(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    with served(mutant.service()) as url, others_write(url):
        assert {result.rule.name for result in examine(url).failed}


@pytest.mark.parametrize("pause", [0.0, 0.003, 0.02, pytest.param(0.08, marks=pytest.mark.thorough)])
def test_stores_of_another_client_are_not_blamed_on_rejected_payloads(pause: float) -> None:
    """Whether it adds many while the kit looks, or one now and then."""
    with served(Reference()) as url, others_write(url, pause):
        assert alone(Client(url, 7.0), ADDS_NO_OTHER) == set()


@pytest.mark.parametrize("name", ["every rejected write adds another store", "every update adds another store"])
def test_stores_added_under_another_name_are_seen_though_another_client_writes_now_and_then(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    with served(mutant.service()) as url, others_write(url, 1.0):
        assert alone(Client(url, 7.0), mutant.checks) == mutant.checks


@pytest.mark.parametrize("service", VARIANTS)
def test_where_the_contract_is_silent_nothing_fails(service: type[Reference]) -> None:
    assert {result.rule.name: result.note for result in report(service()).failed} == {}


@pytest.mark.parametrize(
    ("service", "topic", "seen"),
    [
        (Reference, "what the 30 characters count", "code points"),
        (Units, "what the 30 characters count", "UTF-16 units"),
        (Reference, "GET of a store that does not exist", "404 No such store"),
        (Silent500, "GET of a store that does not exist", "500 An internal server error occurred"),
        (Silent500, "PUT to a store that does not exist", "500 An internal server error occurred"),
        (Reference, "id in the payload", "POST: 200; PUT: 200"),
        (Strict, "id in the payload", 'POST: 400 "id" is not allowed; PUT: 400 "id" is not allowed'),
        (Strict, 'address ""', '400 "address" is not allowed to be empty'),
        (Strict, "keys when both fields are wrong", '["name"]'),
        (Lenient, "address null", "200"),
        (Reference, "the same key twice in the payload", "200, the last counts"),
        (Html, "GET /test: its content type", "text/html; charset=utf-8"),
    ],
)
def test_where_the_contract_is_silent_the_profile_tells(service: type[Reference], topic: str, seen: str) -> None:
    assert report(service()).profile[topic] == seen
