"""What is compared: how each system is installed, seeded and started."""

import contextlib
import getpass
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import seeds
from bench.servers import CORES, Server, UnavailableError, free_port, running
from tests.harness import postgres_server

BENCH = Path(__file__).resolve().parent
DATA = BENCH / ".data"
"""The temporary files of a run; not in git."""
DATA.mkdir(exist_ok=True)
ROOT = BENCH.parent
PEERS = BENCH / "peers"
STOREKEEPER = Path(sys.executable).with_name("storekeeper")
HINTS = {
    "nginx": "apt-get install nginx",
    "wrk": "apt-get install wrk",
    "npm": "apt-get install nodejs npm",
}


def call(*command: str | Path, cwd: Path = ROOT, accept: int = 0, **env: str) -> str:
    """Return what the command prints; if it fails, the system is left out for that reason."""
    words = [str(word) for word in command]
    if not shutil.which(words[0]):
        name = Path(words[0]).name
        raise UnavailableError(f"`{name}` is not installed ({HINTS.get(name, 'make setup')})")
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    if done.returncode not in {0, accept}:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        shown = " ".join([Path(words[0]).name, *words[1:3]])
        raise UnavailableError(f"`{shown}` failed: {lines[-1][:200]}")
    return (done.stdout + done.stderr).strip()


def import_stores(count: int, rows: Path, url: str) -> None:
    """Fill a database of Storekeeper with `count` stores, through the file `rows`."""
    seeds.write_csv(rows, count)
    call(STOREKEEPER, "import", rows, "--create", "--database", url)


class System:
    """One system to measure; the words of `command` may contain {port} and {folder}, its temporary
    folder."""

    name: str
    title: str
    command: tuple[str | Path, ...]
    folder = ROOT
    smoke_test = "contract"
    """Which of `smoke.TESTS` it must pass before it is measured."""
    load: tuple[str, ...] = ()
    """Arguments of `wrk/requests.lua` in addition to those of a case."""
    file = ""
    """The name of the file with its stores, in its temporary folder."""
    port = 0

    def install(self) -> dict[str, str]:
        """Install it, and return its versions."""
        raise NotImplementedError

    def prepare(self, count: int, folder: Path) -> dict[str, str]:
        """Make `count` stores; return the environment with which the system starts with them."""
        raise NotImplementedError

    @contextlib.contextmanager
    def serve(self, count: int, data: Path) -> Iterator[Server]:
        with tempfile.TemporaryDirectory(dir=data, prefix=f"{self.name}-") as temporary:
            folder, self.port = Path(temporary), free_port()
            env = {"PORT": str(self.port), **self.prepare(count, folder)}
            command = [str(word).format(port=self.port, folder=folder) for word in self.command]
            with running(command, env, self.folder, self.port, folder / "log") as server:
                server.stores, server.load = count, self.load
                server.database = folder / self.file if self.file else None
                yield server


class Storekeeper(System):
    """Its file, which already has `keys` keys, is made once per size and run, and copied for each
    start."""

    file = "stores.db"

    def __init__(self, name: str, title: str, keys: int = 0) -> None:
        self.name, self.title, self.keys = name, title, keys
        self.load = ("keys=1",) if keys else ()
        where = ("--port", "{port}", "--database", "sqlite:///{folder}/stores.db")
        self.command = (STOREKEEPER, "serve", *where, "--no-examples")

    def install(self) -> dict[str, str]:
        call(STOREKEEPER, "--version")
        version = importlib.metadata.version
        return {
            name: version(name)
            for name in ("storekeeper", "uvicorn", "uvloop", "httptools", "apsw")
        }

    def prepare(self, count: int, folder: Path) -> dict[str, str]:
        template = folder.parent / f"stores-{count}.db"
        if not template.exists():
            import_stores(count, template.with_suffix(".csv"), f"sqlite:///{template}")
        shutil.copy(template, folder / self.file)
        if self.keys:
            seeds.add_keys(folder / self.file, self.keys)
        return {}


class Floor(Storekeeper):
    """A Python server that does the bare minimum with Storekeeper's file: a reference point, not
    a peer."""

    smoke_test = "measured"

    def __init__(self) -> None:
        super().__init__("floor", "Floor: bare uvloop and SQLite, no checks")
        self.command = (sys.executable, "-m", "bench.floor", "{folder}/stores.db", "{port}")

    def install(self) -> dict[str, str]:
        return {name: importlib.metadata.version(name) for name in ("uvloop", "apsw", "msgspec")}


class Node(System):
    """A service on Node.js, which makes its own stores; `shared` are further folders whose
    packages it uses."""

    def __init__(self, name: str, title: str, *shared: str, file: str = "") -> None:
        self.name, self.title, self.file = name, title, file
        self.folder = PEERS / name
        self.folders = [PEERS / folder for folder in (*shared, name)]
        self.command = ("node", "server.js")

    def install(self) -> dict[str, str]:
        versions = {"Node.js": call("node", "--version").removeprefix("v")}
        for folder in self.folders:
            done, lock = folder / "node_modules/.package-lock.json", folder / "package-lock.json"
            if not done.exists() or done.stat().st_mtime < lock.stat().st_mtime:
                call("npm", "ci", "--no-audit", "--no-fund", cwd=folder)
            versions |= json.loads((folder / "package.json").read_text())["dependencies"]
        return versions

    def prepare(self, count: int, folder: Path) -> dict[str, str]:
        return {"SEED": str(count), "NODE_ENV": "production", "DATABASE": str(folder / self.file)}


class OnPostgres(System):
    """A system on PostgreSQL, which shares the core of the load: its work, which another machine
    would do, does not count."""

    url = ""

    @contextlib.contextmanager
    def serve(self, count: int, data: Path) -> Iterator[Server]:
        with postgres(data) as database:
            self.url = database.new_database()
            with super().serve(count, data) as server:
                yield server


class StorekeeperPostgres(OnPostgres):
    name, title = "storekeeper-postgres", "Storekeeper on PostgreSQL"
    command = (STOREKEEPER, "serve", "--port", "{port}", "--create", "--no-examples")

    def install(self) -> dict[str, str]:
        try:
            server = call(postgres_server.binaries() / "postgres", "--version").split()[2]
        except postgres_server.Missing as error:
            raise UnavailableError(str(error)) from error
        return {"PostgreSQL": server, "psycopg": importlib.metadata.version("psycopg")}

    def prepare(self, count: int, folder: Path) -> dict[str, str]:
        import_stores(count, folder / "stores.csv", self.url)
        return {"STOREKEEPER_DATABASE": self.url}


class NodePostgres(OnPostgres, Node):
    def prepare(self, count: int, folder: Path) -> dict[str, str]:
        return {**super().prepare(count, folder), "DATABASE_URL": self.url}


class Nginx(System):
    """The limit: fixed bytes from memory."""

    name, title, smoke_test = "nginx", "nginx, fixed bytes", "none"
    command = ("nginx", "-p", "{folder}", "-e", "{folder}/error.log", "-c", "{folder}/nginx.conf")

    def install(self) -> dict[str, str]:
        return {"nginx": call("nginx", "-v").rpartition("/")[2]}

    def prepare(self, _count: int, folder: Path) -> dict[str, str]:
        user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
        config = (BENCH / "nginx.conf").read_text()
        values = {
            "USER": user,
            "PORT": self.port,
            "FOLDER": folder,
            "STORE": seeds.compact(seeds.store(7)).decode(),
        }
        for key, value in values.items():
            config = config.replace(f"@{key}@", str(value))
        (folder / "nginx.conf").write_text(config)
        return {}


_postgres: dict[Path, postgres_server.Server] = {}


@contextlib.contextmanager
def postgres(data: Path) -> Iterator[postgres_server.Server]:
    """Return the PostgreSQL that all systems served from this folder at the same time share."""
    if data in _postgres:
        yield _postgres[data]
        return
    try:
        with postgres_server.running(fsync="on", shared_buffers="512MB") as server:
            pin(server)
            _postgres[data] = server
            try:
                yield server
            finally:
                del _postgres[data]
    except postgres_server.Missing as error:
        raise UnavailableError(str(error)) from error


def pin(database: postgres_server.Server) -> None:
    """Keep a server, and every process that it starts from now on, off the measured core."""
    assert database.process is not None
    if len(CORES) > 1:
        core, pid = str(CORES[1]), str(database.process.pid)
        call("taskset", "--all-tasks", "--cpu-list", "--pid", core, pid)


SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        Storekeeper("storekeeper", "Storekeeper"),
        Node("fastify-sqlite", "Fastify 5 on better-sqlite3", "fastify", file="stores.db"),
        Node("fastify", "Fastify 5, in memory"),
        Node("hapi", "hapi 21, in memory"),
        Floor(),
        Nginx(),
        Storekeeper("storekeeper-keys", "100,000 keys there", 100_000),
        Storekeeper("storekeeper-many-keys", "5,000,000 keys there", 5_000_000),
        StorekeeperPostgres(),
        NodePostgres("fastify-pg", "Fastify 5 on pg", "fastify"),
    )
}
