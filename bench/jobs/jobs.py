"""The jobs: each is done with a running peer, and returns what happened in a few words."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from bench.jobs.peer import Peer

WRITERS, ROUNDS = 8, 20

WRITE_DELAY = 2.0
"""Seconds until each product has written to its file what it has acknowledged."""


def save(peer: Peer) -> str:
    """Have eight clients save one store that all of them read at the same version."""
    winners = []
    id = peer.id_of(peer.create("Contested"))
    with ThreadPoolExecutor(WRITERS) as pool:
        for _ in range(ROUNDS):
            tag, barrier = peer.tag(id), Barrier(WRITERS)

            def one(writer: int, tag: str = tag, barrier: Barrier = barrier) -> bool:
                barrier.wait()
                name = f"By {writer}, {tag}"
                return peer.save(id, name, tag).is_success

            winners.append(sum(pool.map(one, range(WRITERS))))
    if not peer.tag(id):
        return f"no tag; {max(winners)} of {WRITERS} saves accepted"
    if max(winners) == 1:
        return f"1 of {WRITERS} accepted, {ROUNDS} times"
    late = "accepted" if peer.save(id, "Late", "stale").is_success else "refused"
    return f"an old tag is {late}; in a race, up to {max(winners)} of {WRITERS} saves accepted"


def repeat(peer: Peer) -> str:
    """Send a create twice, as a client does that has not seen the first response."""
    for _ in range(2):
        peer.create("Repeated", key="key-of-the-client")
    return counted(peer.names().count("Repeated"))


def own_id(peer: Peer) -> str:
    """Send a create twice with the same id, which the client chose."""
    if not (id := peer.own_id()):
        return "ids are the service's"
    statuses = [peer.create("Chosen", id=id).status_code for _ in range(2)]
    stores = counted(peer.names().count("Chosen"))
    return f"{statuses[0]}, then {statuses[1]}; {stores}"


def counted(stores: int) -> str:
    """Return a number of stores in words."""
    return "1 store" if stores == 1 else f"{stores} stores"


def feed(peer: Peer, kept: Path) -> str:
    """Restore a backup while a reader is away, then let the reader continue."""
    store = peer.id_of(peer.create("Before the backup"))
    peer.stop()
    peer.back_up(kept)
    peer.start()
    peer.save(store, "After the backup", peer.tag(store))
    peer.create("Lost by the restore")
    read = peer.feed("")
    peer.stop()
    peer.restore(kept)
    peer.start()
    peer.create("After the restore")
    if read is None:
        return "no feed that continues"
    copy = dict(read.names)
    later = peer.feed(read.cursor)
    assert later is not None
    if later.told:
        return "it is told to read again"
    copy |= later.names
    if set(peer.names()) == set(copy.values()):
        return "it has the list as it is"
    return "it is told nothing, and its copy differs from the list"


def revisions(peer: Peer) -> str:
    """Read what a store was before two saves."""
    id = peer.id_of(peer.create("First name"))
    for name in ("Second name", "Third name"):
        peer.save(id, name, peer.tag(id))
    names = peer.earlier_names(id)
    if names is None:
        return "not kept"
    return "kept" if {"First name", "Second name"} <= set(names) else f"kept: {names}"


def letter(peer: Peer) -> str:
    """Change one letter of a name on the disk, behind the back of the stopped service."""
    if not peer.has_own_files:
        return "not run: its data are another program's"
    peer.create("Letterbox")
    time.sleep(WRITE_DELAY)
    peer.stop()
    peer.verify()  # so that what waits in a log is written
    changed = flip(peer.folder)
    said = peer.verify()
    peer.start()
    if not changed or "Letterbix" not in peer.names():
        return "not run: the letter was not found"
    if said == Peer.NONE:
        said = "no check of its own"
    return f"{said}; it serves the changed letter"


def flip(folder: Path) -> int:
    """Change the letter in each file that has it; return how many."""
    count = 0
    for file in folder.rglob("*"):
        if file.is_file() and b"Letterbox" in (data := file.read_bytes()):
            file.write_bytes(data.replace(b"Letterbox", b"Letterbix"))
            count += 1
    return count


def sheet(peer: Peer) -> str:
    """Import an export that both sides edited."""
    return peer.merge()


JOBS: dict[str, Callable[[Peer], str]] = {
    "eight clients save one store, read at one version": save,
    "a create sent twice with one `Idempotency-Key`": repeat,
    "a create sent twice with an id of the client's own": own_id,
    "a sheet comes back that both sides edited": sheet,
    "what a store was before": revisions,
}
"""The jobs that only need the peer, by what the table calls them."""

RESTORE = "a reader continues after a restore"
LETTER = "one letter changed on the disk"
"""The last two jobs, which replace the list, and damage it."""
