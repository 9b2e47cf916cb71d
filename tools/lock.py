"""Reads a lock file of hash-pinned requirements, as written by `make lock`."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUN = ROOT / "requirements" / "run.txt"
"""The packages that the service uses at run time, with every extra."""

_PINNED = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9-]*)(?:\[[a-z0-9,-]+\])?==(?P<version>[^\s;]+)"
    r"(?: ; (?P<marker>.*?))?(?P<hashes>(?: --hash=\S+)+)"
)


@dataclass(frozen=True)
class Pinned:
    """One package of the lock; `hashes` has the SHA-256 of each file that pip may install."""

    name: str
    version: str
    marker: str | None
    hashes: list[str]


def read(path: Path = RUN) -> list[Pinned]:
    """Return the packages of a lock file; raises ValueError for a line that pins no package."""
    lines = re.sub(r"\\\n\s*", "", path.read_text()).splitlines()
    return [_pinned(line) for line in lines if line and not line.startswith("#")]


def _pinned(line: str) -> Pinned:
    found = _PINNED.fullmatch(line)
    if found is None:
        raise ValueError(f"not a pinned requirement: {line}")
    hashes = sorted(text.removeprefix("--hash=sha256:") for text in found["hashes"].split())
    return Pinned(found["name"], found["version"], found["marker"], hashes)
