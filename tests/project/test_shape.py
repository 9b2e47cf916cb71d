"""The shape that `docs/architecture.md` describes, read from the source."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import storekeeper
from storekeeper.log.events import Event
from storekeeper.settings import VARIABLES
from tests import ROOT

SOURCE = ROOT / "src" / "storekeeper"
MODULES = sorted(SOURCE.rglob("*.py"))

MAX_LINES = 350
"""Of a module."""

MAX_LENGTH = 100
"""Characters of a line."""

MAX_MEDIAN, MAX_P90 = 8, 25
"""Lines of a function."""

MAY_IMPORT = {
    "concurrency": {"domain"},
    "settings": {"domain"},
    "storage": {"domain", "concurrency", "log", "settings"},
    "sheets": {"domain", "storage"},
    "http": {"log"},
    "api": {"domain", "concurrency", "http", "log", "settings", "sheets", "storage"},
    "process": {"domain", "api", "http", "log", "settings", "storage"},
    "service": {"process"},
    "testing": {"process"},
    "cli": {"client", "domain", "api", "log", "process", "settings", "sheets", "storage"},
    "__main__": {"cli"},
}
"""The rooms that may import others, and which: the arrows point to the domain, which like every
other room imports none."""


def part(name: str) -> str:
    """Return the part of a module's dotted name: what stands below the package."""
    return ([*name.split("."), name])[1]


@cache
def imports(path: Path) -> set[str]:
    """Return the names of our modules that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            assert node.module
            found |= {
                dotted if (dotted := f"{node.module}.{alias.name}") in NAMES else node.module
                for alias in node.names
            }
    return {name for name in found if name.split(".")[0] == "storekeeper"}


def name_of(path: Path) -> str:
    relative = path.relative_to(SOURCE.parent).with_suffix("")
    return ".".join(part for part in relative.parts if part != "__init__")


NAMES = {name_of(path) for path in MODULES}


def test_imports_point_inward() -> None:
    for path in MODULES:
        own = part(name_of(path))
        allowed = MAY_IMPORT.get(own, set()) | {own, "storekeeper", "__version__"}
        used = {part(name) for name in imports(path)}
        assert used <= allowed, f"{own} must not import {used - allowed}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports only for types count too."""
    modules = {name_of(path): imports(path) for path in MODULES}
    TopologicalSorter({name: imported - {name} for name, imported in modules.items()}).prepare()


def test_no_module_is_long() -> None:
    assert [path for path in MODULES if len(path.read_text().splitlines()) > MAX_LINES] == []


def test_the_map_has_every_module_of_the_rooms_that_it_lists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rooms = ("api", "domain", "http", "process", "sheets", "storage")
    paths = [path for room in rooms for path in (SOURCE / room).rglob("*.py")]
    paths += (SOURCE / "console").glob("*.js")
    modules = sorted(path.name for path in paths if path.name != "__init__.py")
    assert len(modules) > 100
    assert [name for name in modules if f"`{name}`" not in page and f"/{name}`" not in page] == []


def test_no_line_of_the_console_is_long() -> None:
    """Ruff looks only at Python; `.editorconfig` tells editors and formatters."""
    scripts = sorted((SOURCE / "console").glob("*.js"))
    long = {
        f"{path.name}:{number}"
        for path in scripts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MAX_LENGTH
    }
    assert scripts
    assert long == set()


def test_no_module_reads_memory_that_another_library_has() -> None:
    assert [
        path
        for path in sorted((ROOT / "src").rglob("*.py"))
        if re.search(r"\bctypes\b", path.read_text())
    ] == []


def test_functions_are_short() -> None:
    functions = [
        node
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = sorted((node.end_lineno or node.lineno) - node.lineno + 1 for node in functions)
    assert lengths[len(lengths) // 2] <= MAX_MEDIAN
    assert lengths[len(lengths) * 9 // 10] <= MAX_P90


def test_no_test_imports_from_another_or_from_conftest() -> None:
    """What tests share is in `tests/harness` and `tests/oracles`."""
    begins = re.compile(r"^ *(?:from|import) (tests\.\S*(?:test_|conftest)\w*)", re.MULTILINE)
    importing = {
        str(path.relative_to(ROOT)): found
        for folder in ("tests", "bench", "tools")
        for path in (ROOT / folder).rglob("*.py")
        if (found := begins.findall(path.read_text()))
    }
    assert importing == {}


def test_a_start_of_the_service_does_not_pay_for_what_it_does_not_use(tmp_path: Path) -> None:
    """Rich, structlog and the CSV file's module are imported when a command needs them; Rich not
    to log a line."""
    program = """
import sys, storekeeper.cli, storekeeper.log.events, storekeeper.process.server
print(*sys.modules)
storekeeper.log.events.emit(storekeeper.log.events.Event.STARTED)
assert "structlog" in sys.modules
assert not [name for name in sys.modules if name.startswith("rich")]
import rich.console"""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("COV", "STOREKEEPER"))
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {name.split(".")[0] for name in done.stdout.split()} | set(done.stdout.split())
    assert "storekeeper.process.service" in imported
    heavy = (
        "rich.progress rich.console structlog prometheus_client storekeeper.sheets.writing zipfile"
    )
    assert not imported & {*heavy.split(), "asyncpg", "psycopg", "pydantic"}


# The documentation says what is there.


def documents() -> str:
    return "\n".join(
        path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    )


def test_the_documentation_names_no_setting_that_there_is_not() -> None:
    named = set(re.findall(r"`(STOREKEEPER_[A-Z_]+)", documents())) - {
        "STOREKEEPER_REQUIRE",
        "STOREKEEPER_TOKEN",
    }
    assert named <= set(VARIABLES.values())


def test_the_version_is_the_newest_of_the_changelog() -> None:
    newest = re.search(
        r"^## \[?v?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert newest
    assert newest[1] == storekeeper.__version__


def test_the_manual_has_every_event_with_its_level_and_no_other() -> None:
    page = (ROOT / "docs/reference/log.md").read_text()
    described = re.findall(r"^\| `([^`]+)` \| (critical|error|warning|info) \|", page, re.MULTILINE)
    assert sorted(described) == sorted(
        (text, level) for level, text in (event.value for event in Event)
    )
