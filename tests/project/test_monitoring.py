"""The dashboard and the alerts in deploy/ are made of series that there are, and promtool takes
and tries them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from storekeeper.api.metrics import FAMILIES
from tests import ROOT
from tests.harness.machine import need
from tests.harness.pages import blocks

PAGE = ROOT / "docs/monitoring.md"
ALERTS = ROOT / "deploy/alerts.yml"
DASHBOARD = json.loads((ROOT / "deploy/grafana.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
NAMES = re.findall(r"alert: (\w+)", ALERTS.read_text())

OF_SERIES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}
SERIES = {
    f"storekeeper_{name}{end}"
    for name, family in FAMILIES.items()
    for end in OF_SERIES[family.kind]
}

TRIED = """
rule_files: [RULES]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'up{job="storekeeper", instance="gone"}', values: '0x30'}
      - {series: 'up{job="storekeeper", instance="good"}', values: '1x30'}
      - {series: 'storekeeper_ready{instance="bad"}', values: '0x30'}
      - {series: 'storekeeper_ready{instance="good"}', values: '1x30'}
      - {series: 'REQUESTS{instance="bad", route="/test", method="GET", status="200"}',
         values: '0+97x30'}
      - {series: 'REQUESTS{instance="bad", route="/test", method="GET", status="503"}',
         values: '0+3x30'}
      - {series: 'REQUESTS{instance="good", route="/test", method="GET", status="200"}',
         values: '0+97x30'}
      - {series: 'REQUESTS{instance="good", route="/health/", method="GET", status="503"}',
         values: '0+9x30'}
      - {series: 'storekeeper_writes_refused{instance="bad", reason="The disk is full"}',
         values: '0 1x29'}
      - {series: 'storekeeper_writes_refused{instance="bad", reason="The database is locked"}',
         values: '0x30'}
      - {series: 'storekeeper_writes_refused{instance="good", reason="The disk is full"}',
         values: '0x18 1x1 0x10'}
      - {series: 'REQUESTS{instance="refuses", route="/api/stores", method="POST", status="503"}',
         values: '0+1x30'}
      - {series: 'REQUESTS{instance="refuses", route="/api/stores", method="GET", status="200"}',
         values: '0+900x30'}
      - {series: 'REQUESTS{instance="good", route="/api/stores", method="PUT", status="200"}',
         values: '0+97x30'}
      - {series: 'REQUESTS{instance="good", route="/api/stores", method="PUT", status="412"}',
         values: '0+97x30'}
      - {series: 'REQUESTS{instance="good", route="/api/stores", method="other", status="501"}',
         values: '0+97x30'}
      - {series: 'storekeeper_clock_jumps_total{instance="bad"}', values: '0 1x29'}
      - {series: 'storekeeper_clock_jumps_total{instance="good"}', values: '3x30'}
      - {series: 'storekeeper_next_token_expiry_timestamp_seconds{instance="bad"}',
         values: '600000x30'}
      - {series: 'storekeeper_next_token_expiry_timestamp_seconds{instance="good"}',
         values: '700000x30'}
      - {series: 'storekeeper_commit_duration_seconds_bucket{instance="bad", le="0.25"}',
         values: '0+9x30'}
      - {series: 'storekeeper_commit_duration_seconds_bucket{instance="bad", le="1.0"}',
         values: '0+10x30'}
      - {series: 'storekeeper_commit_duration_seconds_bucket{instance="bad", le="+Inf"}',
         values: '0+10x30'}
      - {series: 'storekeeper_commit_duration_seconds_bucket{instance="good", le="0.25"}',
         values: '0+10x30'}
      - {series: 'storekeeper_commit_duration_seconds_bucket{instance="good", le="+Inf"}',
         values: '0+10x30'}
      - {series: 'storekeeper_disk_free_bytes{instance="bad"}', values: '3000000000x30'}
      - {series: 'storekeeper_database_bytes{instance="bad"}', values: '2000000000x30'}
      - {series: 'storekeeper_disk_free_bytes{instance="good"}', values: '3000000000x30'}
      - {series: 'storekeeper_database_bytes{instance="good"}', values: '1000x30'}
      - {series: 'storekeeper_last_backup_timestamp_seconds{instance="bad"}', values: '-140000x30'}
      - {series: 'storekeeper_last_backup_timestamp_seconds{instance="good"}', values: '0x30'}
      - {series: 'storekeeper_latest_change_ahead_seconds{instance="bad"}', values: '100000000x30'}
      - {series: 'storekeeper_latest_change_ahead_seconds{instance="good"}', values: '1x30'}
      - {series: 'storekeeper_latest_change_ahead_seconds{instance="now ahead"}', values: '0x30'}
      - {series: 'storekeeper_wrong_clock_commits_total{instance="now ahead"}', values: '0 1x29'}
      - {series: 'storekeeper_wrong_clock_commits_total{instance="good"}', values: '3x30'}
    promql_expr_test:
      - expr: 'count by (alertname, instance) (ALERTS{alertstate="firing"})'
        eval_time: 20m
        exp_samples:
          - {labels: '{alertname="StorekeeperNotReady", instance="bad"}', value: 1}
          - {labels: '{alertname="StorekeeperNotReady", instance="gone"}', value: 1}
          - {labels: '{alertname="StorekeeperUnavailable", instance="bad"}', value: 1}
          - {labels: '{alertname="StorekeeperWritesRefused", instance="bad"}', value: 1}
          - {labels: '{alertname="StorekeeperWritesFail", instance="refuses"}', value: 1}
          - {labels: '{alertname="StorekeeperSlowCommits", instance="bad"}', value: 1}
          - {labels: '{alertname="StorekeeperDiskNearlyFull", instance="bad"}', value: 1}
          - {labels: '{alertname="StorekeeperNoBackup", instance="bad"}', value: 1}
          - {labels: '{alertname="StorekeeperWrongClock", instance="bad"}', value: 1}
          - {labels: '{alertname="StorekeeperWrongClock", instance="now ahead"}', value: 1}
          - {labels: '{alertname="StorekeeperClockJumped", instance="bad"}', value: 1}
          - {labels: '{alertname="StorekeeperTokenExpires", instance="bad"}', value: 1}
"""


def promtool(*args: str | Path) -> None:
    if not (program := shutil.which("promtool")):
        need("promtool", "promtool is not installed")
    done = subprocess.run([program, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_has_eight_panels_and_one_place_for_each() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(places) == len(set(places)) == 8


@pytest.mark.parametrize(
    "text", [ALERTS.read_text(), "\n".join(EXPRESSIONS)], ids=["alerts", "dashboard"]
)
def test_every_series_that_is_named_is_one_that_there_is(text: str) -> None:
    named = set(re.findall(r"storekeeper_\w+", text))
    assert named
    assert named <= SERIES


def test_promtool_takes_the_alerts() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", ALERTS)


def test_promtool_takes_what_the_page_puts_into_its_settings(tmp_path: Path) -> None:
    [text] = ["\n".join(lines) for _, language, lines in blocks(PAGE) if language == "yaml"]
    file = tmp_path / "prometheus.yml"
    file.write_text(text.replace("/opt/storekeeper/source", str(ROOT)))
    promtool("check", "config", file)


def test_each_alert_fires_where_something_is_wrong_and_nowhere_else(tmp_path: Path) -> None:
    file = tmp_path / "test.yml"
    file.write_text(
        TRIED.replace("REQUESTS", "storekeeper_http_requests_total").replace("RULES", str(ALERTS))
    )
    promtool("test", "rules", file)


@pytest.mark.thorough
def test_each_alert_is_missed_if_its_rule_is_missing(tmp_path: Path) -> None:
    head, *rules = re.split(r"(?=^      - alert: )", ALERTS.read_text(), flags=re.MULTILINE)
    assert len(rules) == len(NAMES)
    tests, fewer = tmp_path / "test.yml", tmp_path / "fewer.yml"
    tests.write_text(
        TRIED.replace("REQUESTS", "storekeeper_http_requests_total").replace("RULES", str(fewer))
    )
    for rule in rules:
        fewer.write_text(head + "".join(each for each in rules if each != rule))
        with pytest.raises(AssertionError, match=NAMES[rules.index(rule)]):
            promtool("test", "rules", tests)


def test_every_expression_of_the_dashboard_is_valid(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(EXPRESSIONS)
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", file)


def test_the_manual_says_what_to_do_about_each_alert() -> None:
    described = re.findall(r"^\| `(Storekeeper\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert described == NAMES
