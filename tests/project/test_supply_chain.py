"""What is installed, from where, and what is known about it."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import apsw
import pytest
from packaging.markers import Marker
from packaging.version import Version

import storekeeper
from tests import ROOT
from tests.harness.machine import need
from tools import audit, sbom

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PINNED = re.compile(
    r"([a-z0-9][a-z0-9-]*)(?:\[[a-z0-9,-]+\])?==([^\s;\\]+)( ; [^\\]+?)?((?:"
    r" --hash=sha256:[0-9a-f]{64})+)"
)

_HOSTS = (
    "pypi org,pythonhosted org,npmjs org,npmjs com,yarnpkg com,proxy.golang org,deb.debian"
    " org,crates io"
)
HOSTS = [host.replace(" ", ".") for host in f"{_HOSTS},rubygems org,docker io,ghcr io".split(",")]
"""Of package registries, put together here so that this file names none either."""


def requirements(lock: Path) -> list[str]:
    """Return the lines of a lock, each with its hashes."""
    return re.sub(r" ?\\\n *", " ", lock.read_text()).splitlines()


def run_time() -> list[re.Match[str]]:
    """Return the requirements of the run-time lock, as PINNED finds their parts."""
    return [
        found
        for line in requirements(ROOT / "requirements/run.txt")
        if (found := PINNED.fullmatch(line))
    ]


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        need("git", "this is not a git repository")
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


# What is installed is what was locked.


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_requirement_is_pinned_with_its_hashes_and_nothing_says_where_from(
    lock: Path,
) -> None:
    lines = requirements(lock)
    assert lines
    assert [line for line in lines if not PINNED.fullmatch(line)] == []


def test_there_is_a_lock_for_whatever_is_asked_for() -> None:
    asked = {path.stem for path in (ROOT / "requirements").glob("*.in")}
    assert {lock.stem for lock in LOCKS} == asked | {"run", "mcp"}


def test_npm_locks_have_a_hash_for_each_package_and_no_address() -> None:
    locks = [path for path in tracked() if path.name == "package-lock.json"]
    assert locks
    for lock in locks:
        packages = json.loads(lock.read_text())["packages"]
        for name, package in packages.items():
            assert "resolved" not in package, f"{lock}: {name}"
            assert not name or package["integrity"].startswith("sha512-"), f"{lock}: {name}"


def test_no_file_names_the_host_of_a_package_registry() -> None:
    """The user who installs packages says where they come from."""
    hosts = re.compile("|".join(map(re.escape, HOSTS)).encode())
    assert {
        str(path.relative_to(ROOT)) for path in tracked() if hosts.search(path.read_bytes())
    } == set()


# What runs is newer than what is known about it.

FLOORS = {
    "h11": ("0.16.0", "CVE-2025-43859: chunk terminators were not looked at"),
    "httptools": ("0.8.0", "a long target could be cut short (fixed without an advisory)"),
    "uvicorn": (
        "0.11.7",
        "CVE-2020-7694, CVE-2020-7695: a client could write into the log, and headers",
    ),
}
"""Packages that read what clients send: the first version without what is known, and what that
is."""


@pytest.mark.parametrize("name", FLOORS)
def test_what_runs_has_none_of_the_known_vulnerabilities(name: str) -> None:
    floor, reason = FLOORS[name]
    assert Version(metadata.version(name)) >= Version(floor), reason


def test_sqlite_has_no_corruption_bug_of_its_write_ahead_log() -> None:
    """3.7.0 to 3.51.2 could corrupt a file that several processes checkpoint at once."""
    assert Version(apsw.sqlite_lib_version()) >= Version("3.51.3")


# The bill of materials.


def test_the_bill_of_materials_is_the_lock_with_licences_and_the_same_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bill.json"
    monkeypatch.setattr(sys, "argv", ["sbom", str(file)])
    sbom.main()
    bill = json.loads(file.read_text())
    assert sbom.bill() == bill
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    main = bill["metadata"]["component"]
    assert (main["name"], main["version"]) == ("storekeeper", storekeeper.__version__)
    assert main["licenses"] == [{"expression": "Apache-2.0"}]
    locked = {
        f"pkg:pypi/{each[1]}@{each[2]}": set(re.findall(r"sha256:(\S+)", each[4]))
        for each in run_time()
    }
    assert {
        each["purl"]: {one["content"] for one in each["hashes"]} for each in bill["components"]
    } == locked
    assert [each["bom-ref"] for each in bill["components"]] == list(locked)
    licences = {each["name"]: each.get("licenses") for each in bill["components"]}
    assert licences["uvicorn"] == [{"expression": "BSD-3-Clause"}]
    installed = {each.name.lower().replace("_", "-") for each in metadata.distributions()}
    assert {name for name in installed & licences.keys() if not licences[name]} == set()


# The audit. What a real auditor answers depends on the day and the network; what is made of it does
# not.


NEEDED: list[dict[str, object]] = [
    {"name": each[1], "version": each[2], "vulns": []}
    for each in run_time()
    if not each[3] or Marker(each[3].removeprefix(" ; ")).evaluate()
]
"""What an auditor reports for the lock if it knows nothing bad."""


def judged(report: object, *, status: int = 0) -> tuple[int, list[str]]:
    text = report if isinstance(report, str) else json.dumps(report)
    return audit.judge(subprocess.CompletedProcess([], status, text, ""))


def test_an_audit_of_everything_that_finds_nothing_passes() -> None:
    auditor = [
        sys.executable,
        "-c",
        "import sys; print(sys.argv[1])",
        json.dumps({"dependencies": NEEDED}),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tools.audit", *auditor], cwd=ROOT, capture_output=True, check=True
    )
    assert done.stdout.decode() == f"{len(NEEDED)} packages, no known vulnerability\n"


@pytest.mark.parametrize(
    "report",
    [
        "",
        "No known vulnerabilities found",
        {"dependencies": []},
        {"dependencies": [{"name": each["name"], "skip_reason": "not found"} for each in NEEDED]},
        {"dependencies": NEEDED[1:]},
        {"dependencies": [{**NEEDED[0], "version": "0"}, *NEEDED[1:]]},
    ],
    ids=["nothing", "no report", "empty", "all skipped", "one missing", "another version"],
)
def test_an_audit_that_skipped_packages_fails_and_says_so(report: object) -> None:
    """An auditor that reaches no advisory source may skip everything and still be content."""
    status, [line] = judged(report)
    assert status == 2
    assert line.startswith("NOT AUDITED: the auditor skipped ")


def test_an_audit_whose_auditor_fails_fails_too_and_what_one_finds_is_named() -> None:
    failed = "NOT AUDITED: the auditor failed (it gave no reason)"
    assert judged({"dependencies": NEEDED}, status=1) == (2, [failed])
    known = {**NEEDED[0], "vulns": [{"id": "CVE-1999-0001", "fix_versions": []}]}
    named = f"{known['name']} {known['version']}: CVE-1999-0001"
    assert judged({"dependencies": [known, *NEEDED[1:]]}, status=1) == (1, [named])
