"""Does the jobs with each peer that is installed, and writes the table.

    python3 -m venv /tmp/peers/py
    /tmp/peers/py/bin/pip install fastapi sqlmodel uvicorn 'kinto[postgresql]' setuptools
    npm install --prefix /tmp/peers/js json-server
    npm install --prefix /tmp/peers/directus directus sqlite3
    npm install --prefix /tmp/peers/nocodb nocodb
    ln -s NODE /tmp/peers/node                         # the folder of a Node that Directus supports
    cp pocketbase /tmp/peers/                          # its release is one file
    apt-get install libreoffice-calc python3-uno       # for the shared sheet
    .venv/bin/python -m bench.jobs.run /tmp/peers

Each program keeps its data in a temporary folder, and listens on 127.0.0.1. A peer that is not
installed is left out.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.jobs import jobs, shared_sheet
from bench.jobs.directus import Directus
from bench.jobs.fastapi import FastApi
from bench.jobs.json_server import JsonServer
from bench.jobs.kinto import Kinto
from bench.jobs.nocodb import NocoDb
from bench.jobs.peer import Peer
from bench.jobs.pocketbase import PocketBase
from bench.jobs.storekeeper import Storekeeper

PEERS: tuple[type[Peer], ...] = (
    Storekeeper,
    FastApi,
    PocketBase,
    Directus,
    NocoDb,
    Kinto,
    JsonServer,
)
PAGE = Path(__file__).parents[2] / "docs/evidence/peers.md"
BEGIN, END = "<!-- run: begin (by python -m bench.jobs.run) -->", "<!-- run: end -->"


@contextmanager
def served(kind: type[Peer], programs: Path, folder: Path) -> Iterator[Peer]:
    """Run a peer with an empty list."""
    folder.mkdir()
    peer = kind(programs, folder)
    try:
        peer.prepare()
        peer.start()
        peer.set_up()
        yield peer
    finally:
        peer.stop()
        peer.close()


def results(kind: type[Peer], programs: Path) -> dict[str, str]:
    """Return what happened in each job, the version and the licence of a peer."""
    found = {"version": kind(programs, Path("/")).version()}
    with (
        tempfile.TemporaryDirectory() as root,
        served(kind, programs, Path(root, "data")) as peer,
    ):
        for name, job in jobs.JOBS.items():
            found[name] = job(peer)
        found[jobs.RESTORE] = jobs.feed(peer, Path(root, "kept"))
        found[jobs.LETTER] = jobs.letter(peer)
    print(kind.name, *found.items(), sep="\n  ", flush=True)
    return found | {"licence": kind.licence}


def table(found: dict[str, dict[str, str]]) -> str:
    """Return the table, a row for each job."""
    lines = [f"| | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    rows = next(iter(found.values()))
    lines += [f"| {row} | {' | '.join(each[row] for each in found.values())} |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    """Run the peers that are installed."""
    programs = Path(sys.argv[1]).resolve()
    only = set(sys.argv[2:])
    runs: dict[str, Callable[[], dict[str, str]]] = {
        kind.name: partial(results, kind, programs) for kind in PEERS
    }
    runs[shared_sheet.NAME] = shared_sheet.results
    found: dict[str, dict[str, str]] = {}
    for name, run in runs.items():
        if only and name not in only:
            continue
        try:
            found[name] = run()
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            print(f"{name} is left out, it does not start: {error}", file=sys.stderr)
    text = f"Run on {datetime.now(UTC):%d %B %Y}.\n\n{table(found)}"
    print(text)
    if not only:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
