"""Each check of the kit finds the services that break its sentence, and no others."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from storeapi_check import examine, responses
from storeapi_check.client import Client
from storeapi_check.report import Report
from storeapi_check.running import RULES, first_contact, hold, prepare, run_rule
from storeapi_check.service import Result, Rule, Service
from tests.storeapi_check.announcing import Announcing
from tests.storeapi_check.importing import Importing
from tests.storeapi_check.mutants import MUTANTS
from tests.storeapi_check.reference import (
    GenericReference,
    Local,
    Reference,
    Response,
    Store,
    served,
)
from tests.storeapi_check.sorting import Sorting
from tests.storeapi_check.variants import VARIANTS

for module in sorted(Path(__file__).parent.glob("wrong_*.py")):
    import_module(f"tests.storeapi_check.{module.stem}")  # each adds its mutants
ADDS_NO_OTHER = frozenset(
    {"rejected-create-adds-no-other", "rejected-update-adds-no-other", "update-adds-no-other"}
)
LOOKS = {rule.name for rule in responses.RULES}
OFTEN = 4  # after how many checks those that look at all responses are asked


@contextmanager
def others_write(url: str, pause: float = 0.0) -> Iterator[None]:
    """Let another client create stores all the time, with a pause between them in seconds."""
    stop, wrote = threading.Event(), threading.Event()

    def write() -> None:
        connection = HTTPConnection(urlsplit(url).netloc)
        while not stop.is_set():
            connection.request("POST", "/api/stores", b'{"name": "Another client"}')
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


REPORTS: dict[type[Reference], Report] = {}


def report(service: type[Reference]) -> Report:
    """What a whole run says about a reference in this process; several tests ask for the same
    one."""
    if service not in REPORTS:
        REPORTS[service] = hold(Service(Local(service())), "http://reference")
    return REPORTS[service]


def failures(results: Iterable[Result]) -> dict[str, str]:
    """The names of the checks that failed, with the reason."""
    return {result.rule.name: result.note for result in results if result.state == "failed"}


def alone(client: Client, names: frozenset[str]) -> set[str]:
    """Run these checks, and say which of them fail; those that look back have others run before,
    until they do."""
    service = Service(client)
    first_contact(service)
    prepare(service)

    def failed_of(rules: list[Rule]) -> set[str]:
        return {*failures(run_rule(rule, service) for rule in rules)}

    asked = [rule for rule in RULES if rule.name in names]
    others = [rule for rule in RULES if not rule.late] if any(rule.late for rule in asked) else []
    # Bad payloads first: with what leads to them they show nearly all kinds of responses.
    for number, rule in enumerate(sorted(others, key=lambda rule: "rejects" not in rule.name)):
        if names <= LOOKS and number % OFTEN == 0 and len(failed := failed_of(asked)) == len(names):
            return failed
        run_rule(rule, service)
    return failed_of(asked)


@pytest.mark.parametrize("check", [rule.name for rule in RULES])
def test_services_that_break_a_sentence_fail_its_check(check: str) -> None:
    """The check needs no other check to see them, unless it is one that looks at all responses."""
    mutants = [mutant for mutant in MUTANTS if check in mutant.checks]
    assert mutants
    assert [
        mutant.name for mutant in mutants if not alone(Local(mutant.service()), frozenset({check}))
    ] == []


def test_every_mutant_has_a_name_and_a_check_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert all(
        mutant.checks and mutant.checks <= {rule.name for rule in RULES} for mutant in MUTANTS
    )


class WithIds(Reference):
    """Shows ids in another form than that of an integer."""

    def __init__(self, form: Callable[[int], object]) -> None:
        super().__init__()
        self.form = form

    def show(self, store: Store, operation: str) -> Store:
        return {**super().show(store, operation), "id": self.form(store["id"])}


@pytest.mark.parametrize("form", [str, float])
def test_an_id_of_another_type_breaks_one_rule_alone(form: Callable[[int], object]) -> None:
    failed = failures(hold(Service(Local(WithIds(form))), "http://reference").results)
    assert failed.keys() == {"store-id-is-an-integer"}


def test_an_id_that_is_an_object_ends_no_run() -> None:
    failed = failures(
        hold(Service(Local(WithIds(lambda number: {"$oid": number}))), "http://reference").results
    )
    assert "store-id-is-an-integer" in failed


@pytest.mark.parametrize("service", [Reference, GenericReference, Announcing, Sorting, Importing])
def test_a_service_that_keeps_the_contract_conforms(service: type[Reference]) -> None:
    """What does not apply to its mode is skipped."""
    seen = report(service)
    assert failures(seen.results) == {}
    assert seen.mode == ("generic" if service.generic else "detailed")
    detailed = {
        result.rule.name
        for result in seen.results
        if result.note == "the service is in generic mode"
    }
    assert bool(detailed) == service.generic


@pytest.mark.parametrize(
    "service",
    [
        Announcing,
        *(pytest.param(one, marks=pytest.mark.thorough) for one in (Reference, GenericReference)),
    ],
)
def test_a_service_conforms_while_somebody_else_creates_stores(service: type[Reference]) -> None:
    with served(service()) as url, others_write(url):
        assert failures(examine(url).results) == {}


@pytest.mark.parametrize(
    "name",
    [
        "the id is the count plus two",
        "rejected creates take a number",
        "updates take a number",
        "at most 50 stores",
    ],
)
def test_wrong_ids_are_seen_while_others_write(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    with served(mutant.service()) as url, others_write(url):
        assert alone(Client(url, 7.0), mutant.checks) == mutant.checks


@pytest.mark.parametrize(
    "pause", [0.0, 0.003, 0.02, pytest.param(0.08, marks=pytest.mark.thorough)]
)
def test_stores_of_another_client_are_not_blamed_on_rejected_payloads(pause: float) -> None:
    """Whether it adds many while the kit looks, or one now and then."""
    with served(Reference()) as url, others_write(url, pause):
        assert alone(Client(url, 7.0), ADDS_NO_OTHER) == set()


@pytest.mark.parametrize(
    "name", ["every rejected write adds another store", "every update adds another store"]
)
def test_stores_added_under_another_name_are_seen_though_another_client_writes_now_and_then(
    name: str,
) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    with served(mutant.service()) as url, others_write(url, 3.0):
        assert alone(Client(url, 7.0), mutant.checks) == mutant.checks


def test_a_service_that_announces_tags_and_has_no_feed_is_not_at_fault() -> None:
    class WithoutFeed(Announcing):
        def feed(self, query: dict[str, str]) -> Response:
            return self.missing("changes")

    results = report(WithoutFeed).results
    assert failures(results) == {}
    skipped = [
        result.rule.name for result in results if result.note == "the service has no /api/changes"
    ]
    assert skipped == ["the-feed-has-every-change", "the-feed-gives-back-a-cursor"]


@pytest.mark.parametrize("service", VARIANTS)
def test_where_the_contract_is_silent_nothing_fails(service: type[Reference]) -> None:
    assert failures(report(service).results) == {}
