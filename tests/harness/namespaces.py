"""A separate machine for a test, for pages that install: its own /etc, /opt, /var, network, memory
and processes.

It is made of Linux namespaces, so that nothing that root does in it changes the real machine.
systemd cannot run in it: `systemctl.py` does what the unit says instead.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.harness.pages import ROOT, STEP_TIMEOUT, Shell

NAMESPACES = [
    "unshare",
    "--mount",
    "--net",
    "--ipc",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]
PROGRAMS = [
    "unshare",
    "nginx",
    "systemd-analyze",
    "runuser",
    "setpriv",
    "useradd",
    "curl",
    "openssl",
]
FRESH = "/opt /srv /home /root /var/lib /var/log /var/backups /usr/local/sbin /run"
"""Folders that are empty on the machine; /etc is a copy, and everything else can only be read."""

SYSTEMCTL = Path(__file__).with_name("systemctl.py")
PREPARE = f"""
set -e
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir -m 755 /mnt/etc /mnt/source /mnt/python
cp -a /etc/. /mnt/etc
mount --bind /mnt/etc /etc
mount --bind {ROOT} /mnt/source
mount --bind {sys.base_prefix} /mnt/python
for folder in {FRESH}; do mount -t tmpfs -o mode=755 tmpfs $folder; done
mount -t tmpfs -o mode=1777 tmpfs /tmp
show() {{ test -e $2/. || {{ mkdir -p $2 && mount --bind $1 $2; }}; }}
show /mnt/source {ROOT}
show /mnt/python {sys.base_prefix}
mkdir -p /var/log/nginx /var/lib/nginx /etc/nginx/conf.d /opt/storekeeper
printf '#!/bin/sh\nexec {sys.executable} {SYSTEMCTL} "$@"\n' > /usr/local/sbin/systemctl
chmod 755 /usr/local/sbin/systemctl
{sys.executable} -c 'import fcntl, socket, struct
# SIOCSIFFLAGS: the loopback interface is up.
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 1))'
useradd --create-home visitor
cd /root
set +e
"""


def missing() -> str | None:
    """Return why no such machine can be made here."""
    if absent := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"not installed: {', '.join(absent)}"
    done = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True, check=False)
    return f"no namespaces can be made: {done.stderr.strip()}" if done.returncode else None


class Machine:
    """Runs commands as root, and as a visitor without privileges."""

    def __init__(self) -> None:
        env = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        env |= {"HOME": "/root", "LANG": "C.UTF-8", "REPOSITORY": "file:///mnt/source"}
        env |= {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self._outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        self._shell = Shell([*NAMESPACES, "bash"], Path("/"), env, [self._outside])
        self.root(PREPARE)

    def root(self, command: str) -> str:
        """Run a command as root; it must succeed; return what it printed."""
        status, output = self.run("#", command)
        assert status == 0, output
        return output

    def run(self, prompt: str, command: str, timeout: float = STEP_TIMEOUT) -> tuple[int, str]:
        """Run a command as the prompt of the page says: `#` is root, `$` is any user."""
        if prompt == "$":
            command = f"runuser -u visitor -- bash -c {shlex.quote('cd; ' + command)}"
        return self._shell.run(command, timeout)

    def run_outside(self, command: str, timeout: float) -> tuple[int, str]:
        """Run one program as root with the network of the real machine."""
        return self._shell.run(f"nsenter --net=/proc/self/fd/{self._outside} -- {command}", timeout)

    def close(self) -> None:
        """End everything that runs on it."""
        self._shell.close()
        os.close(self._outside)
