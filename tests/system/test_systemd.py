"""The units of deploy/, on a real systemd: what ends the service, what starts it again, what its
clients meet."""

import json
import shlex
from collections.abc import Iterator

import pytest

from storekeeper.sheets import TYPES
from tests.harness.booted import Booted, booted
from tests.harness.machine import need

INSTALL = """
set -e
cd /opt/storekeeper/source
useradd --system --home-dir /var/lib/storekeeper --shell /usr/sbin/nologin storekeeper
install -m 640 -g storekeeper deploy/storekeeper.env /etc/storekeeper.env
install -d -m 750 -o storekeeper -g storekeeper /var/lib/storekeeper
install -m 755 deploy/storekeeper /usr/local/sbin
install -m 644 deploy/storekeeper.service deploy/storekeeper.socket /etc/systemd/system
systemctl daemon-reload
cd /root
set +e
"""
URL = "http://127.0.0.1:8080/api/stores"
REFUSED = 7
"""curl's status if no server listens."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    with booted(tmp_path_factory.mktemp("booted")) as made:
        made.root(INSTALL)
        yield made


@pytest.fixture
def serving(machine: Booted) -> Booted:
    """The machine with the service, on an empty list."""
    machine.run("systemctl stop storekeeper.socket storekeeper; systemctl reset-failed")
    machine.root("sed -i /PORT/d /etc/storekeeper.env; rm -rf /var/lib/storekeeper/* lost")
    machine.root("storekeeper create; systemctl start storekeeper")
    assert states(machine) == ["active", "active"]
    assert machine.root(f"curl -sf {URL}") == "[]"
    return machine


def states(machine: Booted) -> list[str]:
    return machine.run("systemctl is-active storekeeper.socket storekeeper")[1].split()


def starts(machine: Booted) -> int:
    """Return how often the service was started since the machine booted."""
    return machine.root("journalctl -u storekeeper").count(": Starting ")


ENDS_WITH_2 = {
    "a setting is wrong": (
        "echo STOREKEEPER_PORT=x >> /etc/storekeeper.env; systemctl restart storekeeper",
        "sed -i /PORT/d /etc/storekeeper.env",
    ),
    "the database is deleted": (
        "mkdir lost; mv /var/lib/storekeeper/stores.db lost",
        "mv lost/stores.db /var/lib/storekeeper",
    ),
    "the database is not there at a start": (
        "systemctl stop storekeeper; mkdir lost; mv /var/lib/storekeeper/* lost",
        "mv lost/* /var/lib/storekeeper",
    ),
}
"""What ends the service with status 2, and what fixes that."""


@pytest.mark.parametrize("cause", ENDS_WITH_2)
def test_status_2_refuses_clients_at_once_until_the_next_start(serving: Booted, cause: str) -> None:
    break_it, mend_it = ENDS_WITH_2[cause]
    before = starts(serving)
    clients = shlex.quote(f"while true; do curl -s -o /dev/null -m 5 {URL}; done")
    serving.root(f"bash -c {clients} & clients=$!")
    serving.run(break_it)
    serving.root("until systemctl --quiet is-failed storekeeper; do sleep 0.05; done")
    assert serving.run(f"curl -s -m 5 {URL}") == (REFUSED, "")
    serving.root("sleep 2; kill $clients")  # systemd starts a service again after one second
    assert serving.run(f"curl -s -m 5 {URL}") == (REFUSED, "")
    assert starts(serving) == before + (cause != "the database is deleted")
    is_there = serving.run("test -e /var/lib/storekeeper/stores.db")[0] == 0
    assert is_there == (cause == "a setting is wrong")  # else a list was begun in its place
    assert states(serving) == ["inactive", "failed"]
    assert "storekeeper.service" in serving.root("systemctl --failed --plain")
    serving.root(f"{mend_it}; systemctl start storekeeper")
    assert states(serving) == ["active", "active"]
    assert serving.root(f"curl -sf {URL}") == "[]"


OTHER_ENDS = {
    "killed": "kill -9 $pid",
    "stopped by an unknown signal": "kill -TERM $pid",
    "aborted": "kill -ABRT $pid",
    "ended with status 74, because the log was deleted": "rm /var/lib/storekeeper/stores.db-wal",
}


def test_files_are_read_within_the_fences_of_the_unit(serving: Booted) -> None:
    """The process that reads them sets limits of its own, and begins with none of ours."""
    send = "curl -s -o /dev/null -w '%{http_code}' --data-binary @- -H content-type:text/csv"
    rows = r"printf 'name\nCastle Hill\nOld Mill\n'"
    assert serving.root(f"{rows} | {send} 'http://127.0.0.1:8080/api/imports?add=true'") == "200"
    assert json.loads(serving.root(f"curl -sf {URL}"))[1]["name"] == "Old Mill"


def test_after_any_other_end_no_client_is_refused(serving: Booted) -> None:
    for end, command in OTHER_ENDS.items():
        serving.root(f"pid={main_process(serving)}; {command}; tail --pid=$pid -f /dev/null")
        assert serving.run(f"curl -s -m 20 {URL}") == (0, "[]"), end
        assert states(serving) == ["active", "active"], end


def main_process(machine: Booted) -> str:
    return machine.root("systemctl show --property MainPID --value storekeeper").strip()


def test_a_service_that_stops_without_ending_is_replaced(serving: Booted) -> None:
    """As one whose event loop is stuck is, by a watchdog that waits for less time than the
    unit's."""
    drop_in = "/run/systemd/system/storekeeper.service.d/watchdog.conf"
    serving.root(f"mkdir -p $(dirname {drop_in})")
    serving.root(f"printf '[Service]\\nWatchdogSec=4\\n' > {drop_in}; systemctl daemon-reload")
    serving.root("systemctl restart storekeeper")
    before = main_process(serving)
    serving.root("sleep 9")  # it is fed meanwhile
    assert main_process(serving) == before
    serving.root(f"kill -STOP {before}; tail --pid={before} -f /dev/null")
    assert serving.run(f"curl -s -m 20 {URL}") == (0, "[]")
    assert states(serving) == ["active", "active"]
    assert "Watchdog timeout" in serving.root("journalctl -u storekeeper")
    serving.root(f"rm {drop_in}; systemctl daemon-reload")


# A file takes all memory.

SENDS_BOMB = f"""
cd /root && PYTHONPATH=/mnt/source /opt/storekeeper/current/bin/python3 -c '
import pathlib, tests.sheets.corpus
pathlib.Path("bomb.xlsx").write_bytes(tests.sheets.corpus.bomb())'
curl -s -o /dev/null -w '%{{http_code}}' -m 60 -H 'content-type: {TYPES["xlsx"]}' \
  --data-binary @bomb.xlsx 'http://127.0.0.1:8080/api/imports?add=true'"""
"""Sends a small file that needs a gigabyte, and prints the status of the response."""


@pytest.fixture
def bounded(serving: Booted) -> Iterator[Booted]:
    """The service with 256 MiB of memory."""
    group = "/sys/fs/cgroup/system.slice/storekeeper.service"
    if serving.run(f"test -e {group}/memory.max")[0]:
        need("cgroup2", "the memory of a unit cannot be limited here: cgroup version 2 has none")
    serving.root("systemctl set-property --runtime storekeeper MemoryMax=256M MemorySwapMax=0")
    yield serving
    serving.root("systemctl revert storekeeper; systemctl daemon-reload")


def test_a_file_that_takes_all_memory_does_not_stop_the_service(bounded: Booted) -> None:
    before = main_process(bounded)
    assert bounded.root(SENDS_BOMB) == "503"
    bounded.root("until journalctl -u storekeeper | grep -q 'OOM killer'; do sleep 0.05; done")
    assert main_process(bounded) == before
    assert bounded.run(f"curl -s -m 20 {URL}") == (0, "[]")


def test_a_stop_by_another_policy_would_be_seen(bounded: Booted) -> None:
    drop_in = "/run/systemd/system/storekeeper.service.d/policy.conf"
    bounded.root(f"mkdir -p $(dirname {drop_in})")
    bounded.root(f"printf '[Service]\\nOOMPolicy=stop\\n' > {drop_in}; systemctl daemon-reload")
    before = main_process(bounded)
    bounded.run(SENDS_BOMB)
    bounded.root(f"tail --pid={before} -f /dev/null; rm {drop_in}")
