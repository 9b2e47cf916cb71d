import json
from pathlib import Path

import pytest

from black_box import run, serving


@pytest.mark.parametrize("detail", ["detailed", "generic"])
def test_the_service_conforms_in_both_modes_and_through_both_adapters(
    detail: str, adapter: str, tmp_path: Path
) -> None:
    with serving(tmp_path, adapter, "--error-detail", detail) as service:
        done = run("check", f"http://127.0.0.1:{service.port}", "--json")
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert report["mode"] == detail
    assert report["counts"]["passed"] > 70
