"""A service for the tests of programs that call it (pytest).

    from storekeeper.testing import stores_service

    def test_my_program(stores_service):
        my_program(stores_service)  # its address, such as http://127.0.0.1:40123

Each test gets a list of its own, in a temporary database. It listens on 127.0.0.1, in a thread.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import uvicorn

from storekeeper.process.service import mounted

START_TIMEOUT = 30.0
"""Seconds that a start may take."""


@pytest.fixture
def stores_service() -> Iterator[str]:
    """Yield the address of a service whose list is empty."""
    with serving() as address:
        yield address


@contextmanager
def serving(*, examples: bool = False, auth: str = "open") -> Iterator[str]:
    """Run a service in a thread of this process; yield its address."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'stores.db'}"
        app = mounted(database=url, create=True, examples=examples, auth=auth)
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, name="storekeeper-testing")
        thread.start()
        try:
            yield f"http://127.0.0.1:{_port(server, thread)}"
        finally:
            server.should_exit = True
            thread.join()


def _port(server: uvicorn.Server, thread: threading.Thread) -> int:
    give_up = time.monotonic() + START_TIMEOUT
    while not server.started:
        if not thread.is_alive() or time.monotonic() > give_up:
            raise RuntimeError("the service did not start; its log says why")
        time.sleep(0.005)
    port: int = server.servers[0].sockets[0].getsockname()[1]
    return port
