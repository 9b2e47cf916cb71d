"""What came of a run, told to people and to machines; this package, and Rich for the table."""

import io
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from storeapi_check.client import MAX_EXCERPT_BYTES
from storeapi_check.service import Result

SIGNS = {"passed": "[green]✓[/]", "failed": "[red]✗[/]", "skipped": "[dim]-[/]"}


@dataclass(frozen=True, slots=True)
class Report:
    """A run: `mode` is how the service tells of validation errors, `added` how many stores it
    has more now."""

    url: str
    mode: str
    results: list[Result]
    added: int
    seconds: float

    @property
    def failed(self) -> list[Result]:
        """The rules that are broken."""
        return [result for result in self.results if result.state == "failed"]

    @property
    def conforms(self) -> bool:
        """Whether no rule is broken."""
        return not self.failed

    @property
    def counts(self) -> dict[str, int]:
        """How many passed, failed and were skipped."""
        return {state: sum(result.state == state for result in self.results) for state in SIGNS}


def as_json(report: Report) -> str:
    """Return the report as one JSON document, in which nothing to say is null."""
    checks = []
    for result in report.results:
        rule, (request, response) = result.rule, _shown(result)
        check = {
            "name": rule.name,
            "sentence": rule.sentence,
            "scope": rule.scope,
            "result": result.state,
        }
        check |= {"note": result.note, "request": request, "response": response}
        checks.append({name: text or None for name, text in check.items()})
    head = {name: getattr(report, name) for name in ("url", "conforms", "mode", "counts", "added")}
    return json.dumps(head | {"seconds": round(report.seconds, 3), "checks": checks}, indent=2)


def as_text(report: Report) -> str:
    """Return the report for people, as wide and coloured as standard output can have it."""
    from rich.console import Console  # noqa: PLC0415  # only people need it: machines start faster without
    from rich.table import Table  # noqa: PLC0415  # as above

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="backslashreplace"
        )  # what responses say is shown on any terminal
    console = Console(highlight=False)
    table = partial(Table, box=None, padding=(0, 1), header_style="bold")
    checks = table("", "check", "the contract's sentence, and what of it is looked at")
    for row in _check_rows(report):
        checks.add_row(*row)
    with console.capture() as text:
        console.print(checks)
        for result in report.failed:
            console.print(f"\n[red]✗ {result.rule.name}[/]: {_marked(result.note)}")
            console.print(
                f"  [dim]{_marked(f'{result.rule.sentence} {result.rule.scope}'.strip())}[/]"
            )
            console.print(
                _marked(re.sub("(?m)^(?=.)", "    ", "\n\n".join(_shown(result)))), soft_wrap=True
            )
        console.print()
        console.print(_summary(report), soft_wrap=True)
    return text.get()


def _check_rows(report: Report) -> Iterable[tuple[str, ...]]:
    """Yield a row for each check; a sentence that several share stands at the first."""
    for result, before in zip(report.results, [None, *report.results], strict=False):
        sentence = (
            "" if before and before.rule.sentence == result.rule.sentence else result.rule.sentence
        )
        scope = f"skipped: {result.note}" if result.state == "skipped" else result.rule.scope
        dash = " \u2013 " if sentence and scope else ""
        yield (
            SIGNS[result.state],
            result.rule.name,
            f"{_marked(sentence)}{dash}[dim]{_marked(scope)}[/]",
        )


def _marked(text: str) -> str:
    from rich.markup import escape  # noqa: PLC0415  # as above

    return escape(printable(text))


def _summary(report: Report) -> str:
    verdict = "[green]conforms[/]" if report.conforms else "[red]violates the contract[/]"
    counts = ", ".join(
        f"{count} {state}" for state, count in report.counts.items() if count or state == "failed"
    )
    added = "1 store" if report.added == 1 else f"{report.added or 'no'} stores"
    mode = "errors not looked at" if report.mode == "unknown" else f"{report.mode} errors"
    return (
        f"{_marked(report.url)} {verdict}: {counts} ({mode}, {added} added, {report.seconds:.1f} s)"
    )


def _shown(result: Result) -> tuple[str, str]:
    """Return the request and the response that show it, nothing where none does."""
    if not (exchange := result.exchange):
        return "", ""
    request = "\n".join(
        exchange.head if exchange.body is None else [*exchange.head, "", _body(exchange.body)]
    )
    if not exchange.status:
        return request, "(no response)"
    head = f"{exchange.version} {exchange.status} {exchange.phrase}".rstrip()
    rest = exchange.length - len(exchange.excerpt)
    more = f" … and {rest} bytes more" if rest > 0 else ""
    fields = [f"{name}: {value}" for name, value in exchange.headers]
    return request, printable("\n".join([head, *fields, "", _body(exchange.excerpt) + more]))


def _body(content: bytes) -> str:
    return printable(content[:MAX_EXCERPT_BYTES].decode("utf-8", "backslashreplace"))


def printable(text: str) -> str:
    """Return text that a terminal shows and does not obey: control characters and lone
    surrogates written out."""
    return "".join(
        sign if sign in "\n " or sign.isprintable() else ascii(sign)[1:-1] for sign in text
    )


def complain(text: str) -> None:
    """Write one line on standard error."""
    sys.stderr.write(printable(text).replace("\n", " ") + "\n")
