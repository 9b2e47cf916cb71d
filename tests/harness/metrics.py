"""The content of /metrics, read with prometheus-client's parser."""

from collections.abc import Mapping
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from tests.harness.process import Running

Series: TypeAlias = tuple[str, frozenset[tuple[str, str]]]


def series(name: str, **labels: str) -> Series:
    """Return the series of that name, as in `parse`; all but the process metrics are ours."""
    return name if name.startswith("process_") else f"storekeeper_{name}", frozenset(labels.items())


def parse(text: str) -> Mapping[Series, float]:
    """Return each series with its value; fail if a series comes twice."""
    samples = [
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples)
    return found


def scrape(service: Running) -> Mapping[Series, float]:
    """Return what a running service reports now."""
    response = service.request("GET", "/metrics")
    assert response.status == 200, response
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    return parse(response.body.decode())


def responses(found: Mapping[Series, float]) -> dict[tuple[str, str, str], float]:
    """Return the totals of responses by route, method and status."""
    return {
        (labels["route"], labels["method"], labels["status"]): value
        for (name, pairs), value in found.items()
        if name == "storekeeper_http_requests_total" and (labels := dict(pairs))
    }
