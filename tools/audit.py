"""Audits the run-time packages for known vulnerabilities (`make audit`).

    python -m tools.audit COMMAND...

runs an auditor that prints pip-audit's JSON. Status 0: the auditor asked an advisory source
about every package of the lock that this platform needs, and found no vulnerability. 1: it found
vulnerabilities, which are printed one per line. 2: it skipped packages, or it failed.
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
    missing = len([pinned for pinned in wanted if pinned not in known])
    reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
    if missing:
        skipped = f"{missing} of {len(wanted)} packages"
        return 2, [f"NOT AUDITED: the auditor skipped {skipped} ({reason})"]
    if found:
        return 1, found
    if done.returncode:
        return 2, [f"NOT AUDITED: the auditor failed ({reason})"]
    return 0, [f"{len(known)} packages, no known vulnerability"]


def main() -> int:
    """Run the auditor and print the verdict."""
    status, lines = judge(subprocess.run(sys.argv[1:], capture_output=True, text=True, check=False))
    print(*lines, sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
