"""Turns results into the tables of two pages, with the goals' verdicts; imports cases and systems."""

import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.cases import CASES, MEMORY, Case
from bench.systems import ROOT, SYSTEMS

Rounds = list[dict[str, dict[str, float]]]
Outcome = dict[str, Any]
PAGE, README = ROOT / "docs/benchmarks.md", ROOT / "README.md"
BEGIN, END = "<!-- measured: begin (written by make bench) -->", "<!-- measured: end -->"


def version_text(versions: dict[str, str]) -> str:
    return ", ".join(f"{part} {version}" for part, version in versions.items())


def values(rounds: Rounds, system: str, metric: str) -> list[float]:
    return [figures[system][metric] for figures in rounds if system in figures]


def middle(rounds: Rounds, system: str, metric: str) -> float:
    return statistics.median(values(rounds, system, metric))


def text(rounds: Rounds, system: str, metric: str, form: str) -> str:
    """Return the median of a figure, "-" if there is none."""
    return format(middle(rounds, system, metric), form) if values(rounds, system, metric) else "-"


def ratios(rounds: Rounds, system: str, other: str, metric: str = "rate") -> list[float]:
    """Return the ratio of each round that has both, so that a slow phase of the machine slows both."""
    return [
        figures[system][metric] / figures[other][metric]
        for figures in rounds
        if system in figures and other in figures
    ]


def ratio_text(rounds: Rounds, system: str, other: str, metric: str = "rate") -> str:
    found = ratios(rounds, system, other, metric)
    return f"{statistics.median(found):.2f}" if found else "-"


def goal_cells(case: Case, rounds: Rounds) -> list[str]:
    """Return the goal, what was reached, and whether that is enough."""
    ours, other = case.systems[:2]
    if case.most_more:
        more = middle(rounds, ours, "us") - middle(rounds, other, "us")
        return [f"≤ {case.most_more:g} µs more", f"{more:.1f} µs more {'✗✓'[more <= case.most_more]}"]
    ratio = statistics.median(ratios(rounds, ours, other))
    return [f"≥ {case.goal:g}", f"{ratio:.2f} {'✗✓'[ratio >= case.goal]}"]


def goal_lines(results: Outcome) -> Iterator[str]:
    """Yield a line for each case in which both were measured."""
    yield "| case | peer | goal | reached | rounds | processor time |"
    yield "|---|---|---:|---:|---:|---:|"
    for case, rounds in measured(results):
        ours, other = case.systems[:2]
        if found := ratios(rounds, ours, other):
            cells = [*goal_cells(case, rounds), f"{min(found):.2f} to {max(found):.2f}"]
            cells.append(ratio_text(rounds, ours, other, "us"))
            yield f"| {case.title} | {SYSTEMS[other].title} | {' | '.join(cells)} |"


def measured(results: Outcome) -> Iterator[tuple[Case, Rounds]]:
    for case in CASES:
        if case.name in results["cases"]:
            yield case, results["cases"][case.name]["figures"]


def figure_lines(results: Outcome) -> Iterator[str]:
    """Yield a line for each case and system."""
    yield "| case | system | per second | µs | p50 ms | p99 ms | MiB |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for case, rounds in measured(results):
        for number, name in enumerate(case.systems):
            figures = [
                text(rounds, name, metric, form)
                for metric, form in (
                    ("rate", ",.0f"),
                    ("us", ",.1f"),
                    ("p50", ".1f"),
                    ("p99", ".1f"),
                    ("mib", ",.0f"),
                )
            ]
            yield f"| {'' if number else case.title} | {SYSTEMS[name].title} | {' | '.join(figures)} |"


def readme_lines(results: Outcome) -> Iterator[str]:
    """Yield the table of README, the durable peer first."""
    yield "| case | rate, durable peer = 1 | Fastify in memory = 1 | per second | µs | durable peer, µs |"
    yield "|---|---:|---:|---:|---:|---:|"
    for case, rounds in measured(results):
        ours, other = case.systems[:2]
        if other in {"fastify-sqlite", "fastify-pg"}:
            cells = [ratio_text(rounds, ours, other), ratio_text(rounds, ours, MEMORY)]
            cells += [
                text(rounds, ours, "rate", ",.0f"),
                *(text(rounds, name, "us", ",.1f") for name in (ours, other)),
            ]
            yield f"| {case.title} | {' | '.join(cells)} |"


def condition_lines(results: Outcome) -> Iterator[str]:
    """Yield when, how long, where and with what it was measured, and what was left out."""
    for case in CASES:
        for name, reason in results["cases"].get(case.name, {}).get("failures", {}).items():
            yield f"- {case.title}: {SYSTEMS[name].title}: {reason}"
    outcomes = results["cases"].values()
    for what, form in (("date", ""), ("rounds", ""), ("seconds", ""), ("stores", ",")):
        yield f"- {what}: {', '.join(format(value, form) for value in sorted({each[what] for each in outcomes}))}"
    for what, value in results["machine"].items():
        yield f"- {what}: {value}"
    versions = {part: version for found in results["versions"].values() for part, version in found.items()}
    yield f"- versions: {version_text(versions)}"
    if full := sorted({name for _, rounds in measured(results) for name in at_the_limit(rounds)}):
        yield f"- The load generator's core was full with {', '.join(full)}: they may be faster than shown."


def at_the_limit(rounds: Rounds) -> Iterator[str]:
    """Yield the systems for which wrk's core was nearly full."""
    for name in {name for figures in rounds for name in figures}:
        if middle(rounds, name, "generator") > 0.97:
            yield name


def lines(results: Outcome) -> Iterator[str]:
    yield from goal_lines(results)
    yield ""
    yield from figure_lines(results)
    yield ""
    yield from condition_lines(results)


def write(results: Outcome) -> None:
    """Replace the tables of both pages."""
    replace(PAGE, lines(results))
    replace(README, readme_lines(results))


def replace(page: Path, found: Iterable[str], begin: str = BEGIN, end: str = END) -> None:
    """Replace what stands between two markers of a page."""
    before, _, rest = page.read_text().partition(begin)
    page.write_text("\n".join([f"{before}{begin}", *found, f"{end}{rest.partition(end)[2]}"]))
