"""A machine that systemd runs, for what units do: this machine's programs, booted by
systemd-nspawn in an overlay of its root.

It has processes, users, files and a network of its own, so nothing that root does there changes
the machine that it runs on. Units hide /home, /root and /tmp: there the service is below /opt and
/mnt.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.harness.machine import need
from tests.harness.pages import ROOT, Shell

PROGRAMS = ("systemd-nspawn", "nsenter", "setpriv", "unshare")
INIT = Path("/usr/lib/systemd/systemd")
CGROUPS = Path("/sys/fs/cgroup")
BOOT_TIMEOUT = 60.0

PACKAGES = Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
PREPARE = f"""
set -e
echo /mnt/python/lib > /etc/ld.so.conf.d/00-python.conf
ldconfig
mkdir -p /opt/storekeeper
ln -s /mnt/source /opt/storekeeper/source
/mnt/python/bin/python3 -m venv --without-pip /opt/storekeeper/0.1.0
ln -s 0.1.0 /opt/storekeeper/current
cd /opt/storekeeper/current
printf '%s\n' /mnt/venv/{PACKAGES} /mnt/source/src > {PACKAGES}/source.pth
cp /mnt/venv/bin/storekeeper bin
sed -i '1s,.*,#!/opt/storekeeper/0.1.0/bin/python3,' bin/storekeeper
cd /root
set +e
"""
"""Installs this checkout, as it is, where docs/installing.md does."""


class Booted:
    """Runs commands as root on the machine."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def root(self, command: str) -> str:
        """Run a command that must succeed; return what it printed."""
        status, output = self.run(command)
        assert status == 0, output
        return output

    def run(self, command: str) -> tuple[int, str]:
        """Run a command; return its status and what it printed."""
        return self._shell.run(command)


@contextmanager
def booted(folder: Path) -> Iterator[Booted]:
    """Boot a machine whose files are in memory; skip the test where none can be."""
    if reason := _missing():
        need("nspawn", reason)
    with ExitStack() as stack:
        groups = stack.enter_context(_own_cgroups(f"storekeeper-{os.getpid()}-{id(folder)}"))
        leader = stack.enter_context(_running(folder, groups))
        env = {"HOME": "/root", "LANG": "C.UTF-8", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
        env["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        shell = Shell(["nsenter", "-t", str(leader), "-a", "bash"], Path("/"), env)
        stack.callback(shell.close)
        machine = Booted(shell)
        machine.root(PREPARE)
        yield machine


def _missing() -> str | None:
    """Return why no machine can be booted here."""
    if os.geteuid() != 0:
        return "only root may boot a machine"
    if absent := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"not installed: {', '.join(absent)}"
    return None if INIT.exists() else "systemd is not installed"


@contextmanager
def _own_cgroups(name: str) -> Iterator[list[Path]]:
    """Make a control group for the machine in each hierarchy that systemd uses: two machines in
    one would end each other's processes."""
    hierarchies = [CGROUPS / each for each in ("systemd", "unified", ".")]
    made = [each / name for each in hierarchies if (each / "cgroup.procs").exists()]
    for group in made:
        group.mkdir()
    try:
        yield made
    finally:
        for group in made:
            for each in sorted(group.rglob("*/"), reverse=True):
                if each.is_dir():
                    each.rmdir()
            group.rmdir()


BOOT = f"""
set -e
for group in "$@"; do echo $$ > "$group/cgroup.procs"; done
mount -t tmpfs tmpfs .
cd "$PWD"  # in the new file system
mkdir root changed work
mount -t overlay -o "lowerdir=/,upperdir=changed,workdir=work" overlay root
exec systemd-nspawn --directory=root --boot --quiet --register=no --keep-unit --console=pipe \
  --private-network --link-journal=no --notify-ready=yes --machine=storekeeper \
  --bind-ro={ROOT}:/mnt/source --bind-ro={sys.prefix}:/mnt/venv \
  --bind-ro={sys.base_prefix}:/mnt/python systemd.unit=basic.target
"""
"""Boots in the current folder, in a mount namespace of its own, within these control groups."""


@contextmanager
def _running(folder: Path, groups: list[Path]) -> Iterator[int]:
    """Boot a machine; yield the process that is its first. It ends with this process."""
    told, root = folder / "told", folder / "machine"
    root.mkdir()
    run = ["setpriv", "--pdeathsig", "TERM", "unshare", "--mount", "sh", "-c", BOOT, "sh"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(told))
        process = subprocess.Popen(
            [*run, *map(str, groups)],
            cwd=root,
            env=os.environ | {"NOTIFY_SOCKET": str(told)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        leader = _wait_until_booted(process, listener)
    # Closed: its later messages would fill the socket, and it would wait for a reader.
    try:
        yield leader
    finally:
        os.kill(leader, signal.SIGKILL)  # and with it all of its processes
        process.communicate(timeout=BOOT_TIMEOUT)


def _wait_until_booted(process: "subprocess.Popen[str]", listener: socket.socket) -> int:
    """Return the first process of a machine once it has booted; skip the test if it does not."""
    said, deadline = "", time.monotonic() + BOOT_TIMEOUT
    listener.settimeout(0.2)
    while "READY=1" not in said.splitlines():
        try:
            said += listener.recv(65536).decode() + "\n"
        except TimeoutError:
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                need("nspawn", f"no machine boots here: {process.communicate()[1]}")
    return _leader(said)


def _leader(said: str) -> int:
    found = re.search(r"^X_NSPAWN_LEADER_PID=(\d+)$", said, re.MULTILINE)
    assert found, said
    return int(found[1])
