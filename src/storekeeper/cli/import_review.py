"""What the user reads and is asked before an import is written."""

import sys

from storekeeper.cli.import_report import tell
from storekeeper.cli.rejects import Rejects
from storekeeper.cli.terminal import ask, counted, print_line, print_lines
from storekeeper.domain.errors import CannotStart
from storekeeper.domain.import_plan import ImportPlan
from storekeeper.sheets.reading import Reading

MAX_UNASKED = 10
"""Stores that an import adds to a list that has stores, without asking."""

NO_KEYS = (
    "None of these is kept. If later imports should find the stores by one of them, use --match"
    " COLUMN; with --adopt, stores that are there already get its keys"
)
"""What is said about columns that an import ignores."""


class Review:
    """Tells the user what an import will do, asks, and writes the rejects, before anything else
    is written.

    If other clients wrote in between, it is called again, under the lock. Then it asks nothing,
    because all writers would wait.
    """

    def __init__(
        self, rows: Reading, rejects: Rejects | None, *, yes: bool, describe: bool
    ) -> None:
        self._rows = rows
        self._describe = describe
        self._rejects = rejects
        self._approved = sys.maxsize if yes else MAX_UNASKED
        self._is_locked = False

    def __call__(self, plan: ImportPlan) -> None:
        """Tell, ask and write. Raises CannotStart if the user does not agree."""
        if not self._is_locked:
            if self._rows.unused and not (plan.options.match or plan.options.add):
                print_line(NO_KEYS)
            print_lines(self._rows.last_notes)
            tell(plan)
        self._rows.tell(plan.report)
        if self._describe:
            self._rows.describe(plan.report.problems)
        if plan.options.dry_run or plan.refuses:
            return
        created, total = plan.report.created, plan.numbers.total
        if total and created > self._approved:
            stores = f"{counted(created, 'store')}, which cannot be deleted,"
            adds = f"the import adds {stores} to a list of {total:,}"
            if self._is_locked:
                raise CannotStart(
                    f"{adds}, because other clients wrote meanwhile: repeat it; nothing was"
                    " imported"
                )
            ask(adds, "nothing was imported")
            self._approved = created
        self._is_locked = True
        if self._rejects:
            self._rejects.write(self._rows)
