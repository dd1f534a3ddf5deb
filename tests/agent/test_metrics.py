"""`GET /metrics` as Prometheus reads it, and the metrics that the examples use."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.machine import tool
from tests.processes import Agent, agent, sky, until

EXAMPLES = Path(__file__).parents[2] / "examples"


def families(kit: Agent) -> dict[str, Any]:
    """Return the result of the strict parser."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="extra `test`")
    answer = kit.call("GET", "/metrics")
    kind = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert answer.headers["content-type"] == kind
    metrics = list(parser.text_string_to_metric_families(answer.body))
    assert len({each.name for each in metrics}) == len(metrics)
    assert all(each.documentation for each in metrics)
    return {each.name: each for each in metrics}


def value(metrics: dict[str, Any], name: str, family: str, **labels: str) -> float:
    (sample,) = [
        each
        for each in metrics[f"fieldagent_{family}"].samples
        if each.name == f"fieldagent_{name}" and each.labels == labels
    ]
    return float(sample.value)


def test_metrics_count_events_and_survive_restart(tmp_path: Path) -> None:
    satellite = {"channel": "Satellite"}
    settings = {"inbound-hook": "exit 3", "satellite-credits-per-day": "50"}
    with sky(tmp_path, 0) as above:
        with agent(tmp_path, settings) as kit:
            for number in range(3):
                assert kit.post(str(number)).body["status"] == "Delivered"
            above.type("mt hello")
            until(lambda: 'result="dead"' in kit.call("GET", "/metrics").body)
            metrics = families(kit)
            assert value(metrics, "sos_active", "sos_active") == 0
            assert value(metrics, "credits_per_day", "credits_per_day", **satellite) == 50
            assert value(metrics, "journal_commits_total", "journal_commits") > 3
            until(lambda: "fieldagent_signal_bars{" in kit.call("GET", "/metrics").body)
            states = metrics["fieldagent_link_state"].samples
            assert sum(each.value for each in states) == 1
            spent = kit.call("GET", "/api/status").body["channels"]["Satellite"]["creditsToday"]
            assert value(metrics, "credits_total", "credits", **satellite) == spent > 0
        with agent(tmp_path, settings) as kit:
            kit.post("help", priority=100)
            metrics = families(kit)
    ended = {**satellite, "status": "Delivered"}
    assert value(metrics, "packages_ended_total", "packages_ended", **ended) == 4
    hook = {"hook": "script", "result": "dead"}
    assert value(metrics, "hook_results_total", "hook_results", **hook) == 1
    assert value(metrics, "sos_active", "sos_active") == 1
    latency = "delivery_latency_seconds"
    assert value(metrics, f"{latency}_count", latency, **satellite) == 4
    assert value(metrics, f"{latency}_bucket", latency, **satellite, le="+Inf") == 4
    assert 0 < value(metrics, f"{latency}_sum", latency, **satellite) < 4 * 300


def metric_names(text: str) -> set[str]:
    return set(re.findall(r"\bfieldagent_[a-z_]+\b(?=[ {\[),]|$)", text, re.MULTILINE))


def test_examples_use_existing_metrics_and_labels(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="extra `test`")
    settings = {"inbound-hook": "true", "satellite-credits-per-day": "50"}
    with sky(tmp_path, 0) as above, agent(tmp_path, settings) as kit:
        kit.post("x")
        above.type("mt hello")
        for what in ("signal_bars{", "hook_results_total{"):
            until(lambda what=what: what in kit.call("GET", "/metrics").body)  # type: ignore[misc]
        metrics = families(kit)
        there = {sample.name for family in metrics.values() for sample in family.samples}
        labels = {
            name for family in metrics.values() for each in family.samples for name in each.labels
        }
        status = kit.call("GET", "/api/status").body
        assistant = yaml.safe_load((EXAMPLES / "home-assistant.yaml").read_text())
        payload = assistant["rest_command"]["fieldagent_send"]["payload"]
        body = payload.replace("{{ message | to_json }}", json.dumps('a "quoted" word'))
        assert kit.call("POST", "/api/package/async", json.loads(body)).status == 202
    rules = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    expressions = [rule["expr"] for rule in rules]
    dashboard = json.loads((EXAMPLES / "grafana.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    expressions += [target["expr"] for target in targets]
    assert all(metric_names(each) or each.startswith("up{") for each in expressions)
    assert {name for each in expressions for name in metric_names(each)} - labels <= there | labels
    sensors = [*assistant["rest"][0]["sensor"], *assistant["rest"][0]["binary_sensor"]]
    for sensor in sensors:
        (path,) = re.findall(r"value_json\.([\w.]+)", sensor["value_template"])
        place = status
        for member in path.split("."):
            place = place[member]


def test_prometheus_accepts_example_rules() -> None:
    promtool = tool("promtool", "prometheus")
    for arguments in (["check", "rules", "alerts.yml"], ["check", "config", "prometheus.yml"]):
        done = subprocess.run([promtool, *arguments], cwd=EXAMPLES, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
