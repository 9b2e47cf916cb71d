"""The user whom a trusted proxy names: who is believed, what is shown, what is refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from storekeeper.http.connection import Connection
from storekeeper.http.peers import TrustedPeers
from tests.harness.asgi import asked
from tests.harness.http_server import QuietHandler, http_server
from tests.harness.in_process import Careful, Inside, exchange, inside, last_response, settled
from tests.harness.nginx import nginx
from tests.harness.process import Response, serving
from tests.harness.tokens import add_token
from tests.harness.wire import request

HEADER = "X-Forwarded-User"
PROXIES = {"trusted": ["192.0.2.7", "127.0.0.1"], "another": ["192.0.2.7"], "unix": ["unix"]}
NAMES = [
    # the lines of the field, and the user that they name; None: a write is refused
    ((), ""),
    (("anna",), "anna"),
    (("  anna@shop.example\t",), "anna@shop.example"),
    (("Zoë Çelik 東",), "Zoë Çelik 東"),
    (("x" * 100,), "x" * 100),
    (("x" * 101,), None),
    (("",), None),
    (("anna", "anna"), None),
    (("anna\x85",), None),
    (("anna\u2028x",), None),
    (("\udcff",), None),
]


async def ask(service: Inside, kind: type[Connection], data: bytes) -> Response:
    connection, line = service.connect(kind)
    connection.data_received(data)
    await settled(connection)
    return last_response(line)


def write(fields: tuple[str, ...], *more: str) -> bytes:
    """Return a write with these lines of the field; a surrogate is a byte that is not UTF-8."""
    data = request("POST", "/api/stores", b'{"name":"Named"}', *more)
    lines = b"".join(
        f"{HEADER.upper()}: {value}\r\n".encode(errors="surrogateescape") for value in fields
    )
    return data.replace(b"\r\n", b"\r\n" + lines, 1)


async def last_change(service: Inside, *fields: str) -> Any:
    page = await exchange(service, request("GET", "/api/changes?order=desc&limit=1", None, *fields))
    return page.json["changes"][0] if page.json["changes"] else None


@pytest.mark.parametrize("kind", [Connection, Careful])
async def test_the_history_names_whom_a_trusted_proxy_names(
    tmp_path: Path, kind: type[Connection]
) -> None:
    reader = f"{HEADER}: reader"
    settings: Any = {"user_header": HEADER, "trusted_proxy": PROXIES["trusted"]}
    async with inside(tmp_path, **settings) as service:
        for fields, user in NAMES:
            before = await last_change(service, reader)
            response = await ask(service, kind, write(fields))
            after = await last_change(service, reader)
            if user is None:
                assert response.status == 400, fields
                assert response.json["validation"] == {
                    "source": "headers",
                    "keys": [HEADER.lower()],
                }
                assert after == before
                assert (
                    await ask(service, kind, write(fields).replace(b"json", b"x"))
                ).status == 415
            else:
                assert response.status == 200
                assert after.get("user", "") == user
        for number, method in enumerate(("PUT", "PATCH")):
            data = request(
                method, "/api/stores/1", b'{"name":"N%d"}' % number, f"{HEADER}: {method}"
            )
            assert (await ask(service, kind, data)).status == 200
            assert (await last_change(service, reader))["user"] == method
        sheet = request(
            "POST", "/api/imports?match=id", b"id,name\n1,By a sheet\n", f"{HEADER}: clerk"
        )
        sheet = sheet.replace(b"application/json", b"text/csv")
        assert (await ask(service, kind, sheet)).json["replaced"] == 1
        change = await last_change(service, reader)
        assert (change["store"]["name"], change["user"]) == ("By a sheet", "clerk")
        # The client is told as whom it comes.
        for fields, user in ((reader,), "reader"), ((), None):
            told = await exchange(service, request("GET", "/api/me", None, *fields))
            assert told.json.get("user") == user
        # A read ignores a bad name; without a name it is not shown who wrote.
        page = await ask(service, kind, request("GET", "/api/stores", None, f"{HEADER}: "))
        assert page.status == 200
        assert "user" not in await last_change(service)


@pytest.mark.parametrize("proxies", ["another", "unix"])
async def test_nobody_else_is_believed(tmp_path: Path, proxies: str) -> None:
    url = f"sqlite:///{tmp_path}/stores.db"
    settings: Any = {"user_header": HEADER, "trusted_proxy": PROXIES[proxies], "auth": "writes"}
    token = f"Authorization: Bearer {add_token(url, 'clerk', 'write')}"
    async with inside(tmp_path, database=url, **settings) as service:
        for fields in (("anna",), ("",), ("anna", "eve")):
            assert (await exchange(service, write(fields, token))).status == 200
        # It permits nothing.
        assert (await exchange(service, write(("anna",)))).status == 401
        change = await last_change(service, token, f"{HEADER}: anna")
        assert (change["by"], "user" in change) == ("clerk", False)
        assert "by" not in await last_change(service, f"{HEADER}: anna")
    # The peer of another ASGI server's socket is not known.
    settings |= {"trusted_proxy": PROXIES["trusted"], "auth": "open"}
    async with inside(tmp_path, database=url, **settings) as service:
        headers = [(HEADER.lower().encode(), b"anna")]
        body = b'{"name":"By ASGI"}'
        assert (await asked(service, "POST", "/api/stores", body, headers=headers)).status == 200
        assert "user" not in await last_change(service, f"{HEADER}: reader")


def test_an_address_is_the_same_in_both_its_forms() -> None:
    class Transport:
        def __init__(self, peer: object) -> None:
            self._peer = peer

        def get_extra_info(self, name: str) -> object:
            return self._peer if name == "peername" else None

    peers: Any = TrustedPeers(["127.0.0.1", "2001:db8::1"])
    for address, trusted in (
        ("127.0.0.1", True),
        ("::ffff:127.0.0.1", True),
        ("2001:0db8:0::1", True),
        ("127.0.0.2", False),
        ("fe80::1%eth0", False),
    ):
        assert peers.has(Transport((address, 1))) is trusted
    assert not peers.has(Transport(""))
    assert not peers.has(Transport(None))


@contextmanager
def single_sign_on() -> Iterator[int]:
    """Serve what oauth2-proxy responds to nginx: who the cookie belongs to, or 401."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802 - as http.server calls it
            _, _, user = (self.headers["cookie"] or "").partition("session=")
            if not user:
                self.respond(401)
                return
            email = f"{user}@shop.example"
            self.respond(202, X_Auth_Request_User=user, X_Auth_Request_Email=email)

    with http_server(Handler) as port:
        yield port


AUTH = """
    location = /oauth2/auth {{
        internal; auth_request off; proxy_pass http://127.0.0.1:{port};
        proxy_pass_request_body off; proxy_set_header Content-Length "";
    }}
    auth_request /oauth2/auth;
    auth_request_set $email $upstream_http_x_auth_request_email;
    proxy_set_header X-Forwarded-Email $email;
"""


def test_behind_nginx_and_single_sign_on_the_history_names_the_person(tmp_path: Path) -> None:
    options = ("--user-header=X-Forwarded-Email", "--trusted-proxy=127.0.0.1")
    with (
        serving(tmp_path, *options) as service,
        single_sign_on() as port,
        nginx(tmp_path, service.port, settings=AUTH.format(port=port)) as proxy,
        httpx.Client(base_url=f"http://127.0.0.1:{proxy}/api") as browser,
    ):
        assert browser.post("/stores", json={"name": "Never"}).status_code == 401
        forged = {"cookie": "session=anna", "x-forwarded-email": "eve@evil.example"}
        assert browser.post("/stores", json={"name": "Pier"}, headers=forged).status_code == 200
        ben, zoe = {"cookie": "session=ben"}, {"cookie": "session=zoe"}
        assert browser.patch("/stores/1", json={"address": "1"}, headers=ben).status_code == 200
        page = browser.get("/changes", headers=zoe).json()
    users = [change["user"] for change in page["changes"]]
    assert users == ["anna@shop.example", "ben@shop.example"]
