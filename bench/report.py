"""Turns results into the tables of two pages, with the verdicts on the goals."""

import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.cases import CASES, MEMORY, Case
from bench.systems import ROOT, SYSTEMS

Rounds = list[dict[str, dict[str, float]]]
Outcome = dict[str, Any]
PAGE, README = ROOT / "docs/evidence/benchmarks.md", ROOT / "README.md"
KINDS = {
    "Storekeeper": ("storekeeper", "storekeeper-postgres"),
    "durable peer": ("fastify-sqlite", "fastify-pg"),
    "Fastify in memory": (MEMORY,),
    "hapi in memory": ("hapi",),
    "floor": ("floor",),
    "nginx": ("nginx",),
}
"""The columns of the figures, each with its systems."""
RATES = "{rate:,.0f} ({us:.1f})"
"""The form of a rate, with the processor time per request."""
BEGIN, END = "<!-- measured: begin (written by make bench) -->", "<!-- measured: end -->"


def version_text(versions: dict[str, str]) -> str:
    return ", ".join(f"{part} {version}" for part, version in versions.items())


def values(rounds: Rounds, system: str, metric: str) -> list[float]:
    return [figures[system][metric] for figures in rounds if system in figures]


def middle(rounds: Rounds, system: str, metric: str) -> float:
    return statistics.median(values(rounds, system, metric))


def ratios(rounds: Rounds, system: str, other: str, metric: str = "rate") -> list[float]:
    """Return the ratio in each round that has both: a slow moment of the machine slows both."""
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
        sign = "✓" if more <= case.most_more else "✗"
        return [f"≤ {case.most_more:g} µs more", f"{more:.1f} µs more {sign}"]
    ratio = statistics.median(ratios(rounds, ours, other))
    sign = "✓" if ratio >= case.goal else "✗"
    return [f"≥ {case.goal:g}", f"{ratio:.2f} {sign}"]


def goal_lines(results: Outcome) -> Iterator[str]:
    """Yield a line for each case for which both systems were measured."""
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


def figure_lines(results: Outcome, form: str) -> Iterator[str]:
    """Yield a line for each case that compares services; `form` has the figures of a system."""
    known = {name for _, rounds in measured(results) for figures in rounds for name in figures}
    kinds = {title: names for title, names in KINDS.items() if known & set(names)}
    yield f"| case | {' | '.join(kinds)} |"
    yield f"|---|{'---:|' * len(kinds)}"
    for case, rounds in measured(results):
        if not case.most_more:
            cells = [figures_text(rounds, names, form) for names in kinds.values()]
            yield f"| {case.title} | {' | '.join(cells)} |"


def figures_text(rounds: Rounds, names: tuple[str, ...], form: str) -> str:
    """Return the medians of the first of these systems that was measured, or "-"."""
    for name in names:
        if values(rounds, name, "rate"):
            medians = {metric: middle(rounds, name, metric) for metric in ("rate", "us", "p99")}
            return form.format_map(medians)
    return "-"


def key_lines(results: Outcome) -> Iterator[str]:
    """Yield a line that says what keys cost."""
    for case, rounds in measured(results):
        if case.most_more:
            keyed, plain, many = (
                figures_text(rounds, (name,), "{us:.1f}") for name in case.systems
            )
            with_keys = f"{keyed} with 100,000 keys there, {many} with 5,000,000"
            yield f"\nµs of a POST: {plain} without a key, {with_keys}."


def readme_lines(results: Outcome) -> Iterator[str]:
    """Yield the table of README, which has only the durable peers."""
    yield "| case | rate, peer = 1 | Storekeeper, per second (µs) | peer, per second (µs) |"
    yield "|---|---:|---:|---:|"
    for case, rounds in measured(results):
        ours, other = case.systems[:2]
        if other in KINDS["durable peer"] and (found := ratios(rounds, ours, other)):
            ratio = f"{statistics.median(found):.2f}"
            rates = [figures_text(rounds, (name,), RATES) for name in (ours, other)]
            yield f"| {case.title} | {ratio} | {' | '.join(rates)} |"


def condition_lines(results: Outcome) -> Iterator[str]:
    """Yield when, how long, where and with which versions it was measured, and what was left
    out."""
    for case in CASES:
        for name, reason in results["cases"].get(case.name, {}).get("failures", {}).items():
            yield f"- {case.title}: {SYSTEMS[name].title}: {reason}"
    outcomes = results["cases"].values()
    for what, form in (("date", ""), ("rounds", ""), ("seconds", ""), ("stores", ",")):
        texts = [format(value, form) for value in sorted({each[what] for each in outcomes})]
        yield f"- {what}: {', '.join(texts)}"
    for what, value in results["machine"].items():
        yield f"- {what}: {value}"
    versions = {
        part: version for found in results["versions"].values() for part, version in found.items()
    }
    yield f"- versions: {version_text(versions)}"
    if full := sorted({name for _, rounds in measured(results) for name in at_the_limit(rounds)}):
        names = ", ".join(full)
        yield f"- The load generator's core was full with {names}: they may be faster than shown."


def at_the_limit(rounds: Rounds) -> Iterator[str]:
    """Yield the systems for which wrk used nearly all of its core."""
    for name in {name for figures in rounds for name in figures}:
        if middle(rounds, name, "generator") > 0.97:
            yield name


def lines(results: Outcome) -> Iterator[str]:
    yield from goal_lines(results)
    yield "\nRequests per second (and µs of processor time for each):\n"
    yield from figure_lines(results, RATES)
    yield from key_lines(results)
    yield "\np99 in ms, with 64 clients that send all that the server takes:\n"
    yield from figure_lines(results, "{p99:.1f}")
    yield ""
    yield from condition_lines(results)


def write(results: Outcome) -> None:
    """Replace the tables of both pages."""
    replace(PAGE, lines(results))
    replace(README, readme_lines(results))


def replace(page: Path, found: Iterable[str], begin: str = BEGIN, end: str = END) -> None:
    """Replace the lines between two markers of a page."""
    before, _, rest = page.read_text().partition(begin)
    page.write_text("\n".join([f"{before}{begin}", *found, f"{end}{rest.partition(end)[2]}"]))
