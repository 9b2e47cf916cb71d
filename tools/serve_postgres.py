"""`make serve-postgres`: serves on a PostgreSQL in a temporary folder until Ctrl-C.

It takes the options of `serve`.
"""

import signal
import subprocess
import sys
from pathlib import Path

from tests.harness.postgres_server import Missing, running

STOREKEEPER = Path(sys.executable).with_name("storekeeper")


def main() -> int:
    """Run PostgreSQL and the service; return the exit status of the service."""
    try:
        with running() as server:
            url = server.new_database()
            print(f"PostgreSQL listens on {url} while this runs", file=sys.stderr)
            return serve("--database", url, "--create", *sys.argv[1:])
    except Missing as error:
        print(error, file=sys.stderr)
        return 2


def serve(*options: str) -> int:
    """Run the service until it ends; Ctrl-C reaches it too, so wait for it to stop."""
    service = subprocess.Popen([STOREKEEPER, "serve", *options])
    signal.signal(signal.SIGTERM, lambda *_: service.terminate())
    while True:
        try:
            return service.wait()
        except KeyboardInterrupt:
            continue


if __name__ == "__main__":
    sys.exit(main())
