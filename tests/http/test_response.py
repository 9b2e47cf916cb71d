"""The encoder of response heads."""

from pathlib import Path

import pytest

from tests.harness.in_process import inside, last_response, settled, some_stores
from tests.harness.wire import request


@pytest.mark.parametrize(
    "target", ["/test", "/api/stores/1", "/api/stores", "/api/stores/none", "/health/live"]
)
async def test_a_response_has_the_date_of_now_whether_it_is_cached_or_not(
    tmp_path: Path, target: str
) -> None:
    some_stores(tmp_path, 1)
    async with inside(tmp_path) as service:
        connection, line = service.connect()
        for second in range(4):
            date = f"Sat, 21 Nov 2026 12:00:0{second} GMT"
            service.server_state.default_headers = [
                (b"date", date.encode())
            ]  # as uvicorn does, once a second
            connection.data_received(request("GET", target))
            await settled(connection)
            assert last_response(line).headers["date"] == date
