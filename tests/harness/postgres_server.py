"""A real PostgreSQL in a temporary folder, run by an ordinary user: started, stopped, killed,
copied, promoted."""

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from psycopg import pq
from psycopg.pq.abc import PGconn

from tests.harness.process import free_port

TIMEOUT = 60.0

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "max_wal_senders": "4",
    "hot_standby": "on",
    # The server is killed, but the machine is not: data that was written stays, even unsynced.
    "fsync": "off",
    # The files of a killed server are deleted with its folder.
    "dynamic_shared_memory_type": "mmap",
    # The successor of a killed server starts with the log since the last checkpoint.
    "checkpoint_timeout": "30min",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] @%d ",
    "wal_receiver_timeout": "5s",
    "wal_retrieve_retry_interval": "200ms",
}


class Missing(Exception):
    """There is no PostgreSQL on this machine, or no user who can run it."""


def binaries() -> Path:
    """Return the folder of PostgreSQL's programs, newest version first; raise Missing."""
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name)
    )
    if configured := shutil.which("pg_config"):
        found = subprocess.run(
            [configured, "--bindir"], capture_output=True, text=True, check=True
        ).stdout.strip()
        folders.insert(0, Path(found))
    for folder in reversed(folders):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise Missing(
        "PostgreSQL's initdb and postgres are not installed (Debian: apt-get install postgresql)"
    )


def _ordinary_user() -> pwd.struct_passwd:
    """Return the user who runs the server instead of root."""
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise Missing("PostgreSQL does not run as root, and there is no user postgres or nobody")


class Server:
    """One server, on 127.0.0.1 and on a socket in `folder`; it does not run until `start`."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.bin = binaries()
        # Only root can start it as another user, and root must.
        other = _ordinary_user() if os.geteuid() == 0 else None
        self.uid = other.pw_uid if other else None
        self.gid = other.pw_gid if other else None
        self.groups: list[int] | None = [] if other else None
        self.folder = folder
        self.data = folder / "data"
        self.port = port or free_port()
        self.settings: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._kept: PGconn | None = None
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """The log of the server so far."""
        return (self.folder / "log").read_text(errors="replace")

    def url(self, database: str = "postgres", *, user: str = "storekeeper") -> str:
        """Return the URL of one of its databases."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def create(self) -> None:
        """Make an empty cluster that accepts every user of this machine."""
        self._own()
        # Copying a cluster takes an eighth of the time of making one.
        subprocess.run(["cp", "-a", _empty_cluster(), self.data], check=True)

    def _initialize(self) -> None:
        self._own()
        self._run(
            "initdb", "--pgdata", str(self.data), "--username", "storekeeper", "--auth", "trust",
            "--encoding", "UTF8", "--no-locale", "--no-sync",
        )  # fmt: skip

    def configure(self, **settings: str) -> None:
        """Add settings for the next start (or reload)."""
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> None:
        """Start, and return once it accepts connections; if it was killed, its children may have to
        die first."""
        deadline = time.monotonic() + TIMEOUT
        while not self._try_start(deadline):
            if time.monotonic() > deadline:
                raise AssertionError(f"PostgreSQL did not start: {self.log[-2000:]}")
            time.sleep(0.1)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop; SIGINT also ends the connections, SIGQUIT does not even write what is in memory."""
        if self.process is not None:
            self._kept = None
            self.process.send_signal(number)
            self.process.wait(TIMEOUT)
            self.process = None

    def kill(self) -> None:
        """Kill the server and all its processes with -9, as a power cut would."""
        if self.process is None:
            return
        children = self._children()
        self._kept = None
        for pid in (self.process.pid, *children):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(TIMEOUT)
        self.process = None

    def reload(self) -> None:
        """Let it read its settings again."""
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def promote(self) -> None:
        """Make a standby the primary; return once it is."""
        self._run("pg_ctl", "promote", "--wait", "--pgdata", str(self.data))

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement, or several as one transaction; return the last result in psql's
        unaligned format."""
        connection = pq.PGconn.connect(self.url(database).encode())
        try:
            return _executed(connection, statement)
        finally:
            connection.finish()

    def new_database(self) -> str:
        """Make a database; return its URL."""
        name = f"test_{next(self._numbers)}"
        connection = self._connection()
        # Copying files takes half of the time of writing them all to the log, which is the only way
        # before 15.
        how = " STRATEGY FILE_COPY" if connection.server_version >= 15_00_00 else ""
        _executed(connection, f"CREATE DATABASE {name}{how}")
        return self.url(name)

    @contextmanager
    def database(self) -> Iterator[str]:
        """Make a database and yield its URL; drop it at the end."""
        url = self.new_database()
        try:
            yield url
        finally:
            _executed(self._connection(), f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    def _connection(self) -> PGconn:
        """Return a connection that lasts as long as the server: connecting takes as long as the
        statements."""
        self._kept = self._kept or pq.PGconn.connect(self.url().encode())
        return self._kept

    def standby(self, folder: Path, name: str = "standby") -> "Server":
        """Copy this running server to a streaming standby, and do not start that yet."""
        other = Server(folder)
        other._own()
        self._run(
            "pg_basebackup", "--pgdata", str(other.data), "--write-recovery-conf",
            "--checkpoint", "fast", "--no-sync",
            "--dbname", f"{self.url()}?application_name={name}",
        )  # fmt: skip
        return other

    def _own(self) -> None:
        self.folder.chmod(0o755)
        if self.uid is not None and self.gid is not None:
            os.chown(self.folder, self.uid, self.gid)

    def _children(self) -> list[int]:
        assert self.process is not None
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def _try_start(self, deadline: float) -> bool:
        settings = [
            f"--{name}={value}"
            for name, value in (SETTINGS | self.settings | {"port": str(self.port)}).items()
        ]
        # On its own socket: another server may have taken its port first.
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.bin / "postgres", "-D", self.data, "-k", self.folder, *settings],
                stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
                user=self.uid, group=self.gid, extra_groups=self.groups,
            )  # fmt: skip
        while self.process.poll() is None and time.monotonic() < deadline:
            ready = subprocess.run(
                [
                    self.bin / "pg_isready",
                    "--quiet",
                    f"--host={self.folder}",
                    f"--port={self.port}",
                ],
                check=False,
            )
            if ready.returncode == 0:
                return True
            time.sleep(0.05)
        return False

    def _run(self, program: str, *args: str) -> str:
        done = subprocess.run(
            [self.bin / program, *args], cwd=self.folder,
            capture_output=True, text=True, timeout=TIMEOUT, check=False,
            user=self.uid, group=self.gid, extra_groups=self.groups,
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stderr}"
        return done.stdout


def _executed(connection: PGconn, statement: str) -> str:
    result = connection.exec_(statement.encode())
    assert result.status in {pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK}, (
        connection.get_error_message()
    )
    rows = (
        [result.get_value(row, column) for column in range(result.nfields)]
        for row in range(result.ntuples)
    )
    return b"\n".join(b"|".join(value or b"" for value in row) for row in rows).decode().strip()


@contextmanager
def running(**settings: str) -> Iterator[Server]:
    """Run a new server with these settings; stop it and delete its folder in any case."""
    with folder() as path:
        server = Server(path)
        server.create()
        server.settings = settings
        server.start()
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def replicated() -> Iterator[tuple[Server, Server]]:
    """Run a primary and its synchronous standby."""
    with running() as primary, folder() as path:
        standby = primary.standby(path)
        standby.start()
        try:
            primary.configure(synchronous_standby_names="ANY 1 (standby)")
            primary.reload()
            deadline = time.monotonic() + TIMEOUT
            while primary.sql("SELECT sync_state FROM pg_stat_replication") != "quorum":
                assert time.monotonic() < deadline, standby.log[-2000:]
                time.sleep(0.1)
            yield primary, standby
        finally:
            standby.kill()


def either(primary: Server, standby: Server, name: str) -> str:
    """Return the URL that names both."""
    return f"postgresql://storekeeper@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/{name}"


@cache
def _at_the_end() -> ExitStack:
    return ExitStack()


@cache
def _empty_cluster() -> Path:
    server = Server(_at_the_end().enter_context(folder()))
    server._initialize()
    return server.data


@cache
def _shared() -> Server:
    return _at_the_end().enter_context(running())


def shared() -> Server:
    """Return the server that all tests of this process share, unless they stop or kill it; raise
    Missing."""
    return _shared()


def stop_shared() -> None:
    """Stop the shared server, if there is one, and delete the empty cluster."""
    _at_the_end().close()
    for each in (_at_the_end, _empty_cluster, _shared):
        each.cache_clear()


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a temporary folder that other users can enter (they cannot enter pytest's)."""
    path = Path(tempfile.mkdtemp(prefix="storekeeper-postgres-", dir=_memory()))
    # If this process is killed, the watch ends the server and deletes the folder.
    watch = subprocess.Popen(
        ["sh", "-c", _WATCH, path], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield path
    finally:
        if (segment := shared_memory(path)) is not None:
            subprocess.run(["ipcrm", "-m", segment], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(path, ignore_errors=True)
        watch.communicate()


def shared_memory(folder: Path) -> str | None:
    """Return the System V segment of a running or killed server: it stays, and a machine has only
    4,096."""
    with suppress(FileNotFoundError, IndexError):  # for example, of a server that was stopped
        return (folder / "data" / "postmaster.pid").read_text().splitlines()[6].split()[1]
    return None


def _memory() -> Path | None:
    """Return a folder in memory, if there is room: nothing here is synced anyway."""
    shared = Path("/dev/shm")
    with suppress(OSError):
        if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 4 << 30:
            return shared
    return None


_WATCH = """read -r _
[ -e "$0/data/postmaster.pid" ] && kill -QUIT "$(head -n 1 "$0/data/postmaster.pid")" && sleep 2
rm -rf "$0"
"""
