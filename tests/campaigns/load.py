"""What many, slow and greedy clients do to the others, one line each (`make load`). Status 1 on any
violation.

The load is ours and goes to 127.0.0.1. Figures can be compared only within one run.
"""

import argparse
import resource
import signal
import socket
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from storekeeper.domain.stores import Payload
from tests.campaigns.load_clients import ClientGroup, Responses, behave, elsewhere, listen, offer
from tests.harness import weakened
from tests.harness.client import fill
from tests.harness.linux import peak_memory
from tests.harness.process import Running, serving
from tests.harness.wire import request

MIB = 2**20
MAX_RATIO = 3.0
"""The highest 99th percentile of the others, as a multiple of the quiet one."""

LEAST_SHARE = 0.8
"""The share of its peak that a service must serve when it is offered three times the peak."""

QUICK = 0.5
"""Seconds that a refusal may take if nothing else is done for it."""

MAX_SECONDS = 5.0
"""Seconds that any response may take (decision 30)."""

LISTENED_RATE = 100
"""Writes per second that are offered while clients listen."""

MAX_LISTENED_RATIO = 2.0
"""The highest 99th percentile of these, as a multiple of that without listeners."""

MAX_DELAY = 1.0
"""Seconds from the response to a write until 95 of 100 listeners have its change."""

SLACK = 4.0
"""Seconds after a deadline within which a connection must be closed, on a busy machine."""


@dataclass
class Row:
    """One line of the report: what was done, with its figures, and every violation."""

    name: str
    figures: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        figures = "".join(f" {name}={_short(value)}" for name, value in self.figures.items())
        return f"{self.name}{figures} violations={len(self.violations)}"

    def hold(self, *, that: bool, otherwise: str) -> None:
        """Record a violation unless a condition is true."""
        if not that:
            self.violations.append(otherwise)


def _short(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Scale:
    """How much of everything, and whether ratios of times are checked: not in a suite that shares
    its machine."""

    connections: int
    slow: int
    listeners: int
    seconds: float
    timeout: float
    ratios: bool


FULL = Scale(connections=5000, slow=200, listeners=1000, seconds=5.0, timeout=10.0, ratios=True)
SMALL = Scale(connections=300, slow=10, listeners=50, seconds=0.6, timeout=1.0, ratios=False)
"""With the build whose deadlines take a tenth of their time."""


# The rows.


@contextmanager
def beside(
    row: Row, folder: Path, scale: Scale, *args: str
) -> Iterator[tuple[Running, ProcessPoolExecutor]]:
    """A service that other clients used for a while, undisturbed; at the end its memory is
    checked."""
    environment = None if scale.ratios else weakened.environment("is_impatient")
    with (
        serving(folder, *args, env=environment, program=weakened.PROGRAM) as service,
        elsewhere() as pool,
    ):
        fill(folder, (Payload(f"Store {number}", "x" * 100) for number in range(5000)))
        pool.submit(behave, service.port, min(1.0, scale.seconds)).result()
        quiet = pool.submit(behave, service.port, scale.seconds).result()
        row.figures["quiet_p99_ms"] = 1000 * quiet.percentile(0.99)
        began = peak_memory(service)
        yield service, pool
        row.figures["rss_growth_mib"] = (peak_memory(service) - began) / MIB


def disturbed(row: Row, service: Running, pool: ProcessPoolExecutor, scale: Scale) -> None:
    """Run well-behaved clients now; all of them get responses, not much later than before."""
    loud = pool.submit(behave, service.port, scale.seconds).result()
    row.figures["p99_ms"] = 1000 * loud.percentile(0.99)
    row.figures["good"] = loud.statuses[200]
    row.hold(
        that=loud.statuses.keys() == {200},
        otherwise=f"others were answered with {dict(loud.statuses)}",
    )
    if scale.ratios:
        row.figures["ratio"] = ratio = row.figures["p99_ms"] / row.figures["quiet_p99_ms"]
        row.hold(that=ratio <= MAX_RATIO, otherwise=f"others waited {ratio:.1f} times as long")


def idle(folder: Path, scale: Scale, *args: str) -> Row:
    """Thousands of silent connections."""
    row = Row("C1-idle", {"connections": scale.connections})
    with beside(row, folder, scale, *args) as (service, pool):
        group = ClientGroup(service.port)
        before = peak_memory(service)
        clients = [group.add(b"", group.listen) for _ in range(scale.connections)]
        with group.at_work():
            disturbed(row, service, pool, scale)
            row.figures["kib_each"] = (peak_memory(service) - before) / 1024 / scale.connections
            _hold_closed(row, group, clients, scale)
        row.hold(
            that=not any(group.received.values()),
            otherwise="something was said to a silent connection",
        )
    return row


def slow(folder: Path, scale: Scale, *args: str) -> Row:
    """Slow heads, slow bodies, slow readers."""
    row = Row("C2-C4-slow", {"heads": scale.slow, "bodies": scale.slow, "readers": scale.slow})
    with beside(row, folder, scale, *args) as (service, pool):
        group = ClientGroup(service.port)
        head, _, _ = request("POST", "/api/stores", b"x" * 1000).partition(b"\r\n\r\n")
        late = [group.add(head + b"\r\nX-Slow: ", group.drip) for _ in range(scale.slow)]
        late += [group.add(head + b"\r\n\r\n", group.drip) for _ in range(scale.slow)]
        for _ in range(scale.slow):
            group.add(request("GET", "/api/stores"), group.sip, buffer=4096)
        with group.at_work():
            disturbed(row, service, pool, scale)
            _hold_closed(row, group, late, scale)
        told = sum(b"HTTP/1.1 408 " in group.received.get(client, b"") for client in late)
        row.figures["told_408"] = told
        row.hold(that=told == len(late), otherwise=f"{len(late) - told} were not told why")
    row.hold(that=row.figures["rss_growth_mib"] < 100, otherwise="memory grew")
    return row


def greedy(folder: Path, scale: Scale, *args: str) -> Row:
    """One client that requests without end, and does not read."""
    row = Row("C11-greedy", {"clients": 1})
    with beside(row, folder, scale, *args) as (service, pool):
        group = ClientGroup(service.port)
        client = group.add(b"", group.gorge)
        with group.at_work():
            disturbed(row, service, pool, scale)
            _hold_closed(row, group, [client], scale)
    row.hold(that=row.figures["rss_growth_mib"] < 50, otherwise="memory grew")
    return row


def _hold_closed(row: Row, group: ClientGroup, clients: list[socket.socket], scale: Scale) -> None:
    done = group.all_closed(clients, scale.seconds + scale.timeout + SLACK)
    row.figures["closed_by_s"] = max(group.closed.values(), default=0.0)
    row.hold(
        that=done, otherwise=f"{len(clients) - len(group.closed)} were not closed by their deadline"
    )


def too_many(folder: Path, scale: Scale, *args: str) -> Row:
    """More clients than it can serve, each as fast as its responses: the excess waits, for a
    bounded time."""
    row = Row("A15-crowded", {"clients": scale.slow * 2})
    with serving(folder, *args) as service, elsewhere() as pool:
        peak = pool.submit(behave, service.port, scale.seconds, 64, 0).result()
        before = peak_memory(service)
        all = pool.submit(behave, service.port, scale.seconds, scale.slow * 2, 0).result()
        row.figures |= {"peak_per_s": peak.rate, "per_s": all.rate, "p99_s": all.percentile(0.99)}
        row.figures["rss_growth_mib"] = (peak_memory(service) - before) / MIB
        _hold_overload(row, peak, all, scale)
    return row


def slow_disk(folder: Path, scale: Scale, *args: str) -> Row:
    """Three times as many writes as the disk can take: the excess is refused at once."""
    row = Row("A15-slow-disk")
    file = folder / "seconds"
    file.write_text("0.02")
    environment = weakened.environment("has_a_slow_disk") | {"SLOW_DISK": str(file)}
    with (
        serving(folder, *args, env=environment, program=weakened.PROGRAM) as service,
        elsewhere() as pool,
    ):
        peak = pool.submit(offer, service.port, max(1.0, scale.seconds / 2), 450).result()
        before = peak_memory(service)
        all = pool.submit(offer, service.port, max(3.0, scale.seconds), 3 * peak.rate).result()
        row.figures |= {"peak_per_s": peak.rate, "per_s": all.rate, "p99_s": all.percentile(0.99)}
        row.figures |= {"refused": all.statuses[503], "refused_p99_s": all.percentile(0.99, 503)}
        row.figures["rss_growth_mib"] = (peak_memory(service) - before) / MIB
        row.hold(that=all.statuses[503] > 0, otherwise="nothing was refused")
        row.hold(that=all.percentile(0.99, 503) < QUICK, otherwise="refusals took long")
        _hold_overload(row, peak, all, scale)
        file.write_text("0")
        for clients in (4, 200):
            again = pool.submit(behave, service.port, 0.5, clients, 0).result()
            row.hold(
                that=again.statuses.keys() == {200},
                otherwise="it refuses what a fast disk could take",
            )
    return row


def _hold_overload(row: Row, peak: Responses, all: Responses, scale: Scale) -> None:
    row.hold(
        that=all.statuses.keys() <= {200, 503}, otherwise=f"responses were {dict(all.statuses)}"
    )
    row.hold(
        that=not all.outcomes_unknown, otherwise=f"{all.outcomes_unknown} outcomes are unknown"
    )
    row.hold(that=all.percentile(1.0) < MAX_SECONDS + SLACK, otherwise="a response took too long")
    row.hold(that=row.figures["rss_growth_mib"] < 100, otherwise="memory grew")
    if scale.ratios:
        row.figures["share"] = all.rate / peak.rate
        row.hold(that=all.percentile(1.0) < MAX_SECONDS, otherwise="a response took too long")
        row.hold(
            that=all.rate >= LEAST_SHARE * peak.rate, otherwise="less was done than at the peak"
        )


def listening(folder: Path, scale: Scale, *args: str) -> Row:
    """Many clients that listen to changes on one worker, while others write."""
    row = Row("F3-listening", {"listeners": scale.listeners})
    begun, ended, seconds = folder / "begun", folder / "ended", max(2.0, 2 * scale.seconds)
    with serving(folder, *args) as service, elsewhere() as writers, elsewhere() as listeners:
        quiet = writers.submit(offer, service.port, seconds, LISTENED_RATE).result()
        before = peak_memory(service)
        hearing = listeners.submit(listen, service.port, scale.listeners, begun.touch, ended.exists)
        while not begun.exists() and not hearing.done():
            time.sleep(0.05)
        loud = writers.submit(offer, service.port, seconds, LISTENED_RATE).result()
        ended.touch()
        sequences, heard = hearing.result()
        row.figures["rss_growth_mib"] = (peak_memory(service) - before) / MIB
    expected = array("q", sorted(loud.created)).tobytes()
    delays = sorted(at - loud.created[change] for change, times in heard.items() for at in times)
    p95 = delays[int(0.95 * len(delays))] if delays else MAX_SECONDS
    row.figures |= {
        "changes": len(loud.created),
        "deliveries": len(delays),
        "p95_s": p95,
        "max_s": max(delays),
    }
    row.figures |= {
        "quiet_p99_ms": 1000 * quiet.percentile(0.99),
        "p99_ms": 1000 * loud.percentile(0.99),
    }
    row.hold(
        that=sequences == {expected},
        otherwise="not every listener had every change once and in order",
    )
    row.hold(that=loud.statuses.keys() == {200}, otherwise=f"writers got {dict(loud.statuses)}")
    row.hold(that=row.figures["rss_growth_mib"] < 100, otherwise="memory grew")
    if scale.ratios:
        row.figures["ratio"] = ratio = row.figures["p99_ms"] / row.figures["quiet_p99_ms"]
        row.hold(
            that=ratio <= MAX_LISTENED_RATIO, otherwise=f"writers waited {ratio:.1f} times as long"
        )
        row.hold(that=p95 <= MAX_DELAY, otherwise=f"a change took {p95:.1f} s")
    return row


ROWS = (idle, slow, greedy, too_many, slow_disk, listening)


def main() -> int:
    """Print a line for each row as soon as it is done, and every violation below it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--connections", type=int, default=FULL.connections, help="that say nothing"
    )
    parser.add_argument(
        "--slow", type=int, default=FULL.slow, help="of each slow kind; twice as many overload it"
    )
    parser.add_argument("--listeners", type=int, default=FULL.listeners, help="to changes")
    parser.add_argument("--rows", nargs="*", help="names of functions: run only those")
    parser.add_argument(
        "--seconds", type=float, default=FULL.seconds, help="for which something is measured"
    )
    options = parser.parse_args()
    # As Ctrl-C does: everything that was started is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    scale = Scale(
        options.connections,
        options.slow,
        options.listeners,
        options.seconds,
        FULL.timeout,
        ratios=True,
    )
    status = 0
    for make in [row for row in ROWS if not options.rows or row.__name__ in options.rows]:
        with tempfile.TemporaryDirectory(prefix="storekeeper-load-") as folder:
            row = make(Path(folder), scale)
        sys.stdout.write(f"{row}\n" + "".join(f"  {text}\n" for text in row.violations))
        sys.stdout.flush()
        status |= bool(row.violations)
    return status


if __name__ == "__main__":
    sys.exit(main())
