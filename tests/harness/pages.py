"""The pages as tests read them: their commands and output, and the shell that runs them in
order."""

import os
import re
import secrets
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
REFERENCE = sorted((ROOT / "docs/reference").glob("*.md"))
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *REFERENCE,
]
ON_A_MACHINE = [
    ROOT / f"docs/{name}.md"
    for name in ("installing", "proxy", "backups", "monitoring", "postgresql")
]
"""The pages whose commands are run one after the other on one machine."""

SERVES = "serves until it is stopped; the test has a service that was started with the same options"
NOT_RUN = {
    "make serve": SERVES + "; `make thorough` runs it, in a clone",
    "make test": "this test is a part of it",
    "make setup": "the test has this checkout; `make thorough` runs it, in a clone",
    ".venv/bin/storekeeper serve --open": SERVES,
    "STOREKEEPER_AUTH=open /opt/storekeeper/current/bin/uvicorn"
    " --factory storekeeper.service:application --port 8098": "a separate test starts and stops it",
}
"""Commands of the pages that are not run in order, each with the reason."""

STEP_TIMEOUT = 30.0
"""Seconds that one command of a page may take on a busy machine."""


_STEP = re.compile(r"^([$#]) ((?:.*\\\n)*.*)\n((?:(?![$#] ).+\n)*)", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A command of a page: who types it (`$` any user, `#` root), and the output that the page
    shows."""

    where: str
    prompt: str
    command: str
    printed: str

    @property
    def typed(self) -> str:
        """The command without the comment after it."""
        return self.command.partition("  #")[0].strip()

    def at(self, port: int) -> "Step":
        """Return the step with the service at a different port of this machine."""
        old, new = "127.0.0.1:8080", f"127.0.0.1:{port}"
        return replace(
            self, command=self.command.replace(old, new), printed=self.printed.replace(old, new)
        )

    def difference(self, status: int, output: str) -> str | None:
        """Return how a run differs from the page; a `…` on the page stands for anything."""
        expected = ".*".join(re.escape(part) for part in self.printed.strip().split("…"))
        if self.printed and re.fullmatch(expected, output.strip(), re.DOTALL):
            return None
        if not self.printed and status == 0:
            return None
        found = f"status {status}, printed:\n{output}\nnot:\n{self.printed}"
        return f"{self.where}: {self.command}\n{found}"


def blocks(page: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield each fenced block: the line of its fence, its language, its lines."""
    begin, language, lines = 0, "", list[str]()
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
            continue
        if begin:
            yield begin, language, lines
        begin, language, lines = (0 if begin else number), line[3:], []


def steps(page: Path, section: str = "") -> list[Step]:
    """Return the commands of all `console` blocks of a page, or of one of its sections, in
    order."""
    found: list[Step] = []
    text = page.read_text()
    first, last = 0, text.count("\n")
    if section:
        before, _, rest = text.partition(f"\n## {section}\n")
        first = before.count("\n")
        last = first + rest.partition("\n## ")[0].count("\n") + 2
    for begin, language, lines in blocks(page):
        if language == "console" and first <= begin <= last:
            text = "\n".join(lines) + "\n"
            found += [Step(f"{page.name}:{begin}", *match) for match in _STEP.findall(text)]
    return found


class Shell:
    """A shell that keeps its folder and its variables from one command to the next, as a reader's
    does."""

    def __init__(
        self, argv: Sequence[str], folder: Path, env: dict[str, str], files: Sequence[int] = ()
    ) -> None:
        self.process = subprocess.Popen(
            argv,
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=files,
        )

    def run(self, command: str, timeout: float = STEP_TIMEOUT) -> tuple[int, str]:
        """Run one command; return its status and everything that it printed; fail after `timeout`
        seconds."""
        assert self.process.stdin
        end = secrets.token_hex(8)
        self.process.stdin.write(f'{{ {command}\n}} </dev/null 2>&1; echo "{end} $?"\n'.encode())
        self.process.stdin.flush()
        output = ""
        deadline = time.monotonic() + timeout
        while not (found := re.search(rf"{end} (\d+)\n", output)):
            output += self._read(
                deadline, f"{command} takes longer than {timeout} s, or ended the shell:\n{output}"
            )
        return int(found[1]), output[: found.start()].replace("\r\n", "\n")

    def _read(self, deadline: float, complaint: str) -> str:
        assert self.process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(max(0.0, deadline - time.monotonic()))
        data = os.read(self.process.stdout.fileno(), 65536) if ready else b""
        assert data, complaint
        return data.decode(errors="replace")

    def close(self) -> None:
        """End the shell and everything that it started in its session."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@contextmanager
def follower(folder: Path, **env: str) -> Iterator[Shell]:
    """Open a shell in a folder that has this checkout's `.venv`."""
    if not (folder / ".venv").exists():
        (folder / ".venv").symlink_to(ROOT / ".venv")
    mine = {
        name: value for name, value in os.environ.items() if not name.startswith("STOREKEEPER_")
    }
    shell = Shell(["bash"], folder, mine | env)
    try:
        yield shell
    finally:
        shell.close()
