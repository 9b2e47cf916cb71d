"""Kills a service while clients create with Idempotency-Keys and repeat until there is a response;
then counts."""

import asyncio
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import uvloop

from tests.campaigns.crash import Row
from tests.harness import weakened
from tests.harness.keep_alive import Client, Lost, Response
from tests.harness.linux import workers
from tests.harness.process import Running, serving
from tests.oracles.lincheck import Violation

CLIENTS = 16
LATE = 0.001
"""The latest moment of a kill, in seconds after a request: kills meet requests anywhere on their
way."""

GIVE_UP = 300.0
"""Seconds for all creates together."""


@dataclass
class Creates:
    """Clients that create this many stores, each with its own key, over any number of a service's
    lives."""

    wanted: int
    seed: int = 0
    port: int = 0
    tries: int = 0
    answered: dict[int, Response] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    strike_at: int = 0
    strike: Callable[[], object] = bool
    struck: threading.Event = field(default_factory=threading.Event)
    _next: Iterator[int] = field(default_factory=lambda: iter(()))

    def run(self) -> None:
        """Create all stores; return when each request got a 200."""
        self._next = iter(range(self.wanted))
        uvloop.run(self._all())

    def repeat(self, count: int) -> list[str]:
        """Send some requests once more; return the responses that differ from the first."""
        chosen = random.Random(self.seed).sample(range(self.wanted), count)
        replies = uvloop.run(self._again(chosen))
        return [
            f"{number} was answered with {response}, before with {before}"
            for number, response in zip(chosen, replies, strict=True)
            if (before := self.answered[number]) != response._replace(replayed=before.replayed)
            or not response.replayed
        ]

    async def _all(self) -> None:
        async with asyncio.timeout(GIVE_UP):
            await asyncio.gather(*(self._use() for _ in range(CLIENTS)))

    async def _use(self) -> None:
        for number in self._next:
            quoted = number % 2 == 0
            while number not in self.answered:
                # A new connection each time, which may reach any worker.
                response = await self._try(number, quoted=quoted)
                quoted = not quoted
                if response is None or response.status == 503:
                    await asyncio.sleep(0.02)
                elif response.status == 200:
                    self.answered[number] = response
                else:
                    self.odd.append(f"{number} was answered with {response}")
                    return

    async def _try(self, number: int, *, quoted: bool) -> Response | None:
        key = f'"{self.seed}-{number}"' if quoted else f"{self.seed}-{number}"
        try:
            client = await Client.connect(self.port)
        except OSError:
            return None
        self.tries += 1
        if 0 < self.strike_at <= self.tries:  # other tries may have begun while it was set
            self.strike_at = 0
            asyncio.get_running_loop().call_later(random.random() * LATE, self._strike)
        try:
            body = b'{"name":"Store %d"}' % number
            return await client.exchange("POST", "/api/stores", body, f"idempotency-key: {key}\r\n")
        except Lost:
            return None
        finally:
            client.close()

    def _strike(self) -> None:
        self.strike()
        self.struck.set()

    def strike_after(self, tries: int, strike: Callable[[], object]) -> None:
        """Call something just after this many more requests were sent; then `struck` is set."""
        self.struck.clear()
        self.strike, self.strike_at = strike, self.tries + tries

    async def _again(self, chosen: list[int]) -> list[Response]:
        found = []
        for number in chosen:
            response = await self._try(number, quoted=number % 3 == 0)
            assert response is not None
            found.append(response)
        return found


def kill_creates(
    folder: Path, creates: int, kills: int, database: str | None = None, *, change: str = ""
) -> Row:
    """Kill a worker, or everything, that often while clients create: each store is there exactly
    once."""
    row = Row("K2-keys")
    folder.mkdir(parents=True, exist_ok=True)
    clients = Creates(creates)
    thread = threading.Thread(target=clients.run)
    rng = random.Random(creates)
    with ExitStack() as lives:
        service = _start(folder, database, change, lives, clients)
        for number in range(1, kills + 1):
            everything = number % 2 == 1
            strike = partial(_kill, service, clients, everything=everything, rng=rng)
            clients.strike_after(max(1, creates // (kills + 1)), strike)
            if number == 1:
                thread.start()
            assert clients.struck.wait(GIVE_UP), "the clients were done before"
            if everything:
                service = _start(folder, database, change, lives, clients)
            row.figures["kills"] += 1
        thread.join()
        _judge(row, clients, service)
    return row


def _start(
    folder: Path, database: str | None, change: str, lives: ExitStack, clients: Creates
) -> Running:
    environment = weakened.environment(change) if change else None
    made = serving(
        folder, "--workers=2", database=database, env=environment, program=weakened.PROGRAM
    )
    service = lives.enter_context(made)
    clients.port = service.port
    return service


def _kill(service: Running, clients: Creates, *, everything: bool, rng: random.Random) -> None:
    with suppress(ProcessLookupError):
        if everything:
            clients.port = 0  # another service may get its port
            os.killpg(service.process.pid, signal.SIGKILL)
        else:
            os.kill(rng.choice(sorted(workers(service))), signal.SIGKILL)


def _judge(row: Row, clients: Creates, service: Running) -> None:
    found = service.request("GET", "/api/stores").json
    wanted = {
        number: msgspec.json.decode(response.body) for number, response in clients.answered.items()
    }
    names = [store["name"] for store in found]
    row.figures.update(creates=clients.wanted, tries=clients.tries, stores=len(found))
    row.violations += [Violation("odd", text) for text in clients.odd]
    for number in range(clients.wanted):
        times = names.count(f"Store {number}")
        if times != 1:
            row.violations.append(
                Violation("lost" if not times else "duplicate", f"{number} is there {times} times")
            )
        elif wanted.get(number) not in found:
            row.violations.append(
                Violation("phantom", f"{number} was answered with {wanted.get(number)}")
            )
    if not row.violations:
        row.violations += [
            Violation("replay", text) for text in clients.repeat(min(50, clients.wanted))
        ]
    if len(service.request("GET", "/api/stores").json) != len(found):
        row.violations.append(Violation("duplicate", "a replay created a store"))
