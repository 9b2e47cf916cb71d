"""What the jobs ask of a peer, and what most peers have in common."""

import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx

START_TIMEOUT = 120.0


class Feed(NamedTuple):
    """What a reader gets that continues from a cursor: the names of the stores that changed, the
    next cursor, and whether it is told that the list was restored."""

    names: dict[str, str]
    cursor: str
    told: bool


class Peer:
    """A service with its data in `folder`, which is `copied` and put back while it is stopped."""

    name = ""
    licence = ""
    NONE = "none"
    has_own_files = True

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = folder
        self.port = free_port()
        # A connection for each request: some close it after an error.
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            timeout=30,
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        self._process: subprocess.Popen[bytes] | None = None

    # The process.

    def version(self) -> str:
        """Return its version."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Set up an empty list, before the first start."""

    def command(self) -> Sequence[str | Path]:
        """Return the command that serves it."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Return all variables of the command."""
        return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.folder)}

    ready = "/"
    """A path that responds once it serves."""

    def start(self) -> None:
        """Start it, and wait until it serves."""
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), env=self.environment(), cwd=self.folder, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                if self.http.get(self.ready).status_code < 500:
                    return
            except httpx.TransportError:
                pass
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"{self.name} did not start: see {log.name}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def close(self) -> None:
        """End what it needed."""

    def back_up(self, kept: Path) -> None:
        """Keep a copy of all data; it is stopped."""
        shutil.copytree(self.folder, kept)

    def restore(self, kept: Path) -> None:
        """Put a copy back, as its pages say; it is stopped."""
        shutil.rmtree(self.folder)
        shutil.copytree(kept, self.folder)

    def set_up(self) -> None:
        """Make what clients need, once it serves for the first time."""

    # What clients do.

    def create(self, name: str, *, key: str = "", id: str = "") -> httpx.Response:
        """Create a store, with an Idempotency-Key or an id of the client's own."""
        raise NotImplementedError

    def id_of(self, response: httpx.Response) -> str:
        """Return the id in the response to a create."""
        found: Any = response.json()
        return str(found.get("data", found)["id"])

    def tag(self, id: str) -> str:
        """Return what a save of a store may depend on; "" if a read gives nothing like that."""
        raise NotImplementedError

    def save(self, id: str, name: str, tag: str) -> httpx.Response:
        """Save a store, on the condition that it has not changed, as far as that can be said."""
        raise NotImplementedError

    def names(self) -> list[str]:
        """Return the names of all stores."""
        raise NotImplementedError

    def own_id(self) -> str:
        """Return an id that a client may choose; "" if it cannot."""
        return ""

    def feed(self, cursor: str) -> Feed | None:  # noqa: ARG002 - for those that have one
        """Return the changes since a cursor, "" for all; None if there is nothing like that."""
        return None

    def earlier_names(self, id: str) -> list[str] | None:  # noqa: ARG002 - the same
        """Return the names that a store had before; None if they are not kept."""
        return None

    def merge(self) -> str:
        """Export the list, edit a store, import the export with an edit of another field."""
        return self.NONE

    def verify(self) -> str:
        """Return what its own check of the data says; it is stopped."""
        return self.NONE


def free_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
