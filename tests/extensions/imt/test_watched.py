"""A message over a 9704, observed from end to end: a real agent, a simulated modem on a pty, and
the receiver. At each step of the conversation the modem loses power, its report is lost, or the
agent is killed. Each `Delivered` message is at the receiver, and each accepted one arrives.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.breaking import Break, Put, environment
from tests.processes import MODULE, Agent, Running, agent, imt_sky, until

pytestmark = pytest.mark.full

IMT = {"satellite-modem": "imt"}
DRIVER, MODEM = (f"fieldagent.extensions.imt.agent.{name}" for name in ("driver", "modem"))
OUTBOX = "fieldagent.agent.outbound.outbox:ChannelOutbox"
QUICK = (
    Put("fieldagent.agent.channels.satellite_waits:CHECK_INTERVAL_S", 1.0),
    Put(f"{DRIVER}:TRANSIT_MAX_S", 6.0),
    Put(f"{DRIVER}:CANCEL_MAX_S", 2.0),
    Put(f"{MODEM}:ANSWER_TIMEOUT_S", 2.0),
)


def check_arrives_once(above: Running, content: str) -> None:
    """Check that the message is at the receiver exactly once, as the kit reported, and that no copy
    is in transit.
    """
    text = f'message {{"content": "{content}"}}'
    until(lambda: any(text in line for line in above.output()))
    assert len([line for line in above.output() if text in line and "again" not in line]) == 1


FAULTS = (
    "reset-at offered",
    "reset-at accepted",
    "reset-after 1",
    "reset-at told",
    "lose-answer",
    "lose-status",
    "pause-after 0",
    "noise",
    "refuse protocol_error",
    "final message_cancelled_pre_transit",
    "final network_error",
    "final network_error delivered",
    "final message_cancelled_in_transit delivered",
)


@pytest.mark.parametrize(
    ("priority", "faults"), [(None, FAULTS), (100, ("lose-status", "reset-at told"))]
)
def test_message_arrives_once_despite_each_modem_fault(
    tmp_path: Path, priority: int | None, faults: tuple[str, ...]
) -> None:
    quick = environment(tmp_path, *QUICK, Put(f"{DRIVER}:SEGMENTS_MAX_S", 2.0))
    urgent = {} if priority is None else {"priority": priority}
    with imt_sky(tmp_path) as above, agent(tmp_path, IMT, MODULE, **quick) as kit:
        for fault in faults:
            above.type(fault)
            above.expect("the next" if fault.startswith("final") else " ")
            assert kit.post(fault, **urgent).body["status"] == "Delivered"
            check_arrives_once(above, fault)
        assert kit.post("after").body["status"] == "Delivered"
        check_arrives_once(above, "after")


KILLS = {
    "before the intent": (f"{OUTBOX}.record_intent", 0),
    "before it is offered": (f"{MODEM}:ImtModem.offer_message", 0),
    "before its number is on disk": (f"{OUTBOX}.record_intent", 1),
    "before all of it is given": (f"{MODEM}:ImtModem.wait_until_handed_over", 0),
    "while it is on its way": (f"{DRIVER}:ImtDriver._wait_until_ended", 0),
    "before its end is on disk": (f"{OUTBOX}.settle", 0),
    "before its end is told": (f"{OUTBOX}._end", 0),
}


@pytest.mark.parametrize("power", ["kept", "lost"])
@pytest.mark.parametrize("step", KILLS)
def test_message_arrives_once_after_a_kill_at_each_step(
    tmp_path: Path, step: str, power: str
) -> None:
    place, after = KILLS[step]
    body = {"message": {"content": "precious"}, "id": 5}
    quick = environment(
        tmp_path, Put("fieldagent.extensions.lab.simulator.imt_port:SEGMENT_MAX_S", 0.5)
    )
    with imt_sky(tmp_path, 0.2, **quick) as above:
        deadly = environment(tmp_path, *QUICK, Break(place, after=after, kills=True))
        with agent(tmp_path, IMT, MODULE, **deadly) as kit:
            assert kit.call("POST", "/api/package/async", body).status == 202
            assert kit.wait() == -signal.SIGKILL
        if power == "lost":
            above.type("brownout")
            above.expect("lost power")
        with agent(tmp_path, IMT, MODULE, **environment(tmp_path, *QUICK)) as kit:
            until(lambda: kit.call("GET", "/api/package/5").body["status"] == "Delivered")
            check_arrives_once(above, "precious")
            assert kit.post("after").body["status"] == "Delivered"
            check_arrives_once(above, "after")


def _state(kit: Agent) -> str:
    return str(kit.call("GET", "/api/status").body["channels"]["Satellite"]["state"])


@pytest.mark.parametrize("priority", [None, 100])
def test_message_arrives_once_after_modem_power_loss_in_transit(
    tmp_path: Path, priority: int | None
) -> None:
    urgent = {} if priority is None else {"priority": priority}
    body = {"message": {"content": "precious"}, "id": 5, **urgent}
    quick = environment(tmp_path, *QUICK, Put(f"{DRIVER}:TRANSIT_MAX_S", 600.0))
    with imt_sky(tmp_path, latency=3600) as above, agent(tmp_path, IMT, MODULE, **quick) as kit:
        assert kit.call("POST", "/api/package/async", body).status == 202
        until(lambda: _state(kit) == "busy")
        above.type("brownout")
        above.type("latency 0")
        above.expect("0 s")
        assert kit.post("precious", id=5, **urgent).body["status"] == "Delivered"
        check_arrives_once(above, "precious")
