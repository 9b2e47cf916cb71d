"""Walks through all stores of one moment while others write."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic

import uvloop

from storekeeper.stores import Payload
from tests.campaigns.crash import Row
from tests.harness.client import fill, until
from tests.harness.databases import Sqlite
from tests.harness.process import Running, ask, serving
from tests.harness.stores import ChangeRow
from tests.oracles.history import Client, Lost
from tests.oracles.lincheck import Violation

WRITERS = 16
PAGE = 1000


def numbered(count: int) -> Iterator[Payload]:
    """Return the payloads of so many stores."""
    return (Payload(f"Store {number}", f"{number} Past Road") for number in range(1, count + 1))


@dataclass
class Walk:
    """What a walk through all stores of one moment found, and how many writes there were meanwhile."""

    tag: str = ""
    pages: int = 0
    refused: int = 0
    """Pages that were asked for again: 503, `outcome` none."""
    total: set[str] = field(default_factory=set)
    found: list[tuple[int, str, str | None]] = field(default_factory=list)
    writes: Counter[int] = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    """Every writer has written."""

    def has_gone_on(self, writes: int) -> bool:
        """Tell whether there were more writes than so many, or one failed."""
        return self.writes.total() > writes or bool(self.odd)


def walk(service: Running, stores: int, rate: float, page: int = PAGE) -> Walk:
    """Walk from link to link through the moment at which this begins, while others replace and create."""
    return uvloop.run(_walk(service, stores, rate, page))


async def _walk(service: Running, stores: int, rate: float, page: int) -> Walk:
    walk = Walk()
    over = asyncio.Event()
    writers = [asyncio.create_task(_write(service.port, walk, over, rate, stores, at)) for at in range(WRITERS)]
    await walk.began.wait()
    await asyncio.to_thread(_follow, service, walk, page)
    over.set()
    await asyncio.gather(*writers)
    return walk


def _follow(service: Running, walk: Walk, page: int) -> None:
    connection = service.connection()
    walk.tag = ask(connection, "GET", "/api/stores?limit=1").headers["etag"]
    target = f"/api/stores?at={walk.tag.strip(chr(34))}&limit={page}"
    while target:
        # Something is written between any two pages.
        until(partial(walk.has_gone_on, walk.writes.total()))
        response = ask(connection, "GET", target)
        if response.status == 503 and response.json["outcome"] == "none" and walk.refused < 100:
            walk.refused += 1
            continue
        if response.status != 200 or response.headers["etag"] != walk.tag:
            walk.odd.append(f"{target} was answered with {response.status}, {response.headers}")
            break
        walk.pages += 1
        walk.total.add(response.headers["total-count"])
        walk.found += [(store["id"], store["name"], store["address"]) for store in response.json]
        target = _next(response.headers.get("link", ""))
    connection.close()


def _next(link: str) -> str:
    """Return the target in a link, "" if there is no next page."""
    return link.partition("<")[2].partition(">")[0] if 'rel="next"' in link else ""


async def _write(port: int, walk: Walk, over: asyncio.Event, rate: float, stores: int, at: int) -> None:
    client = await Client.connect(port)
    due = monotonic()
    number = at
    while not over.is_set():
        # The ends of the list are not safer than its middle.
        id = 1 + (number * 7919) % stores
        body = json.dumps({"name": f"Later {number}", "address": f"{number} Present Road"}).encode()
        method, target = ("POST", "/api/stores") if number % 5 == 0 else ("PUT", f"/api/stores/{id}")
        try:
            status, _ = await client.ask(method, target, body)
        except Lost:
            walk.odd.append(f"{method} {target} had no response")
            return
        walk.writes[status] += 1
        if walk.writes.total() >= 2 * WRITERS:
            walk.began.set()
        number += WRITERS
        due = max(due + WRITERS / rate, monotonic())
        await asyncio.sleep(due - monotonic())
    client.close()


def walk_at_scale(folder: Path, stores: int, rate: float) -> Row:
    """Walk through that many stores while so many writes a second go on; compare with what the changes say."""
    row = Row("K9-walk")
    folder.mkdir()
    with serving(folder, "--workers=2") as service:
        fill(folder, numbered(stores))
        found = walk(service, stores, rate)
    version = int(found.tag.strip('"').partition(".")[0])
    writes = found.writes.total()
    row.figures.update(stores=len(found.found), pages=found.pages, refused_pages=found.refused, writes=writes)
    row.violations += [Violation("odd", text) for text in found.odd]
    row.violations += [Violation("odd", f"a write: {status}") for status in found.writes.keys() - {200}]
    if found.found != as_of(Sqlite(folder).changes(), version):
        row.violations.append(Violation("past", f"the walk is not what there was at {version}"))
    return row


def as_of(changes: Iterable[ChangeRow], version: int) -> list[tuple[int, str, str | None]]:
    """Return the stores after so many changes, found without the code under test."""
    stores = {id: (id, name, address) for seq, id, name, address, *_ in changes if seq <= version}
    return [stores[id] for id in sorted(stores)]
