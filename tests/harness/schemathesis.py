"""How Schemathesis is run: its checks, with the settings in this folder. Quick to import."""

import sys
from pathlib import Path

SCHEMATHESIS = [
    str(Path(sys.executable).with_name("schemathesis")),
    f"--config-file={Path(__file__).with_name('schemathesis.toml')}",
    "run",
    "--checks=all",
    # The settings fix a valid value of `at`, which also replaces invalid ones.
    "--exclude-checks=negative_data_rejection",
]
