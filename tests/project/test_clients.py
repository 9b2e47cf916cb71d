"""Every recipe of `docs/clients.md` is run as it stands, against a service of its own, in the order of the page."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import browser
from tests.harness.pages import ROOT, blocks
from tests.harness.process import Running, serving

PAGE = ROOT / "docs/clients.md"
RECIPES = [(f"{language}, line {begin}", language, "\n".join(lines)) for begin, language, lines in blocks(PAGE)]
NAMES = ("Old Town", "North Gate", "South Gate", "Unique")
ADDRESS = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start a service with the example stores."""
    with serving(tmp_path_factory.mktemp("clients"), "--examples") as started:
        yield started


def here(recipe: str, service: Running) -> str:
    assert ADDRESS in recipe
    return recipe.replace(ADDRESS, f"http://127.0.0.1:{service.port}")


def check_names(service: Running, recipe: str) -> None:
    """See that each store that a recipe adds is there once."""
    names = [store["name"] for store in service.request("GET", "/api/stores").json]
    for name in NAMES:
        assert f'"{name}"' not in recipe or names.count(name) == 1


@pytest.mark.parametrize(
    ("language", "recipe"),
    [pytest.param(language, text, id=name) for name, language, text in RECIPES if language != "js"],
)
def test_a_recipe_does_what_it_says(service: Running, language: str, recipe: str, tmp_path: Path) -> None:
    program = {"bash": ["bash", "-euc"], "python": [sys.executable, "-c"]}[language]
    done = subprocess.run(
        [*program, here(recipe, service)], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    if printed := re.search(r"\d+ stores", done.stdout):
        assert int(printed[0].split()[0]) >= 3
    check_names(service, recipe)
    if "Saved" in recipe:
        assert done.stdout.startswith("Saved: ")
    if "http_code}\\n" in recipe:
        assert done.stdout == "304\n"


def test_the_recipes_for_pages_do_what_they_say_in_a_browser(service: Running) -> None:
    recipes = [text for _, language, text in RECIPES if language == "js"]
    with browser.page() as (page, faults):
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(f"http://127.0.0.1:{service.port}/docs")
        for recipe in recipes:
            page.evaluate(f"async () => {{ {here(recipe, service)} }}")
        assert not faults
    assert len(said) == len(recipes)
    check_names(service, "".join(recipes))
    assert "4 Main Street" in service.request("GET", "/api/stores/1").json["address"]
