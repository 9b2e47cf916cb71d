"""Pages and moments of the past (decisions 37, 38 and 40), on a collection in memory."""

import json
import re

import pytest

from storekeeper.api.query import parse_store_query
from storekeeper.domain.queries import Moment
from storekeeper.domain.stores import Payload
from storekeeper.http.response import Response, parse_fields
from tests.harness.in_memory import EPOCH, InMemory, Later, ask, ask_later

NAMES = ["A", "B", "A", "C", "A"]


@pytest.fixture
def collection() -> InMemory:
    """Return five stores of the versions 1 to 5, created at 1 to 5 s; the first was renamed at 6
    s."""
    collection = InMemory(*map(Payload, NAMES))
    ask(collection, "PUT", "/api/stores/1", b'{"name":"Z"}')
    return collection


def ids(response: Response) -> list[int]:
    assert response.status == 200, response
    return [store["id"] for store in json.loads(response.body)]


def next_of(response: Response) -> str | None:
    link = dict(parse_fields(response.headers)).get(b"link")
    if link is None:
        return None
    found = re.fullmatch(r'<(/api/stores\?[^<>"]*)>; rel="next"', link.decode())
    assert found
    return found[1]


@pytest.mark.parametrize(
    ("query", "expected", "link"),
    [
        ("", [1, 2, 3, 4, 5], None),
        ("?limit=2", [1, 2], "limit=2&after=2"),
        ("?limit=2&after=2", [3, 4], "limit=2&after=4"),
        ("?after=2&limit=2", [3, 4], "after=4&limit=2"),
        ("?after=&limit=%32", [1, 2], "after=2&limit=%32"),
        ("?%61fter=2&limit=2", [3, 4], "after=4&limit=2"),
        ("?limit=2&after=4", [5], None),
        ("?limit=5", [1, 2, 3, 4, 5], None),
        ("?limit=1000", [1, 2, 3, 4, 5], None),
        ("?limit=", [1, 2, 3, 4, 5], None),
        ("?after=3", [4, 5], None),
        ("?after=5", [], None),
        ("?after=9223372036854775807&limit=1", [], None),
        ("?name=A&limit=1", [3], "name=A&limit=1&after=3"),
        ("?name=&limit=4", [1, 2, 3, 4], "name=&limit=4&after=4"),
        ("?limit=4&x=a+b%20%ff&&y", [1, 2, 3, 4], "limit=4&x=a+b%20%ff&&y&after=4"),
        (
            '?limit=4&x=<a>"\\^`{|}#',
            [1, 2, 3, 4],
            "limit=4&x=%3Ca%3E%22%5C%5E%60%7B%7C%7D%23&after=4",
        ),
        ("?at=3&limit=2", [1, 2], "at=3&limit=2&after=2"),
        ("?at=3&limit=2&after=2", [3], None),
        ("?at=", [1, 2, 3, 4, 5], None),
        ("?q=a", [3, 5], None),
        ("?q=%C3%84&limit=1", [3], "q=%C3%84&limit=1&after=3"),
        ("?q=a+a&limit=1&after=3", [5], None),
        ("?q=4", [4], None),
        ("?q=&limit=4", [1, 2, 3, 4], "q=&limit=4&after=4"),
        ("?q=+&limit=4", [], None),
        ("?q=%ff", [], None),
        ("?q=a%00", [], None),
        ("?q=6", [], None),
        ("?sort=id&limit=2", [1, 2], "sort=id&limit=2&after=2"),
        ("?sort=id&at=3&limit=2", [1, 2], "sort=id&at=3&limit=2&after=2"),
        ("?sort=&no-address=&duplicates=false&changed-after=&limit=5", [1, 2, 3, 4, 5], None),
        ("?sort=name", [3, 5, 2, 4, 1], None),
        ("?sort=-name", [1, 4, 2, 5, 3], None),
        ("?sort=-id&limit=2", [5, 4], "sort=-id&limit=2&after=4@6.abcdefgh"),
        ("?sort=changed&limit=3", [2, 3, 4], "sort=changed&limit=3&after=4@6.abcdefgh"),
        ("?sort=-changed&limit=2&after=1@6", [5, 4], "sort=-changed&limit=2&after=4@6.abcdefgh"),
        ("?sort=name&after=4@6.abcdefgh", [1], None),
        ("?sort=name&after=4", [1], None),
        ("?sort=name&after=4@now", [1], None),
    ],
)
def test_a_page_says_where_the_next_one_is(
    collection: InMemory, query: str, expected: list[int], link: str | None
) -> None:
    response = ask(collection, "GET", f"/api/stores{query}")
    assert ids(response) == expected
    assert next_of(response) == (link and f"/api/stores?{link}")
    total = (
        "3" if "at=3" in query else None if "name=A" in query or re.search("q=[^&]", query) else "5"
    )
    assert dict(parse_fields(response.headers)).get(b"total-count") == (total and total.encode())


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("no-address=true", [1, 2, 3, 4, 5]),
        ("no-address=1&sort=-id", [5, 4, 3, 2, 1]),
        ("changed-after=4", [1, 5]),
        ("changed-after=4.abcdefgh&sort=-id", [5, 1]),
        ("changed-after=now", []),
        ("no-address=true&after=4", [5]),
    ],
)
def test_a_filter_leaves_stores_out_and_tells_no_total(
    collection: InMemory, query: str, expected: list[int]
) -> None:
    response = ask(collection, "GET", f"/api/stores?{query}")
    assert ids(response) == expected
    assert b"total-count" not in dict(parse_fields(response.headers))
    assert response.tag == f'"6.{EPOCH}"'.encode()
    unchanged = ask(
        collection, "GET", f"/api/stores?{query}", b"", (b"if-none-match", response.tag)
    )
    assert unchanged.status == 304


@pytest.mark.parametrize(
    "query",
    [
        "changed-after=1.bcdefgha",
        "changed-after=7",
        "sort=name&after=1@1.bcdefgha",
        "sort=-id&after=1@7",
    ],
)
def test_a_cursor_of_another_history_is_gone_and_the_present_one_is_told(
    collection: InMemory, query: str
) -> None:
    response = ask(collection, "GET", f"/api/stores?{query}")
    assert (response.status, json.loads(response.body)["cursor"]) == (410, f"6.{EPOCH}")


@pytest.mark.parametrize("kind", [InMemory, Later])
def test_the_outside_keys_of_a_page_come_with_the_tag_of_the_list(kind: type[InMemory]) -> None:
    collection = kind(*map(Payload, NAMES))

    def asked(query: str, *fields: tuple[bytes, bytes]) -> Response:
        return ask_later(collection, "GET", f"/api/keys{query}", b"", *fields)

    response = asked("?ids=4,2,3")
    keys = [{"store": id, "column": "Till", "value": f"T-{id}"} for id in (2, 4)]
    assert json.loads(response.body) == {"keys": keys}
    assert response.tag == f'"5.{EPOCH}"'.encode()
    assert asked("?ids=2", (b"if-none-match", response.tag)).status == 304
    for empty in ("", "?ids=", "?other=1"):
        assert json.loads(asked(empty).body) == {"keys": []}
    for bad in ("a", "1,,2", "-1", "1;2", ",".join(["1"] * 1001), "9223372036854775808"):
        response = asked(f"?ids={bad}")
        error = json.loads(response.body)
        assert (response.status, error["validation"]["keys"]) == (400, ["ids"])


def test_a_search_without_a_limit_has_fifty_stores() -> None:
    collection = InMemory(*(Payload(f"Kiosk {number}") for number in range(60)))
    response = ask(collection, "GET", "/api/stores?q=KIOSK")
    assert (ids(response), next_of(response)) == (
        list(range(1, 51)),
        "/api/stores?q=KIOSK&after=50",
    )
    response = ask(collection, "GET", next_of(response) or "")
    assert (ids(response), next_of(response)) == (list(range(51, 61)), None)


def test_a_search_for_an_id_begins_with_that_store() -> None:
    collection = InMemory(*(Payload(f"Kiosk {number}") for number in range(10)))
    response = ask(collection, "GET", "/api/stores?q=7&limit=1")
    assert (ids(response), next_of(response)) == ([7], "/api/stores?q=7&limit=1&after=0")
    response = ask(collection, "GET", next_of(response) or "")
    assert (ids(response), next_of(response)) == ([8], None)


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        *(
            (f"limit={value}", ["limit"])
            for value in ("0", "1001", "-1", "a", "1.0", "+1", "%D9%A1", "9" * 5000)
        ),
        *((f"after={value}", ["after"]) for value in ("-1", "a", "9223372036854775808", "0x1")),
        ("limit=1&limit=1", ["limit"]),
        ("limit=&limit=1", ["limit"]),
        ("after=1&after=2", ["after"]),
        ("at=1&at=1", ["at"]),
        ("at=1&name=A", ["at"]),
        ("at=1&name=%ff", ["at"]),
        ("at=7", ["at"]),
        ("at=1&q=A", ["at"]),
        ("q=A&name=A", ["q"]),
        ("q=A&q=A", ["q"]),
        ("q=a+b+c+d+e+f+g+h+i", ["q"]),
        (f"q={'x' * 201}", ["q"]),
        *((f"sort={value}", ["sort"]) for value in ("x", "--id", "Name", "name,id", "%ff")),
        ("sort=name&sort=name", ["sort"]),
        ("no-address=yes", ["no-address"]),
        ("duplicates=2&no-address=x", ["no-address", "duplicates"]),
        ("changed-after=x", ["changed-after"]),
        *(
            (f"sort=name&after={value}", ["after"])
            for value in ("x", "1@", "1@x", "@1", "1@1@1", "-1@1", "1@1.ABCDEFGH")
        ),
        ("after=1@1", ["after"]),
        ("sort=id&after=1@1", ["after"]),
        ("sort=name&at=1", ["at"]),
        ("sort=-id&at=1", ["at"]),
        ("no-address=true&at=1", ["at"]),
        ("changed-after=1&at=1", ["at"]),
        ("after=a&at=x&name=a&name=b&limit=0", ["name", "limit", "after", "at"]),
    ],
)
def test_a_query_that_breaks_rules_is_told_all_of_them(
    collection: InMemory, query: str, keys: list[str]
) -> None:
    for fields in ((), ((b"if-none-match", b"*"),)):
        response = ask(collection, "GET", f"/api/stores?{query}", b"", *fields)
        error = json.loads(response.body)
        assert (response.status, error["validation"]) == (400, {"source": "query", "keys": keys})
        assert all(f'"{key}" must ' in error["message"] for key in keys)


@pytest.mark.parametrize("query", ["at=1&at=1", "at&at", "at&%61t", "at=&a%74"])
def test_a_moment_given_twice_is_refused_even_if_it_is_empty(
    collection: InMemory, query: str
) -> None:
    for target in ("/api/stores", "/api/stores/1"):
        response = ask(collection, "GET", f"{target}?{query}")
        assert (response.status, json.loads(response.body)["validation"]["keys"]) == (400, ["at"])


@pytest.mark.parametrize(
    ("at", "version"),
    [
        ("0", 0),
        ("2", 2),
        ("6", 6),
        (f"2.{EPOCH}", 2),
        ("1970-01-01T00:00:02Z", 2),
        ("1970-01-01T00:00:02.0Z", 2),
        ("1970-01-01T00:00:01.999999999Z", 1),
        ("1970-01-01T00:00:05.5Z", 5),
        ("1969-12-31T23:59:59Z", 0),
    ],
)
def test_the_past_is_as_it_was(collection: InMemory, at: str, version: int) -> None:
    listed = ask(collection, "GET", f"/api/stores?at={at}")
    assert ids(listed) == list(range(1, min(version, 5) + 1))
    assert listed.tag == f'"{version}.{EPOCH}"'.encode()
    store = ask(collection, "GET", f"/api/stores/1?at={at}")
    assert store.status == (200 if version else 404)
    if version:
        seq, name = (6, "Z") if version == 6 else (1, "A")
        assert (json.loads(store.body)["name"], store.tag) == (name, f'"{seq}.{EPOCH}"'.encode())


@pytest.mark.parametrize(
    ("fraction", "milliseconds"),
    [("", 0), (".5", 500), (".05", 50), (".050", 50), (".123", 123), (".1239", 123)],
)
def test_a_fraction_of_a_second_has_any_number_of_digits(fraction: str, milliseconds: int) -> None:
    query = f"at=1970-01-01T00:00:05{fraction}Z".encode()
    assert parse_store_query(query) == Moment(time=5000 + milliseconds)


@pytest.mark.parametrize(
    "at",
    [
        *(
            "x",
            "-1",
            "01",
            "1.",
            "1.abc",
            "1.ABCDEFGH",
            f"1.{EPOCH}x",
            "7",
            "now",
            "9" * 19,
            "9" * 30,
            "+1",
        ),
        *(
            "2026-11-22",
            "2026-11-22T06:00:00",
            "2026-11-22T06:00Z",
            "1970-02-30T00:00:00Z",
            "0000-01-01T00:00:00Z",
        ),
        *(
            "1970-01-01T00:00:01z",
            "1970-01-01t00:00:01Z",
            "1970-01-01T00:00:01%2B00:00",
            "1970-01-01T24:00:00Z",
        ),
        *(
            "1970-01-01T00:00:01.Z",
            "1970-01-01%2000:00:01Z",
            "9999-12-31T23:59:59Z",
            "1970-01-01T00:00:60Z",
        ),
    ],
)
@pytest.mark.parametrize("target", ["/api/stores", "/api/stores/1", "/api/stores/none"])
def test_what_is_no_moment_up_to_now_is_refused(collection: InMemory, target: str, at: str) -> None:
    response = ask(collection, "GET", f"{target}?at={at}")
    assert response.status == 400
    assert json.loads(response.body)["validation"] == {"source": "query", "keys": ["at"]}


@pytest.mark.parametrize("target", ["/api/stores", "/api/stores/1", "/api/stores/none"])
def test_a_moment_of_another_epoch_is_gone_and_the_present_cursor_is_told(
    collection: InMemory, target: str
) -> None:
    response = ask(collection, "GET", f"{target}?at=1.bcdefgha")
    error = json.loads(response.body)
    assert (response.status, error["error"], error["cursor"]) == (410, "Gone", f"6.{EPOCH}")


def test_a_store_looks_at_no_parameter_but_at(collection: InMemory) -> None:
    assert ask(collection, "GET", "/api/stores/1?limit=0&after=a&name=a&name=b&at=").status == 200
