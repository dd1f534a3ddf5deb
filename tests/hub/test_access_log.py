"""The hub's records of calls, links and webhooks, and the related metrics."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route, make_router
from fieldagent.hub.service.access_log import REFUSALS_PER_MINUTE_MAX, AccessLog, find_call_name
from fieldagent.hub.service.figures import Figures
from tests.hub.test_journey import receiver
from tests.hub.test_outage import call
from tests.hub.test_sos_answered import list_alert_metrics
from tests.machine import tool
from tests.processes import Hub, administer, agent, hub, until

SECRET_WORDS = "nobody else is to read this"
RULES = Path(__file__).parents[2] / "examples/hub-alerts.yml"


class Seen(NamedTuple):
    lines: list[dict[str, Any]]
    """Lines of the access log."""
    figures: str
    all_output: str
    secrets: list[str]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Run a hub with a kit and a webhook, and send a push, a rejected push, and wrong tokens."""
    home = tmp_path_factory.mktemp("hub")
    database = str(home / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    token = administer(database, "device", "add", "kit", "--user", "Ada")["hub-token"]
    settings = {"database": database, "access-log": "json", "webhook-allow": "127.0.0.0/8"}
    settings["synthetic-item"] = "on"
    right = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    body = {"sourceUserId": first["sourceUserId"], "workspaceId": first["workspaceId"]}
    text = json.dumps({**body, "targetUserId": "2", "message": {"content": SECRET_WORDS}})
    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        administer(database, "webhook", "add", hooked.url, "--untried")
        running = stack.enter_context(hub(home, settings))
        kept = {"satellite-port": None, "hub-address": running.address, "hub-token": token}
        with agent(home, kept) as kit:
            kit.expect("linked to the hub")
            sent = {**right, "Content-Type": "application/json"}
            assert call(running, "POST", "/api/package", sent, text)[0] == 200
            assert call(running, "POST", "/api/package?x=secret-query", sent, "{}")[0] == 422
            wrong = {**sent, "x-api-key": "key_wrong-secret"}
            assert call(running, "POST", "/api/package", wrong, text)[0] == 401
            stranger = {"Authorization": "Bearer link_wrong-secret"}
            answered = [call(running, "GET", "/link", stranger)[0] for _ in range(14)]
            assert answered == [401] * 12 + [429] * 2
            # The rejected callers do not block a caller with a correct token.
            assert call(running, "GET", "/link", {"Authorization": f"Bearer {token}"})[0] == 426
            assert kit.post("from the kit").body["status"] == "Delivered"
            until(lambda: hooked.got)
            until(lambda: 'result="handed"' in read_metrics(running))
            assert kit.stop() == 0
        # The lease of the link ends in a commit of its own.
        until(lambda: re.search(r"^\w+devices_linked 0", read_metrics(running), re.MULTILINE))
        figures = read_metrics(running)
        assert running.stop() == 0
    objects = [json.loads(line) for line in running.lines if line.startswith("{")]
    secrets = [first["apiKey"], first["token"], token, "wrong-secret", "secret-query"]
    yield Seen(objects, figures, "\n".join(running.lines), [*secrets, SECRET_WORDS])


def read_metrics(running: Hub) -> str:
    status, headers, text = call(running, "GET", "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    return text


def test_each_relevant_call_is_logged_in_one_line(seen: Seen) -> None:
    calls = [(line["event"], line.get("status")) for line in seen.lines if "status" in line]
    assert ("push", 200) in calls
    assert ("push", 422) in calls
    assert ("push", 401) in calls
    assert ("link", 101) in calls
    assert calls.count(("link", 401)) == 12
    assert calls.count(("link", 429)) == 2
    assert not any(line["event"] == "probe" for line in seen.lines)
    (pushed,) = [line for line in seen.lines if line.get("status") == 200]
    assert (pushed["from"], pushed["user"], pushed["key"]) == ("127.0.0.1", 1, "push")
    assert pushed["ms"] >= 0
    assert pushed["at"] > 1e9
    (ended,) = [line for line in seen.lines if line["event"] == "link ended"]
    assert (ended["device"], ended["why"]) == ("kit", "this end stops")
    (posted,) = [line for line in seen.lines if line["event"] == "webhook"]
    assert (posted["webhook"], posted["result"]) == (1, "handed")


def test_log_and_metrics_contain_no_secret_and_no_content(seen: Seen) -> None:
    for secret in seen.secrets:
        assert secret not in seen.all_output
        assert secret not in seen.figures


def test_metrics_are_strict_openmetrics_with_few_labels(seen: Seen) -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="extra `test`")
    families = {each.name: each for each in parser.text_string_to_metric_families(seen.figures)}
    assert all(each.documentation for each in families.values())

    def value(name: str, **labels: str) -> float:
        values = [
            sample.value
            for family in families.values()
            for sample in family.samples
            if sample.name == f"fieldagent_hub_{name}" and sample.labels == labels
        ]
        assert len(values) == 1, name
        return float(values[0])

    assert value("database_up") == 1
    assert value("pushes_accepted_total") == 1
    assert value("refusals_total", call="link", reason="credentials") == 12
    assert value("refusals_total", call="link", reason="too often") == 2
    assert value("refusals_total", call="push", reason="credentials") == 1
    assert value("call_seconds_count", call="push") == 3
    assert value("webhook_posts_total", result="handed") == 1
    for direction in ("sent", "received"):
        assert value("carried_bytes_total", bearer="ip", direction=direction) > 0
    assert value("oldest_delivery_seconds") == 0
    assert value("links") == value("devices_linked") == 0
    assert max(len(family.samples) for family in families.values()) < 60


ONLY_LOOKED_AT = {
    *("items", "links", "sos_seen", "pushes_accepted", "pushes_refused", "dead_letters_kept"),
    *("deliveries_waiting", "satellite_messages_waiting", "webhook_deliveries_waiting"),
    *("webhook_seconds", "operator_calls", "operator_balance", "bridge_events", "bridges_linked"),
    *(
        "queues_counted_seconds",
        "rebuild_kits_waiting",
        "rebuild_items_missing",
        "rebuild_items_back",
    ),
}
"""Metrics that are never bad by themselves, or for whose cause another alert exists."""


def test_each_metric_is_documented_and_alert_rules_use_existing_metrics(seen: Seen) -> None:
    names = set(re.findall("^# TYPE (fieldagent_hub_[a-z_]+)", seen.figures, re.MULTILINE))
    page = (RULES.parents[1] / "docs/reference/hub-metrics.md").read_text()
    missing = {name for name in names if f"`{name.removeprefix('fieldagent_hub_')}" not in page}
    assert missing == set()
    stage = list_alert_metrics()
    samples = re.sub("_(total|bucket|count|sum)$", "", "\n".join(sorted(stage)), flags=re.MULTILINE)
    assert set(samples.split("\n")) <= names
    looked_at = {f"fieldagent_hub_{name}" for name in ONLY_LOOKED_AT}
    assert names - set(samples.split("\n")) == looked_at


def test_promtool_accepts_the_alert_rules() -> None:
    promtool = tool("promtool", "prometheus")
    done = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "path",
    [
        "/source/traccar/{}/",
        "/source/traccar/{}/x",
        "/source//{}",
        "/source/{}",
        "/sourc/traccar/{}",
        "/Source/traccar/{}",
        "//source/traccar/{}",
        "/api/source/traccar/{}",
        "/source/traccar/{}%zz",
        "/source/traccar/{}%ff",
        "/source/traccar/{}",
        "/operator/rockblock/{}/",
        "/operators/rockblock/{}",
        "/operator/{}",
        "/answer/{}/",
        "/answers/{}",
        "/{}",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_secret_in_a_misspelt_path_is_not_logged(path: str, method: str) -> None:
    async def take(request: Request, secret: str) -> Response:
        raise Problem(404, "no tracker may report here")

    table = [
        Route("POST", "/source/traccar/{secret}", take),
        Route("POST", "/operator/rockblock/{secret}", take),
        Route("GET", "/answer/{secret}", take),
    ]
    lines: list[dict[str, Any]] = []
    watched = AccessLog(lines.append, Figures()).watch(make_router(table))
    request = Request(method, path.format("s3cret-of-it"), (), {}, peer="192.0.2.1")
    with pytest.raises(Problem) as refusal:
        await (await watched(request)).handler(request)
    assert "s3cret" not in str(lines) + refusal.value.detail
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/api/package", "push"),
        ("/api/items/7", "read"),
        ("/console/file/x", "console"),
        ("/source/osmand/x", "tracker"),
        ("/x", "other"),
    ],
)
def test_unknown_paths_share_one_metric_label(path: str, named: str) -> None:
    assert find_call_name(path, "GET") == named


@pytest.mark.parametrize(
    ("method", "path", "named"),
    [
        ("POST", "/api/devices", "administration"),
        ("PATCH", "/api/users/2", "administration"),
        ("GET", "/api/keys", "administration"),
        ("POST", "/api/webhook-failures/replay", "administration"),
        ("GET", "/api/devices", "read"),
        ("POST", "/api/sos/1/close", "read"),
        ("GET", "/devices", "other"),
    ],
)
def test_administration_calls_have_their_own_metric_label(
    method: str, path: str, named: str
) -> None:
    assert find_call_name(path, method) == named


async def test_log_of_refusals_is_limited_per_minute(clock: Any) -> None:
    lines: list[dict[str, Any]] = []
    figures = Figures()

    async def refuse(head: Request) -> Any:
        raise Problem(401, "who are you?")

    judge = AccessLog(lines.append, figures, trusted_networks=()).watch(refuse)
    for number in range(2):
        for _ in range(1000):
            with pytest.raises(Problem):
                await judge(Request("GET", f"/{number}", (), {}, peer="192.0.2.1"))
        await trio.sleep(61)
    with pytest.raises(Problem):
        await judge(Request("GET", "/", (), {}, peer="192.0.2.1"))
    left_out = {"event": "refusals left out", "times": 1000 - REFUSALS_PER_MINUTE_MAX}
    assert len(lines) == 2 * REFUSALS_PER_MINUTE_MAX + 2 + 1
    assert lines.count(left_out) == 2
    (refused,) = [f for f in figures.list_families() if f.name == "refusals"]
    assert sum(sample.value for sample in refused.samples) == 2001
