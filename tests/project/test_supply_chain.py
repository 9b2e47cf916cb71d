"""What is installed, from where, and what is known of it."""

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

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PINNED = re.compile(
    r"([a-z0-9][a-z0-9-]*)(?:\[[a-z0-9,-]+\])?==([^\s;\\]+)( ; [^\\]+?)?((?: --hash=sha256:[0-9a-f]{64})+)"
)

HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("proxy.golang", "org"),
        ("deb.debian", "org"),
        ("crates", "io"),
        ("rubygems", "org"),
        ("docker", "io"),
        ("ghcr", "io"),
    )
]
"""Of package registries, put together here so that this file names none either."""


def requirements(lock: Path) -> list[str]:
    """Return the lines of a lock, each with its hashes."""
    return re.sub(r" ?\\\n *", " ", lock.read_text()).splitlines()


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        need("git", "this is no git repository")
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


# What is installed is what was locked.


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_requirement_is_pinned_with_its_hashes_and_nothing_says_where_from(lock: Path) -> None:
    lines = requirements(lock)
    assert lines
    assert [line for line in lines if not PINNED.fullmatch(line)] == []


def test_there_is_a_lock_for_whatever_is_asked_for() -> None:
    asked = {path.stem for path in (ROOT / "requirements").glob("*.in")}
    assert {lock.stem for lock in LOCKS} == asked | {"run"}


def test_npm_locks_have_a_hash_for_each_package_and_no_address() -> None:
    locks = [path for path in tracked() if path.name == "package-lock.json"]
    assert locks
    for lock in locks:
        packages = json.loads(lock.read_text())["packages"]
        for name, package in packages.items():
            assert "resolved" not in package, f"{lock}: {name}"
            assert not name or package["integrity"].startswith("sha512-"), f"{lock}: {name}"


def test_no_file_names_the_host_of_a_package_registry() -> None:
    """Where packages come from is for whoever installs them to say."""
    hosts = re.compile("|".join(map(re.escape, HOSTS)).encode())
    assert {str(path.relative_to(ROOT)) for path in tracked() if hosts.search(path.read_bytes())} == set()


# What runs is past what is known of it.

FLOORS = {
    "h11": ("0.16.0", "CVE-2025-43859: chunk terminators were not looked at"),
    "httptools": ("0.8.0", "a long target could be cut short (fixed without an advisory)"),
    "uvicorn": ("0.11.7", "CVE-2020-7694, CVE-2020-7695: a client could write into the log, and headers"),
}
"""Packages that read what clients send: the first version without what is known, and what that is."""


@pytest.mark.parametrize("name", FLOORS)
def test_what_runs_has_none_of_the_known_vulnerabilities(name: str) -> None:
    floor, reason = FLOORS[name]
    assert Version(metadata.version(name)) >= Version(floor), reason


def test_sqlite_has_no_corruption_bug_of_its_write_ahead_log() -> None:
    """3.7.0 to 3.51.2 could corrupt a file that several processes checkpoint at once."""
    assert Version(apsw.sqlite_lib_version()) >= Version("3.51.3")


# The bill of materials.


def write_bill(file: Path) -> str:
    subprocess.run([sys.executable, "-m", "tools.sbom", file], cwd=ROOT, check=True, timeout=60)
    return file.read_text()


def test_the_bill_of_materials_is_the_lock_and_the_same_each_time(tmp_path: Path) -> None:
    first = write_bill(tmp_path / "first.json")
    assert write_bill(tmp_path / "second.json") == first
    bill = json.loads(first)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    main = bill["metadata"]["component"]
    assert (main["name"], main["version"]) == ("storekeeper", storekeeper.__version__)
    assert main["licenses"] == [{"expression": "Apache-2.0"}]
    locked = {}
    for line in requirements(ROOT / "requirements" / "run.txt"):
        found = PINNED.fullmatch(line)
        assert found
        locked[f"pkg:pypi/{found[1]}@{found[2]}"] = set(re.findall(r"sha256:(\S+)", found[4]))
    listed = {each["purl"]: {one["content"] for one in each["hashes"]} for each in bill["components"]}
    assert listed == locked
    assert len(bill["components"]) == len(locked)
    assert {each["bom-ref"] for each in bill["components"]} == locked.keys()


def test_the_bill_of_materials_has_the_licence_of_what_is_installed(tmp_path: Path) -> None:
    bill = json.loads(write_bill(tmp_path / "bill.json"))
    licences = {each["name"]: each.get("licenses") for each in bill["components"]}
    assert licences["uvicorn"] == [{"expression": "BSD-3-Clause"}]
    installed = {each.name.lower().replace("_", "-") for each in metadata.distributions()}
    assert {name for name in installed & licences.keys() if not licences[name]} == set()


# The audit. What a real auditor answers depends on the day and the network; what is made of it does not.


def needed() -> list[dict[str, object]]:
    """Return what an auditor reports of the lock if it knows of nothing."""
    found = [PINNED.fullmatch(line) for line in requirements(ROOT / "requirements" / "run.txt")]
    return [
        {"name": each[1], "version": each[2], "vulns": []}
        for each in found
        if each and (not each[3] or Marker(each[3].removeprefix(" ; ")).evaluate())
    ]


def audit(report: object, *, status: int = 0) -> tuple[int, str]:
    """Run the audit with an auditor that prints a report; give the status and what it says."""
    text = report if isinstance(report, str) else json.dumps(report)
    auditor = [sys.executable, "-c", "import sys; print(sys.argv[1]); sys.exit(int(sys.argv[2]))", text, str(status)]
    command = [sys.executable, "-m", "tools.audit", *auditor]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def test_an_audit_of_everything_that_finds_nothing_passes() -> None:
    status, said = audit({"dependencies": needed()})
    assert (status, said) == (0, f"{len(needed())} packages, no known vulnerability\n")


@pytest.mark.parametrize(
    "report",
    [
        "",
        "No known vulnerabilities found",
        {"dependencies": []},
        {"dependencies": [{"name": each["name"], "skip_reason": "not found"} for each in needed()]},
        {"dependencies": needed()[1:]},
        {"dependencies": [{**needed()[0], "version": "0"}, *needed()[1:]]},
    ],
    ids=["nothing", "no report", "empty", "all skipped", "one missing", "another version"],
)
def test_an_audit_that_skipped_packages_fails_and_says_so(report: object) -> None:
    """An auditor that reaches no advisory source may skip everything and still be content."""
    status, said = audit(report)
    assert status == 2
    assert said.startswith("NOT AUDITED: the auditor skipped ")
    assert said.count("\n") == 1


def test_an_audit_whose_auditor_fails_fails_too() -> None:
    failed = "NOT AUDITED: the auditor failed (it gave no reason)\n"
    assert audit({"dependencies": needed()}, status=1) == (2, failed)


def test_an_audit_that_finds_something_names_it() -> None:
    first, *others = needed()
    known = {**first, "vulns": [{"id": "CVE-1999-0001", "fix_versions": []}]}
    status, said = audit({"dependencies": [known, *others]}, status=1)
    assert (status, said) == (1, f"{first['name']} {first['version']}: CVE-1999-0001\n")
