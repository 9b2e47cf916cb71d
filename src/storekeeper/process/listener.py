"""What the service needs of the system: a socket, its clients, and open files."""

import fcntl
import os
import resource
import select
import socket
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

from storekeeper.domain.errors import CannotStart
from storekeeper.http.limits import limit_unsent, raise_files_limit

FILES_NEEDED = 60
FILES_PER_WORKER = 4
"""Files that a process opens before any client connects, and those that a supervisor opens for
each worker."""

UDS_MODE = 0o660
"""The mode of a Unix socket: its owner and its group can connect."""

_BACKLOG = 2048
_FIRST_PASSED = 3
"""The number of the first socket that systemd passes (sd_listen_fds(3))."""


def check_open_files_limit(workers: int) -> None:
    """Raise CannotStart if the system permits too few open files for a service with this number
    of workers."""
    raise_files_limit()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = FILES_NEEDED + FILES_PER_WORKER * workers
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise CannotStart(
            f"only {limit} files may be open at once, at least {needed} are needed: raise ulimit -n"
        )


def passed_by_systemd() -> socket.socket | None:
    """Return the listening socket that systemd, or a program that follows its protocol, passed.
    Raises CannotStart."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") == "0":
        return None
    with suppress(OSError):
        os.set_inheritable(_FIRST_PASSED, False)
        passed = socket.socket(fileno=_FIRST_PASSED)
        if (
            os.environ.get("LISTEN_FDS") == "1"
            and passed.type == socket.SOCK_STREAM
            and passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        ):
            passed.setblocking(False)
            return passed
    raise CannotStart(
        "systemd must pass one socket that listens: one ListenStream, and no Accept=yes"
    )


def bind(host: str, port: int, uds: str | None = None) -> AbstractContextManager[socket.socket]:
    """Open a Unix socket if `uds` is a path, otherwise a socket for a host and a port, which does
    not listen yet.

    Raises CannotStart if another service listens there.
    """
    if uds:
        return _bound_to_path(Path(uds).absolute())
    return _bound(host, port)


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except (OSError, UnicodeError) as error:
        raise _refusal(host, port, error) from None
    return listener


@contextmanager
def _bound_to_path(path: Path) -> Iterator[socket.socket]:
    """Yield a Unix socket that listens; at the end, its file is removed. Raises CannotStart.

    A file that a killed service left is replaced; one of a service that runs is refused.
    """
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        try:
            with _locked(path.parent):
                _remove_stale(path)
                listener.bind(str(path))
                path.chmod(UDS_MODE)  # no client connects before it listens
                listener.listen(_BACKLOG)
            own = path.stat().st_mtime_ns
        except OSError as error:
            problem = f"cannot be a socket ({error.strerror or error}): name another path"
            raise CannotStart(problem, subject=f"--uds {path}") from None
        listener.setblocking(False)
        try:
            yield listener
        finally:
            with suppress(OSError):
                if path.stat().st_mtime_ns == own:  # otherwise another service replaced it
                    path.unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other starts from the sockets of a folder: two of them could remove the same stale
    one."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _remove_stale(path: Path) -> None:
    if not path.exists():
        return None
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise CannotStart("not a socket: name another path", subject=f"--uds {path}")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as client:
        client.settimeout(1)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return path.unlink()
        except (TimeoutError, BlockingIOError):
            pass  # its queue is full
    raise CannotStart("in use by another service: name another path", subject=f"--uds {path}")


def listen(bound: socket.socket, host: str, port: int) -> None:
    """Listen. Raises CannotStart if another socket, bound at the same moment, listened first."""
    try:
        if bound.family != socket.AF_UNIX:
            limit_unsent(bound)
        bound.listen(_BACKLOG)
    except OSError as error:
        raise _refusal(host, port, error) from None


def _refusal(host: str, port: int, error: Exception) -> CannotStart:
    reason = error.strerror if isinstance(error, OSError) else "not a host name"
    return CannotStart(
        f"cannot listen on {host} port {port} ({reason}): choose another --host or --port, or, with"
        " systemd, another ListenStream"
    )


def host_of(listener: socket.socket) -> str:
    """Return the address that a socket is bound to; `localhost` for a Unix socket, which no other
    machine reaches."""
    return "localhost" if listener.family == socket.AF_UNIX else str(listener.getsockname()[0])


def address_of(listener: socket.socket, host: str) -> str:
    """Return where clients find a socket that is bound to a host of that name: a URL, or `unix:`
    and a path."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    port = listener.getsockname()[1]
    if ":" in host:
        return f"http://[{host}]:{port}"
    return f"http://{host}:{port}"


def has_client(listener: socket.socket) -> bool:
    """Return whether a connection waits to be accepted."""
    waiting = select.poll()  # not select, which takes no file number over 1023
    waiting.register(listener, select.POLLIN)
    return bool(waiting.poll(0))
