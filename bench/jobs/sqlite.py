"""What peers on SQLite, and peers in Python, have in common."""

import subprocess
from pathlib import Path

import apsw


def check(file: Path) -> str:
    """Return what SQLite's own check says about a file, whose service is stopped."""
    connection = apsw.Connection(str(file))
    try:
        connection.pragma("wal_checkpoint(truncate)")
        said = connection.execute("PRAGMA integrity_check").get
    finally:
        connection.close()
    if said == "ok":
        return "no check of its own, and SQLite's says ok"
    return f"SQLite's check says {said}"


def version_of(programs: Path, package: str) -> str:
    """Return the name and version of a package that is installed in `programs/py`."""
    text = f"import importlib.metadata as m; print('{package}', m.version('{package}'))"
    done = subprocess.run(
        [programs / "py/bin/python", "-c", text], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
