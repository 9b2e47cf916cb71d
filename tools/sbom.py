"""Writes the bill of materials of the run-time packages as CycloneDX 1.6 JSON (`make sbom`),
reproducibly.

    python -m tools.sbom FILE

The packages are those of the run-time lock. Licences come from the metadata of the installed
packages, so a package that this platform does not need has none.
"""

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import storekeeper
from tools import lock

_MAX_NAME_LENGTH = 60
"""Characters of a `License` field that has a name; a longer field has the text of the licence."""


def licences(name: str) -> list[dict[str, Any]]:
    """Return the licences of a package in CycloneDX's form; [] if it is not installed."""
    try:
        fields: Any = metadata.metadata(name)  # a Message; its type here has no `get`
    except metadata.PackageNotFoundError:
        return []
    if expression := fields.get("License-Expression"):
        return [{"expression": expression}]
    names = [
        each.rpartition(" :: ")[2]
        for each in fields.get_all("Classifier", [])
        if each.startswith("License ::")
    ]
    licence = fields.get("License", "")
    if not names and licence and "\n" not in licence and len(licence) <= _MAX_NAME_LENGTH:
        names = [licence]
    return [{"license": {"name": each}} for each in sorted(set(names))]


def component(pinned: lock.Pinned) -> dict[str, Any]:
    """Return the entry of a package of the lock, with the hash of each file that pip may
    install."""
    purl = f"pkg:pypi/{pinned.name}@{pinned.version}"
    described = {
        "type": "library",
        "bom-ref": purl,
        "name": pinned.name,
        "version": pinned.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": each} for each in pinned.hashes],
    }
    found = licences(pinned.name)
    return described | {"licenses": found} if found else described


def bill() -> dict[str, Any]:
    """Return the whole document."""
    version = storekeeper.__version__
    project = re.search(
        r'^license = "(.+)"$', (lock.ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
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
