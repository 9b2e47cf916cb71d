"""What is compared: how each system is installed, seeded and started; imports seeds and servers."""

import argparse
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
PEER_BIN = BENCH / ".venv/bin"
STOREKEEPER = Path(sys.executable).with_name("storekeeper")
HINTS = {
    "nginx": "apt-get install nginx",
    "wrk": "apt-get install wrk",
    "npm": "apt-get install nodejs npm",
    "cc": "apt-get install gcc libc6-dev",
}


def with_checkouts(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the arguments of a command that compares checkouts of this project; without one, it is this one."""
    parser.add_argument("checkouts", nargs="*", type=Path, default=[ROOT], metavar="CHECKOUT")
    given = parser.parse_args()
    given.checkouts = [checkout.resolve() for checkout in given.checkouts]
    for checkout in given.checkouts:
        if not (checkout / "src/storekeeper").is_dir():
            parser.error(f"{checkout} is no checkout of this project")
    return given


def call(*command: str | Path, cwd: Path = ROOT, accept: int = 0, **env: str) -> str:
    """Return what the command prints; its failure is the reason why a system is left out."""
    words = [str(word) for word in command]
    if not shutil.which(words[0]):
        name = Path(words[0]).name
        raise UnavailableError(f"`{name}` is not installed ({HINTS.get(name, 'make setup')})")
    done = subprocess.run(words, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    if done.returncode not in {0, accept}:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise UnavailableError(f"`{Path(words[0]).name} {' '.join(words[1:3])}` failed: {lines[-1][:200]}")
    return (done.stdout + done.stderr).strip()


def is_older(done: Path, lock: Path) -> bool:
    return not done.exists() or done.stat().st_mtime < lock.stat().st_mtime


class System:
    """One thing to measure. A word of `command` may contain {port} and {folder}, its temporary folder."""

    name: str
    title: str
    command: tuple[str | Path, ...]
    folder = ROOT
    smoke_test = "contract"
    """Which of `smoke.TESTS` it must pass before it is measured."""
    fields: tuple[str, ...] = ()
    """What clients send to it beside what they send to all."""

    def install(self) -> dict[str, str]:
        """Make it ready to start; return its versions."""
        raise NotImplementedError

    def prepare(self, count: int, folder: Path, port: int) -> dict[str, str]:
        """Store `count` stores; return the environment that makes the system start with them."""
        memory_peer = {"PORT": str(port), "SEED": str(count), "NODE_ENV": "production"}
        return {**memory_peer, "TMPDIR": str(folder)}

    def database(self, _folder: Path) -> Path | None:
        """Return the file whose changes are counted."""
        return None

    @contextlib.contextmanager
    def serve(self, count: int, data: Path) -> Iterator[Server]:
        with tempfile.TemporaryDirectory(dir=data, prefix=f"{self.name}-") as temporary:
            folder, port = Path(temporary), free_port()
            env = self.prepare(count, folder, port)
            command = [str(word).format(port=port, folder=folder) for word in self.command]
            with running(command, env, self.folder, port, folder / "log") as server:
                server.system, server.stores, server.database = self.name, count, self.database(folder)
                server.fields = self.fields
                yield server


class DatabaseSystem(System):
    """A system whose database is made once per size and run, and copied for each start."""

    def make(self, count: int, database: Path) -> None:
        raise NotImplementedError

    def prepare(self, count: int, folder: Path, port: int) -> dict[str, str]:
        template = folder.parent / f"{type(self).__name__}-{count}.db"
        if not template.exists():
            self.make(count, template)
        for part in template.parent.glob(f"{template.name}*"):
            shutil.copy(part, folder / part.name.replace(template.name, "stores.db"))
        return {"PORT": str(port), "DATABASE": str(folder / "stores.db")}


class Storekeeper(DatabaseSystem):
    def __init__(self, name: str, title: str, option: str) -> None:
        self.name, self.title = name, title
        where = ("--host", "127.0.0.1", "--port", "{port}", "--database", "sqlite:///{folder}/stores.db")
        self.command = (STOREKEEPER, "serve", *where, "--workers", "1", "--no-examples", option)

    def install(self) -> dict[str, str]:
        call(STOREKEEPER, "--version")
        version = importlib.metadata.version
        return {name: version(name) for name in ("storekeeper", "uvicorn", "uvloop", "httptools", "apsw")}

    def make(self, count: int, database: Path) -> None:
        rows = database.with_suffix(".csv")
        seeds.write_csv(rows, count)
        call(STOREKEEPER, "import", rows, "--database", f"sqlite:///{database}")

    def prepare(self, count: int, folder: Path, port: int) -> dict[str, str]:
        super().prepare(count, folder, port)
        return {}

    def database(self, folder: Path) -> Path | None:
        return folder / "stores.db"


class Floor(Storekeeper):
    """The least that a Python server does with Storekeeper's file: no peer, but what the goals are seen against."""

    name, title, smoke_test = "floor", "Floor: bare uvloop and SQLite, no checks", "measured"
    command = (sys.executable, "-m", "bench.floor", "{folder}/stores.db", "{port}")

    def __init__(self) -> None:
        """Take nothing: the name is the class's."""

    def install(self) -> dict[str, str]:
        return {name: importlib.metadata.version(name) for name in ("uvloop", "apsw", "msgspec")}


class StorekeeperChanged(Storekeeper):
    """Its size is how often one of its few stores was changed."""

    smoke_test = "none"  # its sizes are not numbers of stores

    def make(self, count: int, database: Path) -> None:
        super().make(seeds.STORES_OF_CHANGED, database)
        call(sys.executable, "-m", "bench.changed", database, str(count))


class StorekeeperTokens(Storekeeper):
    """Each request to it has a token."""

    smoke_test = "none"  # which sends none

    def prepare(self, count: int, folder: Path, port: int) -> dict[str, str]:
        environment = super().prepare(count, folder, port)
        database = f"sqlite:///{self.database(folder)}"
        said = call(STOREKEEPER, "token", "add", "bench", "--scope", "write", "--database", database)
        self.fields = (f"Authorization: Bearer {said.split()[0]}",)
        return environment


class StorekeeperPostgres(System):
    """Over a PostgreSQL on the core of the load: work that another machine would do does not count."""

    def __init__(self, name: str, title: str) -> None:
        self.name, self.title = name, title

    @contextlib.contextmanager
    def serve(self, count: int, data: Path) -> Iterator[Server]:
        try:
            with postgres_server.running(fsync="on") as database:
                pin(database)
                self.command = self.served(self.fill(database, count, data))
                with super().serve(count, data) as server:
                    yield server
        except postgres_server.Missing as error:
            raise UnavailableError(str(error)) from error

    def served(self, url: str) -> tuple[str | Path, ...]:
        return STOREKEEPER, "serve", "--port", "{port}", "--database", url, "--no-examples"

    def fill(self, database: postgres_server.Server, count: int, data: Path) -> str:
        """Return the URL of a database with so many stores."""
        url = database.new_database()
        rows = data / f"postgres-{count}.csv"
        seeds.write_csv(rows, count)
        call(STOREKEEPER, "import", rows, "--database", url)
        return url

    def install(self) -> dict[str, str]:
        try:
            server = call(postgres_server.binaries() / "postgres", "--version").split()[2]
        except postgres_server.Missing as error:
            raise UnavailableError(str(error)) from error
        return {"PostgreSQL": server, "psycopg": importlib.metadata.version("psycopg")}


class FloorPostgres(StorekeeperPostgres):
    """As `Floor`, with Storekeeper's tables in PostgreSQL; it only reads by id."""

    name, title, smoke_test = "floor-postgres", "Floor: bare uvloop and PostgreSQL, no checks", "one"

    def __init__(self) -> None:
        """Take nothing: the name is the class's."""

    def served(self, url: str) -> tuple[str | Path, ...]:
        return sys.executable, "-m", "bench.floor_postgres", url, "{port}"


def pin(database: postgres_server.Server) -> None:
    """Keep a server, and every process that it starts from now on, off the core that is measured."""
    assert database.process is not None
    if len(CORES) > 1:
        call("taskset", "--all-tasks", "--cpu-list", "--pid", str(CORES[1]), str(database.process.pid))


class Node(System):
    def __init__(self, name: str, title: str) -> None:
        self.name, self.title = name, title
        self.folder = PEERS / name
        self.command = ("node", "server.js")

    def install(self) -> dict[str, str]:
        if is_older(self.folder / "node_modules/.package-lock.json", self.folder / "package-lock.json"):
            call("npm", "ci", "--no-audit", "--no-fund", cwd=self.folder)
        wanted = json.loads((self.folder / "package.json").read_text())["dependencies"]
        return {"Node.js": call("node", "--version").removeprefix("v"), **wanted}


def install_python_peers(*packages: str) -> dict[str, str]:
    lock, done = ROOT / "requirements/bench.txt", BENCH / ".venv/.done"
    if is_older(done, lock):
        call(sys.executable, "-m", "venv", BENCH / ".venv")
        call(PEER_BIN / "python", "-m", "pip", "install", "--require-hashes", "-r", lock)
        done.touch()
    script = "import sys, importlib.metadata as m; print(*map(m.version, sys.argv[1:]))"
    return dict(zip(packages, call(PEER_BIN / "python", "-c", script, *packages).split(), strict=True))


class FastAPI(System):
    name, title, folder = "fastapi", "FastAPI, in memory", PEERS / "fastapi"
    listen = ("--port", "{port}", "--loop", "uvloop", "--http", "httptools")
    command = (PEER_BIN / "uvicorn", "app:app", *listen, "--no-access-log", "--log-level", "warning")

    def install(self) -> dict[str, str]:
        return install_python_peers("fastapi", "pydantic", "uvicorn", "uvloop", "httptools")


class Django(DatabaseSystem):
    name, title, folder = "drf", "Django REST framework, SQLite", PEERS / "drf"
    command: tuple[str | Path, ...] = (PEER_BIN / "gunicorn", "wsgi", "--bind", "127.0.0.1:{port}", "--workers", "1")
    command += ("--worker-class", "gthread", "--threads", "4", "--timeout", "0", "--no-control-socket")

    def install(self) -> dict[str, str]:
        return install_python_peers("djangorestframework", "django", "gunicorn")

    def make(self, count: int, database: Path) -> None:
        call(PEER_BIN / "python", "seed.py", cwd=self.folder, DATABASE=str(database), SEED=str(count))


class Nginx(System):
    """The limit: fixed bytes, one store from memory and the list from a file."""

    name, title, smoke_test = "nginx", "nginx, fixed bytes", "none"
    command = ("nginx", "-p", "{folder}", "-e", "{folder}/error.log", "-c", "{folder}/nginx.conf")

    def install(self) -> dict[str, str]:
        return {"nginx": call("nginx", "-v").rpartition("/")[2]}

    def prepare(self, count: int, folder: Path, port: int) -> dict[str, str]:
        (folder / "list.json").write_bytes(seeds.compact(list(seeds.stores(count))))
        user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
        config = (BENCH / "nginx.conf").read_text()
        values = {
            "USER": user,
            "PORT": port,
            "FOLDER": folder,
            "STORE": seeds.compact(seeds.store(7)).decode(),
        }
        for key, value in values.items():
            config = config.replace(f"@{key}@", str(value))
        (folder / "nginx.conf").write_text(config)
        return {}


SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        Storekeeper("storekeeper", "Storekeeper, durable", "--fast-lane"),
        Storekeeper("storekeeper-asgi", "Storekeeper without the fast lane", "--no-fast-lane"),
        Storekeeper("storekeeper-plain", "Storekeeper, beside it", "--fast-lane"),
        StorekeeperTokens("storekeeper-tokens", "Storekeeper, a token in each request", "--auth=all"),
        StorekeeperChanged("storekeeper-changed", "Storekeeper, one store changed so often", "--fast-lane"),
        StorekeeperPostgres("storekeeper-postgres", "Storekeeper on PostgreSQL, durable"),
        StorekeeperPostgres("storekeeper-postgres-plain", "Storekeeper on PostgreSQL, beside it"),
        Floor(),
        FloorPostgres(),
        Nginx(),
        Node("fastify", "Fastify 5, in memory"),
        Node("hapi", "hapi 21, in memory"),
        FastAPI(),
        Django(),
    )
}
