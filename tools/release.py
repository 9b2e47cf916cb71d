"""`make release`: builds the files of a release, checks them, and says what to upload where.

It uploads nothing.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

from storekeeper import __version__
from tools.build_hook import found_commit

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"

UPLOADS = f"""
Nothing is uploaded. To release {__version__}:

1. Tag what you built: git tag --sign v{__version__} && git push origin v{__version__}
2. Release page of the tag: all files of dist/; its text is RELEASE_NOTES.md.
3. Package index, only if you own its project storekeeper: the wheel and the .tar.gz. If you do not,
   never tell people to install it by its name: that would fetch another project's package.
4. Image registry of your own: docker build --tag storekeeper:{__version__} . and push that.
"""


def run(*command: str | Path) -> None:
    """Run a command; raises CalledProcessError if it fails."""
    subprocess.run(command, cwd=ROOT, check=True)


def problems() -> list[str]:
    """Return the reasons why this checkout cannot be released."""
    changes = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = ["there are changes that are not committed"] if changes.stdout else []
    newest = re.search(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if not newest or not re.fullmatch(
        rf"{re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)", newest[1]
    ):
        found.append(f"CHANGELOG.md does not begin with {__version__} and the day of its release")
    return found


def notes(changelog: str, version: str, commit: str) -> str:
    """Return the notes of a release: what is new, and how to check and install the files."""
    _, _, after = changelog.partition(f"## {version} (")
    day, _, rest = after.partition(")\n")
    news = re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not news:
        raise ValueError(f"CHANGELOG.md says nothing of {version}")
    return f"""# Storekeeper {version}

Of {day}, from commit {commit}. It needs Python 3.11 or later, on Linux or macOS.

Check the files, and install the command for one user:

    sha256sum --check SHA256SUMS
    pipx install './storekeeper-{version}-py3-none-any.whl[excel,postgres]'

docs/installing.md in the sdist says how to run it as a service, and how to upgrade one.
storekeeper-sbom.json lists what is in it.

## What is new

{news}
"""


def main() -> int:
    """Build and check; return 1 if this is only a trial."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(Path(sys.executable).with_name("hatchling"), "build", "-d", DIST)
    run(sys.executable, "-m", "tools.sbom", DIST / "storekeeper-sbom.json")
    commit = found_commit(ROOT) or "unknown"
    text = notes((ROOT / "CHANGELOG.md").read_text(), __version__, commit)
    (DIST / "RELEASE_NOTES.md").write_text(text)
    sums = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        for file in sorted(DIST.iterdir())
    ]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    pytest = ("pytest", "--quiet", "--no-header", "-m", "")
    run(sys.executable, "-m", *pytest, "tests/project/test_package.py")
    print(*sorted(file.relative_to(ROOT) for file in DIST.iterdir()), sep="\n")
    print(UPLOADS)
    found = problems()
    for problem in found:
        print(f"This is a trial, not a release: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
