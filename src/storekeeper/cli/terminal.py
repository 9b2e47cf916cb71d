"""What a command prints, its standard streams, and Ctrl-C."""

import os
import pwd
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

from storekeeper.domain.errors import CannotStart

STANDARD_STREAM = Path("-")
"""Standard input or output."""

_ESCAPED = "backslashreplace"
"""What becomes of letters that the encoding of standard output does not have."""

PRINT_ROWS = 10_000
"""Rows after which the progress may be shown again."""

PRINT_INTERVAL = 10.0
"""Seconds between two lines about the progress, where there is no terminal."""


def print_line(message: str) -> None:
    """Print a note as one line on stderr, without the line breaks and control characters in its
    names."""
    # The message may say that the work is done: a failure to print it must not look like a failure
    # of the work.
    with suppress(OSError):
        print(_one_line(message), file=sys.stderr)


def print_lines(notes: Iterable[str]) -> None:
    """Print notes, each as one line on stderr."""
    for note in notes:
        print_line(note)


def print_result(message: str) -> None:
    """Print what a command did as one line on stdout; on stderr if that cannot be written, for the
    same reason as a note."""
    try:
        print_now(_one_line(message))
    except BrokenPipeError:
        pass  # nothing reads it any more
    except OSError:
        print_line(message)


def _one_line(message: str) -> str:
    return "".join(map(_printable, " ".join(message.split())))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


_LOGIN = Path("/proc/self/loginuid")
_NOT_LOGGED_IN = 2**32 - 1
"""The number that Linux gives a process that no login began."""


def system_user() -> str:
    """Return the name of the system's user who logged in and runs the command, also through
    `sudo` and `runuser`; their number if they have no name."""
    number = _login()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # as in a container that is run as any number
        return str(number)


def _login() -> int:
    """Return the number of the user who logged in, or of the user that runs the command."""
    try:
        number = int(_LOGIN.read_text())
    except (OSError, ValueError):  # macOS, or a Linux without an audit
        return os.getuid()
    return os.getuid() if number == _NOT_LOGGED_IN else number


def print_now(result: str) -> None:
    """Print a result on standard output. Raises OSError."""
    # sys.stdout would keep what it cannot write, and fail again at the end of the process.
    encoding = sys.stdout.encoding
    with open(sys.stdout.fileno(), "w", closefd=False, encoding=encoding, errors=_ESCAPED) as out:
        print(result, file=out)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows on standard output, each column as wide as its longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip())


def is_standard_output(file: Path) -> bool:
    """Return whether a file is this command's standard output, under whatever name."""
    if file == STANDARD_STREAM:
        return True
    with suppress(OSError):
        return os.path.samestat(file.stat(), os.fstat(sys.stdout.fileno()))
    return False


def is_output_unread() -> bool:
    """Return whether the reader of standard output has gone, as `head` does once it has enough."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


def open_standard_streams() -> None:
    """Replace closed standard streams, so that no other file gets their numbers.

    A write to a closed standard output fails; a write to a closed standard error is lost.
    """
    for number, name, access, mode in (
        (0, "stdin", os.O_RDONLY, "r"),
        (1, "stdout", os.O_RDONLY, "w"),
        (2, "stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            os.open(os.devnull, access)  # takes the lowest number that is free
            os.set_inheritable(number, True)
            stream = open(number, mode, closefd=False)  # noqa: SIM115 - stays open
            setattr(sys, name, stream)


def counted(count: int, noun: str) -> str:
    """Return a number of things, as in `1 store` and `2,000 stores`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def on_terminal() -> bool:
    """Return whether there is a user to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(intent: str, otherwise: str) -> None:
    """Ask on a terminal whether the command may do what it is about to do. Raises CannotStart if
    not, or if there is no terminal.
    """
    if not on_terminal():
        raise CannotStart(f"{intent}: repeat with --yes to allow that; {otherwise}")
    print(f"{intent[0].upper()}{intent[1:]}. Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CannotStart(otherwise)


@contextmanager
def saying_if_interrupted(nothing: str) -> Iterator[None]:
    """Say that nothing was done if Ctrl-C ends the command."""
    try:
        yield
    except KeyboardInterrupt:
        print_line(f"Interrupted: {nothing}")
        raise


def ignore_interrupts() -> None:
    """Ignore Ctrl-C from now on: the command is about to commit, so it must end and report."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def progress(title: str, unit: str = "stores") -> Iterator[Callable[..., None]]:
    """Show how many rows are done, how many there are if that is known, the rate, and the time
    left.

    On a terminal, one line is written again and again; anything else gets a line now and then.
    """
    is_terminal = sys.stderr.isatty()
    write = _write_again if is_terminal else print_line
    began = printed = monotonic()

    def show(count: int, total: int | None = None) -> None:
        nonlocal printed
        if count % PRINT_ROWS or (not is_terminal and monotonic() - printed < PRINT_INTERVAL):
            return
        printed = monotonic()
        rate = int(count / max(printed - began, 1e-6))
        line = f"{title}: {count:,} {unit}, {rate:,} a second"
        if total and rate:
            line += f", about {(total - count) // rate} s left"
        write(line)

    if is_terminal:
        _write_again(f"{title} …")
    try:
        yield show
    finally:
        if is_terminal:
            _write_again("")


def _write_again(line: str) -> None:
    with suppress(OSError):
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)
