"""Conditional requests through a real nginx with `gzip on`, which marks every tag as weak (decision 33)."""

import gzip
import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from tests.harness.nginx import nginx
from tests.harness.process import serving

GZIP = "gzip on; gzip_types application/json; gzip_min_length 1; gzip_proxied any; gzip_http_version 1.0;"


class Client:
    """Asks through the proxy, for compressed content."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, method: str, path: str, body: object = None, **fields: str) -> tuple[HTTPResponse, bytes]:
        """Send one request; `if_match` is If-Match. Return the response and its content, no longer compressed."""
        connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        headers |= {"accept-encoding": "gzip", "content-type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        compressed = response.headers["content-encoding"] == "gzip"
        return response, gzip.decompress(content) if compressed else content

    def tag(self, path: str) -> str:
        """Return the tag of a resource as the proxy passes it on."""
        response, content = self.ask("GET", path)
        assert content
        return str(response.headers["etag"])


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = tmp_path_factory.mktemp("proxy")
    with serving(folder, "--examples") as service, nginx(folder, service.port, settings=GZIP) as port:
        yield Client(port)


@pytest.mark.parametrize("path", ["/api/stores", "/api/stores/2", "/api/stores?name=Harbour", "/api/stores?limit=2"])
def test_a_weakened_tag_gets_304(client: Client, path: str) -> None:
    tag = client.tag(path)
    assert tag.startswith("W/")
    response, content = client.ask("GET", path, if_none_match=f'"0.aaaaaaaa", {tag}')
    assert (response.status, content, response.headers["etag"].removeprefix("W/")) == (304, b"", tag[2:])


def test_a_weakened_tag_lets_an_update_pass_once(client: Client) -> None:
    tag = client.tag("/api/stores/1")
    assert tag.startswith("W/")
    done, _ = client.ask("PUT", "/api/stores/1", {"name": "One"}, if_match=tag)
    late, content = client.ask("PUT", "/api/stores/1", {"name": "Another"}, if_match=tag)
    assert (done.status, late.status) == (200, 412)
    assert late.headers["etag"].removeprefix("W/") == done.headers["etag"].removeprefix("W/")
    assert json.loads(content)["statusCode"] == 412
    again, _ = client.ask("PUT", "/api/stores/1", {"name": "Two"}, if_match=str(done.headers["etag"]))
    assert again.status == 200


def test_a_weakened_tag_of_the_list_lets_a_create_pass_once(client: Client) -> None:
    tag = client.tag("/api/stores")
    done, _ = client.ask("POST", "/api/stores", {"name": "New"}, if_match=tag)
    late, _ = client.ask("POST", "/api/stores", {"name": "Late"}, if_match=tag)
    assert (done.status, late.status) == (200, 412)


def test_an_update_is_refused_for_a_weakened_tag_that_must_not_match(client: Client) -> None:
    tag = client.tag("/api/stores/3")
    response, _ = client.ask("PUT", "/api/stores/3", {"name": "Changed"}, if_none_match=tag)
    assert response.status == 412


@pytest.mark.parametrize("mark", ["-gzip", "-br", "-zstd", "-deflate", ";gzip"])
def test_the_mark_of_another_proxy_is_no_part_of_a_tag(client: Client, mark: str) -> None:
    tag = client.tag("/api/stores/2").removeprefix("W/")
    response, _ = client.ask("GET", "/api/stores/2", if_none_match=f'{tag[:-1]}{mark}"')
    assert response.status == 304
