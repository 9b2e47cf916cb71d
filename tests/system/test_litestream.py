"""The page on Litestream: its program copies the file while the service runs, and what it gives
back is restored."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.client import create, until
from tests.harness.pages import ROOT, Step, blocks, follower, steps
from tests.harness.process import Running, serving

PAGE = ROOT / "docs/litestream.md"
PROGRAMS = Path(sys.executable).parent
COUNT = 8


def here(text: str, folder: Path) -> str:
    """Return a text of the page with the folders of a test, whose user runs all of it."""
    text = text.replace("runuser -u storekeeper -- ", "")
    for path in ("/var/lib/storekeeper", "/var/backups/storekeeper", "/mnt/replica", "/etc"):
        text = text.replace(path, f"{folder}{path}")
    return text


def page_steps(folder: Path) -> list[Step]:
    return [
        Step(step.where, step.prompt, here(step.command, folder), here(step.printed, folder))
        for step in steps(PAGE)
    ]


@contextmanager
def replicating(folder: Path, command: str) -> Iterator[None]:
    """Run the command of the page that copies without end; kill it, as the end of a machine
    does."""
    log = (folder / "litestream.log").open("wb")
    program = [str(PROGRAMS / "litestream"), *command.split()[1:]]
    with log, subprocess.Popen(program, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.kill()


def lost_machine(folder: Path, data: Path, command: str) -> None:
    """Write to a list that is copied meanwhile, until the copy has all; then kill both programs,
    and delete the list."""
    database = f"sqlite:///{data}/stores.db"
    with serving(folder, database=database) as service:
        with replicating(folder, command):
            for number in range(COUNT):
                create(service, f"Store {number}")
            has_all_changes(folder, service)
        service.process.kill()
    for file in data.iterdir():
        if file.is_file():
            file.unlink()


def has_all_changes(folder: Path, service: Running) -> None:
    """Wait until a copy made of the replica has the newest store."""
    found = folder / "copy.db"
    program = [str(PROGRAMS / "litestream"), "restore", "-config", f"{folder}/etc/litestream.yml"]

    def is_whole() -> bool:
        found.unlink(missing_ok=True)
        source = f"{folder}/var/lib/storekeeper/stores.db"
        subprocess.run([*program, "-o", str(found), source], capture_output=True, check=False)
        return found.exists() and f"Store {COUNT - 1}".encode() in found.read_bytes()

    until(is_whole)
    assert service.request("GET", "/health/ready").json["writes"] == "ok"


def test_what_litestream_copied_of_a_lost_machine_is_restored_with_a_new_epoch(
    tmp_path: Path,
) -> None:
    for name in ("var/lib/storekeeper", "var/backups/storekeeper", "mnt/replica", "etc"):
        (tmp_path / name).mkdir(parents=True)
    [yaml] = ["\n".join(lines) for _, language, lines in blocks(PAGE) if language == "yaml"]
    (tmp_path / "etc/litestream.yml").write_text(here(yaml, tmp_path))
    data = tmp_path / "var/lib/storekeeper"
    replicate, *others = page_steps(tmp_path)
    lost_machine(tmp_path, data, replicate.command)
    database = f"sqlite:///{data}/stores.db"
    with follower(tmp_path, STOREKEEPER_DATABASE=database) as shell:
        shell.run(f"PATH={PROGRAMS}:$PATH")
        for step in others:
            assert step.difference(*shell.run(step.typed)) is None
    with serving(tmp_path, database=database) as service:
        names = [store["name"] for store in service.request("GET", "/api/stores").json]
        assert names == [f"Store {number}" for number in range(COUNT)]
