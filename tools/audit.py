"""Audits the run-time packages for known vulnerabilities (`make audit`); fails if the auditor
skipped any of them.

    python -m tools.audit COMMAND...

runs an auditor that prints pip-audit's JSON. Status 0: the auditor asked an advisory source
about every package of the lock that this platform needs, and found no vulnerability. 1: it found
some, one line each. 2: it did not ask about all packages, or it failed.
"""

import json
import subprocess
import sys
from typing import Any

from packaging.markers import Marker

from tools import lock


def needed() -> dict[str, str]:
    """Return the packages of the lock that this platform needs, with their versions."""
    return {
        each.name: each.version
        for each in lock.read()
        if not each.marker or Marker(each.marker).evaluate()
    }


def asked(report: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the vulnerabilities in a report, for each package that the auditor asked about."""
    try:
        packages = json.loads(report)["dependencies"]
        return {
            (each["name"], each["version"]): each["vulns"]
            for each in packages
            if "skip_reason" not in each
        }
    except (ValueError, KeyError, TypeError):
        return {}


def judge(done: "subprocess.CompletedProcess[str]") -> tuple[int, list[str]]:
    """Return the status and the lines to print."""
    known = asked(done.stdout)
    found = [
        f"{name} {version}: {each['id']}"
        for (name, version), vulns in known.items()
        for each in vulns
    ]
    wanted = needed().items()
    missing = sum(pinned not in known for pinned in wanted)
    reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
    if missing:
        return 2, [
            f"NOT AUDITED: the auditor skipped {missing} of {len(wanted)} packages ({reason})"
        ]
    if done.returncode and not found:
        return 2, [f"NOT AUDITED: the auditor failed ({reason})"]
    return (1, found) if found else (0, [f"{len(known)} packages, no known vulnerability"])


def main() -> int:
    """Run the auditor and print the verdict."""
    status, lines = judge(subprocess.run(sys.argv[1:], capture_output=True, text=True, check=False))
    print(*lines, sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
