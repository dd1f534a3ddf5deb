"""A kit and a hub at Debian's mosquitto, with a client that follows Home Assistant's rules."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fieldagent import __version__
from fieldagent.agent.journal import elapsed_base
from fieldagent.extensions.mqtt import discovery
from tests.extensions.mqtt.brokers import Mosquitto, needs_mosquitto
from tests.extensions.mqtt.test_hub_journey import Alps
from tests.processes import Running, agent, free_port, sky, until

PROGRAM = Path(__file__).with_name("home_automation.py")


class House(Running):
    """The Home Assistant-like client at the broker."""

    def __init__(self, port: int) -> None:
        super().__init__([sys.executable, str(PROGRAM), str(port), "house"], "at the broker")

    def reports(self, kind: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.output() if line.startswith("{")]
        return [each for each in lines if kind in each]

    def states(self, entity: str) -> list[str]:
        """Return the states of an entity so far, without repetitions."""
        values = [each["value"] for each in self.reports("state") if each["state"] == entity]
        return [each for at, each in enumerate(values) if values[at - 1 : at] != [each]]

    def await_state(self, entity: str, value: str) -> None:
        until(lambda: self.states(entity)[-1:] == [value])


RADIO = {"radio-port": "/nowhere", "radio-station": "3"}


@needs_mosquitto
@pytest.mark.full
def test_home_assistant_entities_follow_the_kits_settings(tmp_path: Path) -> None:
    with (
        sky(tmp_path) as above,
        Mosquitto(tmp_path, free_port()) as broker,
        House(broker.port) as house,
    ):
        own = {"mqtt-address": f"mqtt://127.0.0.1:{broker.port}"}
        with agent(tmp_path, {**own, **RADIO}) as kit:
            house.await_state("fieldagent-kit_satellite", "ON")
            house.await_state("fieldagent-kit_radio", "OFF")
            # Without a limit the state has no such member.
            house.await_state("fieldagent-kit_credits_left", "None")
            place = {"location": {"latitude": 47.1, "longitude": 8.5}}
            kit.call("POST", "/api/package/async", place)
            until(lambda: house.reports("attributes"))
            above.type("mt come down")
            until(lambda: house.states("fieldagent-kit_last_inbound")[-1:] not in ([], ["None"]))
        # After a boot the kit's own dates move until its clock is set.
        with closing(sqlite3.connect(tmp_path / "state" / "journal.sqlite3")) as journal, journal:
            base = elapsed_base.read_known(journal)
            assert base is not None
            elapsed_base.store_base(journal, base._replace(boot="another", trusted=False))
        with agent(tmp_path, own):
            until(lambda: house.reports("removed"))
            assert {"removed": "fieldagent-kit_radio"} in house.reports("removed")
            until(lambda: len(house.reports("device")) == 2)
            first, second = house.reports("device")
            assert first["version"] == __version__
            assert {*first["entities"]} - {*second["entities"]} == {"fieldagent-kit_radio"}
            house.await_state("fieldagent-kit_satellite", "ON")
            assert len(house.states("fieldagent-kit_last_inbound")) == 2
        # The state of a tracker would be a name of a place.
        assert not house.states("fieldagent-kit_position")
        assert not house.reports("wrong")


@needs_mosquitto
@pytest.mark.full
def test_kit_announced_by_the_hub_shows_its_own_version(tmp_path: Path) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(Mosquitto(tmp_path, free_port()))
        house = stack.enter_context(House(broker.port))
        alps = Alps(tmp_path, stack, broker.port)
        alps.begin()
        until(lambda: len(house.reports("device")) == 2)
        assert [each["version"] for each in house.reports("device")] == [__version__, None]
        alps.kit()
        until(lambda: house.reports("device")[-1]["version"] == __version__)
        assert not house.reports("wrong")


@pytest.mark.parametrize(
    ("component", "state", "value"),
    [
        (discovery.make_number_sensor("Credits left", "creditsLeft"), {"creditsToday": 0}, "None"),
        (discovery.make_number_sensor("Credits left", "creditsLeft"), {"creditsLeft": 3}, "3"),
        (discovery.make_flag("SOS open", "sos", "safety"), {"waiting": 0}, "None"),
        (discovery.make_flag("SOS open", "sos", "safety"), {"sos": False}, "OFF"),
        (discovery.make_flag("SOS open", "sos", "safety"), {"sos": True}, "ON"),
    ],
)
def test_missing_state_member_renders_as_unknown(
    component: dict[str, Any], state: dict[str, Any], value: str
) -> None:
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
    assert environment.from_string(component["value_template"]).render(value_json=state) == value
