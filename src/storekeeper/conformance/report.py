"""What came of a run, told to people and to machines; this package, and Rich for the table."""

import io
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from storekeeper.conformance.profile import Observation
from storekeeper.conformance.rules import Result
from storekeeper.conformance.wire import Exchange

if TYPE_CHECKING:
    from rich.table import Table

SIGNS = {"passed": "[green]✓[/]", "failed": "[red]✗[/]", "skipped": "[dim]-[/]"}
SHOWN = 600
"""The most characters of a body that are shown."""


@dataclass(frozen=True, slots=True)
class Report:
    """A run: `mode` is how the service answers validation errors, `added` how many stores it has more now."""

    url: str
    mode: str
    results: list[Result]
    profile: list[Observation]
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
        count = Counter(result.state for result in self.results)
        return {state: count[state] for state in ("passed", "failed", "skipped")}


def as_json(report: Report) -> str:
    """The report as one JSON document."""
    return json.dumps(
        {
            "url": report.url,
            "conforms": report.conforms,
            "mode": report.mode,
            "counts": report.counts,
            "added": report.added,
            "seconds": round(report.seconds, 3),
            "checks": [entry(result) for result in report.results],
            "profile": [{"topic": seen.topic, "seen": seen.seen} for seen in report.profile],
        },
        indent=2,
    )


def entry(result: Result) -> dict[str, Any]:
    """One check in the JSON document; what is empty is null."""
    return {
        "name": result.rule.name,
        "sentence": result.rule.sentence,
        "scope": result.rule.scope or None,
        "result": result.state,
        "note": result.note or None,
        "request": request(result.exchange) if result.exchange else None,
        "answer": answer(result.exchange) if result.exchange else None,
    }


def as_junit(report: Report) -> bytes:
    """The report in the XML that build servers read: one test case for each check."""
    counts = {"tests": str(len(report.results)), "failures": str(report.counts["failed"]), "errors": "0"}
    counts |= {"skipped": str(report.counts["skipped"]), "time": f"{report.seconds:.3f}"}
    suites = ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", {"name": "Store Resource API", **counts})
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("url", report.url),
        ("mode", report.mode),
        *((p.topic, p.seen) for p in report.profile),
    ):
        ET.SubElement(properties, "property", {"name": xml(name), "value": xml(value)})
    for result in report.results:
        attributes = {"classname": "storekeeper.conformance", "name": result.rule.name, "time": "0"}
        case = ET.SubElement(suite, "testcase", attributes)
        if result.state != "passed":
            tag = "failure" if result.state == "failed" else "skipped"
            ET.SubElement(case, tag, {"message": xml(result.note)}).text = xml(shown(result))
    return bytes(ET.tostring(suites, encoding="utf-8", xml_declaration=True))


def as_text(report: Report) -> str:
    """The report for people, as wide and coloured as standard output can have it."""
    from rich.console import Console  # noqa: PLC0415  # only people need it: machines start faster without

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # what answers say is shown on any terminal
    console = Console(highlight=False)
    with console.capture() as text:
        console.print(check_table(report))
        for result in report.failed:
            console.print(f"\n[red]✗ {result.rule.name}[/]: {marked(result.note)}")
            console.print(f"  [dim]{marked(f'{result.rule.sentence} {result.rule.scope}'.strip())}[/]")
            console.print(marked(indented(shown(result))), soft_wrap=True)
        console.print("", profile_table(report), "")
        console.print(summary(report), soft_wrap=True)
    return text.get()


def check_table(report: Report) -> "Table":
    """A row for each check; a sentence that several share stands at the first."""
    table = new_table("", "check", "the contract's sentence, and what of it is looked at")
    before = ""
    for result in report.results:
        sentence = "" if result.rule.sentence == before else result.rule.sentence
        scope = f"skipped: {result.note}" if result.state == "skipped" else result.rule.scope
        before = result.rule.sentence
        table.add_row(SIGNS[result.state], result.rule.name, f"{marked(sentence)} [dim]{marked(scope)}[/]".strip())
    return table


def profile_table(report: Report) -> "Table":
    """A row for each thing that the contract leaves open."""
    table = new_table("where the contract is silent", "this service")
    for seen in report.profile:
        table.add_row(marked(seen.topic), marked(seen.seen))
    return table


def new_table(*columns: str) -> "Table":
    """A table without lines."""
    from rich.table import Table  # noqa: PLC0415  # as above

    return Table(*columns, box=None, padding=(0, 1), header_style="bold")


def marked(text: str) -> str:
    """Text from elsewhere as Rich shows it and does not obey it."""
    from rich.markup import escape  # noqa: PLC0415  # as above

    return escape(printable(text))


def summary(report: Report) -> str:
    """The last line: the verdict and the counts."""
    verdict = "[green]conforms[/]" if report.conforms else "[red]violates the contract[/]"
    counts = ", ".join(f"{count} {state}" for state, count in report.counts.items() if count or state == "failed")
    added = "1 store" if report.added == 1 else f"{report.added or 'no'} stores"
    mode = "errors not looked at" if report.mode == "unknown" else f"{report.mode} errors"
    return f"{marked(report.url)} {verdict}: {counts} ({mode}, {added} added, {report.seconds:.1f} s)"


def shown(result: Result) -> str:
    """The exchange that shows a failure."""
    if result.exchange is None:
        return ""
    return f"{request(result.exchange)}\n\n{answer(result.exchange)}"


def request(exchange: Exchange) -> str:
    """A request, readable."""
    lines = [f"{exchange.method} {exchange.target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in exchange.sent]
    return "\n".join([*lines, "", body(exchange.body)] if exchange.body is not None else lines)


def answer(exchange: Exchange) -> str:
    """An answer, readable."""
    if not exchange.status:
        return "(no answer)"
    lines = [f"HTTP/1.1 {exchange.status} {exchange.phrase}".rstrip()]
    lines += [f"{name}: {value}" for name, value in exchange.headers]
    rest = exchange.length - min(len(exchange.excerpt), SHOWN)
    more = f" … and {rest} bytes more" if rest > 0 else ""
    return printable("\n".join([*lines, "", body(exchange.excerpt) + more]))


def body(content: bytes) -> str:
    """The beginning of a body as text."""
    return printable(content[:SHOWN].decode("utf-8", "backslashreplace"))


def printable(text: str) -> str:
    """Text that a terminal shows and does not obey: control characters and lone surrogates are written out."""
    return "".join(
        character if character in "\n " or character.isprintable() else ascii(character)[1:-1] for character in text
    )


def indented(text: str) -> str:
    """Text set in by four blanks."""
    return "\n".join(f"    {line}".rstrip() for line in text.split("\n"))


def xml(text: str) -> str:
    """Text without the characters that XML cannot carry (XML 1.0 section 2.2)."""
    return re.sub(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)


def complain(text: str) -> None:
    """One line on standard error."""
    sys.stderr.write(printable(text).replace("\n", " ") + "\n")
