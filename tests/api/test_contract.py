"""Each sentence of the contract page, over a socket."""

from collections.abc import Iterator

import pytest

from tests.harness.cases import case
from tests.harness.client import assert_success, create, nothing_changes
from tests.harness.databases import EVERY_KIND
from tests.harness.process import Running, serving
from tests.harness.stores import shown
from tests.harness.wire import assert_error, assert_invalid

pytestmark = EVERY_KIND

MUST_BE_STRING = '"name" must be a string'
REQUIRED = '"name" is required'
TOO_LONG = '"name" length must be less than or equal to 30 characters long'
ADDRESS_MUST_BE_STRING = '"address" must be a string'

INVALID = [
    ({}, REQUIRED, ["name"]),
    ({"address": "1 High Street"}, REQUIRED, ["name"]),
    ({"name": ""}, REQUIRED, ["name"]),
    ({"name": 5}, MUST_BE_STRING, ["name"]),
    ({"name": "a" * 31}, TOO_LONG, ["name"]),
    ({"name": "A", "address": 5}, ADDRESS_MUST_BE_STRING, ["address"]),
    ({"name": "A", "address": ["1 High Street"]}, ADDRESS_MUST_BE_STRING, ["address"]),
]
"""The violations that the contract names: payload, message, keys."""


@pytest.fixture(scope="module")
def generic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service in the generic mode, with some stores."""
    with serving(tmp_path_factory.mktemp("generic"), "--error-detail=generic", "--examples") as running:
        yield running


# What the service does.


def test_the_liveness_route_returns_the_two_characters_ok(service: Running) -> None:
    response = service.request("GET", "/test")
    assert (response.status, response.body) == (200, b"OK")
    assert response.headers["content-type"].startswith("text/plain")


def test_it_starts_with_a_few_stores_that_are_well_formed(generic: Running) -> None:
    stores = generic.request("GET", "/api/stores").json
    assert len(stores) >= 3
    for id, store in enumerate(stores, start=1):
        assert list(store) == ["id", "name", "address"]
        assert store["id"] == id
        assert generic.request("GET", f"/api/stores/{id}").json == store


NO_PATHS = ["/stores", "/api/store", "/api/Stores", "/api", "/stores/1", "/API/stores"]


def test_the_path_is_api_and_the_plural_name_and_no_other(service: Running) -> None:
    for target in NO_PATHS:
        with case(target):
            assert_error(service.request("GET", target), 404, "Not Found")
            assert_error(service.request("POST", target, {"name": "A"}), 404, "Not Found")


# GET /api/stores.


def test_all_stores_are_listed_when_the_name_is_absent_or_empty(fresh: Running) -> None:
    targets = ["/api/stores", "/api/stores?", "/api/stores?name=", "/api/stores?name"]
    for target in targets:
        empty = fresh.request("GET", target)
        assert_success(empty)
        assert empty.body == b"[]", target
    expected = [shown(create(fresh, name), name) for name in ("A", "B", "A")]
    for target in targets:
        response = fresh.request("GET", target)
        assert_success(response)
        assert response.json == expected, target


def test_a_name_lists_only_the_stores_of_exactly_that_name(service: Running) -> None:
    first = create(service, "Corner Shop")
    for other in ("corner shop", "Corner Shop ", " Corner Shop", "Corner Sho", "Corner Shops", "CORNER SHOP"):
        create(service, other)
    second = create(service, "Corner Shop", "2 Low Street")
    response = service.request("GET", "/api/stores?name=Corner%20Shop")
    assert_success(response)
    assert [store["id"] for store in response.json] == [first, second]


NO_NAMES = ["Nobody", "%", "_", "*", ".%2A", "%00", "a" * 31, "null", "%27%20OR%201=1--"]


def test_a_name_that_no_store_has_gives_an_empty_array(service: Running) -> None:
    for name in NO_NAMES:
        with case(name):
            create(service, "Somebody")
            response = service.request("GET", f"/api/stores?name={name}")
            assert_success(response)
            assert response.body == b"[]"


# GET /api/stores/{id}.


def test_every_store_is_read_by_its_own_id_and_no_other(service: Running) -> None:
    names = [f"Store {number}" for number in range(1, 12)]
    ids = [create(service, name) for name in names]
    assert ids == list(range(ids[0], ids[0] + 11))
    assert [service.request("GET", f"/api/stores/{id}").json["name"] for id in ids] == names


# POST /api/stores.


def test_a_store_is_created_with_the_number_of_stores_plus_one_as_its_id(service: Running) -> None:
    first = len(service.request("GET", "/api/stores").json)
    for count in range(first, first + 5):
        assert len(service.request("GET", "/api/stores").json) == count
        assert create(service, "Next") == count + 1


ADDRESSES = ["4 High Street", "", " ", "x" * 10_000, "Zürich, 東京, 🏪"]


def test_a_created_store_has_the_payloads_name_and_address(service: Running) -> None:
    for address in ADDRESSES:
        with case(address):
            response = service.request("POST", "/api/stores", {"name": "Created", "address": address})
            assert_success(response)
            id = response.json["id"]
            assert response.json == shown(id, "Created", address)
            assert service.request("GET", f"/api/stores/{id}").body == response.body


LENGTHS = [1, 29, 30]


def test_a_name_may_have_up_to_30_characters(service: Running) -> None:
    for length in LENGTHS:
        with case(length):
            id = create(service, "n" * length)
            assert service.request("GET", f"/api/stores/{id}").json["name"] == "n" * length


def test_the_id_is_never_taken_from_the_client(fresh: Running) -> None:
    response = fresh.request("POST", "/api/stores", {"id": 77, "name": "Own id"})
    assert response.json == shown(1, "Own id")
    assert_error(fresh.request("GET", "/api/stores/77"), 404, "Store 77 not found")
    response = fresh.request("PUT", "/api/stores/1", {"id": 77, "name": "Own id"})
    assert response.json == shown(1, "Own id")
    assert_error(fresh.request("GET", "/api/stores/77"), 404, "Store 77 not found")


# PUT /api/stores/{id}.


def test_an_update_replaces_name_and_address_and_keeps_the_id(service: Running) -> None:
    id = create(service, "Before", "Old address")
    neighbour = create(service, "Neighbour")
    response = service.request("PUT", f"/api/stores/{id}", {"name": "After", "address": "New address"})
    assert_success(response)
    assert response.json == shown(id, "After", "New address")
    assert service.request("GET", f"/api/stores/{id}").body == response.body
    assert service.request("GET", f"/api/stores/{neighbour}").json["name"] == "Neighbour"


def test_an_update_without_address_sets_it_to_null(service: Running) -> None:
    id = create(service, "Moved", "Old address")
    response = service.request("PUT", f"/api/stores/{id}", {"name": "Moved"})
    assert response.json == shown(id, "Moved")
    assert service.request("GET", f"/api/stores/{id}").json["address"] is None


def test_an_updated_name_is_found_by_the_filter_and_the_old_one_is_not(service: Running) -> None:
    id = create(service, "Old name")
    service.request("PUT", f"/api/stores/{id}", {"name": "New name"})
    assert service.request("GET", "/api/stores?name=Old%20name").json == []
    assert [store["id"] for store in service.request("GET", "/api/stores?name=New%20name").json] == [id]


# Errors.


def test_an_invalid_payload_is_explained_and_changes_nothing(service: Running) -> None:
    for payload, message, keys in INVALID:
        with case(payload):
            id = create(service, "Unchanged", "Same address")
            with nothing_changes(service):
                assert_invalid(service.request("POST", "/api/stores", payload), message, keys)
                assert_invalid(service.request("PUT", f"/api/stores/{id}", payload), message, keys)
