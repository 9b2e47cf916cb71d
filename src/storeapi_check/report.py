"""The report of a run, as a table for people or as JSON for programs."""

import io
import json
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from storeapi_check.client import MAX_EXCERPT_BYTES, Exchange
from storeapi_check.service import Result

SIGNS = {"passed": "[green]✓[/]", "failed": "[red]✗[/]", "skipped": "[dim]-[/]"}


@dataclass(frozen=True, slots=True)
class Report:
    """A run: `mode` is how the service reports validation errors, `added` how many stores the
    run added."""

    url: str
    mode: str
    results: list[Result]
    added: int
    seconds: float

    @property
    def failed(self) -> list[Result]:
        """The results of the broken rules."""
        return [result for result in self.results if result.state == "failed"]

    @property
    def conforms(self) -> bool:
        """Whether no rule is broken."""
        return not self.failed

    @property
    def counts(self) -> dict[str, int]:
        """The number of checks that passed, failed and were skipped."""
        return {state: sum(result.state == state for result in self.results) for state in SIGNS}


def as_json(report: Report) -> str:
    """Return the report as one JSON document; an empty text is null."""
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
    document = {
        "url": report.url,
        "conforms": report.conforms,
        "mode": report.mode,
        "counts": report.counts,
        "added": report.added,
        "seconds": round(report.seconds, 3),
        "checks": checks,
    }
    return json.dumps(document, indent=2)


def as_text(report: Report) -> str:
    """Return the report for people, with the width and the colours of standard output."""
    # Rich is imported here because only this report needs it: one in JSON starts faster without.
    from rich.console import Console  # noqa: PLC0415 - only a run prints
    from rich.table import Table  # noqa: PLC0415 - only a run prints

    if isinstance(sys.stdout, io.TextIOWrapper):
        # A response may contain characters that the terminal cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    console = Console(highlight=False)
    sentences = "the contract's sentence, and which part of it is checked"
    checks = Table("", "check", sentences, box=None, padding=(0, 1), header_style="bold")
    for row in _check_rows(report):
        checks.add_row(*row)
    with console.capture() as text:
        console.print(checks)
        for result in report.failed:
            sentence = f"{result.rule.sentence} {result.rule.scope}".strip()
            exchange = textwrap.indent("\n\n".join(_shown(result)), "    ")
            console.print(f"\n[red]✗ {result.rule.name}[/]: {_escaped(result.note)}")
            console.print(f"  [dim]{_escaped(sentence)}[/]")
            console.print(_escaped(exchange), soft_wrap=True)
        console.print()
        console.print(_summary(report), soft_wrap=True)
    return text.get()


def _check_rows(report: Report) -> Iterable[tuple[str, ...]]:
    """Yield a row for each check; if several share a sentence, only the first one shows it."""
    shown = ""
    for result in report.results:
        sentence = "" if result.rule.sentence == shown else result.rule.sentence
        shown = result.rule.sentence
        scope = f"skipped: {result.note}" if result.state == "skipped" else result.rule.scope
        dash = " \u2013 " if sentence and scope else ""
        text = f"{_escaped(sentence)}{dash}[dim]{_escaped(scope)}[/]"
        yield SIGNS[result.state], result.rule.name, text


def _escaped(text: str) -> str:
    from rich.markup import escape  # noqa: PLC0415 - only a run prints

    return escape(printable(text))


def _summary(report: Report) -> str:
    verdict = "[green]conforms[/]" if report.conforms else "[red]violates the contract[/]"
    counts = ", ".join(
        f"{count} {state}" for state, count in report.counts.items() if count or state == "failed"
    )
    added = "1 store" if report.added == 1 else f"{report.added or 'no'} stores"
    mode = "errors not looked at" if report.mode == "unknown" else f"{report.mode} errors"
    details = f"{mode}, {added} added, {report.seconds:.1f} s"
    return f"{_escaped(report.url)} {verdict}: {counts} ({details})"


def _shown(result: Result) -> tuple[str, str]:
    """Return the request and the response that prove the result; empty if there are none."""
    exchange = result.exchange
    if not exchange:
        return "", ""
    request = exchange.head
    if exchange.body is not None:
        request = [*request, "", _body(exchange.body)]
    return "\n".join(request), _response(exchange) if exchange.status else "(no response)"


def _response(exchange: Exchange) -> str:
    lines = [f"{exchange.version} {exchange.status} {exchange.phrase}".rstrip()]
    lines += [f"{name}: {value}" for name, value in exchange.headers]
    body = _body(exchange.excerpt)
    rest = exchange.length - len(exchange.excerpt)
    if rest > 0:
        body += f" … and {rest} more bytes"
    return printable("\n".join([*lines, "", body]))


def _body(content: bytes) -> str:
    return printable(content[:MAX_EXCERPT_BYTES].decode("utf-8", "backslashreplace"))


def printable(text: str) -> str:
    """Return the text with control characters and lone surrogates escaped, so that a terminal
    shows it and does not obey it."""
    return "".join(
        sign if sign in "\n " or sign.isprintable() else ascii(sign)[1:-1] for sign in text
    )


def complain(text: str) -> None:
    """Write one line on standard error."""
    sys.stderr.write(printable(text).replace("\n", " ") + "\n")
