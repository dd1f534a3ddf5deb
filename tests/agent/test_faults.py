"""A mistake of ours, anywhere in the agent, ends nothing but what it happened in.

Real processes: places in them are made to raise from outside. What was in flight arrives, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.breaking import Break, Put, environment
from tests.processes import MODULE, Agent, agent, sky

SATELLITE = "fieldagent.agent.channels.satellite"
OUTBOX = "fieldagent.agent.outbound.outbox:ChannelOutbox"
INTAKE = "fieldagent.agent.outbound.intake:Intake"


SOON = Put("fieldagent.system.supervisor:PAUSES", [0.05])


def breaking(
    home: Path, *changes: Break | Put, settings: Mapping[str, str | None] = {}
) -> AbstractContextManager[Agent]:
    """An agent in which these places raise, and what failed starts again at once."""
    return agent(home, settings, MODULE, **environment(home, SOON, *changes))


def faults(kit: Agent) -> dict[str, str]:
    """By part, what `status` says of its last fault."""
    return {each["part"]: each["error"] for each in kit.call("GET", "/api/status").body["faults"]}


def works_on(kit: Agent, part: str) -> None:
    """The fault is told everywhere, the agent is well, and it stops in order."""
    assert "AsATest: as a test" in faults(kit)[part]
    metrics = kit.call("GET", "/metrics").body
    assert f'fieldagent_faults_total{{part="{part}"}} 1' in metrics
    assert kit.call("GET", "/api/health").status == 200
    assert kit.stop() == 0
    text = "\n".join(kit.lines)
    assert f"{part} failed: " in text
    assert "Traceback (most recent call last)" in text
    assert "tests.breaking.AsATest: as a test" in text


@pytest.mark.parametrize(
    "broken",
    [
        Break(f"{SATELLITE}:SatelliteDriver.work"),
        Break(f"{SATELLITE}:SatelliteDriver._session"),
        Break(f"{SATELLITE}:SatelliteDriver._store"),
        Break(f"{SATELLITE}:SatelliteDriver._give", late=True),
        Break(f"{SATELLITE}:SatelliteDriver._converse"),
        Break(f"{SATELLITE}:sbd.parse_session"),
        Break(f"{SATELLITE}:SatelliteDriver._settle"),
        Break(f"{SATELLITE}:Modem._sort", after=16),
        Break(f"{OUTBOX}._pack"),
        Break(f"{OUTBOX}.load"),
        Break(f"{OUTBOX}.intend"),
        Break(f"{OUTBOX}.intend", late=True),
        Break(f"{OUTBOX}.settle"),
        Break(f"{OUTBOX}.settle", late=True),
        Break(f"{INTAKE}.end"),
        Break(f"{INTAKE}.end", late=True),
    ],
    ids=lambda broken: f"{broken.place.partition(':')[2]}{'-late' * broken.late}",
)
def test_a_package_in_flight_when_the_satellite_driver_fails_arrives_once(
    tmp_path: Path, broken: Break
) -> None:
    with sky(tmp_path, latency=0.1) as above, breaking(tmp_path, broken) as kit:
        assert kit.post("precious").body["status"] == "Delivered"
        assert kit.post("next").body["status"] == "Delivered"
        above.expect('"next"')
        assert len([line for line in above.lines if '"precious"' in line]) == 1
        works_on(kit, "Satellite")
