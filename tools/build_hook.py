"""What a build of the wheel or the sdist finds out about its source: the commit and the address.

Hatchling calls it. `storekeeper --version` shows the commit; the metadata have the address if the
source was cloned from a public one, so that a fork names its own.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

COMMIT = "src/storekeeper/commit.txt"


class CommitHook(BuildHookInterface[Any]):
    """Adds the file with the commit; an sdist has it already."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file to what is built, but not to an editable installation, which changes."""
        commit = os.environ.get("SOURCE_COMMIT") or found_commit(Path(self.root))
        if version == "editable" or not commit or (Path(self.root) / COMMIT).exists():
            return
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name, "commit.txt")
        file.write_text(f"{commit}\n")
        name = COMMIT if self.target_name == "sdist" else COMMIT.removeprefix("src/")
        build_data["force_include"][str(file)] = name


class AddressHook(MetadataHookInterface):
    """Adds the addresses of the project."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them to the metadata, if there are any."""
        if address := found_address(Path(self.root)):
            metadata["urls"] = {
                "Repository": address,
                "Documentation": f"{address}/blob/main/docs/README.md",
                "Changelog": f"{address}/blob/main/CHANGELOG.md",
                "Issues": f"{address}/issues",
            }


def found_commit(root: Path) -> str:
    """Return the commit of a clone, "" if it is not one; `-dirty` says that files differ."""
    if said(root, "rev-parse", "--show-toplevel") != str(root.resolve()):
        return ""  # perhaps an sdist that was unpacked in a repository of another project
    return said(root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def found_address(root: Path) -> str:
    """Return the address that a clone was made from, "" if browsers cannot open it."""
    if said(root, "rev-parse", "--show-toplevel") != str(root.resolve()):
        return ""
    origin = said(root, "config", "--get", "remote.origin.url").removesuffix(".git")
    if shell := re.fullmatch(r"git@([\w.-]+):(.+)", origin):
        return f"https://{shell[1]}/{shell[2]}"
    return origin if re.fullmatch(r"https://[\w.-]+/[\w./-]+", origin) else ""


def said(root: Path, *command: str) -> str:
    """Return what git says, "" if it cannot."""
    try:
        done = subprocess.run(
            ["git", *command], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
