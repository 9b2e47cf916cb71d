"""The files of the console, as the service sends them."""

from pathlib import Path

from storekeeper.domain import search, stores
from storekeeper.http.response import MAX_BODY_BYTES
from tests.harness.in_process import exchange, inside
from tests.harness.wire import request


async def test_the_limits_of_the_console_are_those_of_the_domain(tmp_path: Path) -> None:
    async with inside(tmp_path) as service:
        response = await exchange(service, request("GET", "/console/limits.js"))
    assert response.headers["content-type"].startswith("text/javascript")
    limits = dict(line.split(" = ") for line in response.body.decode().splitlines()[1:])
    assert limits == {
        "export const MAX_NAME": f"{stores.MAX_NAME_LENGTH};",
        "export const MAX_KEY": f"{stores.MAX_EXTERNAL_LENGTH};",
        "export const MAX_QUERY": f"{search.MAX_LENGTH};",
        "export const MAX_BODY": f"{MAX_BODY_BYTES};",
    }


async def test_no_literal_of_the_console_repeats_a_limit() -> None:
    folder = Path(stores.__file__).parents[1] / "console"
    for name in ("words.js", "rules.js", "fields.js"):
        assert "? 30" not in (folder / name).read_text()
        assert "= 30;" not in (folder / name).read_text()
