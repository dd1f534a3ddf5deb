"""A program error anywhere in the hub ends only the part in which it happened.

Real processes: the test makes functions in the hub raise. All items arrive once.
"""

from __future__ import annotations

import http.client
import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fieldagent.extensions import list_places
from fieldagent.hub.hub import PARTS
from fieldagent.hub.part import HubPart
from fieldagent.system.extension import import_named_object
from tests.breaking import Break, Put, environment, until
from tests.hub.test_cluster import contents, push
from tests.hub.test_journey import IMEI, behind_directip, folder, message_to, posted, receiver, sky
from tests.processes import MODULE, PATIENCE, Hub, administer, agent, free_port, hub

HUB = "fieldagent.hub"
SOON = [
    Put("fieldagent.system.supervisor:PAUSES", [0.05]),
    Put(f"{HUB}.field.operator_handover:BACKOFF", [0.05]),
    Put(f"{HUB}.field.operator_handover:CALL_SECONDS", 2.0),
    Put(f"{HUB}.idle:BUSY_INTERVAL_S", 0.2),
    Put(f"{HUB}.webhook.deliveries:CLAIM_S", 2.0),
]
"""A failed part restarts immediately."""


def get_page(running: Hub, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def count_faults(running: Hub) -> dict[str, int]:
    """Return the number of failures of each part from /metrics."""
    lines = [
        line for line in get_page(running, "/metrics")[1].splitlines() if "faults_total" in line
    ]
    return {line.split('"')[1]: int(line.rpartition(" ")[2]) for line in lines}


def list_extension_tasks() -> dict[str, str]:
    """Return the places of the tasks that extensions add to the hub, by the name of the task."""
    return {
        task: f"{place}.tasks.{task}"
        for place in list_places("hub_parts").values()
        for task in import_named_object(place, HubPart).tasks
    }


def push_data(running: Hub, first: dict[str, str]) -> None:
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    whose = {"sourceUserId": first["sourceUserId"], "workspaceId": first["workspaceId"]}
    push(running.port, proof, {**whose, "data": {"payload": "AA=="}})


def test_all_items_arrive_once_although_each_part_fails_once(tmp_path: Path) -> None:
    mo_port, mt_port = free_port(), free_port()
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    ada = administer(database, "user", "add", "Ada", "--over-satellite")["id"]
    device = administer(
        database, "device", "add", "kit", "--user", str(ada), "--imei", IMEI, "--tagged"
    )
    settings = behind_directip(database, mo_port, mt_port)
    broken: list[Break | Put] = [
        *SOON,
        *(Break(f"{HUB}.hub:PARTS.{name}") for name in PARTS),
        *(Break(place) for place in list_extension_tasks().values()),
        Break(f"{HUB}.api.push_api:HubApi.push"),
        Break(f"{HUB}.field.ip_link:Links.serve"),
        Break(f"{HUB}.field.mailbox:IpMailbox.load"),
        Break(f"{HUB}.field.mailbox:IpMailbox.mark_stored"),
        Break(f"{HUB}.field.mailbox:IpMailbox.store_body", late=True),
        Break(f"{HUB}.webhook.webhooks:claim", after=1),
        Break(f"{HUB}.webhook.webhooks:post"),
        Break(f"{HUB}.webhook.webhooks:record_results", after=1),
        Break(f"{HUB}.field.operator_calls:pack_due_messages"),
        Break(f"{HUB}.field.operator_calls:claim_messages"),
        Break(f"{HUB}.field.operator_calls:record_verdict"),
        Break(f"{HUB}.operator.directip:DirectIp.send"),
        Break(f"{HUB}.operator.directip:parse_mobile_originated"),
        Break(f"{HUB}.field.mobile_originated:MobileOriginatedReceiver.take_in_from"),
    ]

    parts = {*PARTS, *list_extension_tasks(), "DirectIP", "HTTP"}

    def message(text: str) -> dict[str, Any]:
        return message_to(ada, first, text)

    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        change = environment(tmp_path, *broken)
        running = stack.enter_context(hub(folder(tmp_path / "hub"), settings, MODULE, **change))
        administer(database, "webhook", "add", hooked.url, "--untried")
        above = stack.enter_context(sky(tmp_path, mo_port, mt_port))
        home = folder(tmp_path / "kit")
        by_ip: dict[str, str | None] = {
            "satellite-port": None,
            "hub-address": running.address,
            "hub-token": device["hub-token"],
        }
        with agent(home, by_ip) as kit:
            push(running.port, proof, message("over IP"))
            until(lambda: "over IP" in contents(kit))
            sent = kit.call("POST", "/api/package", {"message": {"content": "from the kit"}}).body
            assert sent["status"] == "Delivered"
            until(lambda: "from the kit" in posted(hooked))
        by_satellite = {
            "satellite-port": str(tmp_path / "modem"),
            "satellite-key": device["satellite-key"],
        }
        with agent(home, by_satellite) as kit:
            push(running.port, proof, message("over satellite"))
            until(lambda: "over satellite" in contents(kit))
            sent = kit.call("POST", "/api/package", {"message": {"content": "from the ice"}}).body
            assert sent["status"] == "Delivered"
            until(lambda: "from the ice" in posted(hooked))
            assert Counter(contents(kit)) == {"over IP": 1, "over satellite": 1}
            above.expect("MT of")
        assert {*posted(hooked)} == {"from the kit", "from the ice"}
        assert get_page(running, "/healthz")[0] == 200
        assert count_faults(running).keys() == parts
        assert all(count_faults(running).values()), count_faults(running)
        assert running.stop() == 0
        text = "\n".join(running.lines)
        for part in parts:
            assert f"{part} failed: " in text
        for each in broken:
            if isinstance(each, Break):
                assert f"tests.breaking.AsATest: as a test in {each.place}" in text


def test_failing_route_returns_500_and_other_routes_continue(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    health = ["service.health:Health.answer_readiness", "service.health:Health.answer_metrics"]
    places = ["api.push_api:HubApi.judge", *health, "field.ip_link:Links._open"]
    change = environment(tmp_path, *(Break(f"{HUB}.{place}") for place in places))
    with hub(tmp_path, {"database": database}, MODULE, **change) as running:
        for path in ("/healthz", "/metrics", "/link"):
            status, body = get_page(running, path)
            assert (status, json.loads(body)["status"]) == (500, 500)
            running.expect(f"HTTP failed: GET {path}: AsATest: as a test")
        push_data(running, first)
        running.expect("HTTP failed: POST /api/package: AsATest: as a test")
        assert get_page(running, "/healthz")[0] == 200
        assert count_faults(running)["HTTP"] == len(places)


def test_permanently_failing_part_is_reported_and_stops_no_other(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    change = environment(
        tmp_path,
        *SOON,
        Put("fieldagent.system.supervisor:DOWN_AFTER_S", 0.5),
        Break(f"{HUB}.webhook.webhooks:list_oldest", times=0),
    )
    with hub(tmp_path, {"database": database}, MODULE, **change) as running:
        until(lambda: get_page(running, "/healthz")[0] == 503)
        reason = "failing repeatedly: webhooks; see the log"
        assert json.loads(get_page(running, "/healthz")[1])["reason"] == reason
        push_data(running, first)
        assert running.stop() == 0
