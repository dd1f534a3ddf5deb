"""The kit's door for commands over MQTT: what a sender may spend."""

from __future__ import annotations

from pathlib import Path

from fieldagent.agent.outbound.day_budget import DayBudget
from fieldagent.extensions.mqtt.agent.door import CommandAdmission
from fieldagent.extensions.mqtt.agent.settings import MqttSettings
from fieldagent.package.package import Channel
from tests.kit import kit


async def test_commands_that_cost_nothing_leave_the_budget_unspent(tmp_path: Path) -> None:
    """Another channel delivers each message before a satellite session begins."""
    async with kit(tmp_path) as k:
        budget = DayBudget(k.journal, "mqtt", 2)
        settings = MqttSettings(senders=frozenset({"panel"}), credits_per_day=2)
        door = CommandAdmission(settings, k.journal, k.intake, k.outboxes, budget, bearer_bytes=0)
        for _ in range(9):
            answer = await door.receive_message("panel", b'{"message": {"content": "x"}}')
            assert answer["accepted"] and "withheld" not in answer, answer
            await k.cancellation.clear(Channel.SATELLITE)
