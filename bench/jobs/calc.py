"""The jobs, done by two people who share a spreadsheet file, each with a LibreOffice of their own.

`shared_sheet.py` runs this with a Python that has LibreOffice's `uno`, and reads what it prints.
"""

import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from shutil import copy
from typing import Any

import uno  # type: ignore[import-not-found]  # a package of the system, not of .venv

START_TIMEOUT = 120.0
NAME, ADDRESS, NUMBER = 0, 1, 2  # the columns

NOT_STARTED = uno.getClass("com.sun.star.connection.NoConnectException")
NOT_STORED = uno.getClass("com.sun.star.io.IOException")


class Person:
    """One LibreOffice, with a profile of its own, as on a machine of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        pipe = f"{name}-{time.time_ns()}"
        self._process = subprocess.Popen(
            [
                "soffice",
                f"-env:UserInstallation=file://{folder}/{name}",
                "--headless",
                "--norestore",
                f"--accept=pipe,name={pipe};urp;",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.desktop = desktop_at(f"uno:pipe,name={pipe};urp;StarOffice.ComponentContext")

    def open(self, file: Path | str, *, read_only: bool = False) -> Any:
        """Open a file; None if LibreOffice refuses, or would ask the person first."""
        url = f"file://{file}" if isinstance(file, Path) else file
        options = (value("Hidden", True), value("ReadOnly", read_only))
        return self.desktop.loadComponentFromURL(url, "_blank", 0, options)

    def leave(self) -> None:
        """End the program."""
        try:
            self.desktop.terminate()
            self._process.wait(30)
        finally:
            self._process.kill()


def desktop_at(address: str) -> Any:
    """Return the desktop of a LibreOffice, once it has started."""
    here = uno.getComponentContext()
    resolver = here.ServiceManager.createInstanceWithContext(
        "com.sun.star.bridge.UnoUrlResolver", here
    )
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            there = resolver.resolve(address)
            break
        except NOT_STARTED:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    return there.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", there)


def value(name: str, content: object) -> Any:
    """Return an argument of LibreOffice."""
    found = uno.createUnoStruct("com.sun.star.beans.PropertyValue")
    found.Name, found.Value = name, content
    return found


def cell(document: Any, row: int, column: int = NAME) -> Any:
    """Return a cell of the first sheet."""
    return document.Sheets.getByIndex(0).getCellByPosition(column, row)


def stored(document: Any) -> bool:
    """Save a document; return whether LibreOffice agrees."""
    try:
        document.store()
    except NOT_STORED:
        return False
    return True


def save(anna: Person, ben: Person, file: Path) -> str:
    """Have both edit one cell of the file that both have open."""
    first, second = anna.open(file), ben.open(file)
    locked = second is None
    if locked:  # it would ask Ben what to do: here he chooses to read
        second = ben.open(file, read_only=True)
    accepted = 0
    for document, name in ((second, "Ben's"), (first, "Anna's")):
        cell(document, 0).String = name
        accepted += stored(document)
        document.close(True)
    if locked and accepted == 1:
        return "one person at a time: while one has the file open, the other may only read"
    return f"{accepted} of 2 accepted"


def repeat(anna: Person, file: Path) -> str:
    """Write one row twice, as someone does who does not know whether it is there."""
    document = anna.open(file)
    for row in (1, 2):
        cell(document, row).String = "Repeated"
        cell(document, row, NUMBER).String = "4711"
    stored(document)
    document.close(True)
    document = anna.open(file)
    rows = sum(cell(document, row).String == "Repeated" for row in range(10))
    document.close(True)
    return f"{rows} rows"


def merge(anna: Person, ben: Person, file: Path) -> str:
    """Ben edits a copy, meanwhile Anna edits another field of the store, the copy comes back."""
    taken = file.with_name("copy.ods")
    copy(file, taken)
    for person, edited, column in ((anna, file, ADDRESS), (ben, taken, NAME)):
        document = person.open(edited)
        cell(document, 0, column).String = "Edited"
        stored(document)
        document.close(True)
    copy(taken, file)
    document = anna.open(file)
    kept = cell(document, 0, ADDRESS).String == "Edited"
    document.close(True)
    return "both edits are kept" if kept else "the edit made meanwhile is overwritten"


def earlier(anna: Person, file: Path) -> str:
    """Look in the file for a name that was there before two saves."""
    document = anna.open(file)
    for name in ("First name", "Second name", "Third name"):
        cell(document, 5).String = name
        stored(document)
    document.close(True)
    with zipfile.ZipFile(file) as parts:
        text = b"".join(parts.read(name) for name in parts.namelist())
    assert b"Third name" in text
    return "kept" if b"First name" in text else "not kept"


def letter(anna: Person, file: Path) -> str:
    """Change one byte of the packed cells on the disk."""
    with zipfile.ZipFile(file) as parts:
        part = parts.getinfo("content.xml")
    data = bytearray(file.read_bytes())
    data[part.header_offset + 30 + len(part.filename) + part.compress_size // 2] ^= 1
    file.write_bytes(data)
    if anna.open(file) is None:
        return "the file is packed, and can no longer be opened"
    return "it opens the changed file"


def main() -> None:
    """Do the jobs in a folder, and print what happened."""
    folder = Path(sys.argv[1])
    file = folder / "stores.ods"
    people = [Person(folder, "anna"), Person(folder, "ben")]
    anna, ben = people
    try:
        document = anna.open("private:factory/scalc")
        cell(document, 0).String = "Harbour"
        document.storeAsURL(f"file://{file}", (value("FilterName", "calc8"),))
        document.close(True)
        found = {
            "save": save(anna, ben, file),
            "repeat": repeat(anna, file),
            "merge": merge(anna, ben, file),
            "earlier": earlier(anna, file),
            "letter": letter(anna, file),
        }
    finally:
        for person in people:
            person.leave()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
