"""Conditional requests through a real nginx with `gzip on`, which marks every tag as weak
(decision 33)."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.nginx import nginx
from tests.harness.process import Response, Running, serving

GZIP = (
    "gzip on; gzip_types application/json; gzip_min_length 1; gzip_proxied any;"
    " gzip_http_version 1.0;"
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Client"]:
    folder: Path = tmp_path_factory.mktemp("proxy")
    with (
        serving(folder, "--examples") as service,
        nginx(folder, service.port, settings=GZIP) as port,
    ):
        yield Client(service.process, port, folder)


class Client(Running):
    """Asks through the proxy, for compressed content."""

    def ask(self, method: str, path: str, body: object = None, **fields: str) -> Response:
        """Send one request; `if_match` is If-Match. The body of the response is no longer
        compressed."""
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        response = self.request(method, path, body, headers | {"accept-encoding": "gzip"})
        if response.headers.get("content-encoding") == "gzip":
            response.body = gzip.decompress(response.body)
        return response

    def tag(self, path: str) -> str:
        """Return the tag of a resource as the proxy passes it on."""
        return self.ask("GET", path).headers["etag"]


@pytest.mark.parametrize(
    "path", ["/api/stores", "/api/stores/2", "/api/stores?name=Harbour", "/api/stores?limit=2"]
)
def test_a_weakened_tag_gets_304(client: Client, path: str) -> None:
    tag = client.tag(path)
    assert tag.startswith("W/")
    response = client.ask("GET", path, if_none_match=f'"0.aaaaaaaa", {tag}')
    assert (response.status, response.body, response.headers["etag"].removeprefix("W/")) == (
        304,
        b"",
        tag[2:],
    )


def test_a_weakened_tag_lets_an_update_pass_once(client: Client) -> None:
    tag = client.tag("/api/stores/1")
    assert tag.startswith("W/")
    done = client.ask("PUT", "/api/stores/1", {"name": "One"}, if_match=tag)
    late = client.ask("PUT", "/api/stores/1", {"name": "Another"}, if_match=tag)
    assert (done.status, late.status) == (200, 412)
    assert late.headers["etag"].removeprefix("W/") == done.headers["etag"].removeprefix("W/")
    assert late.json["statusCode"] == 412
    again = client.ask("PUT", "/api/stores/1", {"name": "Two"}, if_match=done.headers["etag"])
    assert again.status == 200


def test_a_weakened_tag_of_the_list_lets_a_create_pass_once(client: Client) -> None:
    tag = client.tag("/api/stores")
    done = client.ask("POST", "/api/stores", {"name": "New"}, if_match=tag)
    late = client.ask("POST", "/api/stores", {"name": "Late"}, if_match=tag)
    assert (done.status, late.status) == (200, 412)


def test_an_update_is_refused_for_a_weakened_tag_that_must_not_match(client: Client) -> None:
    tag = client.tag("/api/stores/3")
    response = client.ask("PUT", "/api/stores/3", {"name": "Changed"}, if_none_match=tag)
    assert response.status == 412


@pytest.mark.parametrize("mark", ["-gzip", "-br", "-zstd", "-deflate", ";gzip"])
def test_the_mark_of_another_proxy_is_no_part_of_a_tag(client: Client, mark: str) -> None:
    tag = client.tag("/api/stores/2").removeprefix("W/")
    response = client.ask("GET", "/api/stores/2", if_none_match=f'{tag[:-1]}{mark}"')
    assert response.status == 304
