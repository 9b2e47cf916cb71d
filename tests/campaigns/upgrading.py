"""Upgrades a list under load from an older version, both running: `make upgrade FROM=COMMIT`, or
`FROM="COMMIT postgres"` for one kind of database.

The program of that commit must run with the packages of this one. Of versions with schema 9, a
process on a file ends at its first write after the upgrade; on PostgreSQL it reads on.
"""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from tests import ROOT
from tests.harness.client import until
from tests.harness.databases import KINDS, Database
from tests.harness.postgres_server import stop_shared
from tests.harness.process import TIMEOUT, Running, run, serving

CLIENTS = 3

Environment = Mapping[str, str]


class Load:
    """Clients that create stores at the service that takes them, and the ids that they got."""

    def __init__(self, *services: Running) -> None:
        self.services = list(services)
        self.acknowledged: dict[int, str] = {}
        self.unknown: set[str] = set()
        self.over = threading.Event()

    def client(self, name: str) -> None:
        """Create stores until it is over."""
        number = 0
        while not self.over.is_set():
            number += 1
            stored = f"{name} {number}"
            for service in self.services:
                with suppress(OSError, HTTPException):
                    done = service.request("POST", "/api/stores", {"name": stored})
                    if done.status == 200:
                        self.acknowledged[done.json["id"]] = stored
                        break
                    if done.json["outcome"] == "unknown":
                        self.unknown.add(stored)
                        break

    def grows(self) -> None:
        """Wait until more was written."""
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) >= before + 20)


class Upgraded(NamedTuple):
    """How many writes were acknowledged, and whether the older version read on."""

    writes: int
    reads_on: bool


def upgrade_under_load(
    database: Database, folder: Path, older: Environment, newer: Environment
) -> Upgraded:
    """Start the newer version next to the older one while clients write; return what was seen. No
    acknowledged write may be lost.

    The older one writes nothing more; its backup is restored by the newer one.
    """
    backup = folder / "before.db"
    # The first versions know no such command: their `serve` makes the list.
    run("create", "--no-examples", "--database", database.url, env=dict(older))
    with (
        serving(folder, database=database.url, create=False, env=dict(older)) as old,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        load = Load(old)
        clients = [pool.submit(load.client, f"Łódź {number}") for number in range(CLIENTS)]
        try:
            load.grows()
            done = run("backup", str(backup), "--database", database.url, env=dict(older))
            assert done.returncode == 0, done.stderr
            with serving(folder, database=database.url, create=False, env=dict(newer)) as new:
                load.services.append(new)
                load.grows()
                reads_on = _reads_on(old)
                load.over.set()
                for client in clients:
                    client.result()
                stores = new.request("GET", "/api/stores").json
        finally:
            load.over.set()
    names = {store["id"]: store["name"] for store in stores}
    assert load.acknowledged.items() <= names.items()
    assert list(names) == list(range(1, len(names) + 1))
    assert len(set(names.values())) == len(names), "a write happened twice"
    assert set(names.values()) - set(load.acknowledged.values()) <= load.unknown
    # The morning after, with the newer version.
    restored = f"sqlite:///{folder}/restored.db"
    for command in (
        ["verify", database.url],
        ["verify", str(backup)],
        ["restore", str(backup), "--database", restored],
    ):
        done = run(*command, env=dict(newer))
        assert done.returncode == 0, done.stderr
    return Upgraded(len(load.acknowledged), reads_on)


def _reads_on(old: Running) -> bool:
    """Return whether the older version reads on; otherwise it has ended. It writes nothing."""
    try:
        refused = old.request("POST", "/api/stores", {"name": "By the old one"})
        assert (refused.status, refused.json["outcome"]) == (503, "none")
        for path in ("/api/stores/1", "/api/stores?limit=5", "/api/changes?limit=5"):
            assert old.request("GET", path).status == 200
    except (OSError, HTTPException):
        old.process.wait(TIMEOUT)
        return False
    return True


def main(commit: str, *kinds: str) -> None:
    """Upgrade from that commit on kinds of databases, by default on all; print what was seen."""
    with tempfile.TemporaryDirectory(prefix="storekeeper-upgrade-") as folder:
        source = Path(folder, "source")
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(source), commit], check=True)
        try:
            for kind in kinds or KINDS:
                files = Path(folder, kind)
                files.mkdir()
                with KINDS[kind](files) as database:
                    older = {"PYTHONPATH": str(source / "src")}
                    done = upgrade_under_load(database, files, older, {})
                then = "read on" if done.reads_on else "ended at its next write"
                print(f"{kind}: {done.writes} acknowledged writes, all there; the older one {then}")
        finally:
            stop_shared()
            subprocess.run([*git, "remove", "--force", str(source)], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
