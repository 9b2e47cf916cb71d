"""Keep a copy of all stores in an SQLite file of your own.

    python mirror.py http://127.0.0.1:8080 ours.db [--follow]

You can stop it at any time; the next run continues where it stopped. The variable
STOREKEEPER_TOKEN holds the token, if the service needs one. It needs the extra `client`.
"""

import argparse
import os
import sys
import time

from storekeeper.client import Client, ClientError, Mirror


def bring_up_to_date(mirror: Mirror) -> None:
    """Apply all changes, and say what was done."""
    done = mirror.update()
    if done.stores:
        print(
            f"stores copied: {done.stores}, to review: {done.review}; as of {done.cursor}",
            flush=True,
        )
    elif done.changes:
        print(f"changes applied: {done.changes}; as of {done.cursor}", flush=True)


def main() -> None:
    """Bring the copy up to date; with --follow, do so every second."""
    parser = argparse.ArgumentParser(description="Keep a copy of all stores in an SQLite file.")
    parser.add_argument("url")
    parser.add_argument("file")
    parser.add_argument("--follow", action="store_true")
    order = parser.parse_args()
    token = os.environ.get("STOREKEEPER_TOKEN")
    with Client(order.url, token=token, patience=0) as client:
        mirror = Mirror(client, order.file)
        while True:
            try:
                bring_up_to_date(mirror)
            except ClientError as error:
                # The service is unavailable, or refuses the token. The cursor is unchanged, so
                # the next attempt continues from there.
                print(f"not now: {error}", file=sys.stderr, flush=True)
                if not order.follow:
                    sys.exit(1)
            if not order.follow:
                return
            time.sleep(1)


if __name__ == "__main__":
    main()
