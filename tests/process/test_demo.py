"""`storekeeper serve --demo` and `--open`: a list to try things out, in the browser at once."""

import re
from pathlib import Path

from tests.harness.client import until
from tests.harness.process import Running, refused, serving
from tests.harness.process import run as run_command


def find(service: Running, pattern: str) -> str:
    found = re.search(pattern, service.log)
    assert found
    return found[1]


def test_the_demonstration_has_stores_a_history_and_a_token_that_may_write(tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.new && mv {opened}.new {opened}\n')
    browser.chmod(0o755)
    env = {"BROWSER": str(browser)}
    with serving(
        tmp_path, "--demo", "--open", database="sqlite:///storekeeper.db", env=env
    ) as service:
        link, file = find(service, r"the console is at (\S+) "), Path(find(service, r"with (\S+);"))
        address, _, token = link.partition("#token=")
        assert address == f"http://127.0.0.1:{service.port}/console/"
        headers = {"authorization": f"Bearer {token}"}
        assert service.request("POST", "/api/stores", {"name": "Refused"}).status == 401
        assert len(service.request("GET", "/api/stores").json) == 1000
        assert service.request("GET", "/api/stores?q=1000").json[0]["id"] == 1000
        pages = [
            service.request("GET", f"/api/changes?limit=1000&after={after}", headers=headers).json
            for after in (0, 1000)
        ]
        changes = [change for page in pages for change in page["changes"]]
        assert {change["by"] for change in changes} == {"anna", "erik", "erp", "noor"}
        assert [change["at"] for change in changes] == sorted(change["at"] for change in changes)
        assert service.request("PUT", "/api/stores/1", {"name": "Mine"}, headers).status == 200
        until(opened.exists)
        assert opened.read_text() == link
    assert not file.parent.exists()


def test_the_demonstration_takes_no_database_of_ones_own(tmp_path: Path) -> None:
    (line,) = refused(
        run_command("serve", "--demo", "--port=0", f"--database=sqlite:///{tmp_path}/own.db")
    )
    assert "--demo has its own database" in line
    assert not list(tmp_path.iterdir())
