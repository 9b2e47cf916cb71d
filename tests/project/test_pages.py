"""What holds for every page; and the commands of those that need no machine of their own do what
the pages say."""

import re
import shutil
from pathlib import Path

from playwright.sync_api import expect

from tests.harness.browser import chromium
from tests.harness.cases import case
from tests.harness.client import until
from tests.harness.console import console
from tests.harness.pages import (
    NOT_RUN,
    ON_A_MACHINE,
    PAGES,
    README,
    ROOT,
    Shell,
    Step,
    blocks,
    follower,
    steps,
)
from tests.harness.process import Running, serving

SPREADSHEETS = ROOT / "docs/spreadsheets.md"
TUTORIAL = ROOT / "docs/tutorial.md"
CHECKING = ROOT / "docs/checking.md"
BENCHMARKS = ROOT / "docs/benchmarks.md"
LITESTREAM = ROOT / "docs/litestream.md"
CALLING, MIRROR = ROOT / "docs/calling.md", ROOT / "docs/mirror.md"

PAGES_NOT_RUN = {
    CALLING: "tests/project/test_calling.py runs its commands and its code",
    MIRROR: "tests/project/test_calling.py runs its commands",
    LITESTREAM: "tests/system/test_litestream.py runs its commands",
    ROOT / "docs/embedding.md": "tests/process/test_guest.py runs its code",
    BENCHMARKS: "it takes minutes; tests/project/test_benchmarks.py runs its parts",
}


def run(taken: list[Step], shell: Shell, service: Running | None = None) -> None:
    """Run commands of a page, next to a service of the test."""
    for step in taken:
        here = step.at(service.port) if service else step
        assert here.difference(*shell.run(here.typed)) is None


def test_every_command_of_the_readme_prints_what_it_says(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/storekeeper.db"
    with serving(tmp_path, "--examples", database=database) as service, follower(tmp_path) as shell:
        taken = [step for step in steps(README) if step.typed not in NOT_RUN]
        assert len(taken) >= 5, "the commands were not found"
        run(taken, shell, service)


def test_every_command_of_the_page_on_spreadsheets_prints_what_it_says(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with follower(tmp_path) as shell:
        run(steps(SPREADSHEETS), shell)


def test_every_command_of_the_page_on_checking_prints_what_it_says(tmp_path: Path) -> None:
    with serving(tmp_path, "--examples") as service, follower(tmp_path) as shell:
        run(steps(CHECKING), shell, service)


def test_the_tutorial_shows_what_it_says(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    taken = steps(TUTORIAL)
    setup, serve = (i for i, step in enumerate(taken) if step.typed in NOT_RUN)
    with follower(tmp_path) as shell:
        run(taken[setup + 1 : serve], shell)
        with serving(tmp_path, "--examples", database=f"sqlite:///{tmp_path}/mylist.db") as service:
            correct_a_store_and_see_what_others_did(service)
            run(taken[serve + 1 :], shell, service)


def correct_a_store_and_see_what_others_did(service: Running) -> None:
    """Do in two windows what the tutorial says between its commands."""
    with (
        chromium() as browser,
        console(browser, service, refusals=True) as mine,
        console(browser, service) as other,
    ):
        mine.open().page.get_by_placeholder("Search name or address").fill("dana")
        mine.page.get_by_role("link", name="Dana Mall").click()
        mine.name.fill("Dana Mall 2")
        mine.button("Save").click()
        mine.saved()
        expect(mine.page.locator(".history li")).to_have_count(2)
        # The feed tells the page of its own change, before it is left. Otherwise that would be
        # another user's.
        seen = service.request("HEAD", "/api/stores").headers["etag"].strip('"')
        until(lambda: seen in mine.page.evaluate("JSON.stringify(localStorage)"))
        for window, address in ((mine, "98 Av. Meritxell"), (other, "97 Av. Meritxell")):
            window.open("?store=1").where.fill(address)
        other.button("Save").click()
        other.saved()
        expect(mine.page.get_by_role("link", name="Changes 1")).to_be_visible()
        mine.button("Save").click()
        dialog = mine.page.get_by_role("dialog")
        dialog.get_by_label("Yours").check()
        dialog.get_by_role("button", name="Save").click()
        mine.saved()


def test_every_fenced_command_of_a_page_is_one_that_a_test_runs() -> None:
    for page in (page for page in PAGES if page not in PAGES_NOT_RUN):
        with case(page.name):
            others = (
                {"yaml"} if page.name == "monitoring.md" else set()
            )  # test_monitoring has promtool check it
            assert {language for _, language, _ in blocks(page)} <= {"console", "mermaid"} | others
            assert not steps(page) or page in {
                README,
                SPREADSHEETS,
                TUTORIAL,
                CHECKING,
                *ON_A_MACHINE,
            }
            lines = [
                line
                for _, language, lines in blocks(page)
                if language == "console"
                for line in lines
            ]
            shown = [line for line in lines if line[:2] in {"$ ", "# "}]
            assert [
                f"{step.prompt} {step.command}".splitlines()[0] for step in steps(page)
            ] == shown


def test_what_is_named_as_not_run_stands_on_a_page() -> None:
    assert NOT_RUN.keys() <= {step.typed for page in PAGES for step in steps(page)}


def test_every_module_that_a_page_names_is_there() -> None:
    places = ("src", "tests", "bench", "tools", "examples")
    modules = [
        f"/{path.relative_to(ROOT)}" for place in places for path in (ROOT / place).rglob("*.py")
    ]
    missing = {
        (page.name, named)
        for page in PAGES
        for named in re.findall(r"`([a-z_/]+\.py)`", page.read_text())
        if not any(module.endswith(f"/{named}") for module in modules)
    }
    assert missing == set()


def test_every_make_target_that_a_page_names_is_one() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"(?:`|^[$] )make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert named - targets == set()
    assert {"serve", "test"} <= named


def anchors(page: Path) -> set[str]:
    """Return what the headings of a page are linked by."""
    heads = re.findall(
        r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_link_of_a_page_leads_to_a_file_and_a_heading_that_there_are() -> None:
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            name, _, anchor = link.partition("#")
            if not name.startswith("http"):
                led = page.parent / name if name else page
                assert led.exists(), (page.name, link)
                assert not anchor or anchor in anchors(led), (page.name, link)


def table(text: str) -> list[list[str]]:
    """Return the rows of the first table in a text, its head first."""
    found = re.search(r"^\|.*(?:\n\|.*)*", text, re.MULTILINE)
    assert found
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines()]
    return [row for row in rows if not set("".join(row)) <= set("-:")]


def test_the_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    _, *rows = table(README.read_text().partition("## How fast")[2])
    assert len(rows) >= 5
    measured = (ROOT / "docs/evidence/benchmarks.md").read_text()
    reached = {row[0]: row[3].split()[0] for row in table(measured)[1:]}
    assert {case: ratio for case, ratio, *_ in rows}.items() <= reached.items()
