"""A kit in the real Home Assistant, with Debian's mosquitto: all are real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extensions.mqtt import home_assistant
from tests.extensions.mqtt.brokers import Mosquitto, needs_mosquitto
from tests.extensions.mqtt.home_assistant import HomeAssistant
from tests.extensions.mqtt.test_home_assistant import RADIO
from tests.processes import Agent, agent, free_port, sky, until

SATELLITE = "binary_sensor.fieldagent_kit_satellite_link"
RADIO_LINK = "binary_sensor.fieldagent_kit_radio_link"
TRACKER = "device_tracker.fieldagent_kit_position"
LAST, EVENT = "sensor.fieldagent_kit_last_message", "event.fieldagent_kit_message"
PLACE = {"location": {"latitude": 47.1, "longitude": 8.5, "altitude": 900}}
HUT = {"location": {"latitude": 46.5, "longitude": 8.1}}


def newest_text(kit: Agent) -> str:
    """Return the text of the kit's newest Package."""
    return str(kit.call("GET", "/api/packages").body["packages"][0].get("text", ""))


@needs_mosquitto
@pytest.mark.full
def test_real_home_assistant_shows_a_kit_and_sends_messages(tmp_path: Path) -> None:
    home_assistant.install()
    broker_port = free_port()
    own = {"mqtt-address": f"mqtt://127.0.0.1:{broker_port}"}
    with (
        sky(tmp_path) as above,
        Mosquitto(tmp_path, broker_port) as broker,
        HomeAssistant(tmp_path / "home", free_port(), broker_port) as house,
    ):
        with agent(tmp_path, {**own, **RADIO}) as kit:
            house.await_state(SATELLITE, "on")
            house.await_state(RADIO_LINK, "off")
            house.await_state("sensor.fieldagent_kit_credits_today", "0")
            house.await_state("sensor.fieldagent_kit_credits_left", "unknown")
            assert house.state("binary_sensor.fieldagent_kit_sos_open") == "off"
            assert house.state(LAST) == "unknown"
            kit.call("POST", "/api/package/async", PLACE)
            until(lambda: "latitude" in house.entity(TRACKER)["attributes"])
            where = house.entity(TRACKER)
            attributes = where["attributes"]
            assert (attributes["latitude"], attributes["longitude"]) == (47.1, 8.5)
            assert (where["state"], attributes["altitude"]) == ("not_home", 900)
            # A zone of the house, and an automation that answers when the kit enters it.
            kit.call("POST", "/api/package/async", HUT)
            house.await_state(TRACKER, "Hut")
            until(lambda: newest_text(kit) == "welcome to the hut")
            above.type("mt come down")
            until(lambda: house.entity(EVENT)["attributes"]["event_type"] == "message")
            until(lambda: house.state(LAST).startswith("20"))
            last, event = house.state(LAST), house.state(EVENT)
            typed = {"entity_id": "notify.fieldagent_kit_send", "message": "storm at five"}
            house.call("/api/services/notify/send_message", typed)
            until(lambda: newest_text(kit) == "storm at five")
        house.await_state(SATELLITE, "unavailable")
        with agent(tmp_path, own):
            until(lambda: not house.entity(RADIO_LINK))
            house.await_state(SATELLITE, "on")
            assert (house.state(LAST), house.state(EVENT)) == (last, event)
            assert house.complaints() == []
            # Home Assistant restarts, and after that the broker, which forgets retained messages.
            house.restart()
            house.await_state(SATELLITE, "")
            house.await_state(SATELLITE, "on")
            house.await_state(LAST, last)
            assert house.state(TRACKER) == "Hut"
            assert not house.entity(RADIO_LINK)
            broker.kill()
            house.await_state(SATELLITE, "unavailable")
            with Mosquitto(tmp_path, broker_port):
                house.await_state(SATELLITE, "on")
                house.await_state(LAST, last)
