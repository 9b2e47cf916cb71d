"""What the kit prints, and its exit statuses."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import storeapi_check
from storeapi_check import beyond, importing, sorting
from storeapi_check.report import as_json, as_text
from storeapi_check.running import MAX_ADDED, RULES, hold
from storeapi_check.service import Service
from tests.harness.command import run
from tests.storeapi_check.announcing import Announcing
from tests.storeapi_check.importing import Importing
from tests.storeapi_check.reference import Local, Reference, Response, served
from tests.storeapi_check.variants import Hostile, Recording

ROOT = Path(__file__).parents[2]
PACKAGE = Path(storeapi_check.__file__).parent
Output = pytest.CaptureFixture[str]


def test_a_service_that_conforms_gets_ticks_and_0(capsys: Output) -> None:
    reference = Importing()
    with served(reference) as url:
        assert storeapi_check.run(url) == 0
    out, err = capsys.readouterr()
    assert out.count("✓") == len(
        [rule for rule in RULES if rule.name != "server-error-has-its-body"]
    )
    assert "✗" not in out
    last = out.strip().split("\n")[-1]
    assert (
        f"{url} conforms: {out.count('✓')} passed, 0 failed, 1 skipped (detailed errors, " in last
    )
    announced = re.fullmatch(
        rf"Checking {url}: this adds at most (\d+) stores, and there is no way to delete one\.\n",
        err,
    )
    assert announced
    own = reference.stores[3:]
    assert f"{len(own)} stores added" in last
    assert len(own) <= int(announced[1])
    # Each can be told from others.
    assert all("Check-" in store["name"] for store in own)
    assert (
        len(
            {match[0] for store in own if (match := re.search(r"Check-[0-9a-f]{8}", store["name"]))}
        )
        == 1
    )
    assert reference.stores[:3] == Reference().stores


def test_a_violation_shows_its_exchange_and_gets_1(capsys: Output) -> None:
    class Created(Reference):
        def success_status(self, operation: str) -> int:
            return 201 if operation == "create" else 200

    with served(Created()) as url:
        assert storeapi_check.run(url) == 1
    out = capsys.readouterr().out
    shown = out[out.index("✗ success-has-status-200: status is 201, not 200") :]
    assert re.search(
        r"^    POST /api/stores HTTP/1\.1\n(    .*\n)+\n    \{\"name\": ", shown, re.MULTILINE
    )
    assert re.search(
        r"^    HTTP/1\.1 201 Created\n    content-type: application/json; ", shown, re.MULTILINE
    )
    assert "violates the contract: " in out
    assert ", 1 failed" in out


def test_read_only_adds_nothing_and_names_what_it_left_out(capsys: Output) -> None:
    reference = Recording()
    with served(reference) as url:
        assert storeapi_check.run(url, read_only=True) == 0
        assert storeapi_check.run(url, read_only=True, json=True) == 0
    out, err = capsys.readouterr()
    assert set(reference.methods) == {"GET"}
    assert reference.stores == Reference().stores
    assert err == ""
    report = json.loads(out[out.index("\n{") :])
    skipped = {check["name"] for check in report["checks"] if check["result"] == "skipped"}
    assert skipped == {rule.name for rule in RULES if rule.writes} | {
        # The service announces nothing.
        "if-none-match-gets-304",
        "a-stream-of-events-is-passed-on-at-once",
        "server-error-has-its-body",
    }
    assert (report["added"], report["mode"], report["counts"]["failed"]) == (0, "unknown", 0)
    assert "no stores added" in out


def test_a_list_over_1_mib_of_a_service_that_announces_its_tags_is_read() -> None:
    service = Announcing()
    long = {**service.stores[0], "address": "x" * 100}
    service.stores = [{**long, "id": id, "name": f"Store {id}"} for id in range(1, 8_001)]
    with served(service) as url:
        seen = {
            result.rule.name: result.state
            for result in storeapi_check.examine(url, read_only=True).results
        }
    assert seen["if-none-match-gets-304"] == "passed"
    assert "failed" not in seen.values()


def test_read_only_sees_wrong_reads() -> None:
    class Loose(Reference):
        def matches(self, store: dict[str, object], name: str) -> bool:
            return str(store["name"]).lower() == name.lower()

    with served(Loose()) as url:
        failed = [result.rule.name for result in storeapi_check.examine(url, read_only=True).failed]
    assert failed == ["filter-is-case-sensitive"]


def test_read_only_skips_what_an_empty_service_cannot_show() -> None:
    reference = Reference()
    reference.stores = []
    with served(reference) as url:
        report = storeapi_check.examine(url, read_only=True)
    assert report.conforms
    notes = {result.rule.name: result.note for result in report.results}
    assert notes["filter-finds-exact-name"] == "the list has no store to look at"


@pytest.mark.parametrize("service", [Reference, Hostile])
def test_json_has_every_check_with_its_result(service: type[Reference], capsys: Output) -> None:
    with served(service()) as url:
        status = storeapi_check.run(url, read_only=True, json=True)
    report = json.loads(capsys.readouterr().out)
    assert report["url"] == url
    assert status == (0 if report["conforms"] else 1) == (service is Hostile)
    assert [check["name"] for check in report["checks"]] == [rule.name for rule in RULES]
    failed = [check for check in report["checks"] if check["result"] == "failed"]
    assert len(failed) == report["counts"]["failed"]
    assert all(check["note"] and check["request"] and check["response"] for check in failed)


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


def python(code: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run a piece of Python in a process of its own."""
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=os.environ | env, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_table_prints_on_a_terminal_that_knows_only_ascii() -> None:
    with served(Reference()) as url:
        done = python(
            f"import sys\nimport storeapi_check\nsys.exit(storeapi_check.run({url!r},"
            " read_only=True))",
            PYTHONIOENCODING="ascii",
        )
    assert done.returncode == 0, done.stderr
    assert f"{url} conforms" in done.stdout


def test_the_verdict_stands_when_nobody_reads_to_the_end() -> None:
    with served(Reference()) as url:
        done = python(
            "import os, sys\nimport storeapi_check\n"
            "ours, theirs = os.pipe()\nos.close(ours)\nos.dup2(theirs, 1)\n"
            f"sys.exit(storeapi_check.run({url!r}, read_only=True))"
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
        "import sys\nimport storeapi_check\nstoreapi_check.run({url!r}, read_only=True,"
        " json=True)\n"
        "own = [name for name in sys.modules if name.startswith('storekeeper.')]\n"
        "assert all(name.startswith('storeapi_check') for name in own), own\n"
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
                if not name.startswith("storeapi_check") and name.split(".")[0] not in allowed
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
    optional = [*beyond.RULES, *sorting.RULES, *importing.RULES]
    announced = {rule.name for rule in optional}
    assert {rule.name for rule in RULES if rule.sentence not in contract} == announced
    assert {rule.name for rule in optional if rule.sentence not in page} == set()


def test_the_documentation_lists_every_check() -> None:
    """On a difference the table as it should be is in the message."""
    rows = [
        f"| `{rule.name}` | {(rule.scope or rule.sentence).replace('|', chr(92) + '|')} |"
        for rule in RULES
    ]
    page = (ROOT / "docs/evidence/checks.md").read_text()
    table = (
        page.split("<!-- checks -->\n")[1].split("<!-- end of checks -->")[0].strip().split("\n")
    )
    assert table[2:] == rows, "\n".join(rows)
    assert f"adds up to {MAX_ADDED} stores" in (ROOT / "docs/checking.md").read_text()
