"""What is measured, on which systems, and the goals that the report holds it to; imports seeds."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.seeds import STORES_OF_CHANGED as STORES
from bench.seeds import compact, store, stores

FLOOR = "floor"
ALL = ("storekeeper", "storekeeper-asgi", "storekeeper-postgres", "nginx", "fastify", "hapi", "fastapi", "drf")
PEERS = ("fastify", "hapi")
OURS_AND_PEERS = ("storekeeper", *PEERS)
FILE = ("storekeeper", "nginx", *PEERS)
STARTERS = ("storekeeper", "storekeeper-asgi", "nginx", *PEERS)
ONE = ("storekeeper", FLOOR, "nginx", *PEERS)
CREATORS = ("storekeeper", "storekeeper-asgi", "storekeeper-postgres", FLOOR, *PEERS)
WRITERS = ("storekeeper", "storekeeper-postgres", FLOOR, *PEERS)
MILLION = 1_000_000
Entry = tuple[str, int]


@dataclass(frozen=True)
class Case:
    """One table of the report: `load` are words for requests.lua, `expected` returns the body to expect."""

    name: str
    title: str
    entries: tuple[Entry, ...]
    path: str = "/api/stores/7"
    expected: Callable[[int], bytes] | None = None
    load: tuple[str, ...] = ()
    peers_load: tuple[str, ...] = ()
    """What the others get instead, where they have no such thing: peers, and ours beside which a feature is put."""
    connections: int = 64
    least_seconds: int = 1
    kind: str = "wrk"
    metric: str = "rate"

    def words(self, system: str) -> tuple[str, ...]:
        """Return the words for requests.lua; none: the same bytes again and again."""
        ours = system.startswith(("storekeeper", FLOOR)) and not system.endswith("-plain")
        return self.load if ours else self.peers_load or self.load

    @property
    def has_latencies(self) -> bool:
        """Tell whether the report shows latencies: where reads wait for writes, for others, or at a fixed rate."""
        return (
            self.kind in {"offered", "past"} or self.connections > 64 or ("by=id" in self.load and len(self.load) > 1)
        )


def at(size: int, systems: tuple[str, ...]) -> tuple[Entry, ...]:
    return tuple((system, size) for system in systems)


def one(_: int) -> bytes:
    return compact(store(7))


def named(_: int) -> bytes:
    return compact([store(7)])


def everything(count: int) -> bytes:
    return compact(list(stores(count)))


READ_ONE = Case("get-one", "GET one store, the same bytes again and again", at(10, ALL), expected=one)
LISTS, BY_NAME = "/api/stores", "/api/stores?name=Store%20000007"
NAME_ENTRIES = at(10, OURS_AND_PEERS) + at(100_000, ("storekeeper", "fastify")) + at(MILLION, ("storekeeper",))
MEMORY_ENTRIES = at(10, OURS_AND_PEERS) + at(MILLION, OURS_AND_PEERS)
RANDOM = at(MILLION, ("storekeeper", FLOOR)) + at(10, PEERS)
RANDOM_NGINX = at(MILLION, ("storekeeper", FLOOR)) + at(10, ("nginx", *PEERS))
UNCHANGED, CHANGED = "GET the list of 100,000, unchanged", "GET the list of 100,000, first after a write"
CASES = (
    Case("random-id", "GET a random store of 1,000,000", RANDOM_NGINX, load=("by=id",)),
    Case(
        "unique-heads", "GET one store, a new `x-request-id` and `traceparent` each time",
        at(10, ONE), load=("by=one", "unique=1"),
    ),
    Case(
        "random-unique", "GET a random store of 1,000,000 with unique fields",
        RANDOM_NGINX, load=("by=id", "unique=1"),
    ),
    Case(
        "random-name", "GET by a random name of 1,000,000 (peers: GET one of 10)",
        RANDOM, load=("by=name",), peers_load=("by=id",),
    ),
    Case("mix-95", "95 % GET, 5 % PUT, random stores of 1,000,000", RANDOM, load=("by=id", "put=5")),
    Case("mix-50", "50 % GET, 50 % PUT, random stores of 1,000,000", RANDOM, load=("by=id", "put=50")),
    Case("thousand", "GET one store, 1,000 connections", at(10, ONE), expected=one, connections=1000),
    Case(
        "postgres-random-id", "GET a random store of 1,000,000 from PostgreSQL",
        at(MILLION, ("storekeeper-postgres", "floor-postgres")) + at(10, PEERS), load=("by=id",),
    ),
    Case(
        "offered", "GET a random store of 1,000,000, at half of Fastify's greatest rate",
        at(MILLION, ("storekeeper",)) + at(10, ("fastify",)), load=("by=id",), connections=256, least_seconds=4,
        kind="offered", metric="p99",
    ),
    READ_ONE,
    Case("list-5", "GET the list of 5", at(5, FILE), LISTS, everything),
    Case("by-name", "GET by name, one match, the same bytes again and again", NAME_ENTRIES, BY_NAME, named),
    # 5 MB each: few connections, or a slow system would finish less than one response per connection
    Case("list", UNCHANGED, at(100_000, FILE), LISTS, everything, connections=4, least_seconds=4),
    Case(
        "list-changed", CHANGED, at(100_000, OURS_AND_PEERS), LISTS, everything,
        kind="list-changed", metric="ms",
    ),
    Case("post", "POST: create", at(10, CREATORS), load=("post=100",)),
    # Names from all over the alphabet: each is a page of its own in an index, and so in the log before the response.
    Case(
        "post-scattered", "POST: create, names in no order",
        at(10, WRITERS), load=("post=100", "scattered=1"),
    ),
    Case("put", "PUT: replace", at(10, WRITERS), load=("put=100",)),
    Case(
        "post-keys", "POST with an `Idempotency-Key` of its own each time (beside it: POST without)",
        at(10, ("storekeeper", "storekeeper-plain", "storekeeper-postgres", "storekeeper-postgres-plain")),
        load=("post=100", "keys=1"), peers_load=("post=100",),
    ),
    Case(
        "not-modified", "304 for the list of 1,000,000, other tags each time (beside it: GET one, one unique field)",
        at(MILLION, ("storekeeper", "storekeeper-plain")),
        load=("by=list", "tags=1"), peers_load=("by=one", "unique=request"),
    ),
    Case(
        "token", "GET a random store, one unique field, a token each time (beside it: without, open)",
        at(10, ("storekeeper-tokens", "storekeeper-plain")), load=("by=id", "unique=request"),
    ),
    Case(
        "past", "GET at 1,000 a second beside reads of the beginning (`at`), one store changed 1,000,000 times",
        at(MILLION, ("storekeeper-changed",)),
        f"/api/stores/7?at={STORES}", least_seconds=4, kind="past", metric="p99",
    ),
    Case("mix", "95 % GET one, 5 % POST", at(10, OURS_AND_PEERS), load=("by=id", "post=5")),
    Case("start", "Start-up, process start to first response", at(10, STARTERS), kind="start", metric="ms"),
    Case("memory", "Resident memory", MEMORY_ENTRIES, kind="memory", metric="mib"),
)  # fmt: skip


MORE = "us more"
"""The metric of a goal that is a difference of processor times, and no ratio."""


@dataclass(frozen=True)
class Goal:
    """The median over rounds of `system` : `reference` (or of the plain figure), and where it must be."""

    text: str
    sign: str
    target: float
    case: str
    system: str
    reference: str = ""
    metric: str = ""  # the case's own unless given

    @property
    def floor(self) -> str:
        """Return the floor's entry for the same goal, "" if there can be none."""
        name, _, size = self.system.partition("@")
        return f"{FLOORS[name]}@{size}" if name in FLOORS else ""


FLOORS = {"storekeeper": FLOOR, "storekeeper-postgres": "floor-postgres"}
"""What the least server with the same database is for each of ours."""

OURS, NGINX, FASTIFY, HAPI = "storekeeper@10", "nginx@10", "fastify@10", "hapi@10"
OURS_LARGE, NGINX_LARGE, HAPI_LARGE = "storekeeper@100000", "nginx@100000", "hapi@100000"
OURS_HUGE, HAPI_HUGE, POSTGRES_HUGE = "storekeeper@1000000", "hapi@1000000", "storekeeper-postgres@1000000"
PLAIN, PLAIN_HUGE, CHANGED_OFTEN = "storekeeper-plain@10", "storekeeper-plain@1000000", "storekeeper-changed@1000000"
TOKENS = "storekeeper-tokens@10"
POSTGRES, POSTGRES_PLAIN = "storekeeper-postgres@10", "storekeeper-postgres-plain@10"
HEADLINES = (
    Goal("Random id among 1,000,000: rate, times Fastify", "≥", 1.5, "random-id", OURS_HUGE, FASTIFY),
    Goal("Random id: processor time, of Fastify's", "≤", 0.67, "random-id", OURS_HUGE, FASTIFY, "us"),
    Goal(
        "One id, unique `x-request-id` and `traceparent`: rate, times Fastify",
        "≥",
        1.5,
        "unique-heads",
        OURS,
        FASTIFY,
    ),
    Goal("Random id and unique heads: rate, times Fastify", "≥", 1.3, "random-unique", OURS_HUGE, FASTIFY),
    Goal("Random name among 1,000,000: rate, times Fastify's GET one", "≥", 1.2, "random-name", OURS_HUGE, FASTIFY),
    Goal("95 % random GET, 5 % PUT: rate, times Fastify", "≥", 1.3, "mix-95", OURS_HUGE, FASTIFY),
    Goal("50 % random GET, 50 % PUT: rate, times Fastify", "≥", 0.9, "mix-50", OURS_HUGE, FASTIFY),
    Goal("50 % random GET, 50 % PUT: processor time, of Fastify's", "≤", 1.2, "mix-50", OURS_HUGE, FASTIFY, "us"),
    Goal("1,000 connections, one id: rate, of nginx", "≥", 0.75, "thousand", OURS, NGINX),
    Goal("POST: processor time, of Fastify's", "≤", 0.8, "post", OURS, FASTIFY, "us"),
    Goal("POST: rate, times Fastify", "≥", 1, "post", OURS, FASTIFY),
    Goal("POST, names in no order: processor time, of Fastify's", "≤", 1, "post-scattered", OURS, FASTIFY, "us"),
    Goal("POST, names in no order: rate, times Fastify", "≥", 0.8, "post-scattered", OURS, FASTIFY),
    Goal("PostgreSQL, random id: rate, times Fastify", "≥", 1, "postgres-random-id", POSTGRES_HUGE, FASTIFY),
    Goal("Half of Fastify's greatest rate, random ids: p99, of Fastify's", "≤", 1, "offered", OURS_HUGE, FASTIFY),
    Goal(
        "304 for the list of 1,000,000, other tags each time: rate, of GET one with a unique field",
        "≥",
        0.8,
        "not-modified",
        OURS_HUGE,
        PLAIN_HUGE,
    ),
    Goal("The same: processor time, of GET one's", "≤", 1.2, "not-modified", OURS_HUGE, PLAIN_HUGE, "us"),
    Goal("POST with unique keys: rate, of POST without", "≥", 0.85, "post-keys", OURS, PLAIN),
    Goal(
        "POST with unique keys to PostgreSQL: rate, of POST without", "≥", 0.85, "post-keys", POSTGRES, POSTGRES_PLAIN
    ),
    Goal("A token in each request: processor time, µs more than without", "≤", 1.5, "token", TOKENS, PLAIN, MORE),
    Goal("Beside reads of the past: p99 of GET, times the quiet one", "≤", 2, "past", CHANGED_OFTEN, metric="times"),
    Goal("The same id and head: rate, of nginx", "≥", 0.85, "get-one", OURS, NGINX),
    Goal("The same id and head: processor time, of Fastify's", "≤", 0.25, "get-one", OURS, FASTIFY, "us"),
)
"""The first table of the report, which README repeats: what does not repeat comes first."""
REMEDIES = {
    "random-id": "ours: reading, checking and responding to a request in C; the floor: pages mapped into memory,"
    " where a read error of the disk ends the process by a signal",
    "unique-heads": "ours: the new fields compared with known ones in C",
    "random-unique": "as for the id and for the unique heads",
    "random-name": "as for the id; the floor: the whole store in the index of names, which makes the file larger",
    "mix-95": "as for the id; for the PUTs as in the other mix",
    "mix-50": "ours: as for the id; the floor: a file"
    " format that appends, as a PUT of a random store changes the pages of the store, of its change and of two names,"
    " which go to the log, are synced, and are copied later",
    "post": "ours: as for the id; the floor: no thread beside the event loop, and no sync",
    "post-scattered": "ours: as for any POST; the floor: an index of names that gathers its changes (a log-structured"
    " one), which makes reads by name slower",
    "thousand": "fewer system calls: most of the time of a request here is the kernel's",
    "postgres-random-id": "ours: as for the id; the floor: a core more, as wrk and PostgreSQL share one",
    "not-modified": "the tags read and compared in C",
    "post-keys": "the keys read and looked for in C: most of what they cost is Python",
    "get-one": "fewer system calls: nginx, which has nothing to do, takes more than the goal allows",
}
"""What it would take to reach the goals of a case, where they are of processor time."""
GOALS = (
    Goal("GET one, times hapi", "≥", 2.4, "get-one", OURS, HAPI),
    Goal("POST, on disk before the response, times hapi in memory", "≥", 2, "post", OURS, HAPI),
    Goal("POST of names in no order, times hapi", "≥", 2, "post-scattered", OURS, HAPI),
    Goal("POST without the fast lane, times hapi", "≥", 0.8, "post", "storekeeper-asgi@10", HAPI),
    Goal("GET one from PostgreSQL, times hapi in memory", "≥", 1, "get-one", "storekeeper-postgres@10", HAPI),
    Goal("POST to PostgreSQL, times hapi in memory", "≥", 0.5, "post", "storekeeper-postgres@10", HAPI),
    Goal("GET by one name among 1,000,000, of its rate among 10", "≥", 0.95, "by-name", OURS_HUGE, OURS),
    Goal("List of 100,000 unchanged, times hapi", "≥", 10, "list", OURS_LARGE, HAPI_LARGE),
    Goal("List of 100,000 unchanged, of nginx's file", "≥", 0.7, "list", OURS_LARGE, NGINX_LARGE),
    Goal("List of 100,000 after a write, times hapi", "≥", 2, "list-changed", OURS_LARGE, HAPI_LARGE, "rate"),
    Goal("95/5 mix: p99, of hapi's", "≤", 1, "mix", OURS, HAPI, "p99"),
    Goal("Memory with 1,000,000 stores, of that with 10", "≤", 1.3, "memory", OURS_HUGE, OURS),
    Goal("Memory with 1,000,000 stores, of hapi's", "<", 0.5, "memory", OURS_HUGE, HAPI_HUGE),
    Goal("Start-up, milliseconds", "≤", 500, "start", OURS),
    Goal("Start-up, of hapi's time", "≤", 2, "start", OURS, HAPI),
)
