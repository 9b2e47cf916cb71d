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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.harness.machine import need
from tests.harness.pages import ROOT, Shell

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
        root = stack.enter_context(_overlay(folder / "machine"))
        groups = stack.enter_context(_own_cgroups(f"storekeeper-{os.getpid()}-{id(folder)}"))
        leader = stack.enter_context(_running(root, groups, folder / "told"))
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
    if absent := [each for each in ("systemd-nspawn", "nsenter") if shutil.which(each) is None]:
        return f"not installed: {', '.join(absent)}"
    return None if INIT.exists() else "systemd is not installed"


@contextmanager
def _overlay(folder: Path) -> Iterator[Path]:
    """Mount this machine's root, whose changes stay in memory; skip where that is not allowed."""
    folder.mkdir()
    with ExitStack() as stack:
        _mount(stack, folder, "-t", "tmpfs", "tmpfs")
        for name in ("root", "changed", "work"):
            (folder / name).mkdir()
        options = f"lowerdir=/,upperdir={folder}/changed,workdir={folder}/work"
        _mount(stack, folder / "root", "-t", "overlay", "-o", options, "overlay")
        yield folder / "root"


def _mount(stack: ExitStack, folder: Path, *options: str) -> None:
    done = subprocess.run(
        ["mount", *options, str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        need("nspawn", f"no file system can be mounted here: {done.stderr.strip()}")
    stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)


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


@contextmanager
def _running(root: Path, groups: list[Path], told: Path) -> Iterator[int]:
    """Boot the machine of these files; yield the process that is its first."""
    enter = 'for group; do echo $$ > "$group/cgroup.procs" || exit; done; exec ' + " ".join(
        [
            "systemd-nspawn --quiet --boot --register=no --keep-unit --private-network",
            "--link-journal=no --console=pipe --notify-ready=yes --machine=storekeeper",
            f"--directory={root} --bind-ro={ROOT}:/mnt/source",
            f"--bind-ro={sys.prefix}:/mnt/venv --bind-ro={sys.base_prefix}:/mnt/python",
            "systemd.unit=basic.target",
        ]
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(told))
        listener.settimeout(BOOT_TIMEOUT)
        process = subprocess.Popen(
            ["sh", "-c", enter, "sh", *map(str, groups)],
            env=os.environ | {"NOTIFY_SOCKET": str(told)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = ""
        while "READY=1" not in said.splitlines():
            try:
                said += listener.recv(65536).decode() + "\n"
            except TimeoutError:
                process.kill()
                need("nspawn", f"no machine boots here: {process.communicate()[1]}")
    # Closed: its later messages would fill the socket, and it would wait for a reader.
    leader = _leader(said)
    try:
        yield leader
    finally:
        os.kill(leader, signal.SIGKILL)  # and with it all of its processes
        process.communicate(timeout=BOOT_TIMEOUT)


def _leader(said: str) -> int:
    found = re.search(r"^X_NSPAWN_LEADER_PID=(\d+)$", said, re.MULTILINE)
    assert found, said
    return int(found[1])
