"""What every command line has: help, messages of one line, standard streams, interruptions,
progress."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import storekeeper
from storekeeper import cli
from storekeeper.settings import VARIABLES, variable
from tests.harness.command import run
from tests.harness.databases import Sqlite
from tests.harness.process import COMMAND, Ended, refused, start
from tests.harness.process import run as run_process
from tests.harness.stores import an_export, without_versions
from tests.harness.transfers import TRICKY, command, content, fill_with

FULL = Path("/dev/full")


@pytest.mark.parametrize(
    "args", [[], ["--help"], ["serve", "--help"], ["import", "--help"], ["epoch", "--help"]]
)
def test_the_help(args: list[str]) -> None:
    done = run(*args)
    assert "Usage: storekeeper" in (done.stdout + done.stderr).decode()
    assert done.returncode == (0 if args else 2)
    assert "Traceback" not in done.stderr.decode()


@pytest.mark.parametrize("args", [[], ["token"]])
def test_a_list_of_commands_cuts_no_sentence_off(args: list[str]) -> None:
    commands = run(*args, "--help").stdout.decode().partition("\nCommands:\n")[2]
    assert len(commands.splitlines()) >= 3
    assert "..." not in commands


def _takers(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[list[str], str]]:
    """Yield each command line that ends in an empty value, and what it is the value of."""
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from _takers(each, (*path, name))
            continue
        before: list[str] = []
        for parameter in each.params:
            if parameter.param_type_name == "argument":
                subject = (parameter.metavar or parameter.name).strip("[]")
                yield [*path, name, *before, ""], subject
                before.append("x")
            elif not parameter.is_flag:
                yield [*path, name, f"{parameter.opts[0]}="], parameter.opts[0]


def test_no_command_takes_an_empty_value_for_none(tmp_path: Path) -> None:
    takers = list(_takers(get_command(cli.app)))
    assert len(takers) > 60
    database = {"STOREKEEPER_DATABASE": f"sqlite:///{tmp_path}/stores.db"}
    for args, subject in [*takers, (["serve", "--uds", ""], "--uds")]:
        done = run(*args, env=database)
        said = f"storekeeper: {subject}: is empty: give it a value, or leave it out\n"
        assert (done.returncode, done.said) == (2, said), args
    assert not list(tmp_path.iterdir())


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the variable of a file that hands on one that is not set."""

    def given() -> dict[str, Any]:
        serve = get_command(cli.app).commands["serve"]  # type: ignore[attr-defined]  # it is a group
        return dict(serve.make_context("serve", []).params)

    unset = given()
    assert "host" in unset
    for known in set(VARIABLES.values()) - {variable("database")}:
        monkeypatch.setenv(known, "")
    assert given() == unset


@pytest.mark.parametrize("program", [COMMAND, [sys.executable, "-m", "storekeeper"]])
def test_the_version(program: list[str]) -> None:
    done = subprocess.run([*program, "--version"], capture_output=True, check=True)
    assert (done.stdout.decode(), done.stderr) == (f"storekeeper {storekeeper.__version__}\n", b"")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nonsense"], "No such command 'nonsense'; see storekeeper --help"),
        (["--nonsense"], "No such option: --nonsense"),
        (["token"], "Missing command; see storekeeper token --help"),
        (["import"], "Missing argument"),
        (["import"], "see storekeeper import --help"),
        (["export", "a.csv", "b.csv"], "unexpected extra argument"),
        (["check", "--nonsense"], "No such option: --nonsense; see storekeeper check --help"),
        (
            ["check", "http://127.0.0.1:1", "--timeout", "nan"],
            "--timeout: from 0.1 to 60.0 seconds, not nan",
        ),
        (
            ["copy", "stores.db", "sqlite:///x.db"],
            "source: unknown kind of database 'stores.db'; use",
        ),
        (
            ["copy", "sqlite:////dev/null", "sqlite:"],
            "target: unknown kind of database 'sqlite:'; use",
        ),
        (
            ["copy", "postgresql://me:secret@127.0.0.1:1/x", "sqlite:///x.db"],
            "source postgresql://me@127.0.0.1:1/x: ",
        ),
        (
            ["export", "--database", "postgres"],
            "--database: unknown kind of database 'postgres'; use",
        ),
        (["export", "--database", "sqlite:////nowhere/at/all.db"], "there is no such database"),
        (["changes", "--database", "sqlite:////nowhere/at/all.db"], "there is no such database"),
        (["export", "--database", "sqlite:///%ff.db"], "\\udcff.db' is not UTF-8; use"),
        (["epoch", "--database", "sqlite:////nowhere/at/all.db"], "there is no such database"),
        (
            ["epoch", "--new", "--database", "sqlite:////dev/null"],
            "/dev/null: not a file: name another one",
        ),
        (["epoch", "--now"], "No such option: --now"),
        (
            ["epoch", "postgresql://me:secret/@here/x"],
            "unexpected extra argument(s) (postgresql://***@here/x); see",
        ),
        (["postgresql://me:secret@here/x"], "No such command 'postgresql://***@here/x'; see"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(args: list[str], message: str) -> None:
    lines = refused(run(*args))
    assert len(lines) == 1
    assert message in lines[0]
    assert "secret" not in lines[0]


@pytest.mark.parametrize(("name", "run"), [("--version", run_process), ("openapi", run)])
def test_output_that_cannot_be_written_is_said_in_one_line(
    name: str, run: Callable[..., Ended]
) -> None:
    with FULL.open("wb") as full:
        done = run(name, stdout=full)
    said = "storekeeper: cannot continue: No space left on device\n"
    assert (done.returncode, done.stderr.decode()) == (2, said)


@pytest.mark.parametrize(
    "command",
    [
        "--version",
        "--help",
        "changes --help",
        "openapi",
        "changes",
        "changes --follow",
        "changes --cursor-file {folder}/cursor",
        "token list",
        "epoch",
        "export",
        "export --format xlsx",
        "export -",
    ],
)
def test_a_command_that_prints_ends_silently_when_nobody_reads_on(
    tmp_path: Path, command: str
) -> None:
    """As before `head`: its output is a pipe whose reader has gone."""
    database = Sqlite(tmp_path)
    fill_with(database, TRICKY[:6] * 2)
    words = command.format(folder=tmp_path).split()
    if not {"--version", "--help", "openapi"} & set(words):
        words += ["--database", database.url]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = run(*words, stdout=pipe)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not (tmp_path / "cursor").exists()


def test_a_pipe_into_head_shows_no_error(tmp_path: Path) -> None:
    database = Sqlite(tmp_path)
    fill_with(database, TRICKY * 500)
    for name in ("changes", "export", "openapi"):
        option = [] if name == "openapi" else ["--database", database.url]
        program = ["sh", "-c", '"$0" "$@" | head -n 1', *COMMAND, name, *option]
        done = subprocess.run(program, capture_output=True, timeout=60, check=False)
        assert (done.stdout.count(b"\n"), done.stderr) == (1, b""), name


def closed(number: int, *args: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a command without one of its standard streams."""
    program = ["sh", "-c", f'exec "$0" "$@" {number}>&-', *COMMAND, *args]
    return subprocess.run(program, capture_output=True, timeout=60, check=False)


def test_a_standard_stream_that_is_closed_is_no_bug(tmp_path: Path) -> None:
    database = Sqlite(tmp_path)
    fill_with(database, TRICKY)
    assert closed(1, "--version").returncode == 2
    done = closed(1, "export", "--database", database.url)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"storekeeper: cannot write standard output: Bad file descriptor\n"
    assert (
        closed(2, "export", "--database", database.url).stdout == command("export", database).stdout
    )
    assert closed(0, "--version").returncode == 0


def test_a_bug_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def raises() -> bytes:
        raise RuntimeError("something\nunforeseen")

    monkeypatch.setattr("storekeeper.api.routes.docs.encoded_document", raises)
    monkeypatch.setattr(sys, "argv", ["storekeeper", "openapi"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 70
    assert (
        capsys.readouterr().err
        == "storekeeper: bug, please report it: RuntimeError: something unforeseen\n"
    )


def test_a_command_is_interrupted_in_silence_while_its_program_is_read() -> None:
    program = """
import signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "storekeeper.cli":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from storekeeper.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_second_interruption_ends_a_command_without_a_traceback() -> None:
    program = """
import atexit, signal, sys
atexit.register(signal.raise_signal, signal.SIGINT)
from storekeeper.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "--version"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


@pytest.mark.parametrize(
    ("module", "error", "status", "says"),
    [
        (
            "storekeeper.api.routes.docs",
            "MemoryError",
            74,
            "out of memory, or ulimit -v permits too little",
        ),
        (
            "storekeeper.cli",
            "ImportError('x.so: failed to map')",
            2,
            "cannot start: x.so: failed to map",
        ),
    ],
)
def test_a_program_for_which_there_is_not_enough_memory_says_so_in_one_line(
    module: str, error: str, status: int, says: str
) -> None:
    """At the start, or later, when a command needs more of it."""
    program = f"""
import sys

class Failing:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise {error}

sys.meta_path.insert(0, Failing())
from storekeeper.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "openapi"], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.decode()) == (
        status,
        b"",
        f"storekeeper: {says}\n",
    )


def test_what_is_done_is_no_failure_because_nobody_can_be_told(tmp_path: Path) -> None:
    database = Sqlite(tmp_path)
    (tmp_path / "stores.csv").write_text("name,address\nA,\n")
    with FULL.open("wb") as full:
        for args in (
            ["import", "--create", str(tmp_path / "stores.csv")],
            ["export", str(tmp_path / "all.csv")],
        ):
            assert start(*args, "--database", database.url, stderr=full).wait(30) == 0
    assert content(database) == [("A", None)]
    assert without_versions((tmp_path / "all.csv").read_bytes()) == an_export((1, "A"))


def shown_on_a_terminal(*args: str) -> str:
    """Run a command to its end; return the text that its terminal shows."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "wb", buffering=0) as there:
        process = start(*args, stdout=there, stderr=there, env={"TERM": "xterm", "COLUMNS": "100"})
    shown = b""
    with (
        os.fdopen(ours, "rb", buffering=0) as here,
        suppress(OSError),
    ):  # that is how a terminal ends
        while data := here.read(65536):
            shown += data
    assert process.wait(30) == 0
    return re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", shown).decode()


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    file, of = tmp_path / "stores.csv", ("--database", f"sqlite:///{tmp_path}/stores.db")
    rows = "".join(f"Store {number},1 Road\n" for number in range(10_000))
    file.write_text("name,address\n" + rows)
    for name, option, doing, done in (
        ("import", "--create", "Reading", "created as"),
        ("export", "--force", "Exporting", "exported from"),
    ):
        text = shown_on_a_terminal(name, *of, str(file), option)
        assert doing in text
        assert "a second" in text
        assert f"10,000 stores {done}" in text.splitlines()[-1]
