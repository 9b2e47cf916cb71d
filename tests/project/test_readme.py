import re
import subprocess
from pathlib import Path

from tests import ROOT
from tests.harness.process import serving

README = ROOT / "README.md"


def test_the_tour_of_the_readme_prints_what_it_says(tmp_path: Path) -> None:
    tour = README.read_text().split("<!-- tour:")[1].split("<!-- end of the tour -->")[0]
    steps = re.findall(r"^\$ (curl .*)\n(.*)$", tour, re.MULTILINE)
    assert len(steps) >= 7, "the tour was not found"
    with serving(tmp_path, "--examples") as service:
        for command, printed in steps:
            here = command.replace("127.0.0.1:8080", f"127.0.0.1:{service.port}")
            done = subprocess.run(here, shell=True, capture_output=True, text=True, check=True)
            assert done.stdout.strip() == printed, command
