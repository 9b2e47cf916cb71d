"""A real nginx in front of a service, its files in a temporary folder."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.client import until
from tests.harness.machine import need
from tests.harness.process import free_port

_CONFIGURATION = """\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {
        listen 127.0.0.1:%d;
        %s
        location %s {
            proxy_pass http://127.0.0.1:%d/;
        }
    }
}
"""


@contextmanager
def nginx(folder: Path, service: int, path: str = "/", settings: str = "") -> Iterator[int]:
    """Run a proxy that serves the service below a path, with these settings of its server; yield
    its port."""
    program = shutil.which("nginx")
    if program is None:
        need("nginx", "nginx is not installed")
    port = free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text(_CONFIGURATION % (port, settings, path, service))
    process = subprocess.Popen(
        [program, "-p", str(folder), "-e", "stderr", "-c", str(configuration)]
    )
    try:
        until(lambda: _accepts(port))
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
