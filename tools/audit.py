"""Asks for known vulnerabilities of what runs (`make audit`), and believes no auditor that knows nothing.

    python tools/audit.py COMMAND...

runs an auditor that prints pip-audit's JSON. Status 0: an advisory source was asked about every package of the lock
that this platform needs, and knew of nothing. 1: it knew of something, one line each. 2: it was not asked about all.
"""

import json
import subprocess
import sys
from typing import Any

import lock
from packaging.markers import Marker


def needed() -> dict[str, str]:
    """Give the packages of the lock that this platform needs, with their versions."""
    return {each.name: each.version for each in lock.read() if not each.marker or Marker(each.marker).evaluate()}


def asked(report: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Give what a report says of each package that an advisory source was asked about."""
    try:
        packages = json.loads(report)["dependencies"]
        return {(each["name"], each["version"]): each["vulns"] for each in packages if "skip_reason" not in each}
    except (ValueError, KeyError, TypeError):
        return {}


def judge(report: str, said: str) -> tuple[int, list[str]]:
    """Give the status and what to print, from an auditor's standard output and its standard error."""
    known = asked(report)
    missing = [name for name, version in needed().items() if (name, version) not in known]
    if missing:
        reason = (said.strip().splitlines() or ["it gave no reason"])[-1]
        return 2, [f"NOT AUDITED: no advisory source told of {len(missing)} of {len(needed())} packages ({reason})"]
    found = [f"{name} {version}: {each['id']}" for (name, version), vulns in known.items() for each in vulns]
    return (1, found) if found else (0, [f"{len(known)} packages, no known vulnerability"])


def main() -> int:
    """Run the auditor and print the verdict."""
    done = subprocess.run(sys.argv[1:], capture_output=True, text=True, check=False)
    status, lines = judge(done.stdout, done.stderr)
    print(*lines, sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
