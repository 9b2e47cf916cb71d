"""The units in deploy/: how little they permit, and that the service needs no more."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import ROOT
from tests.harness.client import create, until
from tests.harness.machine import need
from tests.harness.process import COMMAND, environment, serving

UNITS = sorted((ROOT / "deploy").glob("*.service"))
MAX_EXPOSURE = 2.0


def analyze(*args: str | Path) -> str:
    if not (program := shutil.which("systemd-analyze")):
        need("systemd", "systemd-analyze is not installed")
    done = subprocess.run(
        [program, "--no-pager", *args], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_exposes_little(unit: Path) -> None:
    said = analyze("security", "--offline=true", unit)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert found, said
    assert float(found[1]) < MAX_EXPOSURE, said


def test_both_units_have_the_same_fences() -> None:
    line = re.compile(r"^(?:Protect|Private|Restrict|SystemCall|MemoryDeny).*$", re.MULTILINE)
    fences = [line.findall(unit.read_text()) for unit in UNITS]
    assert len(fences) == 2
    assert fences[0] == fences[1]


def permitted(unit: Path) -> set[str]:
    """Return the system calls that a unit permits."""
    listed = re.findall(r"^SystemCallFilter=(.+)$", unit.read_text(), re.MULTILINE)
    calls: set[str] = set()
    for line in listed:
        for name in line.lstrip("~").split():
            calls = calls - expanded(name) if line.startswith("~") else calls | expanded(name)
    return calls


def expanded(name: str) -> set[str]:
    """Return the system calls of a set of systemd's."""
    if not name.startswith("@"):
        return {name}
    found: set[str] = set()
    for line in analyze("syscall-filter", name).splitlines()[1:]:
        if (inner := line.strip()) and not inner.startswith("#"):
            found |= expanded(inner)
    return found


def complete(trace: Path) -> str:
    """Return what strace wrote, once it wrote all."""
    until(lambda: "exit_group" in trace.read_text())
    return trace.read_text()


@pytest.mark.usefixtures("strace")
def test_the_service_and_a_backup_make_no_system_call_that_their_units_forbid(
    tmp_path: Path,
) -> None:
    traces = [tmp_path / "service.trace", tmp_path / "backup.trace"]
    tracing = [["strace", "-D", "-f", "-qq", "-s", "0", "-o", str(trace)] for trace in traces]
    with serving(tmp_path, "--workers=2", within=tracing[0]) as service:
        create(service, "First")
        assert service.request("GET", "/metrics").status == 200
        assert service.stop() == 0
    backup = [
        *COMMAND,
        "backup",
        str(tmp_path / "all.db"),
        "--database",
        f"sqlite:///{tmp_path}/stores.db",
    ]
    subprocess.run([*tracing[1], *backup], env=environment({}), check=True, capture_output=True)
    allowed = permitted(ROOT / "deploy/storekeeper.service")
    assert len(allowed) > 100
    for trace in traces:
        text = complete(trace)
        called = set(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))
        assert "pwrite64" in called
        assert called - allowed <= {"fchown"}  # by SQLite, which does that only as root
        assert not re.search(r"PROT_WRITE\|PROT_EXEC", text)  # MemoryDenyWriteExecute


def test_nothing_but_the_socket_has_the_address() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read(ROOT / "deploy/storekeeper.socket")
    assert unit["Socket"]["ListenStream"] == "127.0.0.1:8080"
    assert "STOREKEEPER_PORT" not in (ROOT / "deploy/storekeeper.env").read_text()
