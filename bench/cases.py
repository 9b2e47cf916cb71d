"""What is measured, on which systems, and the goals that the report holds it to; imports seeds."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.seeds import compact, store, stores

ALL = ("storekeeper", "storekeeper-asgi", "storekeeper-postgres", "nginx", "fastify", "hapi", "fastapi", "drf")
WHOLE = ("storekeeper", "fastify", "hapi", "fastapi", "drf")  # those that do everything
FILE = ("storekeeper", "nginx", "fastify", "hapi", "fastapi", "drf")
STARTERS = ("storekeeper", "storekeeper-asgi", "nginx", "fastify", "hapi", "fastapi", "drf")
WRITERS = ("storekeeper", "storekeeper-asgi", "storekeeper-postgres", "fastify", "hapi", "fastapi", "drf")
Entry = tuple[str, int]


@dataclass(frozen=True)
class Case:
    """One table of the report: `mix` are the arguments of mixed.lua, `expected` returns the body to expect."""

    name: str
    title: str
    entries: tuple[Entry, ...]
    path: str = "/api/stores/7"
    expected: Callable[[int], bytes] | None = None
    mix: tuple[int | str, ...] = ()
    connections: int = 64
    least_seconds: int = 1
    kind: str = "wrk"
    metric: str = "rate"


def at(size: int, systems: tuple[str, ...]) -> tuple[Entry, ...]:
    return tuple((system, size) for system in systems)


def one(_: int) -> bytes:
    return compact(store(7))


def named(_: int) -> bytes:
    return compact([store(7)])


def everything(count: int) -> bytes:
    return compact(list(stores(count)))


READ_ONE = Case("get-one", "GET one store", at(10, ALL), expected=one)
LISTS, BY_NAME = "/api/stores", "/api/stores?name=Store%20000007"
NAME_ENTRIES = at(10, WHOLE) + at(100_000, WHOLE) + at(1_000_000, ("storekeeper", "fastify", "hapi"))
MEMORY_ENTRIES = at(10, WHOLE) + at(100_000, WHOLE) + at(1_000_000, WHOLE)
UNCHANGED, CHANGED = "GET the list of 100,000, unchanged", "GET the list of 100,000, first after a write"
CASES = (
    READ_ONE,
    Case("list-5", "GET the list of 5", at(5, FILE), LISTS, everything),
    Case("by-name", "GET by name, one match", NAME_ENTRIES, BY_NAME, named, least_seconds=3),
    # 5 MB each: few connections, or a slow system would finish less than one response per connection
    Case("list", UNCHANGED, at(100_000, FILE), LISTS, everything, (), 4, 8),
    Case("list-changed", CHANGED, at(100_000, WHOLE), LISTS, everything, kind="list-changed", metric="ms"),
    Case("post", "POST: create", at(10, WRITERS), mix=(0, 100, 0)),
    # Names from all over the alphabet: each is a page of its own in an index, and so in the log before the response.
    Case("post-scattered", "POST: create, names in no order", at(10, WRITERS), mix=(0, 100, 0, "scattered")),
    Case("put", "PUT: replace", at(10, WRITERS), mix=(0, 0, 100)),
    Case("mix", "95 % GET one, 5 % POST", at(10, WHOLE), mix=(95, 5, 0)),
    Case("start", "Start-up, process start to first response", at(10, STARTERS), kind="start", metric="ms"),
    Case("memory", "Resident memory", MEMORY_ENTRIES, kind="memory", metric="mib"),
)


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


OURS, NGINX, FASTIFY, HAPI = "storekeeper@10", "nginx@10", "fastify@10", "hapi@10"
OURS_LARGE, NGINX_LARGE, HAPI_LARGE = "storekeeper@100000", "nginx@100000", "hapi@100000"
OURS_HUGE, HAPI_HUGE = "storekeeper@1000000", "hapi@1000000"
GOALS = (
    Goal("GET one, of nginx `return 200`", "≥", 0.85, "get-one", OURS, NGINX),
    Goal("GET one, times Fastify", "≥", 1.6, "get-one", OURS, FASTIFY),
    Goal("GET one, times hapi", "≥", 2.4, "get-one", OURS, HAPI),
    Goal("POST, on disk before the response, times Fastify in memory", "≥", 1, "post", OURS, FASTIFY),
    Goal("POST, on disk before the response, times hapi in memory", "≥", 2, "post", OURS, HAPI),
    Goal("POST of names in no order, times hapi", "≥", 2, "post-scattered", OURS, HAPI),
    Goal("POST without the fast lane, times hapi", "≥", 0.8, "post", "storekeeper-asgi@10", HAPI),
    Goal("GET one from PostgreSQL, times hapi in memory", "≥", 1, "get-one", "storekeeper-postgres@10", HAPI),
    Goal("POST to PostgreSQL, times hapi in memory", "≥", 0.5, "post", "storekeeper-postgres@10", HAPI),
    Goal("GET by name among 1,000,000, of its rate among 10", "≥", 0.95, "by-name", OURS_HUGE, OURS),
    Goal("List of 100,000 unchanged, times hapi", "≥", 10, "list", OURS_LARGE, HAPI_LARGE),
    Goal("List of 100,000 unchanged, of nginx's file", "≥", 0.7, "list", OURS_LARGE, NGINX_LARGE),
    Goal("List of 100,000 after a write, times hapi", "≥", 2, "list-changed", OURS_LARGE, HAPI_LARGE, "rate"),
    Goal("95/5 mix: p99, of hapi's", "≤", 1, "mix", OURS, HAPI, "p99"),
    Goal("Memory with 1,000,000 stores, of that with 10", "≤", 1.3, "memory", OURS_HUGE, OURS),
    Goal("Memory with 1,000,000 stores, of hapi's", "<", 0.5, "memory", OURS_HUGE, HAPI_HUGE),
    Goal("Start-up, milliseconds", "≤", 500, "start", OURS),
    Goal("Start-up, of hapi's time", "≤", 2, "start", OURS, HAPI),
)
