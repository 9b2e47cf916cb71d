"""What is measured, on which systems, and the goals."""

from dataclasses import dataclass

OURS, PEER, MEMORY = "storekeeper", "fastify-sqlite", "fastify"
PAIR = (OURS, PEER, MEMORY)
ALL = (*PAIR, "hapi", "floor")
POSTGRES = ("storekeeper-postgres", "fastify-pg")
KEYS = ("storekeeper-keys", OURS, "storekeeper-many-keys")


@dataclass(frozen=True)
class Case:
    """One row of the tables: the first system's rate should be `goal` times the second's.

    The other systems are for reference. `load` has the arguments of `wrk/requests.lua`; if it is
    empty, wrk sends the same bytes again and again.
    """

    name: str
    title: str
    systems: tuple[str, ...]
    load: tuple[str, ...] = ()
    goal: float = 0.0
    most_more: float = 0.0
    """How many more microseconds of processor time the first system may take than the second, if
    that is the goal instead."""
    path: str = "/api/stores/7"
    connections: int = 64


CASES = (
    Case("random-id", "GET a random store", ALL, ("by=id",), 1.4),
    Case("unique-heads", "GET one store, unique fields", PAIR, ("by=one", "unique=1"), 1.3),
    Case("random-unique", "GET a random store, unique fields", PAIR, ("by=id", "unique=1"), 1.3),
    Case("random-name", "GET by a random name", (OURS, PEER, "floor"), ("by=name",), 1.2),
    Case("mix-95", "95 % GET, 5 % PUT, random stores", PAIR, ("by=id", "put=5"), 1.8),
    Case("mix-50", "50 % GET, 50 % PUT, random stores", ALL, ("by=id", "put=50"), 3.5),
    Case("post", "POST", ALL, ("post=100",), 9.0),
    # Names from all over the alphabet: each one changes a different page of an index, which must
    # be in the log before the response.
    Case("post-scattered", "POST, names in no order", PAIR, ("post=100", "scattered=1"), 8.0),
    Case(
        "get-one", "GET one store, the same bytes", (OURS, "nginx", PEER, MEMORY, "hapi"), goal=0.5
    ),
    Case("post-keys", "POST with keys / POST", KEYS, ("post=100",), most_more=35.0),
    Case("postgres-random-id", "PostgreSQL: GET a random store", POSTGRES, ("by=id",), 1.5),
    Case("postgres-post", "PostgreSQL: POST", POSTGRES, ("post=100",), 1.3),
)
BY_NAME = {case.name: case for case in CASES}
