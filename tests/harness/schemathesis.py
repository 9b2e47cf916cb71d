"""How Schemathesis is run: its checks, by the settings beside this file. Quick to import."""

import sys
from pathlib import Path

SCHEMATHESIS = [
    str(Path(sys.executable).with_name("schemathesis")),
    f"--config-file={Path(__file__).with_name('schemathesis.toml')}",
    "run",
    "--checks=all",
    # The settings fix a good value of `at`, which takes the place of wrong ones too.
    "--exclude-checks=negative_data_rejection",
]
