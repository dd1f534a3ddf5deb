"""A program error anywhere in the agent ends only the part in which it happened.

Real processes: the test makes functions in them raise. Packages in transit arrive once.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent.agent.agent import BACKGROUND_TASKS
from fieldagent.agent.api.routes import LocalApi
from fieldagent.agent.api.sos import IncidentApi
from tests.agent.test_linked_agent import link_settings
from tests.breaking import Break, Put, environment, until
from tests.hub.memory_mailbox import MemoryHub
from tests.hub.serving import hub_end
from tests.hub.test_journey import receiver
from tests.processes import MODULE, Agent, agent, sky

SATELLITE = "fieldagent.agent.channels.satellite"
MODEM = "fieldagent.agent.channels.sbd_modem"
CELLULAR = "fieldagent.agent.channels.cellular"
SESSION = "fieldagent.http.link_session:LinkSession"
OUTBOX = "fieldagent.agent.outbound.outbox:ChannelOutbox"
ENDINGS = "fieldagent.agent.outbound.ending:Endings"
INBOUND = "fieldagent.agent.inbound"
SOON = [
    Put("fieldagent.system.supervisor:PAUSES", [0.05]),
    Put("fieldagent.agent.outbound.outbox:FAILURE_PAUSE_S", 0.05),
]
"""A failed part restarts immediately."""


def breaking(
    home: Path, *changes: Break | Put, settings: Mapping[str, str | None] = {}
) -> AbstractContextManager[Agent]:
    """Run an agent in which these functions raise."""
    return agent(home, settings, MODULE, **environment(home, *SOON, *changes))


def faults(kit: Agent) -> dict[str, Any]:
    """Return the faults in `status` by part."""
    return {each["part"]: each for each in kit.call("GET", "/api/status").body["faults"]}


def check_fault_is_reported(kit: Agent, part: str, *broken: Break) -> None:
    """Check that the fault appears everywhere, that the agent works, and that it stops in order."""
    fault = faults(kit)[part]
    assert "AsATest: as a test in " in fault["error"]
    assert fault["down"] is False
    metric = f'fieldagent_faults_total{{part="{part}"}} {fault["times"]}'
    assert metric in kit.call("GET", "/metrics").body
    assert kit.call("GET", "/api/health").status == 200
    assert kit.stop() == 0
    text = "\n".join(kit.lines)
    assert f"{part} failed: " in text
    assert "Traceback (most recent call last)" in text
    for each in broken:
        assert f"tests.breaking.AsATest: as a test in {each.place}" in text


@pytest.mark.full
@pytest.mark.parametrize(
    "broken",
    [
        Break(f"{SATELLITE}:SatelliteDriver.work"),
        Break(f"{SATELLITE}:SatelliteDriver._hold_session"),
        Break(f"{SATELLITE}:SatelliteDriver._store"),
        Break(f"{SATELLITE}:SatelliteDriver._write_message", late=True),
        Break(f"{SATELLITE}:SatelliteDriver._converse"),
        Break(f"{MODEM}:sbd.parse_session"),
        Break(f"{SATELLITE}:SatelliteDriver._settle"),
        Break(f"{MODEM}:Modem._dispatch_event", after=16),
        Break("fieldagent.agent.outbound.packing:Packing.pack"),
        Break(f"{OUTBOX}.load"),
        Break(f"{OUTBOX}.record_intent"),
        Break(f"{OUTBOX}.record_intent", late=True),
        Break(f"{OUTBOX}.settle"),
        Break(f"{OUTBOX}.settle", late=True),
        Break(f"{ENDINGS}.record"),
        Break(f"{ENDINGS}.record", late=True),
    ],
    ids=lambda broken: f"{broken.place.partition(':')[2]}{'-late' * broken.late}",
)
def test_package_arrives_once_when_satellite_driver_fails(tmp_path: Path, broken: Break) -> None:
    with sky(tmp_path, latency=0.1) as above, breaking(tmp_path, broken) as kit:
        assert kit.post("precious").body["status"] == "Delivered"
        assert kit.post("next").body["status"] == "Delivered"
        above.expect('"next"')
        assert len([line for line in above.lines if '"precious"' in line]) == 1
        assert faults(kit)["Satellite"]["times"] == 1
        check_fault_is_reported(kit, "Satellite", broken)


async def test_package_arrives_once_when_cellular_driver_fails(
    tmp_path: Path,
) -> None:
    """The same Package meets each of these faults in turn."""
    broken = [
        Break(f"{CELLULAR}:CellularDriver._run_link"),
        Break(f"{CELLULAR}:_OutboxPost.wait_for_next", late=True),
        Break(f"{SESSION}._exchange_hellos", late=True),
        Break(f"{SESSION}._send"),
        Break(f"{SESSION}._send", after=1, late=True),
        Break(f"{SESSION}._settle"),
        Break(f"{OUTBOX}.settle"),
        Break(f"{ENDINGS}.record"),
    ]
    hub = MemoryHub()
    async with hub_end(hub) as port:
        with breaking(tmp_path, *broken, settings=link_settings(tmp_path, port)) as kit:

            def send() -> None:
                assert kit.post("precious").body["status"] == "Delivered"
                assert kit.post("next").body["status"] == "Delivered"
                check_fault_is_reported(kit, "Cellular", *broken)

            await trio.to_thread.run_sync(send)
    # The hub recognises an item by its number and digest, so its copies are one.
    assert {*hub.mailbox.contents} == {"precious", "next"}


@pytest.mark.full
def test_payload_is_handed_over_after_program_errors_in_hooks(tmp_path: Path) -> None:
    broken = [
        Break(f"{INBOUND}.script:run_script"),
        Break(f"{INBOUND}.hooks:JournalSpool.get_heads"),
        Break(f"{INBOUND}.dispatch:_Dispatch.start_due", after=3),
        Break("fieldagent.webhook.post:request"),
    ]
    with receiver() as hooked, sky(tmp_path, latency=0.1) as above:
        settings = {"inbound-hook": "printf 'hook: '; cat", "webhook-address": hooked.url}
        with breaking(tmp_path, *broken, settings=settings) as kit:
            above.type("mt hello kit")
            kit.expect("hook: ")
            until(lambda: len(hooked.got) > 0)

            def states() -> set[str]:
                (payload,) = kit.call("GET", "/api/inbound").body["payloads"]
                return {each["state"] for each in payload["hooks"].values()}

            until(lambda: states() == {"handed"})
            parts = {f"the handover to the {hook}" for hook in ("script", "webhook")}
            assert parts <= faults(kit).keys()
            assert kit.post("and out").body["status"] == "Delivered"
            check_fault_is_reported(kit, "the handover to the webhook", *broken)


def test_failed_background_tasks_and_queue_restart(tmp_path: Path) -> None:
    broken: list[Break] = [
        *(Break(f"fieldagent.agent.agent:BACKGROUND_TASKS.{name}") for name in BACKGROUND_TASKS),
        Break("fieldagent.agent.outbound.queue:Queue.expire"),
    ]
    with sky(tmp_path, latency=0.1), breaking(tmp_path, *broken) as kit:
        assert kit.post("x").body["status"] == "Delivered"
        assert faults(kit).keys() == {*BACKGROUND_TASKS, "Satellite queue"}
        check_fault_is_reported(kit, "Satellite queue", *broken)


OF_SOS: dict[str, tuple[str, str, Any]] = {
    "raise_sos": ("POST", "/api/sos", {}),
    "answer_incidents": ("GET", "/api/sos", None),
    "answer_canned_texts": ("GET", "/api/sos/words", None),
    "cancel_incident": ("DELETE", "/api/sos", None),
    "record_seen": ("POST", "/api/sos/5/6/take", {"by": "Zoe"}),
}
REQUESTS: dict[str, tuple[str, str, Any]] = {
    "send": ("POST", "/api/package", {"message": {"content": "x"}}),
    "enqueue": ("POST", "/api/package/async", {"message": {"content": "x"}}),
    "answer_cost": ("POST", "/api/package/cost", {"message": {"content": "x"}}),
    "answer_package": ("GET", "/api/package/1", None),
    "cancel": ("POST", "/api/package/1/cancel", None),
    "queue": ("GET", "/api/queue", None),
    "answer_packages": ("GET", "/api/packages", None),
    "clear": ("DELETE", "/api/queue", None),
    "answer_inbound": ("GET", "/api/inbound", None),
    "answer_neighbours": ("GET", "/api/neighbours", None),
    "answer_mesh": ("GET", "/api/mesh", None),
    "replay": ("POST", "/api/inbound/x/replay", None),
    "answer_health": ("GET", "/api/health", None),
    "answer_status": ("GET", "/api/status", None),
    "listen": ("GET", "/api/events", None),
    "answer_metrics": ("GET", "/metrics", None),
}
"""One call for each handler of the local API."""


def test_failed_route_answers_500_and_other_routes_work(tmp_path: Path) -> None:
    broken = []
    for api, requests in ((LocalApi, REQUESTS), (IncidentApi, OF_SOS)):
        handlers = inspect.getmembers(api, inspect.iscoroutinefunction)
        assert {name for name, _ in handlers if name[0] != "_"} == requests.keys()
        broken += [Break(f"{api.__module__}:{api.__name__}.{name}") for name in requests]
    with sky(tmp_path, latency=0.1), breaking(tmp_path, *broken) as kit:
        for name, (method, path, body) in (*REQUESTS.items(), *OF_SOS.items()):
            answer = kit.call(method, path, body)
            assert (answer.status, answer.body["title"]) == (500, "Internal Server Error")
            assert answer.headers["content-type"] == "application/problem+json"
            assert "log" in answer.body["detail"]
            # The log names the route, because a path may hold a secret.
            line = kit.expect(f"Api.{name} at ")
            assert f"the local API failed: {method} {path.split('/1')[0][:8]}" in line
        assert kit.post("and now").body["status"] == "Delivered"
        assert faults(kit)["the local API"]["times"] == len(broken)
        assert kit.call("GET", "/api/health").status == 200
        assert kit.stop() == 0


async def test_permanently_failed_part_is_reported_and_other_parts_work(tmp_path: Path) -> None:
    changes: list[Break | Put] = [
        Break(f"{SATELLITE}:SatelliteDriver.work", times=0),
        Put("fieldagent.system.supervisor:DOWN_AFTER_S", 0.5),
    ]
    hub = MemoryHub()
    async with hub_end(hub) as port:
        settings = {**link_settings(tmp_path, port), "satellite-port": str(tmp_path / "modem")}
        with sky(tmp_path), breaking(tmp_path, *changes, settings=settings) as kit:

            def look() -> None:
                until(lambda: kit.call("GET", "/api/health").status == 503)
                health = kit.call("GET", "/api/health").body
                assert (health["status"], "Satellite" in health["reason"]) == ("DOWN", True)
                assert kit.post("x", channels=["Cellular"]).body["status"] == "Delivered"
                until(lambda: faults(kit)["Satellite"]["times"] > 5)
                assert faults(kit)["Satellite"]["down"]
                link = kit.call("GET", "/api/status").body["channels"]["Satellite"]
                assert link["state"] in ("fault", "starting")
                assert "AsATest: as a test" in link["reason"]
                assert kit.stop() == 0

            await trio.to_thread.run_sync(look)
    # A second traceback would contain no news.
    text = "\n".join(kit.lines)
    assert text.count("tests.breaking.AsATest") == 1
