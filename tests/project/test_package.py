"""The wheel and the sdist: what is in them, and that the wheel works where the checkout is not."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from storekeeper import __version__
from tests import ROOT
from tests.harness.machine import need
from tests.harness.pages import PAGES
from tests.harness.process import environment, serving
from tools.build_hook import found_address, found_commit
from tools.release import notes

NAME = f"storekeeper-{__version__}"
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = "[excel,postgres]"
INSTALL_TIMEOUT = 240.0
BIN = Path(sys.executable).parent

METADATA = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
COMMIT = "storekeeper/commit.txt"
NOT_IN_SDIST = (".ci/",)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [BIN / "hatchling", "build", "-d", folder], cwd=ROOT, capture_output=True, check=True
    )
    return folder


@pytest.fixture
def wheel(built: Path) -> Path:
    return built / f"{NAME}-py3-none-any.whl"


def tracked(*folders: str) -> set[str]:
    """Return the files of this checkout that git knows, and those that it would add."""
    if not (ROOT / ".git").exists():
        need("git", "this is not a git repository")
    command = [
        "git",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        *folders,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


def test_the_wheel_has_each_file_of_both_packages_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    ours = {name.removeprefix("src/") for name in tracked("src")}
    assert ours >= {
        "storekeeper/console/index.html",
        "storekeeper/api/pages/openapi.json",
        "storekeeper/py.typed",
    }
    assert names == ours | {COMMIT} | {f"{NAME}.dist-info/{name}" for name in METADATA}


def test_the_version_of_a_wheel_says_the_commit_that_was_built(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    commit = (tmp_path / COMMIT).read_text().strip()
    assert commit == found_commit(ROOT)
    assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?", commit)
    env = {"PYTHONPATH": str(tmp_path)}
    said = run([sys.executable, "-m", "storekeeper", "--version"], tmp_path, env)
    assert said == f"storekeeper {__version__} (commit {commit})\n"


ORIGINS = {
    "https://git.example/team/storekeeper.git": "https://git.example/team/storekeeper",
    "git@git.example:team/storekeeper.git": "https://git.example/team/storekeeper",
    "/srv/storekeeper.git": "",
    "https://user:secret@git.example/team/storekeeper.git": "",
}


def test_the_metadata_have_the_public_address_that_the_source_was_cloned_from(
    tmp_path: Path,
) -> None:
    git = ["git", "-C", str(tmp_path)]
    assert (found_commit(tmp_path), found_address(tmp_path)) == ("", "")
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "remote", "add", "origin", "x"], check=True)
    for origin, address in ORIGINS.items():
        subprocess.run([*git, "remote", "set-url", "origin", origin], check=True)
        assert found_address(tmp_path) == address
    subfolder = tmp_path / "unpacked"
    subfolder.mkdir()
    assert (found_commit(subfolder), found_address(subfolder)) == ("", "")


def test_the_sdist_has_what_builds_tests_and_explains_it(built: Path) -> None:
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        names = {member.name.removeprefix(f"{NAME}/") for member in archive if member.isfile()}
    mine = {name for name in tracked() if not name.startswith(NOT_IN_SDIST)}
    assert names - {"PKG-INFO", f"src/{COMMIT}"} == mine


def test_the_notes_of_a_release_have_what_is_new_in_it_and_nothing_older() -> None:
    newest = "## 0.2.0 (2027-01-02)\n\n- New.\n\n### More\n\n- Too.\n"
    text = f"# Changelog\n\n{newest}\n## 0.1.0 (2026-11-27)\n\n- Old.\n"
    made = notes(text, "0.2.0", "abc")
    assert made.startswith("# Storekeeper 0.2.0\n\nOf 2027-01-02, from commit abc.")
    assert made.endswith("## What is new\n\n- New.\n\n### More\n\n- Too.\n")
    with pytest.raises(ValueError, match="says nothing"):
        notes(text, "0.3.0", "abc")
    assert "\n- **" in notes((ROOT / "CHANGELOG.md").read_text(), __version__, "abc")


def test_no_page_says_to_install_it_by_its_name_alone() -> None:
    """Another project may have that name in a package index."""
    for page in PAGES:
        for line in page.read_text().splitlines():
            assert not any(
                f"{tool} storekeeper" in line for tool in ("pip install", "pipx install", "uvx")
            ), page.name


def interpreter(version: str) -> str:
    """Return a Python of that version."""
    found = shutil.which(f"python{version}")
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in [
        *sorted(map(str, folder.glob(f"{version}.*/bin/python"))),
        *([found] if found else []),
    ]:
        said = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False)
        if said.stdout.startswith(f"Python {version}."):
            break
    else:
        need(f"python{version}", f"there is no Python {version}")
    return candidate


def run(command: Sequence[str | Path], folder: Path, env: dict[str, str] | None = None) -> str:
    """Run a command outside the checkout; return what it printed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def assert_works(command: Sequence[str], folder: Path, env: dict[str, str] | None = None) -> None:
    """Do with an installed command what its users do."""
    said = run([*command, "--version"], folder, env)
    assert said == f"storekeeper {__version__} (commit {found_commit(ROOT)})\n"
    database = ("--database", f"sqlite:///{folder}/stores.db")
    with serving(folder, "--examples", program=command, env=env) as service:
        for path, kind in (
            ("/console/", "text/html"),
            ("/docs", "text/html"),
            ("/openapi.json", "application/json"),
        ):
            response = service.request("GET", path, headers={"accept": "text/html, */*"})
            assert (response.status, response.headers["content-type"].split(";")[0]) == (
                200,
                kind,
            ), path
        page = service.request("GET", "/console/").body.decode()
        scripts = [part.split('"')[0] for part in page.split('src="')[1:]]
        assert scripts
        for script in scripts:
            assert service.request("GET", f"/console/{script}").status == 200, script
        url = f"http://127.0.0.1:{service.port}"
        run([*command, "ready", url], folder, env)
        assert "0 fail" in run([*command, "check", "--yes", url], folder, env).lower()
        assert "verified" in run([*command, "backup", "all.db", *database], folder, env)
    run([*command, "export", "stores.csv", *database], folder, env)
    assert (folder / "stores.csv").read_text().startswith("id,name,address")
    (folder / "more.csv").write_text("name,address\nFrom a file,\n")
    run([*command, "import", "more.csv", "--add", *database], folder, env)
    assert "is valid" in run([*command, "verify", "all.db"], folder, env)


@pytest.mark.thorough  # installs all dependencies, from a registry
@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_works_in_an_empty_environment(wheel: Path, version: str, tmp_path: Path) -> None:
    run([interpreter(version), "-m", "venv", tmp_path / "venv"], tmp_path)
    pip = [
        f"{tmp_path}/venv/bin/python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
    ]
    run([*pip, "--require-hashes", "-r", ROOT / "requirements/run.txt"], tmp_path)
    run([*pip, "--no-deps", wheel], tmp_path)
    assert_works([str(tmp_path / "venv/bin/storekeeper")], tmp_path)


@pytest.mark.thorough  # installs all dependencies, from a registry
def test_pipx_installs_the_wheel(wheel: Path, tmp_path: Path) -> None:
    env = {
        "PIPX_HOME": f"{tmp_path}/pipx",
        "PIPX_BIN_DIR": f"{tmp_path}/bin",
        "PIPX_MAN_DIR": f"{tmp_path}/man",
    }
    run(
        [BIN / "pipx", "install", "--python", interpreter("3.12"), f"{wheel}{EXTRAS}"],
        tmp_path,
        env,
    )
    assert_works([f"{tmp_path}/bin/storekeeper"], tmp_path)


@pytest.mark.thorough  # installs all dependencies, from a registry
def test_uvx_runs_the_wheel(wheel: Path, tmp_path: Path) -> None:
    env = {"UV_CACHE_DIR": f"{tmp_path}/cache", "UV_PYTHON_DOWNLOADS": "never"}
    source = ["--from", f"{wheel}{EXTRAS}"]
    command = [str(BIN / "uvx"), "--quiet", "--python", interpreter("3.12"), *source, "storekeeper"]
    assert_works(command, tmp_path, env)
