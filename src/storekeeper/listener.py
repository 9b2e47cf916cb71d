"""What the service needs of the system: a port, its clients, and open files. Imports `http` and the domain."""

import resource
import select
import socket

from storekeeper.errors import CannotStart
from storekeeper.http.limits import limit_unsent, raise_files_limit

FILES_NEEDED = 60
FILES_PER_WORKER = 4
"""Files that a process opens before any client connects, and those that a supervisor opens for each worker."""


def check_open_files_limit(workers: int) -> None:
    """Raise CannotStart if the system permits too few open files for a service with so many workers."""
    raise_files_limit()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = FILES_NEEDED + FILES_PER_WORKER * workers
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise CannotStart(f"only {limit} files may be open at once, at least {needed} are needed: raise ulimit -n")


def bind(host: str, port: int) -> socket.socket:
    """Return a socket for a host and a port, which does not listen yet. Raises CannotStart if another one does."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        limit_unsent(listener)
        listener.setblocking(False)
    except (OSError, UnicodeError) as error:
        raise _refusal(host, port, error) from None
    return listener


def listen(bound: socket.socket, host: str, port: int) -> None:
    """Listen. Raises CannotStart if another socket, bound at the same moment, listened first."""
    try:
        bound.listen(2048)
    except OSError as error:
        raise _refusal(host, port, error) from None


def _refusal(host: str, port: int, error: Exception) -> CannotStart:
    reason = error.strerror if isinstance(error, OSError) else "not a host name"
    return CannotStart(f"cannot listen on {host} port {port} ({reason}): choose another --host or --port")


def has_client(listener: socket.socket) -> bool:
    """Return whether a connection waits to be accepted."""
    waiting = select.poll()  # not select, which takes no file number over 1023
    waiting.register(listener, select.POLLIN)
    return bool(waiting.poll(0))
