"""`systemctl` on a test's machine, where systemd cannot run: starts and stops a unit's command as
the unit says.

It supports these settings of a unit: Type=notify (a start waits until the service responds) and
oneshot (until it ends), User, EnvironmentFile, ExecStart, UMask, LimitNOFILE, NoNewPrivileges, an
empty CapabilityBoundingSet, and ProtectSystem=strict with StateDirectory, ReadWritePaths and
PrivateTmp (/var and /tmp can be written). It ignores sockets and timers.
"""

import configparser
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

UNITS = Path("/etc/systemd/system")


def main(verb: str, *rest: str) -> None:
    names = [
        name
        for name in rest
        if not name.startswith("--") and not name.endswith((".socket", ".timer"))
    ]
    for name in names:
        if verb in {"stop", "restart"}:
            stop(name)
        if verb in {"start", "restart", "enable"}:
            start(name)


def stop(name: str) -> None:
    try:
        process = int(Path(f"/run/{name}.pid").read_text())
        os.kill(process, signal.SIGTERM)
    except (OSError, ValueError):
        return
    while Path(f"/proc/{process}").exists():
        time.sleep(0.01)


def start(name: str) -> None:
    if name == "nginx":
        subprocess.run(["nginx"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.read(UNITS / f"{name}.service")
    service = unit["Service"]
    if service["Type"] == "oneshot":
        done = subprocess.run(
            command(service), env=settings(service), umask=int(service["UMask"], 8), check=False
        )
        sys.exit(done.returncode)
    log = Path(f"/run/{name}.log")  # not in /var/log, where a page puts one
    with log.open("wb") as opened:
        process = subprocess.Popen(
            command(service),
            env=settings(service),
            stderr=opened,
            stdout=opened,
            umask=int(service["UMask"], 8),
            cwd="/",
        )
    Path(f"/run/{name}.pid").write_text(str(process.pid))
    while b"listens on" not in log.read_bytes():
        if process.poll() is not None:
            sys.exit(log.read_text())
        time.sleep(0.01)


def command(service: configparser.SectionProxy) -> list[str]:
    assert service["ProtectSystem"] == "strict"
    assert service.getboolean("NoNewPrivileges")
    assert service["CapabilityBoundingSet"] == ""
    user = service["User"]
    run = [
        "setpriv",
        f"--reuid={user}",
        f"--regid={user}",
        "--init-groups",
        "--no-new-privs",
        "--bounding-set=-all",
    ]
    run += shlex.split(service["ExecStart"])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = min(
        int(service.get("LimitNOFILE", most)), most
    )  # systemd may raise the hard limit, a test cannot
    run = ["prlimit", f"--nofile={files}", *run]
    return [
        "unshare",
        "--mount",
        "sh",
        "-c",
        f"mount -o remount,bind,ro / && exec {shlex.join(run)}",
    ]


def settings(service: configparser.SectionProxy) -> dict[str, str]:
    file = Path(service["EnvironmentFile"])
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return {"PATH": "/usr/bin:/bin"} | {
        line.partition("=")[0]: line.partition("=")[2].strip("'") for line in lines
    }


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
