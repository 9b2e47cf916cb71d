"""What the command `import` says about rows."""

from collections.abc import Iterator, Mapping

from storekeeper.cli.results import report
from storekeeper.cli.terminal import counted, print_line, print_lines
from storekeeper.domain.import_plan import ImportPlan
from storekeeper.domain.intake import Report
from storekeeper.domain.problems import MAX_BRIEF_LENGTH, Group, Problem, shown, words_of
from storekeeper.domain.reasons import Reason
from storekeeper.sheets import BadFile

_MAX_GROUPS = 10
_MAX_CHANGES = 8
"""Lines about problems and about changes: everything fits on one page."""


def hint(error: BadFile) -> str:
    """Return the option that helps with a file."""
    if error.options:
        return f": repeat with {error.options}"
    if not error.value:
        return ""
    field, _, column = error.value.partition("=")
    option = f"--{error.parameter} {field}"
    if column:
        option += f'="{column}"'
    return f": repeat with {option}"


def remedy(report: Report) -> str:
    """Return what the user can do with the rows that were refused."""
    is_long = any(
        each.column == "name" and each.reason is Reason.TOO_LONG for each in report.problems
    )
    ways = []
    if report.bad:
        ways.append("--cut-names or --skip-bad" if is_long else "--skip-bad")
    if report.conflicts:
        ways.append("--on-conflict skip or overwrite")
    return f"fix the file, or repeat with {', and '.join(ways)}"


def tell(plan: ImportPlan) -> None:
    """Say what is wrong with the rows of an import, and what it leaves as it is."""
    groups, report = plan.groups(), plan.report
    for group in groups[:_MAX_GROUPS]:
        print_line(_described(group))
    if more := groups[_MAX_GROUPS:]:
        count = sum(group.count for group in more)
        print_line(f"and {count:,} more problems, for {len(more)} other reasons")
    if report.missing:
        print_line(f"{counted(report.missing, 'store')} of the list not in the file, not changed")


def changes_of(report: Report) -> Iterator[str]:
    """Yield a line for each of the first changes of an import, with the store before and after."""
    for change in report.changes[:_MAX_CHANGES]:
        old = "new" if change.old is None else _content(change.old)
        yield f"line {change.line}: {change.id} {old} → {_content(change.new)}"
    rest = report.created + report.replaced - _MAX_CHANGES
    if rest > 0:
        yield f"and {rest:,} more"


def _described(group: Group) -> str:
    """Return all problems with the same reason as one line, with the first of them."""
    noun = "row" if group.reason is Reason.CONFLICT else group.column
    if group.count > 1:
        noun += "es" if noun.endswith("s") else "s"
    said = words_of(group.reason, group.column, group.count)
    examples = [_example(problem, group) for problem in group.examples]
    if more := group.count - len(examples):
        examples.append(f"and {more:,} more")
    return f"{group.count:,} {noun} {said}: {', '.join(examples)}"


def _example(problem: Problem, group: Group) -> str:
    text = f"line {problem.line}"
    if problem.value and group.reason is not Reason.CONFLICT:
        text += f" {shown(problem.value, MAX_BRIEF_LENGTH)!r}"
    if group.reason in (Reason.TOO_LONG, Reason.CUT):
        text += f" ({len(problem.value)})"
    if problem.id is not None:
        text += f" (store {problem.id})"
    return text


def _content(content: Mapping[str, str | None]) -> str:
    return ", ".join(
        repr(shown(text, MAX_BRIEF_LENGTH)) for text in content.values() if text is not None
    )


def tell_end(plan: ImportPlan, target: str, *, is_new: bool, json: bool, as_notes: bool) -> None:
    """Print what an import did, or would, as notes if something else is on standard output."""
    lines = _result(plan, target, is_new=is_new)
    if as_notes:
        print_lines(lines)
    else:
        report(plan.report, *lines, json=json)


def _result(plan: ImportPlan, target: str, *, is_new: bool) -> Iterator[str]:
    done = plan.report
    counts = [
        f"{counted(done.created, 'store')} created{_as_ids(plan.ids)}",
        f"{done.replaced:,} replaced",
        f"{done.unchanged:,} unchanged",
    ]
    if done.adopted:
        counts[1] += f", {done.adopted:,} of them with a new key"
    if done.repeated:
        counts.append(f"{done.repeated:,} repeated")
    if done.conflicts:
        counts.append(f"{done.conflicts:,} in conflict, skipped")
    if done.bad:
        counts.append(f"{done.bad:,} bad, skipped")
    if done.dry_run:
        yield from changes_of(done)
        yield f"Dry run: {', '.join(counts)} if imported into {target}, version {done.version}"
        return
    versions = f"version {plan.before} before, {done.version} now"
    start = "; start the service with the same --database" if is_new else ""
    yield f"{', '.join(counts)} in {target}; {versions}{start}"
    if done.replaced:
        yield f"Undo it with storekeeper undo {done.first} {done.last}"


def _as_ids(ids: range) -> str:
    """Return which ids the new stores have."""
    if not ids:
        return ""
    if len(ids) == 1:
        return f" as {ids[0]}"
    return f" as {ids[0]} to {ids[-1]}"
