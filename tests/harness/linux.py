"""What Linux reports about a running service: memory, files, workers. On other systems, tests that
ask are skipped."""

from pathlib import Path

from tests.harness.machine import need
from tests.harness.process import Running

PROC = Path("/proc")
ESTABLISHED = "01"
LISTENING = "0A"


def of(pid: int) -> Path:
    """Return a value that Linux reports about a process."""
    if not PROC.exists():
        need("linux", "memory, files and children of a process are read from /proc")
    return PROC / str(pid)


def peak_memory(service: Running) -> int:
    """Return the peak memory of the process in bytes."""
    status = (of(service.process.pid) / "status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def bytes_read(pid: int) -> int:
    """Return how many bytes a process has read by system calls, from files and everything else."""
    text = (of(pid) / "io").read_text()
    return int(text.partition("rchar:")[2].split()[0])


def memory(pid: int) -> int:
    """Return how many bytes of memory only this process uses now, without the files that it
    maps."""
    status = (of(pid) / "status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def sockets(pid: int) -> set[str]:
    """Return the numbers of the sockets that a process has open."""
    links = []
    for file in (of(pid) / "fd").iterdir():
        try:
            links.append(str(file.readlink()))
        except FileNotFoundError:  # closed in the meantime
            continue
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}


def connections(pid: int) -> int:
    """Return how many clients are connected to a process."""
    rows = [line.split() for line in (of(pid) / "net/tcp").read_text().splitlines()[1:]]
    return len({row[9] for row in rows if row[3] == ESTABLISHED} & sockets(pid))


def in_kernel(port: int) -> int:
    """Return how many bytes that clients sent to a port, over IPv4, its process has not read."""
    rows = [line.split() for line in (PROC / "net/tcp").read_text().splitlines()[1:]]
    clients = [row[4].partition(":")[0] for row in rows if row[2].endswith(f":{port:04X}")]
    service = [
        row[4].partition(":")[2]
        for row in rows
        if row[1].endswith(f":{port:04X}") and row[3] != LISTENING
    ]
    return sum(int(size, 16) for size in clients + service)


def ports(pid: int) -> set[int]:
    """Return the IPv4 ports that a process listens on."""
    rows = [line.split() for line in (of(pid) / "net/tcp").read_text().splitlines()[1:]]
    own = sockets(pid)
    return {
        int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTENING and row[9] in own
    }


def parent(pid: int) -> int:
    """Return the parent of this process; 0 if it has ended."""
    try:
        state, parent = (of(pid) / "stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if state in "ZX" else int(parent)


def workers(service: Running) -> set[int]:
    """Return the processes that serve, if there are several."""
    supervisor = service.process.pid
    of(supervisor)
    children = {
        pid
        for pid in map(int, (path.name for path in PROC.glob("[0-9]*")))
        if parent(pid) == supervisor
    }
    return {pid for pid in children if "spawn_main" in _name(pid)}


def _name(pid: int) -> str:
    """Return the command of a process."""
    try:
        return (of(pid) / "cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):  # ended in the meantime
        return ""
