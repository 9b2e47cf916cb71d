from pathlib import Path

import pytest

from storekeeper.api.openapi import document
from tests.harness.browser import page
from tests.harness.process import Running, serving

pytestmark = pytest.mark.count_processes


def test_the_reference_shows_every_route_and_tries_one_out_asking_no_other_host(tmp_path: Path) -> None:
    operations = sum(len(item) for item in document()["paths"].values())
    with serving(tmp_path, "--examples") as service, page() as (opened, faults):
        opened.goto(f"http://127.0.0.1:{service.port}/docs")
        opened.wait_for_selector("text=Add a store")
        assert opened.locator(".opblock-tag-section .opblock").count() == operations
        create = opened.locator("#operations-stores-createStore")
        create.locator(".opblock-summary-control").click()
        create.locator("textarea").fill('{"name": "From the page"}')
        create.locator("button.execute").click()
        create.locator(".live-responses-table tr.response .response-col_status").first.wait_for()
        assert "200" in create.locator(".live-responses-table tr.response .response-col_status").first.inner_text()
        assert service.request("GET", "/api/stores/4").json["name"] == "From the page"
        assert faults == []


def test_the_page_may_load_and_run_only_what_is_its_own(service: Running) -> None:
    policy = service.request("GET", "/docs").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "connect-src 'self';" in policy


def test_a_file_that_is_not_part_of_the_page_is_not_found(service: Running) -> None:
    for name in ("nothing.js", "..%2F..%2Fcli.py", "%2e%2e%2fdocs.py", "docs.html"):
        response = service.request("GET", f"/docs/{name}")
        assert response.status == 404
        assert response.json == {"statusCode": 404, "error": "Not Found", "message": "Not Found"}
