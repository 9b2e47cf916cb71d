"""Schemathesis with all checks and 1,000 examples per operation, against a new service (`make
fuzz-api`)."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.harness.process import serving
from tests.harness.schemathesis import SCHEMATHESIS


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as service:
        url = f"http://127.0.0.1:{service.port}/openapi.json"
        return subprocess.run(
            [*SCHEMATHESIS, "--max-examples=1000", url], cwd=folder, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
