"""The conformance kit holds any service to the API, knowing only its address; it imports nothing but itself."""

import os
import sys
from collections.abc import Callable, Sequence
from json import loads
from pathlib import Path
from typing import Any

from storekeeper.conformance.client import Client, Unreachable
from storekeeper.conformance.report import as_json, as_junit, as_text, complain
from storekeeper.conformance.running import CannotCheck, examine

__all__ = ["CannotCheck", "examine", "run"]
CONFORMS, VIOLATES, CANNOT_CHECK = 0, 1, 2


def run(
    url: str,
    *,
    read_only: bool = False,
    json: bool = False,
    junit: Path | None = None,
    timeout: float = 7.0,
    token: str = "",
    ask: Callable[[int], None] | None = None,
    examples: Sequence[dict[str, Any]] = (),
) -> int:
    """Check the service at `url`, print what came of it and give the exit code.

    Standard output gets the table, or with `json` one JSON document; `junit` gets the XML. `timeout`, in seconds, is
    for one exchange; `token` goes with each. `ask` is called with how many stores will be added at most, unless the
    list is `examples`, and raises if they may not.
    """
    if (path := url.rstrip("/")).endswith("/api/stores"):  # as people copy it
        url = path.removesuffix("/api/stores")

    def announce(most: int) -> None:
        if ask and not _holds_only(Client(url, timeout, token), list(examples)):
            ask(most)
        complain(f"Checking {url}: this adds at most {most} stores, and there is no way to delete one.")

    try:
        if junit:
            _prove_writable(junit)  # not found out after the stores were added
        report = examine(url, read_only=read_only, timeout=timeout, announce=announce, token=token)
        if junit:
            junit.write_bytes(as_junit(report))
    except CannotCheck as error:
        complain(f"storekeeper: cannot check {url}: {error}")
        return CANNOT_CHECK
    except OSError as error:
        complain(
            f"storekeeper: cannot write the results to {junit}: {error.strerror}; --junit takes the path of a file"
        )
        return CANNOT_CHECK
    text = as_json(report) + "\n" if json else as_text(report)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has enough, and the verdict is the same. What is left would fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CONFORMS if report.conforms else VIOLATES


def _prove_writable(path: Path) -> None:
    """OSError unless the file can be written; one that was not there is not there afterwards."""
    path, new = path.resolve(), not path.exists()
    path.open("ab").close()
    if new:
        path.unlink()


def _holds_only(client: Client, stores: list[dict[str, Any]]) -> bool:
    try:
        found = loads(client.exchange("GET", "/api/stores").content)
        return isinstance(found, list) and [{"address": None} | store for store in found] == stores
    except (Unreachable, ValueError, TypeError):
        return False
