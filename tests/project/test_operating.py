"""The operator's pages: every command does what they say, on one machine, in their order."""

import inspect
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from unittest.mock import ANY

import pytest

from storekeeper.api.metrics import OTHER, REFUSALS
from storekeeper.api.token_table import UNREAD
from storekeeper.domain import errors
from storekeeper.http.response import phrase
from storekeeper.storage.postgres import pool, writer
from storekeeper.storage.sqlite import errors as sqlite_errors
from storekeeper.storage.sqlite.errors import DAMAGED
from tests.harness.machine import need
from tests.harness.namespaces import Machine, missing
from tests.harness.pages import NOT_RUN, ON_A_MACHINE, README, ROOT, Step, steps
from tests.harness.postgres_server import Missing, binaries

HEALTH = ROOT / "docs/reference/health.md"
BACKUPS = ROOT / "docs/backups.md"

INSTALLS = (
    "git ",
    "python3 -m venv ",
    "/opt/storekeeper/0.1.0/bin/pip ",
    "/opt/storekeeper/0.2.0/bin/pip ",
)
"""What takes long and asks a registry: run by the thorough test; in its place the others have
this checkout."""
INSTALL_TIMEOUT = 120.0

INSTALLS_SETTINGS = r"install .* /etc/(storekeeper\.env|nginx/conf\.d/storekeeper\.conf)"


@pytest.fixture
def empty_machine() -> Iterator[Machine]:
    """A machine on which nothing is installed, and any user may clone this checkout."""
    if reason := missing():
        need("machine", reason)
    made = Machine()
    try:
        made.root("git config --system --add safe.directory '*'")
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine where the pages were followed, then with its first settings and the file as its
    database again."""
    if reason := missing():
        need("machine", reason)
    made = Machine()
    try:
        made.root(
            f"cd /opt/storekeeper; ln -s /mnt/source source; ln -s {ROOT}/.venv 0.1.0; ln -s"
            " 0.1.0 0.2.0"
        )
        differences = follow(made)
        assert not differences, "\n\n".join(differences)
        for step in commands():
            if re.fullmatch(INSTALLS_SETTINGS, step.command):
                made.root(step.command)
        made.root("storekeeper epoch --new")  # its list was moved to PostgreSQL
        made.root("systemctl restart nginx storekeeper")
        yield made
    finally:
        made.close()


def commands() -> list[Step]:
    """Return the commands of the pages, in their order."""
    return [step for page in ON_A_MACHINE for step in steps(page)]


def follow(machine: Machine, *, install: bool = False) -> list[str]:
    """Run the commands of the pages; return where they differ from what the pages say."""
    start_postgres(machine)
    machine.root("umask 077")  # as some have it for root
    found = []
    for step in commands():
        if step.command in NOT_RUN:
            continue
        if not step.command.startswith(INSTALLS):
            status, output = machine.run(step.prompt, step.command)
        elif install:
            status, output = machine.run_outside(step.command, INSTALL_TIMEOUT)
        else:
            continue
        if difference := step.difference(status, output):
            found.append(difference)
    return found


def start_postgres(machine: Machine) -> None:
    """Start a PostgreSQL as a distribution has it: its user, its socket, peer for who connects
    there."""
    try:
        programs = binaries()
    except Missing as error:
        need("postgres", str(error))
    folders = "/var/lib/postgresql /var/run/postgresql"
    machine.root(f"mkdir -p {folders}; chown postgres: {folders}; cd /var/lib/postgresql")
    options = "--auth-local peer --auth-host scram-sha-256 --no-sync --no-locale"
    machine.root(f"runuser -u postgres -- {programs}/initdb data {options}")
    server = (
        f"{programs}/pg_ctl start --wait --pgdata data --log log --options '-F -k"
        " /var/run/postgresql'"
    )
    machine.root(f"runuser -u postgres -- {server}; cd")


@pytest.mark.usefixtures("machine")
def test_every_command_of_the_pages_prints_what_they_say() -> None:
    """The machine would not be there otherwise."""


@pytest.mark.thorough  # installs all dependencies twice, from a registry
def test_the_pages_install_and_upgrade_as_they_say(empty_machine: Machine) -> None:
    found = follow(empty_machine, install=True)
    assert not found, "\n\n".join(found)


@pytest.mark.thorough  # installs all dependencies, from a registry
def test_a_stranger_without_rights_clones_the_repository_and_serves(empty_machine: Machine) -> None:
    clone = 'git clone --quiet "$REPOSITORY" storekeeper && make -C storekeeper setup'
    found = empty_machine.run_outside(
        f"runuser -u visitor -- bash -c {shlex.quote('cd; ' + clone)}", INSTALL_TIMEOUT
    )
    assert found[0] == 0, found[1]
    start = (
        "cd storekeeper; make serve > log 2>&1 & until curl -so /dev/null"
        " 127.0.0.1:8080/test; do sleep 0.05; done"
    )
    assert empty_machine.run("$", start)[0] == 0
    before = "cd storekeeper"
    for step in steps(README):
        if (here := step.typed) not in NOT_RUN:
            assert step.difference(*empty_machine.run("$", f"{before}; {here}")) is None
        if here.startswith("export "):
            before += f"; {here}"


def test_the_pages_install_every_file_of_deploy() -> None:
    """But those for the machine that watches: Prometheus and Grafana load them."""
    page = "\n".join(page.read_text() for page in ON_A_MACHINE)
    for file in {*(ROOT / "deploy").iterdir()} - {
        ROOT / "deploy/alerts.yml",
        ROOT / "deploy/grafana.json",
        ROOT / "deploy/kubernetes.yaml",
    }:
        assert re.search(rf"^# install .*\bdeploy/{re.escape(file.name)}\b", page, re.MULTILINE), (
            file.name
        )


def test_there_is_a_page_with_every_reason_that_health_can_give() -> None:
    page = HEALTH.read_text()
    reasons = {errors.DISK_FULL, errors.DISK_STALLED, errors.LOCKED, errors.CLOSED, UNREAD}
    reasons.add(errors.MOVED)
    reasons |= {
        f"{DAMAGED}: …",
        f"{errors.FAILED}: …",
        pool.UNREACHABLE,
        errors.NO_RESPONSE,
        errors.NO_STANDBY,
        pool.NO_SINGLE_ROW,
        *pool._EXPECTED.values(),
    }
    for module in (sqlite_errors, writer):
        reasons |= set(re.findall(r'Unavailable\("([^"]+)"', inspect.getsource(module)))
    assert len(reasons) > 15
    assert {reason for reason in reasons if f"`{reason}`" not in page} == set()
    assert {reason.partition(":")[0] for reason in reasons} == {*REFUSALS} - {OTHER}


def test_the_nightly_backup_fails_if_there_is_no_database(machine: Machine) -> None:
    machine.root("rm -f /var/backups/storekeeper/stores-*")  # two of one second would have one name
    machine.root("systemctl start storekeeper-backup")
    machine.root("rm /var/backups/storekeeper/stores-*")
    machine.root("sed -i s/stores.db/away.db/ /etc/storekeeper.env")
    status, said = machine.run("#", "systemctl start storekeeper-backup")
    assert status != 0
    machine.root("sed -i s/away.db/stores.db/ /etc/storekeeper.env")
    assert "/var/lib/storekeeper/away.db: there is no such database" in said


def test_a_password_in_the_settings_lets_commands_into_postgresql_as_the_page_says(
    machine: Machine,
) -> None:
    machine.root(
        "cd /; runuser -u postgres -- psql -qc"
        """ "ALTER ROLE storekeeper PASSWORD 'secret word'"; cd"""
    )
    export = "storekeeper export - --database postgresql://storekeeper@127.0.0.1/stores"
    assert "no password supplied" in machine.run("#", export)[1]
    settings = "/etc/storekeeper.env"
    machine.root(f"""cp -p {settings} env; echo "PGPASSWORD='secret word'" >> {settings}""")
    machine.root(f"{export} && mv env {settings}")
    assert "no password supplied" in machine.run("#", export)[1]
    file = "/var/lib/storekeeper/.pgpass"
    machine.root(
        f"install -m 600 -o storekeeper /dev/null {file}; echo '*:*:*:*:secret word' > {file}"
    )
    machine.root(export)


STORES = "http://127.0.0.1:8080/api/stores"


def fetched(machine: Machine, *options: str) -> tuple[int, str]:
    """Return the status and the ETag of a response."""
    command = shlex.join(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %header{etag}", *options]
    )
    status, _, tag = machine.run("$", command)[1].strip().partition(" ")
    return int(status), tag


def write_until(machine: Machine, version: int, name: str) -> str:
    """Add stores until the collection has the version but one, then replace the first; return
    that one's ETag."""
    present = int(fetched(machine, STORES)[1].strip('"').partition(".")[0])
    payload = ["-H", "content-type: application/json", "-d", json.dumps({"name": name})]
    machine.root(
        shlex.join(
            ["curl", "-sf", "-o", "/dev/null", *payload, f"{STORES}?n=[1-{version - 1 - present}]"]
        )
    )
    status, tag = fetched(machine, "-X", "PUT", *payload, f"{STORES}/1")
    assert (status, tag.partition(".")[0]) == (200, f'"{version}')
    return tag


def test_a_restore_as_the_page_says_and_nothing_else_ends_every_etag(machine: Machine) -> None:
    """The numbers of lost changes are those of others then: they must not pass for each other."""
    page = [step.command for step in steps(BACKUPS)]
    backup = next(
        one for one in page if one.startswith("storekeeper backup ") and one.endswith("/before.db")
    )
    restore = page[
        page.index("systemctl stop storekeeper.socket storekeeper") : page.index(
            "systemctl start storekeeper"
        )
        + 1
    ]
    assert backup.split()[-1] in " ".join(restore)
    machine.root("rm /var/backups/storekeeper/before.db*")
    write_until(machine, 100, "Before")
    machine.root(backup)
    old_store, old_list = write_until(machine, 124, "Lost"), fetched(machine, STORES)[1]
    for step in restore:
        machine.root(step)
    new = write_until(machine, 124, "Other")
    assert fetched(machine, "-H", f"if-none-match: {new}", f"{STORES}/1")[0] == 304
    assert fetched(machine, "-H", f"if-none-match: {old_store}", f"{STORES}/1") == (200, new)
    assert fetched(machine, "-H", f"if-none-match: {old_list}", STORES)[0] == 200
    payload = ["-H", "content-type: application/json", "-d", '{"name":"Mine"}']
    assert fetched(
        machine, *payload, "-X", "PUT", "-H", f"if-match: {old_store}", f"{STORES}/1"
    ) == (412, new)
    assert fetched(machine, *payload, "-H", f"if-match: {old_list}", STORES)[0] == 412


# A start with workers and a stop of them, for what the page says in a sentence.
@pytest.mark.thorough
def test_a_log_in_a_file_is_rotated_by_copytruncate(machine: Machine) -> None:
    if shutil.which("logrotate") is None:
        need("logrotate", "logrotate is not installed")
    serve = "env -C /tmp /opt/storekeeper/current/bin/storekeeper serve --port 8090 --workers 2"
    log = "/var/log/storekeeper.log"
    machine.root(f"{serve} 2>> {log} & until grep -q 8090 {log}; do sleep 0.01; done")
    first = machine.root(f"cat {log}")
    machine.root("logrotate --force --state /root/state /etc/logrotate.d/storekeeper")
    machine.root(
        f"kill -9 $(pgrep --newest --parent $!); until grep -q 'worker lost' {log}; do sleep"
        " 0.01; done"
    )
    assert machine.root(f"cat {log}.1") == first
    assert not machine.root(f"head -c 20 {log} | tr '\\0' X").startswith("X")
    machine.root("kill %?8090; wait $!")


def test_another_asgi_server_serves_as_the_page_says(machine: Machine) -> None:
    (serve,) = [one for one in NOT_RUN if "--factory" in one]
    try:
        start = (
            f"{serve} > log 2>&1 & until grep -q 'Uvicorn running' log; do kill -0 $!;"
            " sleep 0.01; done"
        )
        assert machine.run("$", f"set -e; {start}; echo $! > pid")[0] == 0
        assert (
            '"status":"ready"' in machine.run("$", "curl -s http://127.0.0.1:8098/health/ready")[1]
        )
    finally:
        machine.run("$", "kill $(cat pid)")


def test_who_may_not_write_is_told_how_to(machine: Machine) -> None:
    output = machine.run("$", "curl -ski https://127.0.0.1/api/stores -d {}")[1]
    assert "\nWWW-Authenticate: Basic" in output
    assert json.loads(output.rpartition("\n\n")[2])["statusCode"] == 401


def test_nginx_hands_on_an_id_of_each_request_and_closes_the_metrics(machine: Machine) -> None:
    def header(sent: str, path: str, name: str) -> str:
        options = f"-sk -o /dev/null -w '%header{{{name}}}' {sent}"
        return machine.run("$", f"curl {options} https://127.0.0.1{path}")[1].strip()

    assert header("-H x-request-id:mine-1", "/api/stores/1", "x-request-id") == "mine-1"
    for path in ("/api/stores/1", "/storekeeper-error"):
        made = header("-H 'x-request-id: not {one}'", path, "x-request-id")
        assert re.fullmatch("[0-9a-f]{32}", made)
        assert made in machine.root("cat /var/log/nginx/storekeeper.log")
    body = machine.run("$", "curl -sk https://127.0.0.1/metrics")[1]
    assert json.loads(body) == {"statusCode": 404, "error": "Not Found", "message": "Not Found"}


def test_port_80_leads_to_443(machine: Machine) -> None:
    sent = (
        "curl -s -o /dev/null -w '%{http_code} %{redirect_url}' 'http://127.0.0.1/api/stores?q=a'"
    )
    assert machine.run("$", sent)[1] == "308 https://127.0.0.1/api/stores?q=a"


def test_the_limit_of_requests_that_nginx_may_have_refuses_with_the_error_body(
    machine: Machine,
) -> None:
    file = "/etc/nginx/conf.d/storekeeper.conf"
    machine.root(f"cp {file} kept; sed -i 's/#limit_req/limit_req/; s/burst=200/burst=1/' {file}")
    try:
        machine.root("sed -i 's,rate=50r/s,rate=1r/m,' " + file + "; systemctl restart nginx")
        url = "'https://127.0.0.1/api/stores/1?[1-5]'"
        said = machine.run("$", f"curl -sk {url}")[1]
        assert said.count('"statusCode":429,"error":"Too Many Requests"') == 3
    finally:
        machine.root(f"mv kept {file}; systemctl restart nginx")


RAW = "exec 3<>/dev/tcp/127.0.0.1/80; printf '{}' >&3; timeout 3 cat <&3; exec 3>&-"
"""Sends bytes to nginx and prints what comes; a shell's own connection, since no client would
send them."""

REFUSED_BY_NGINX = {
    "body too long": (413, "curl -si 127.0.0.1/api/stores -T /dev/zero -X POST"),
    "target too long": (414, "curl -si 127.0.0.1/$(printf %017000d 0)"),
    "field too long": (431, "curl -si 127.0.0.1/ -H x:$(printf %017000d 0)"),
    "no Host": (400, RAW.format(r"GET / HTTP/1.1\r\n\r\n")),
    "no HTTP": (400, RAW.format(r"GET / HTTP/x\r\n\r\n")),
    "no TLS": (400, "curl -si http://127.0.0.1:443/"),
    "TRACE": (405, "curl -si 127.0.0.1/ -X TRACE"),
    "coding unknown": (501, "curl -si 127.0.0.1/test -H 'transfer-encoding: gzip'"),
    "another major version": (505, RAW.format(r"GET / HTTP/3.0\r\nHost: a\r\n\r\n")),
    "the error page itself": (404, "curl -si 127.0.0.1/storekeeper-error"),
    "refused by nginx": (503, "curl -si 127.0.0.1/busy"),
    "service stands still": (
        504,
        "kill -STOP $(cat /run/storekeeper.pid); curl -si 127.0.0.1/test",
    ),
    "service is gone": (
        502,
        "systemctl stop storekeeper; curl -si 127.0.0.1/test; systemctl start storekeeper",
    ),
}


@pytest.fixture(scope="module")
def behind_nginx(machine: Machine) -> Machine:
    """The machine with one worker of nginx, which takes plain HTTP and everybody's writes and
    waits for less time."""
    machine.root("sed -i 's/^worker_processes .*/worker_processes 1;/' /etc/nginx/nginx.conf")
    for change in (
        "/^# Port 80/,/^}/d",
        "s/listen 443 .*/&listen 80 default_server;/",
        "/limit_except/,/}/d",
        "s/proxy_read_timeout 30s;/proxy_read_timeout 300ms;/",
        r"s,location / {,location = /busy { return 503; }\n&,",
    ):
        machine.root(f"sed -i {shlex.quote(change)} /etc/nginx/conf.d/storekeeper.conf")
    machine.root("systemctl restart nginx")
    return machine


def test_what_nginx_refuses_itself_has_the_error_body_of_the_contract(
    behind_nginx: Machine,
) -> None:
    for case, (status, sent) in REFUSED_BY_NGINX.items():
        output = behind_nginx.run("#", f"{sent}; kill -CONT $(cat /run/storekeeper.pid)")[1]
        head, _, body = output.rpartition("\n\n")
        assert re.search(rf"^HTTP/1.1 {status}\b", head, re.MULTILINE), (case, output)
        assert "\nContent-Type: application/json; charset=utf-8\n" in head, case
        assert "\ncache-control: no-cache" in head, case
        assert ("\nretry-after: 1" in head) == (status in {502, 503, 504}), case
        expected = {"statusCode": status, "error": phrase(status), "message": ANY}
        if status in {502, 503, 504}:
            expected["outcome"] = "none" if status == 503 else "unknown"
        assert json.loads(body) == expected, case


def test_a_spreadsheet_may_be_longer_than_another_body_and_not_too_long(
    behind_nginx: Machine,
) -> None:
    send = (
        "curl -s '127.0.0.1/api/imports?add=true&dry-run=true' --data-binary @- -H"
        " content-type:text/csv"
    )
    rows = "{ echo name,address; seq 60000 | sed 's/.*/Castle Hill &,& Castle Hill Road/'; }"
    output = behind_nginx.run("$", f"{rows} | {send}")[1]
    assert json.loads(output).get("rows") == 60000, output[:500]
    output = behind_nginx.run("$", f"head -c 70000000 /dev/zero | {send}")[1]
    assert (
        json.loads(output)["message"]
        == "Payload content length greater than maximum allowed: 67108864"
    )


def test_a_stream_passes_nginx_at_once(behind_nginx: Machine) -> None:
    set_timeout = (
        "sed -i 's/proxy_read_timeout {};/proxy_read_timeout {};/'"
        " /etc/nginx/conf.d/storekeeper.conf"
    )
    behind_nginx.root(f"{set_timeout.format('300ms', '30s')}; systemctl restart nginx")
    stream = "curl -sN 127.0.0.1/api/changes?after=now -H 'accept: text/event-stream'"
    write = (
        'curl -sf 127.0.0.1/api/stores -H content-type:application/json -d \'{"name":"Streamed"}\''
    )
    try:
        behind_nginx.root(
            f"{stream} > /tmp/stream & peer=$!; until [ -s /tmp/stream ]; do sleep 0.05; done"
        )
        behind_nginx.root(
            f"{write}; until grep -q Streamed /tmp/stream; do sleep 0.05; done; kill $peer"
        )
    finally:
        behind_nginx.root(f"{set_timeout.format('30s', '300ms')}; systemctl restart nginx")


def test_what_the_service_refuses_comes_through_nginx_as_it_is(behind_nginx: Machine) -> None:
    for request in [
        "stores/999999",
        "stores/1 -T /dev/null",
        "stores -d {} -H content-type:application/json",
    ]:
        _, direct = behind_nginx.run("$", f"curl -s 127.0.0.1:8080/api/{request}")
        _, through = behind_nginx.run("$", f"curl -s 127.0.0.1/api/{request}")
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
    machine.root(
        f"{sys.executable} -c {shlex.quote(CLOSES_AT_ITS_SECOND_REQUEST)} > /tmp/requests & peer=$!"
    )
    try:
        machine.root("until grep -q 0 /tmp/requests; do sleep 0.01; done")
        write = "curl -s -o /dev/null -w %{http_code} 127.0.0.1/api/stores -d {}"
        assert machine.root(write).strip() == "200"
        assert machine.root(write).strip() == "502"
        machine.root("until grep -q 2 /tmp/requests; do sleep 0.01; done; sleep 0.1")
        assert machine.root("cat /tmp/requests").split() == ["0", "2"]
    finally:
        machine.root("kill $peer; systemctl start storekeeper")
