"""The recipe for Caddy, with a real Caddy in front of a real service."""

import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from socket import create_connection
from typing import NamedTuple

from tests.harness.client import create, until
from tests.harness.pages import ROOT
from tests.harness.process import Response, ask, free_port, serving

CADDY = Path(sys.executable).parent / "caddy"
HOST = "stores.example"


class Ports(NamedTuple):
    """Where a Caddy listens."""

    http: int
    https: int


@contextmanager
def caddy(folder: Path, service: int) -> Iterator[Ports]:
    """Run Caddy with the recipe, on other ports and with a certificate of its own."""
    ports = Ports(free_port(), free_port())
    recipe = (
        (ROOT / "deploy/Caddyfile").read_text().replace("127.0.0.1:8080", f"127.0.0.1:{service}")
    )
    own = f"{{\n\tadmin off\n\thttp_port {ports.http}\n\thttps_port {ports.https}\n"
    own += "\tlocal_certs\n\tskip_install_trust\n"
    file = folder / "Caddyfile"
    file.write_text(re.sub(r"^\{\n", own, recipe, count=1, flags=re.MULTILINE))
    environment = os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
    log = folder / "caddy.log"
    with log.open("wb") as opened:
        process = subprocess.Popen(
            [CADDY, "run", "--config", file], env=environment, stdout=opened, stderr=opened
        )
    try:
        until(lambda: responds(ports))
        yield ports
    finally:
        process.terminate()
        process.wait(30)


def responds(ports: Ports) -> bool:
    try:
        return through(ports, "GET", "/test").status == 200
    except OSError:
        return False


def through(
    ports: Ports, method: str, target: str, body: object = None, **headers: str
) -> Response:
    """Send a request over TLS, with the host name of the recipe."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    connection = HTTPSConnection(HOST, ports.https, timeout=30)
    raw = create_connection(("127.0.0.1", ports.https), 30)
    connection.sock = trusting.wrap_socket(raw, server_hostname=HOST)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(connection):
        return ask(connection, method, target, body, sent)


def test_the_recipe_serves_names_each_request_and_hides_the_metrics(tmp_path: Path) -> None:
    with serving(tmp_path) as service, caddy(tmp_path, service.port) as ports:
        create(service, "Castle Hill")
        found = through(ports, "GET", "/api/stores/1", x_request_id="mine-1")
        assert found.json["name"] == "Castle Hill"
        assert found.headers["x-request-id"] == "mine-1"
        named = through(ports, "GET", "/api/stores/1", x_request_id="not {one}")
        assert re.fullmatch("[0-9a-f-]{36}", named.headers["x-request-id"])
        until(lambda: named.headers["x-request-id"] in (tmp_path / "caddy.log").read_text())
        hidden = through(ports, "GET", "/metrics")
        assert hidden.json == {"statusCode": 404, "error": "Not Found", "message": "Not Found"}
        large = through(ports, "POST", "/api/stores", {"name": "x", "address": "y" * 2**20})
        assert (large.status, large.json["error"]) == (413, "Content Too Large")
        with closing(HTTPConnection("127.0.0.1", ports.http, timeout=30)) as plain:
            led = ask(plain, "GET", "/api/stores?q=a", None, {"host": HOST})
        assert led.status == 308
        assert led.headers["location"].startswith(f"https://{HOST}")


def test_a_service_that_is_gone_has_the_error_body_of_the_contract(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as service, caddy(tmp_path, service.port) as ports:
        assert service.stop() == 0
        gone = through(ports, "POST", "/api/stores", {"name": "x"})
        assert gone.status == 502
        assert gone.headers["content-type"] == "application/json; charset=utf-8"
        assert gone.headers["cache-control"] == "no-cache"
        expected = {"statusCode": 502, "error": "Bad Gateway", "outcome": "unknown"}
        assert expected.items() <= json.loads(gone.body).items()
