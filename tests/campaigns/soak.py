"""The long tests, one line each: power loss, kills, histories, load (`make soak`). Status 1 on any
violation."""

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from storekeeper.domain.stores import Payload
from tests.campaigns import crash, powerloss, restoring
from tests.campaigns.crash import Row
from tests.campaigns.keyed import kill_creates
from tests.campaigns.steady import STORES, Load
from tests.harness import weakened
from tests.harness.client import fill
from tests.harness.process import Running, alive, serving
from tests.oracles.history import Recorder
from tests.oracles.lincheck import Violation

SEGMENT = 50_000
"""Operations of one history."""

MAX_GROWTH = 48 * 2**20
"""Bytes that a process may grow by after its first tenth; half of that is responses that it
keeps."""

LATE_GROWTH = 8 * 2**20
"""Bytes that it may still grow by in the second half of a long time."""

PEAK = 10.0
"""Seconds to find out what a service can do."""

MAX_WAL = 64 * 2**20
"""Bytes that the log may have, which is what `journal_size_limit` leaves of it."""

BUILDS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("1-worker", (), ""),
    ("4-workers", ("--workers=4",), ""),
    ("checkpoints", ("--workers=4",), "checkpoints_often"),
)


class Growth:
    """What a service uses while it runs: a sample now and then, leaving out the first tenth of the
    time."""

    def __init__(self, service: Running, database: Path) -> None:
        self._service = service
        self._log = database.with_name(database.name + "-wal")
        self._samples: list[tuple[int, int, int]] = []
        self._over = threading.Event()

    @contextmanager
    def watched(self, row: Row) -> Iterator[None]:
        """Take samples, and put their results into a row."""
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._report(row)

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            pids = alive(self._service.process.pid)
            memory = max((_memory(pid) for pid in pids), default=0)
            files = max((_files(pid) for pid in pids), default=0)
            self._samples.append(
                (memory, files, self._log.stat().st_size if self._log.exists() else 0)
            )

    def _report(self, row: Row) -> None:
        samples = self._samples[len(self._samples) // 10 :] or [(0, 0, 0)]
        growth = samples[-1][0] - samples[0][0]
        late = samples[-1][0] - samples[len(samples) // 2][0]
        files = max(sample[1] for sample in samples)
        wal = max(sample[2] for sample in samples)
        for name, value in (
            ("rss_growth_kib", growth // 1024),
            ("second_half_kib", late // 1024),
            ("fds", files),
            ("wal_kib", wal // 1024),
        ):
            row.figures[name] = max(row.figures[name], value)
        # One client each, a connection or two to the three files of the database, and what Python
        # itself has open.
        if growth > MAX_GROWTH or wal > MAX_WAL or files > 100:
            row.violations.append(
                Violation("growth", f"{growth} bytes, {files} descriptors, {wal} bytes of log")
            )


def _memory(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except (OSError, IndexError):
        return 0


def _files(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0


def histories(folder: Path, operations: int, give_up: float) -> Iterator[Row]:
    """Record and check histories of every build, each in its share of the remaining time; at least
    one."""
    for place, (build, args, change) in enumerate(BUILDS):
        row = Row(f"L1-{build}")
        began = time.monotonic()
        until = began + (give_up - began) / (len(BUILDS) - place)
        while not row.figures["operations"] or (
            row.figures["operations"] < operations / len(BUILDS) and time.monotonic() < until
        ):
            _record(row, folder / f"{build}-{row.figures['operations']}", args, change)
        yield row


def _record(row: Row, folder: Path, args: tuple[str, ...], change: str) -> None:
    folder.mkdir()
    recorder = Recorder(row.figures["operations"])
    environment = weakened.environment(change) if change else None
    with serving(folder, *args, env=environment, program=weakened.PROGRAM) as service:
        with Growth(service, folder / "stores.db").watched(row):
            recorder.run(service.port, SEGMENT)
        recorder.settle(service.port)
    if strange := recorder.statuses.keys() - {200, 304, 404, 412}:
        row.violations.append(Violation("odd", f"responses with status {strange}"))
    row.judge(recorder, folder)


def steady(folder: Path, minutes: float) -> Row:
    """Keep a service at half of what it can do; every request gets a response, and nothing grows in
    the second half."""
    row = Row("L4-steady")
    folder.mkdir()
    with serving(folder) as service:
        fill(
            folder,
            (
                Payload(f"Store {number}", f"{number} Steady Road")
                for number in range(1, STORES + 1)
            ),
        )
        load = Load(service.port)
        peak = load.peak(PEAK)
        with Growth(service, folder / "stores.db").watched(row):
            held = load.hold(60 * minutes, peak / 2)
        found = service.request("GET", "/api/stores").body.count(b'"id":')
    row.figures.update(
        minutes=round(minutes),
        peak_rate=round(peak),
        rate=round(held),
        requests=load.statuses.total(),
        stores=found,
    )
    if strange := load.statuses.keys() - {200}:
        row.violations.append(Violation("odd", f"responses with status {strange}"))
    if found != STORES + load.created:
        row.violations.append(Violation("lost", f"{load.created} created, {found - STORES} found"))
    if row.figures["second_half_kib"] > LATE_GROWTH // 1024:
        row.violations.append(
            Violation("growth", f"{row.figures['second_half_kib']} KiB in the second half")
        )
    return row


def power_losses(folder: Path, images: int) -> Iterator[Row]:
    """Open crash images of every build; with a weaker setting some of them must have lost
    something."""
    for build, args, change in (*BUILDS, ("normal", (), "syncs_normally")):
        place = folder / f"power-{build}"
        place.mkdir()
        trace, acknowledged = powerloss.record(place, *args, change=change, operations=400)
        verdict = powerloss.judge(trace, images // len(BUILDS))
        row = Row(f"A2-{build}", violations=verdict.violations)
        row.figures.update(
            images=verdict.images,
            acked=verdict.acknowledged,
            refused_before_any_ack=verdict.refused,
        )
        if verdict.acknowledged != acknowledged:
            row.violations.append(
                Violation("unfinished", f"{acknowledged} acknowledged, and not all of them traced")
            )
        if build == "normal":
            row.figures["lost_as_it_must"] = len(verdict.violations)
            row.violations = (
                [] if verdict.violations else [Violation("unfinished", "the control lost nothing")]
            )
        yield row


def kills(folder: Path, count: int) -> Iterator[Callable[[], Row]]:
    """Return each kind of kill with its share of all."""

    def share(percent: int) -> int:
        return max(1, count * percent // 100)

    four = ("--workers=4",)
    yield lambda: crash.kill_service("A1-1-worker", folder, share(25), (), crash.everything)
    yield lambda: crash.kill_service("A1-4-workers", folder, share(20), four, crash.everything)
    often = "checkpoints_often"
    yield lambda: crash.kill_service(
        "A16-checkpoints", folder, share(10), four, crash.everything, change=often
    )
    yield lambda: crash.kill_service("B4-worker", folder, share(20), four, crash.worker)
    yield lambda: crash.kill_service("B5-supervisor", folder, share(10), four, crash.supervisor)
    yield lambda: kill_creates(folder / "keys", 1000, share(10))
    yield lambda: crash.kill_import(folder, share(5))
    yield lambda: crash.kill_copy(folder, share(5))
    yield lambda: crash.kill_service_at_calls(folder, share(10))
    yield lambda: crash.fail_writer(folder, share(5))
    yield lambda: crash.kill_migration(folder)
    yield lambda: crash.kill_first_start(folder)
    yield lambda: restoring.kill_restore(folder)


def rows(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Do everything that was requested, within the time."""
    give_up = time.monotonic() + 60 * options.minutes
    yield from power_losses(folder, options.images)
    for kill in kills(folder, options.kills):
        if time.monotonic() > give_up:
            yield Row("A1", violations=[Violation("unfinished", "--minutes are over")])
            break
        yield kill()
    yield from histories(folder, options.operations, give_up)
    if options.steady:
        yield steady(folder / "steady", options.steady)


def main() -> int:
    """Print a line for each row as soon as it is done, and every violation below it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes",
        type=float,
        default=60,
        help="for the kills, which must all be done, and the histories",
    )
    parser.add_argument(
        "--operations",
        type=int,
        default=1_000_000,
        help="of the histories in all, at most, but one history each",
    )
    parser.add_argument("--kills", type=int, default=200, help="in all, at least")
    parser.add_argument(
        "--images", type=int, default=2_000, help="of what a disk may hold after a power loss"
    )
    parser.add_argument(
        "--steady", type=float, default=60, help="minutes at half load, behind all others"
    )
    options = parser.parse_args()
    # As Ctrl-C does: everything that was started is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    status = 0
    with tempfile.TemporaryDirectory(prefix="storekeeper-soak-") as folder:
        for row in rows(Path(folder), options):
            sys.stdout.write(
                f"{row}\n" + "".join(f"  {fault}: {text}\n" for fault, text in row.violations[:10])
            )
            sys.stdout.flush()
            status |= bool(row.violations)
    return status


if __name__ == "__main__":
    sys.exit(main())
