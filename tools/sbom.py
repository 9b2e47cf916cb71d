"""Writes the bill of materials of what runs, as CycloneDX 1.6 JSON (`make sbom`): the same lock, the same bytes.

    python tools/sbom.py FILE

It is made of the run-time lock. Licences are what the installed packages say of themselves; one that this platform
does not need, and so has not installed, goes without.
"""

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import lock

import storekeeper

_LONGEST = 60
"""A longer `License` field is no name but the whole text."""


def licences(name: str) -> list[dict[str, Any]]:
    """Give what a package says of its licence, in CycloneDX's words; nothing if it says nothing, or is not here."""
    try:
        told = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    if expression := told.get("License-Expression"):
        return [{"expression": expression}]
    names = [each.rpartition(" :: ")[2] for each in told.get_all("Classifier", []) if each.startswith("License ::")]
    said = told.get("License", "")
    if not names and said and "\n" not in said and len(said) <= _LONGEST:
        names = [said]
    return [{"license": {"name": each}} for each in sorted(set(names))]


def component(pinned: lock.Pinned) -> dict[str, Any]:
    """Describe a package of the lock; the hashes are of every file that it may be installed from."""
    purl = f"pkg:pypi/{pinned.name}@{pinned.version}"
    described = {
        "type": "library",
        "bom-ref": purl,
        "name": pinned.name,
        "version": pinned.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": each} for each in pinned.hashes],
    }
    return described | ({"licenses": found} if (found := licences(pinned.name)) else {})


def bill() -> dict[str, Any]:
    """Give the whole document."""
    version = storekeeper.__version__
    project = re.search(r'^license = "(.+)"$', (lock.ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert project
    main = {
        "type": "application",
        "bom-ref": "storekeeper",
        "name": "storekeeper",
        "version": version,
        "purl": f"pkg:pypi/storekeeper@{version}",
        "licenses": [{"expression": project[1]}],
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": main},
        "components": [component(pinned) for pinned in lock.read()],
    }


def main() -> None:
    """Write the file."""
    Path(sys.argv[1]).write_text(json.dumps(bill(), indent=2) + "\n")


if __name__ == "__main__":
    main()
