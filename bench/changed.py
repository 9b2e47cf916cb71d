"""Changes one store many times: changed.py DATABASE_FILE TIMES; what reads of the past walk back over."""

import sys
import time
from contextlib import closing
from pathlib import Path

from storekeeper.commands import Command, Replace
from storekeeper.sqlite import connections
from storekeeper.sqlite.committer import Committer
from storekeeper.sqlite.file_identity import FileIdentity
from storekeeper.stores import Payload

ID = 7
BATCH = 1000


def main(path: Path, times: int) -> None:
    with closing(Committer(connections.connect(path), FileIdentity(path))) as committer:
        for first in range(0, times, BATCH):
            numbers = range(first, min(times, first + BATCH))
            commands: list[Command] = [Replace(ID, Payload(f"Store {number:07}", "A Road")) for number in numbers]
            committer.commit(commands, time.monotonic() + 60)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
