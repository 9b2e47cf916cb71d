"""What a forge is told: the workflow, the forms of issues, the hook before a commit."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT

WORKFLOW = ROOT / ".github/workflows/ci.yml"
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


def loaded(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def test_the_workflow_runs_the_whole_check_on_each_python_that_is_supported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    supported = [
        found[1]
        for each in project["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each))
    ]
    (job,) = loaded(WORKFLOW)["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == supported
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


def test_every_action_is_pinned_by_its_hash() -> None:
    used = re.findall(r"uses: (\S+)(?: # v[\d.]+)?$", WORKFLOW.read_text(), re.MULTILINE)
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in used), used


@pytest.mark.parametrize(
    "command", [["actionlint"], ["zizmor", "--offline", "--no-progress", "--persona=pedantic"]]
)
def test_linters_of_workflows_find_nothing(command: list[str]) -> None:
    program = Path(sys.executable).parent / command[0]
    done = subprocess.run(
        [program, *command[1:], WORKFLOW], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_form_asks_for_something_and_names_pages_that_there_are() -> None:
    assert [form.stem for form in FORMS] == ["bug", "config", "idea"]
    for form in FORMS[:1] + FORMS[2:]:
        fields = [each for each in loaded(form)["body"] if each["type"] != "markdown"]
        assert all(each["attributes"]["label"] for each in fields)
        assert any(each.get("validations", {}).get("required") for each in fields)
        for page in re.findall(r"\.\./blob/main/([\w/.-]+)", form.read_text()):
            assert (ROOT / page).is_file(), page


def test_the_hook_before_a_commit_runs_what_make_check_runs() -> None:
    (repository,) = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
    (hook,) = repository["hooks"]
    assert (hook["entry"], hook["pass_filenames"]) == ("make check", False)
