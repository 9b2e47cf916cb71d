"""What one start of the service has found out and opened, and how it says so."""

import os
import socket
import webbrowser
from threading import Thread
from typing import NamedTuple

from storekeeper import __version__
from storekeeper.log.events import Event, emit, write_line
from storekeeper.process import systemd
from storekeeper.settings import Settings, is_loopback
from storekeeper.storage.databases import database


class Launch(NamedTuple):
    """What one start of the service has found out and opened."""

    settings: Settings
    """The operator's, with the address and the database that they led to, and with a mode unless
    the database could not be reached."""

    listener: socket.socket
    is_passed: bool
    """Whether systemd opened the listener."""

    address: str
    """Where clients find the service."""

    console: str
    """The path of the console, with the token of the demo."""

    is_new: bool
    """Whether this start made the database."""

    epoch: str
    """The collection's, "" if the database could not be reached."""


def announce(launch: Launch) -> None:
    """Say where the service listens, to people and in the log."""
    settings = launch.settings
    name = database(settings.database).name
    link = f"{launch.address}{launch.console}"
    has_link = launch.address.startswith("http")
    if settings.log_format == "logfmt":
        # It may be new because its name is mistyped, or its disk is not mounted.
        shown = f"the new database {name}" if launch.is_new else name
        where = f"; the console is at {link}" if has_link else ""
        write_line(f"Storekeeper listens on {launch.address} with {shown}{where} (Ctrl-C stops it)")
    emit(
        Event.STARTED,
        version=__version__,
        database=name,
        new=launch.is_new,
        workers=settings.workers,
        pid=os.getpid(),
        address=launch.address,
        epoch=launch.epoch,
    )
    if settings.open and has_link:
        # On a thread, because a browser in a terminal ends only when it is closed.
        Thread(target=webbrowser.open, args=(link,), daemon=True).start()
    systemd.notify(b"READY=1")
    if settings.auth == "open" and not is_loopback(settings.host):
        emit(Event.OPEN_TO_ALL, address=launch.address)
