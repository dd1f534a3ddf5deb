"""An SOS over MQTT is raised even if another part of its message cannot be read."""

from __future__ import annotations

from pathlib import Path

from fieldagent.agent.journal import incident
from fieldagent.agent.outbound.day_budget import DayBudget
from fieldagent.extensions.mqtt.agent.door import CommandAdmission
from fieldagent.extensions.mqtt.agent.settings import MqttSettings
from tests.kit import kit
from tests.test_alarm_first import PACKAGES, SOS


async def test_mqtt_sos_is_raised_despite_unreadable_members(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        budget = DayBudget(k.journal, "mqtt", 0)
        settings = MqttSettings(senders=frozenset({"panic"}), sos="on")
        door = CommandAdmission(settings, k.journal, k.intake, k.outboxes, budget, bearer_bytes=0)
        for body, _ in PACKAGES:
            text = (body % SOS).replace("{", '{"key": "a key with blanks", ', 1)
            answer = await door.receive_message("panic", text.encode())
            assert answer["accepted"] and answer["key"] is None, answer
            assert "/key" in [each["pointer"] for each in answer["unread"]]
        assert incident.find_open(k.journal) is not None
