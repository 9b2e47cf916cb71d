"""Turns results into Markdown tables and the goals' verdicts; imports cases, systems and chart."""

import statistics
from collections.abc import Iterator
from operator import ge, le, lt
from pathlib import Path
from typing import Any

from bench import chart
from bench.cases import CASES, FLOORS, GOALS, HEADLINES, MORE, REMEDIES, Case, Entry, Goal
from bench.systems import SYSTEMS

Figures = dict[str, float]
Rounds = list[dict[str, Figures]]
Outcome = dict[str, Any]
BEGIN, END = "<!-- results: begin (written by make bench) -->", "<!-- results: end -->"
HEADLINES_BEGIN = "<!-- headlines: begin (written by make bench; README repeats them) -->"
HEADLINES_END = "<!-- headlines: end -->"
HEADS = {
    "us": "processor µs per request",
    "p50": "p50 ms",
    "p99": "p99 ms",
    "p999": "p99.9 ms",
    "after_list": "after one whole list",
    "quiet": "p99 ms, quiet",
    "past": "ms of a read of the past",
    "late": "of these 503 after 1 s",
}
UNITS = {"rate": "per second", "ms": "ms", "mib": "MiB"}


def key(entry: Entry) -> str:
    return f"{entry[0]}@{entry[1]}"


def version_text(versions: dict[str, str]) -> str:
    return ", ".join(f"{part} {version}" for part, version in versions.items())


def ratios(rounds: Rounds, system: str, reference: str, metric: str) -> list[float]:
    """Return the ratio of each round that has both, so that a slow phase of the machine slows both."""
    return [
        figures[system][metric] / figures[reference][metric]
        for figures in rounds
        if system in figures and reference in figures
    ]


def plain_values(rounds: Rounds, system: str, metric: str) -> list[float]:
    return [figures[system][metric] for figures in rounds if system in figures]


def median_text(values: list[float], form: str = ",.2f") -> str:
    return format(statistics.median(values), form) if values else "-"


def case_lines(case: Case, outcome: Outcome) -> Iterator[str]:
    rounds = outcome["figures"]
    extra = ("p50", "p99", "p999") if case.has_latencies else ("after_list",) if case.kind == "memory" else ()
    extra = ("us", *extra) if case.kind in {"wrk", "offered", "past"} else extra
    extra = (*extra, "quiet", "past", "late") if case.kind == "past" else extra
    main = "rate" if case.kind in {"offered", "past"} else case.metric
    titles = ["system", "stores", UNITS[main], *(HEADS[name] for name in extra), "of nginx", "of Fastify", "of hapi"]
    yield f"### {case.title}\n"
    yield f"| {' | '.join(titles)} |"
    yield f"|---|{'---:|' * (len(titles) - 1)}"
    for name, size in case.entries:
        own = key((name, size))
        cells = [SYSTEMS[name].title, f"{size:,}", median_text(plain_values(rounds, own, main), ",.0f")]
        cells += [median_text(plain_values(rounds, own, metric)) for metric in extra]
        cells += [
            median_text(ratios(rounds, own, reference(case, peer, size), case.metric))
            for peer in ("nginx", "fastify", "hapi")
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""
    for who, reason in {**outcome["missing"], **outcome["failures"]}.items():
        if who.partition("@")[0] in dict(case.entries):
            yield f"- {who}: {reason}"
    yield f"\n{outcome['date']}, {outcome['rounds']} rounds of {outcome['seconds']} s or more.{limit(rounds)}\n"


def reference(case: Case, peer: str, size: int) -> str:
    """Return a peer's entry of that size, or its only one (10 stores in memory) where each system has only one."""
    sizes = [other for name, other in case.entries if name == peer]
    only = len(case.entries) == len(dict(case.entries)) and sizes
    return f"{peer}@{sizes[0] if only else size}"


def limit(rounds: Rounds) -> str:
    """Name the systems for which wrk's core was nearly full: they may be faster than shown."""
    shares: dict[str, list[float]] = {}
    for figures in rounds:
        for name, measured in figures.items():
            shares.setdefault(name, []).append(measured.get("generator", 0.0))
    full = [name for name, values in shares.items() if statistics.median(values) > 0.97]
    return f" The load generator was at its limit with {', '.join(full)}." if full else ""


def goal_line(goal: Goal, results: dict[str, Any]) -> str:
    rounds = results["cases"].get(goal.case, {}).get("figures", [])
    values = goal_values(goal, rounds)
    floor = verdict(goal, ratios(rounds, goal.floor, goal.reference, metric(goal)))
    wanted = f"| {goal.text} | {goal.sign} {goal.target:g} |"
    return f"{wanted} {verdict(goal, values)} | {min(values):,.2f} to {max(values):,.2f} | {floor} |"


def goal_values(goal: Goal, rounds: Rounds) -> list[float]:
    if goal.metric == MORE:
        both = [figures for figures in rounds if goal.system in figures and goal.reference in figures]
        return [figures[goal.system]["us"] - figures[goal.reference]["us"] for figures in both]
    if goal.reference:
        return ratios(rounds, goal.system, goal.reference, metric(goal))
    return plain_values(rounds, goal.system, metric(goal))


def metric(goal: Goal) -> str:
    return goal.metric or next(case.metric for case in CASES if case.name == goal.case)


def verdict(goal: Goal, values: list[float]) -> str:
    """Return the median and whether it is what the goal wants; "-" if nothing was measured."""
    if not values:
        return "-"
    median = statistics.median(values)
    good = {"≥": ge, "≤": le, "<": lt}[goal.sign](median, goal.target)
    return f"{median:,.2f} {'✓' if good else '✗'}"


def missed_lines(results: dict[str, Any]) -> Iterator[str]:
    """Yield for each goal that is missed the processor time that it allows, and who takes how much beyond it."""
    columns = ("µs that it allows", "the floor", "ours", "beyond it: the floor", "beyond both: ours")
    yield f"| missed goal | {' | '.join(columns)} | what it would take |"
    yield "|---|---:|---:|---:|---:|---:|---|"
    for goal in HEADLINES:
        rounds = results["cases"].get(goal.case, {}).get("figures", [])
        ours, others, floors = (plain_values(rounds, who, "us") for who in (goal.system, goal.reference, goal.floor))
        if goal.case not in REMEDIES or "✗" not in verdict(goal, goal_values(goal, rounds)):
            continue
        own = statistics.median(ours)
        allowed = statistics.median(others) * (goal.target if goal.metric == "us" else 1 / goal.target)
        floor, beyond, rest = "-", "-", own - allowed
        if floors:
            least = statistics.median(floors)
            floor, beyond, rest = f"{least:.1f}", f"{max(0.0, least - allowed):.1f}", own - max(allowed, least)
        figures = f"{allowed:.1f} | {floor} | {own:.1f} | {beyond} | {max(0.0, rest):.1f}"
        yield f"| {goal.text} | {figures} | {REMEDIES[goal.case]} |"


def machine_lines(results: dict[str, Any]) -> Iterator[str]:
    yield "### Machine and versions\n"
    for what, value in results["machine"].items():
        yield f"- {what}: {value}"
    for name, versions in results["versions"].items():
        yield f"- {SYSTEMS[name].title}: {version_text(versions)}"


def goal_lines(goals: tuple[Goal, ...], results: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each goal that was measured."""
    yield "| goal | wanted | median | lowest to highest round | the floor |\n|---|---:|---:|---:|---:|"
    for goal in goals:
        if goal_values(goal, results["cases"].get(goal.case, {}).get("figures", [])):
            yield goal_line(goal, results)


def lines(results: dict[str, Any]) -> Iterator[str]:
    yield "### Goals\n"
    yield HEADLINES_BEGIN
    yield from goal_lines(HEADLINES, results)
    yield f"{HEADLINES_END}\n"
    yield from missed_lines(results)
    yield ""
    yield from goal_lines(GOALS, results)
    if panels(results):
        yield "\n![Rates of all systems, hapi = 1](benchmarks.svg)\n"
    for case in CASES:
        if case.name in results["cases"]:
            yield from case_lines(case, results["cases"][case.name])
    yield from machine_lines(results)


def write(results: dict[str, Any], folder: Path) -> str:
    """Replace the text between the two markers of benchmarks.md, draw the chart, return the text."""
    folder.mkdir(exist_ok=True)
    text = "\n".join(lines(results)).replace("\n\n\n", "\n\n")
    page = folder / "benchmarks.md"
    old = page.read_text() if page.exists() else f"# Benchmarks\n\n{BEGIN}\n{END}\n"
    before, _, rest = old.partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
    if found := panels(results):
        (folder / "benchmarks.svg").write_text(chart.draw(found))
    return text


def panels(results: dict[str, Any]) -> list[chart.Panel]:
    """Return the speed of each system, hapi = 1: ratios of rates, or inverse ratios of times."""
    found = []
    for case in CASES:
        if case.kind in {"wrk", "list-changed"} and case.name in results["cases"]:
            size = case.entries[-1][1]  # that of most systems
            rounds = results["cases"][case.name]["figures"]
            bars = []
            for name, largest in dict(case.entries).items():
                if name in FLOORS.values():
                    continue  # no peer
                values = ratios(rounds, key((name, largest)), reference(case, "hapi", size), case.metric)
                if values:
                    ratio = statistics.median(values)
                    bars.append((SYSTEMS[name].title, 1 / ratio if case.metric == "ms" else ratio))
            title = f"{case.title} ({size:,})" if case.name == "by-name" else case.title
            if bars:
                found.append((title, bars))
    return found
