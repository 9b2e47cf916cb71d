"""What the kit prints, and its exit statuses."""

import ast
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from storekeeper import conformance
from storekeeper.conformance import beyond, profile
from storekeeper.conformance.report import as_json, as_text
from storekeeper.conformance.running import MAX_ADDED, RULES, hold
from storekeeper.conformance.service import Service
from tests.conformance.announcing import Announcing
from tests.conformance.reference import Local, Reference, Response, served
from tests.conformance.variants import Hostile, Recording
from tests.harness.command import run

ROOT = Path(__file__).parents[2]
PACKAGE = Path(conformance.__file__).parent
Output = pytest.CaptureFixture[str]


def test_a_service_that_conforms_gets_ticks_and_0(capsys: Output) -> None:
    reference = Announcing()
    with served(reference) as url:
        assert conformance.run(url) == 0
    out, err = capsys.readouterr()
    assert out.count("✓") == len([rule for rule in RULES if rule.name != "server-error-has-its-body"])
    assert "✗" not in out
    last = out.strip().split("\n")[-1]
    assert f"{url} conforms: {out.count('✓')} passed, 0 failed, 1 skipped (detailed errors, " in last
    announced = re.fullmatch(
        rf"Checking {url}: this adds at most (\d+) stores, and there is no way to delete one\.\n", err
    )
    assert announced
    own = reference.stores[3:]
    assert f"{len(own)} stores added" in last
    assert len(own) <= int(announced[1])
    # Each can be told from others.
    assert all("Check-" in store["name"] for store in own)
    assert len({match[0] for store in own if (match := re.search(r"Check-[0-9a-f]{8}", store["name"]))}) == 1
    assert reference.stores[:3] == Reference().stores


def test_a_violation_shows_its_exchange_and_gets_1(capsys: Output) -> None:
    class Created(Reference):
        def success_status(self, operation: str) -> int:
            return 201 if operation == "create" else 200

    with served(Created()) as url:
        assert conformance.run(url) == 1
    out = capsys.readouterr().out
    shown = out[out.index("✗ success-has-status-200: status is 201, not 200") :]
    assert re.search(r"^    POST /api/stores HTTP/1\.1\n(    .*\n)+\n    \{\"name\": ", shown, re.MULTILINE)
    assert re.search(r"^    HTTP/1\.1 201 Created\n    content-type: application/json; ", shown, re.MULTILINE)
    assert "violates the contract: " in out
    assert ", 1 failed" in out


def test_read_only_adds_nothing_and_names_what_it_left_out(capsys: Output) -> None:
    reference = Recording()
    with served(reference) as url:
        assert conformance.run(url, read_only=True) == 0
        assert conformance.run(url, read_only=True, json=True) == 0
    out, err = capsys.readouterr()
    assert set(reference.methods) == {"GET", "HEAD", "OPTIONS"}
    assert reference.stores == Reference().stores
    assert err == ""
    report = json.loads(out[out.index("\n{") :])
    skipped = {check["name"] for check in report["checks"] if check["result"] == "skipped"}
    assert skipped == {rule.name for rule in RULES if rule.writes} | {
        "if-none-match-gets-304",  # nothing is announced
        "server-error-has-its-body",
    }
    assert (report["added"], report["mode"], report["counts"]["failed"]) == (0, "unknown", 0)
    assert "no stores added" in out


def test_a_list_over_1_mib_of_a_service_that_announces_its_tags_is_read() -> None:
    service = Announcing()
    long = {**service.stores[0], "address": "x" * 100}
    service.stores = [{**long, "id": id, "name": f"Store {id}"} for id in range(1, 8_001)]
    with served(service) as url:
        seen = {result.rule.name: result.state for result in conformance.examine(url, read_only=True).results}
    assert seen["if-none-match-gets-304"] == "passed"
    assert "failed" not in seen.values()


def test_read_only_sees_wrong_reads() -> None:
    class Loose(Reference):
        def matches(self, store: dict[str, object], name: str) -> bool:
            return str(store["name"]).lower() == name.lower()

    with served(Loose()) as url:
        failed = [result.rule.name for result in conformance.examine(url, read_only=True).failed]
    assert failed == ["filter-is-case-sensitive"]


def test_read_only_skips_what_an_empty_service_cannot_show() -> None:
    reference = Reference()
    reference.stores = []
    with served(reference) as url:
        report = conformance.examine(url, read_only=True)
    assert report.conforms
    notes = {result.rule.name: result.note for result in report.results}
    assert notes["filter-finds-exact-name"] == "the list has no store to look at"


@pytest.mark.parametrize("service", [Reference, Hostile])
def test_json_and_junit_say_the_same(service: type[Reference], tmp_path: Path, capsys: Output) -> None:
    junit = tmp_path / "report.xml"
    with served(service()) as url:
        status = conformance.run(url, read_only=True, json=True, junit=junit)
    report = json.loads(capsys.readouterr().out)
    assert report["url"] == url
    assert status == (0 if report["conforms"] else 1) == (service is Hostile)
    assert [check["name"] for check in report["checks"]] == [rule.name for rule in RULES]
    cases = ET.parse(junit).getroot().findall("testsuite/testcase")
    results = {case.get("name"): [child.tag for child in case] for case in cases}
    tags = {"passed": [], "failed": ["failure"], "skipped": ["skipped"]}
    assert results == {check["name"]: tags[check["result"]] for check in report["checks"]}
    suite = ET.parse(junit).getroot().find("testsuite")
    assert suite is not None
    assert int(suite.get("failures", "")) == report["counts"]["failed"]
    assert int(suite.get("skipped", "")) == report["counts"]["skipped"]
    failed = [check for check in report["checks"] if check["result"] == "failed"]
    assert all(check["note"] and check["request"] and check["response"] for check in failed)
    assert {seen["topic"] for seen in report["profile"]} == {*profile.READS}


def test_hostile_responses_are_shown_and_not_obeyed() -> None:
    out = as_text(hold(Service(Local(Hostile())), "http://reference"))
    assert not re.search(r"[\0\x1b\ud800\u202e]", out)
    assert r"\x1b[31m[red]\x00\ud800" in out


class Verbose(Reference):
    """Has a store with an id, and error messages, of half a MiB."""

    def handle(self, method: str, target: str, body: bytes) -> Response:
        if target == "/api/stores":
            return self.success("list", [{"id": "1" * 500_000, "name": "A", "address": None}])
        if target.startswith("/api/stores/"):
            return self.error("other", 404, "Not Found", "x" * 500_000)
        return super().handle(method, target, body)


def test_a_report_can_be_read_however_much_a_service_says() -> None:
    report = hold(Service(Local(Verbose()), read_only=True), "http://reference")
    assert "store-id-is-an-integer" in [result.rule.name for result in report.failed]
    for told in (as_text(report), as_json(report)):
        assert len(told) < 100_000


@pytest.mark.parametrize(
    ("path", "reason"), [("none/report.xml", "No such file or directory"), ("", "Is a directory")]
)
def test_a_file_that_cannot_be_written_is_told_before_anything_is_sent(
    path: str, reason: str, tmp_path: Path, capsys: Output
) -> None:
    reference = Recording()
    with served(reference) as url:
        assert conformance.run(url, junit=tmp_path / path) == 2
    line = f"storekeeper: cannot write the results to {tmp_path / path}: {reason}; --junit takes the path of a file\n"
    assert capsys.readouterr().err == line
    assert not reference.methods


def test_a_check_that_is_declined_leaves_no_file(tmp_path: Path) -> None:
    """A file that was there stays as it was."""

    def decline(most: int) -> None:
        raise KeyboardInterrupt(most)

    before = tmp_path / "before.xml"
    before.write_text("before")
    with served(Reference()) as url:
        for junit in (before, tmp_path / "new.xml"):
            with pytest.raises(KeyboardInterrupt):
                conformance.run(url, junit=junit, ask=decline)
    assert [*tmp_path.iterdir()] == [before]
    assert before.read_text() == "before"


def test_the_xml_goes_through_a_pipe_too(tmp_path: Path) -> None:
    """As with `--junit /dev/stdout | ...` and `--junit >(...)`, whose links lead to no path; or with a name."""
    named = tmp_path / "pipe"
    os.mkfifo(named)
    with served(Reference()) as url:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as pipe:
            assert conformance.run(url, read_only=True, junit=Path(f"/dev/fd/{writing}")) == 0
            os.close(writing)
            assert ET.fromstring(pipe.read()).tag == "testsuites"
        with ThreadPoolExecutor() as pool:
            read = pool.submit(named.read_bytes)
            assert conformance.run(url, read_only=True, junit=named) == 0
            assert ET.fromstring(read.result()).tag == "testsuites"


def python(code: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run a piece of Python in a process of its own."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=os.environ | env, capture_output=True, text=True, timeout=60, check=False)


def test_the_table_prints_on_a_terminal_that_knows_only_ascii() -> None:
    with served(Reference()) as url:
        done = python(
            f"import sys\nfrom storekeeper import conformance\nsys.exit(conformance.run({url!r}, read_only=True))",
            PYTHONIOENCODING="ascii",
        )
    assert done.returncode == 0, done.stderr
    assert f"{url} conforms" in done.stdout


def test_the_verdict_stands_when_nobody_reads_to_the_end() -> None:
    with served(Reference()) as url:
        done = python(
            "import os, sys\nfrom storekeeper import conformance\n"
            "ours, theirs = os.pipe()\nos.close(ours)\nos.dup2(theirs, 1)\n"
            f"sys.exit(conformance.run({url!r}, read_only=True))"
        )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("timeout", ["nan", "0", "61", "-inf"])
def test_a_timeout_that_is_none_is_refused(timeout: str) -> None:
    done = run("check", "http://127.0.0.1:1", "--timeout", timeout)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1


def test_a_machine_readable_run_loads_nothing_but_the_kit() -> None:
    code = (
        "import sys\nfrom storekeeper import conformance\nconformance.run({url!r}, read_only=True, json=True)\n"
        "own = [name for name in sys.modules if name.startswith('storekeeper.')]\n"
        "assert all(name.startswith('storekeeper.conformance') for name in own), own\n"
        "assert 'rich' not in sys.modules\n"
    )
    with served(Reference()) as url:
        done = python(code.format(url=url))
    assert done.returncode == 0, done.stderr


def test_the_kit_imports_only_itself_the_standard_library_and_rich() -> None:
    allowed = sys.stdlib_module_names | {"rich"}
    for module in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            strange = [
                name
                for name in names
                if not name.startswith("storekeeper.conformance") and name.split(".")[0] not in allowed
            ]
            assert not strange, (module.name, strange)


# What is written about it


def plain(text: str) -> str:
    """Text without the bars of tables, in one line."""
    cells = re.sub(r"\s*\|\s*", ", ", re.sub(r"^\| | \|$", "", text, flags=re.MULTILINE))
    return " ".join(cells.split())


def test_every_check_quotes_the_contract() -> None:
    page = (ROOT / "docs/contract.md").read_text()
    contract = plain(page.split("## Decisions")[0])
    announced = {rule.name for rule in beyond.RULES}
    assert {rule.name for rule in RULES if rule.sentence not in contract} == announced
    assert {rule.name for rule in beyond.RULES if rule.sentence not in page} == set()


def test_the_documentation_lists_every_check() -> None:
    """On a difference the table as it should be is in the message."""
    rows = [f"| `{rule.name}` | {rule.sentence.replace('|', chr(92) + '|')} | {rule.scope} |" for rule in RULES]
    page = (ROOT / "docs/conformance.md").read_text()
    table = page.split("<!-- checks -->\n")[1].split("<!-- end of checks -->")[0].strip().split("\n")
    assert table[2:] == rows, "\n".join(rows)
    assert f"({MAX_ADDED} at present" in page


def test_the_documentation_lists_all_that_is_only_told() -> None:
    page = (ROOT / "docs/conformance.md").read_text()
    listed = re.findall(
        r"^- (.+)$", page.split("<!-- profile -->\n")[1].split("<!-- end of profile -->")[0], re.MULTILINE
    )
    topics = [*profile.READS, *profile.WRITES]
    assert listed == topics, "\n".join(f"- {topic}" for topic in topics)
