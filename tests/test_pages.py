import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from black_box import serving
from conftest import need
from machine import Machine, missing
from pages import PAGES, ROOT, Shell, blocks, steps
from storekeeper.http.response import phrase

OPERATING = ROOT / "docs/operating.md"
README = ROOT / "README.md"

NOT_RUN = {
    "make serve": "serves until it is stopped; `serving` starts what it starts",
    "make test": "this test is part of it",
}
"""Commands of the pages that no test runs, with the reason."""

INSTALLS = (
    "git ",
    "python3 -m venv ",
    "/opt/storekeeper/0.1.0/bin/pip ",
    "/opt/storekeeper/0.2.0/bin/pip ",
)
"""What takes long and asks a registry: run by the thorough test; in its place the others have this checkout."""
INSTALL_TIMEOUT = 120.0


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine on which the page on operating was followed, with this checkout for the software."""
    if reason := missing():
        need("machine", reason)
    made = Machine()
    made.root(f"ln -s /mnt/source /opt/storekeeper/source; cd /opt/storekeeper; ln -s {ROOT}/.venv 0.1.0; ln -s 0.1.0 0.2.0")
    yield made
    made.close()


@pytest.fixture(scope="module")
def differences(machine: Machine) -> list[str]:
    return follow(machine)


def follow(machine: Machine, *, install: bool = False) -> list[str]:
    """Run the page on operating; return where it differs from what it says."""
    found = []
    for step in steps(OPERATING):
        if not step.command.startswith(INSTALLS):
            status, output = machine.run(step.prompt, step.command)
        elif install:
            status, output = machine.run_outside(step.command, INSTALL_TIMEOUT)
        else:
            continue
        if difference := step.difference(status, output):
            found.append(difference)
    return found


def test_every_command_of_the_page_on_operating_prints_what_it_says(differences: list[str]) -> None:
    assert not differences, "\n\n".join(differences)


def test_every_page_shows_the_files_of_deploy_as_they_are() -> None:
    shown = []
    for begin, language, lines in blocks(OPERATING):
        before = OPERATING.read_text().splitlines()[begin - 2]
        if name := re.fullmatch(r"<!-- file: (.*) -->", before):
            assert (ROOT / name[1]).read_text() == "\n".join(lines) + "\n", f"{name[1]}, shown as {language}"
            shown.append(name[1])
    assert len(shown) >= 4


RAW = "exec 3<>/dev/tcp/127.0.0.1/80; printf '{}' >&3; timeout 3 cat <&3; exec 3>&-"
"""Sends bytes to nginx and prints what comes; a shell's own connection, since no client would send them."""

REFUSED_BY_NGINX = {
    "body too long": (413, "curl -si 127.0.0.1/api/stores -T /dev/zero -X POST"),
    "target too long": (414, "curl -si 127.0.0.1/$(printf %017000d 0)"),
    "field too long": (431, "curl -si 127.0.0.1/ -H x:$(printf %017000d 0)"),
    "no Host": (400, RAW.format(r"GET / HTTP/1.1\r\n\r\n")),
    "no HTTP": (400, RAW.format(r"GET / HTTP/x\r\n\r\n")),
    "TRACE": (405, "curl -si 127.0.0.1/ -X TRACE"),
    "coding unknown": (501, "curl -si 127.0.0.1/test -H 'transfer-encoding: gzip'"),
    "another major version": (505, RAW.format(r"GET / HTTP/3.0\r\nHost: a\r\n\r\n")),
    "the error page itself": (404, "curl -si 127.0.0.1/storekeeper-error"),
    "refused by nginx": (503, "curl -si 127.0.0.1/busy"),
    "service stands still": (504, "kill -STOP $(cat /run/storekeeper.pid); curl -si 127.0.0.1/test"),
    "service is gone": (502, "systemctl stop storekeeper; curl -si 127.0.0.1/test; systemctl start storekeeper"),
}


@pytest.fixture(scope="module")
def behind_nginx(machine: Machine, differences: list[str]) -> Machine:
    """The machine with one worker of nginx, a shorter timeout there, and a path that it refuses."""
    assert not differences
    machine.root("sed -i 's/^worker_processes .*/worker_processes 1;/' /etc/nginx/nginx.conf")
    change = "s/proxy_read_timeout .*/proxy_read_timeout 300ms;/; s,location / {,location = /busy { return 503; }\n&,"
    machine.root(f"sed -i {change!r} /etc/nginx/conf.d/storekeeper.conf; systemctl restart nginx")
    return machine


@pytest.mark.parametrize("case", REFUSED_BY_NGINX)
def test_what_nginx_refuses_itself_has_the_error_body_of_the_contract(behind_nginx: Machine, case: str) -> None:
    status, command = REFUSED_BY_NGINX[case]
    try:
        output = behind_nginx.run("#", command)[1]
    finally:
        behind_nginx.run("#", "kill -CONT $(cat /run/storekeeper.pid)")
    head, _, body = output.rpartition("\n\n")
    error = json.loads(body)
    assert re.search(rf"^HTTP/1.1 {status}\b", head, re.MULTILINE)
    assert "\nContent-Type: application/json; charset=utf-8\n" in head
    assert "\ncache-control: no-cache" in head
    assert ("\nretry-after: 1" in head) == (status in {502, 503, 504})
    assert error["statusCode"] == status
    assert error["error"] == phrase(status)
    assert error["message"]
    assert error.get("outcome") == {502: "unknown", 503: "none", 504: "unknown"}.get(status)


@pytest.mark.parametrize("request_", ["stores/99", "stores/1 -T /dev/null", "stores -d {} -H content-type:application/json"])
def test_what_the_service_refuses_comes_through_nginx_as_it_is(behind_nginx: Machine, request_: str) -> None:
    _, direct = behind_nginx.run("$", f"curl -s 127.0.0.1:8080/api/{request_}")
    _, through = behind_nginx.run("$", f"curl -s 127.0.0.1/api/{request_}")
    assert json.loads(direct)["statusCode"] in {400, 404, 415}
    assert through == direct


CLOSES_AT_ITS_SECOND_REQUEST = """
import socket
listener = socket.create_server(("127.0.0.1", 8080))
count = 0
while True:
    print(count, flush=True)
    client = listener.accept()[0]
    for response in (b"HTTP/1.1 200 OK\\r\\ncontent-length: 0\\r\\n\\r\\n", b""):
        client.recv(65536)
        count += 1
        client.sendall(response)
    client.close()
"""


def test_nginx_never_repeats_a_write_that_got_no_response(behind_nginx: Machine) -> None:
    """A kept connection that is closed is where it would, whatever the method."""
    machine = behind_nginx
    machine.root("systemctl stop storekeeper; systemctl restart nginx")
    machine.root(f"{sys.executable} -c {shlex.quote(CLOSES_AT_ITS_SECOND_REQUEST)} > /tmp/requests & peer=$!")
    try:
        machine.root("until grep -q 0 /tmp/requests; do sleep 0.01; done")
        write = "curl -s -o /dev/null -w %{http_code} 127.0.0.1/api/stores -d {}"
        assert machine.root(write).strip() == "200"
        assert machine.root(write).strip() == "502"
        machine.root("until grep -q 2 /tmp/requests; do sleep 0.01; done; sleep 0.1")
        assert machine.root("cat /tmp/requests").split() == ["0", "2"]
    finally:
        machine.root("kill $peer; systemctl start storekeeper")
