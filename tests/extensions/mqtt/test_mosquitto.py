"""A kit at Debian's mosquitto with a third-party client: real processes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme

from fieldagent.extensions import NAMES
from tests.breaking import Put, environment
from tests.extensions.mqtt.brokers import (
    Mosquitto,
    Neighbour,
    needs_mosquitto,
    neighbour,
    password_file,
)
from tests.processes import MODULE, Agent, agent, free_port, imt_sky, sky, until

pytestmark = needs_mosquitto
BASE = "fieldagent/kit"
CONFIG = "homeassistant/device/fieldagent-kit/config"


class Camp:
    """A sky, a broker, another program at it, and a kit that `begin` starts."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.home = home
        self.stack = stack
        self.sky = stack.enter_context(sky(home))
        self.broker = stack.enter_context(Mosquitto(home, free_port()))
        self.other: Neighbour = stack.enter_context(neighbour(self.broker.port))
        self.kit: Agent

    def begin(self, **settings: str | None) -> None:
        named = {name.replace("_", "-"): value for name, value in settings.items()}
        address = {"mqtt-address": f"mqtt://127.0.0.1:{self.broker.port}"}
        self.kit = self.stack.enter_context(agent(self.home, address | named))

    def await_ready(self) -> None:
        until(lambda: self.mqtt()["state"] == "ready")

    def mqtt(self) -> dict[str, Any]:
        status: dict[str, Any] = self.kit.call("GET", "/api/status").body["mqtt"]
        return status

    def packages(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.kit.call("GET", "/api/packages").body["packages"]
        return listed

    def send(self, body: Any, sender: str = "house") -> Any:
        """Send a command and return its result."""
        topic = f"{BASE}/result/{sender}"
        before = len(self.other.of(topic))
        self.other.say(f"{BASE}/send/{sender}", body)
        until(lambda: len(self.other.of(topic)) > before)
        return self.other.of(topic)[before].body


@pytest.fixture
def camp(tmp_path: Path) -> Iterator[Camp]:
    with ExitStack() as stack:
        yield Camp(tmp_path, stack)


def message(text: str, **more: Any) -> dict[str, Any]:
    return {"message": {"content": text}, **more}


PAYS = {"mqtt_senders": "house", "mqtt_credits_per_day": "3"}


@pytest.mark.full
def test_command_is_sent_by_satellite_and_inbound_items_are_published(camp: Camp) -> None:
    camp.begin(**PAYS)
    camp.other.await_one(f"{BASE}/state", lambda state: state["satellite"] == "ready")
    camp.await_ready()
    result = camp.send(message("hut reached", key="a1"))
    assert (result["accepted"], result["key"], result["status"]) == (True, "a1", None)
    topic = f"{BASE}/package/{result['id']}"
    delivered = camp.other.await_one(topic, lambda body: body["status"] == "Delivered")
    assert delivered["channels"] == {"Satellite": {"status": "Delivered"}}
    assert [step["stage"] for step in delivered["reached"]] == ["kept", "left"]
    camp.other.await_one(f"{BASE}/state", lambda state: state["creditsToday"] == 1)
    camp.sky.type("mt come down")
    came = camp.other.await_one(f"{BASE}/inbound")
    assert came["event_type"] == "message"
    assert came["payloads"][0]["events"][0]["content"] == "come down"
    (listed,) = camp.kit.call("GET", "/api/inbound").body["payloads"]
    assert listed["requestId"] == came["requestId"]
    until(lambda: camp.mqtt()["inboundWaiting"] == 0)
    stands = camp.kit.call("GET", "/api/inbound").body["payloads"][0]["hooks"]
    assert stands == {"MQTT": {"state": "handed", "attempts": 1, "reason": ""}}
    camp.other.await_one(f"{BASE}/state", lambda state: state["lastInbound"])
    # The kit does not accept its own messages, so there is no loop.
    assert camp.mqtt()["commands"]["taken"] == 1
    assert len(camp.packages()) == 1


def test_dead_kit_is_offline_and_no_message_is_retained(camp: Camp) -> None:
    camp.begin(**PAYS)
    camp.await_ready()
    camp.send(message("the secret of the hut"))
    camp.sky.type("mt another secret")
    camp.other.await_one(f"{BASE}/inbound")
    camp.kit.kill()
    until(lambda: camp.other.of(f"{BASE}/online")[-1].payload == b"offline")
    with neighbour(camp.broker.port) as late:
        until(lambda: late.of(CONFIG))
        until(lambda: late.of(f"{BASE}/state") and late.of(f"{BASE}/online"))
        assert late.of(f"{BASE}/online")[0].payload == b"offline"
        assert all(each.retained for each in late.got)
        assert not any(b"secret" in each.payload for each in late.got)
    camp.begin(**PAYS)
    until(lambda: camp.other.of(f"{BASE}/online")[-1].payload == b"online")
    camp.kit.stop()
    until(lambda: camp.other.of(f"{BASE}/online")[-1].payload == b"offline")


DEVICE = {"identifiers", "name", "manufacturer", "sw_version", "configuration_url"}
ENTITY = {"platform", "unique_id", "name", "value_template", "device_class", "state_class"}
OF_PLATFORM = {
    "sensor": {"state_topic", "unit_of_measurement"},
    "binary_sensor": {"state_topic"},
    "device_tracker": {"source_type", "json_attributes_topic"},
    "event": {"event_types", "state_topic"},
    "notify": {"command_topic"},
}
NEEDED = {
    "sensor": {"state_topic", "value_template"},
    "binary_sensor": {"state_topic", "value_template"},
    "device_tracker": {"json_attributes_topic"},
    "event": {"event_types", "state_topic"},
    "notify": {"command_topic"},
}


def present(configuration: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the components of a device. One with only a platform removes an entity."""
    components = configuration["components"].items()
    return {key: each for key, each in components if each.keys() != {"platform"}}


def members(component: dict[str, Any]) -> set[str]:
    """Return the members of the state that a template reads."""
    return {*re.findall(r"value_json\.get\('(\w+)'\)", component.get("value_template", ""))}


@pytest.mark.full
def test_discovery_follows_home_assistants_documentation(camp: Camp) -> None:
    camp.begin()
    configuration = camp.other.await_one(CONFIG)
    assert configuration.keys() == {"device", "origin", "components", "availability", "qos"}
    assert configuration["device"].keys() <= DEVICE
    assert configuration["device"]["identifiers"] == ["fieldagent-kit"]
    assert configuration["origin"]["name"]
    (online,) = configuration["availability"]
    assert online["topic"] == f"{BASE}/online"
    components = present(configuration)
    ids = [each["unique_id"] for each in components.values()]
    assert len({*ids}) == len(ids)
    for each in components.values():
        assert NEEDED[each["platform"]] | {"platform", "unique_id"} <= each.keys()
        assert each.keys() <= ENTITY | OF_PLATFORM[each["platform"]]
    # Each template names a member of the state.
    state = camp.other.await_one(f"{BASE}/state", lambda state: state["satellite"] == "ready")
    for key, each in components.items():
        assert members(each) <= state.keys() or key == "credits_left", key
    # An automation cannot raise an SOS by accident.
    assert not [each for each in components.values() if each["platform"] == "button"]
    known = len(camp.other.of(CONFIG))
    camp.other.say("homeassistant/status", "online")
    until(lambda: len(camp.other.of(CONFIG)) == known + 1)


def test_discovery_can_be_turned_off(camp: Camp) -> None:
    camp.begin(mqtt_discovery="none", mqtt_prefix="alps/west", mqtt_name="hut")
    camp.other.await_one("alps/west/hut/state")
    assert {each.topic.split("/")[0] for each in camp.other.got} == {"alps"}


def test_position_topic_follows_the_last_posted_position(camp: Camp) -> None:
    camp.begin(satellite_port=None, radio_port="/nowhere", radio_station="3")
    camp.kit.call("POST", "/api/package/async", {"location": {"latitude": 47.1, "longitude": 8.5}})
    position = camp.other.await_one(f"{BASE}/position")
    assert (position["latitude"], position["longitude"]) == (47.1, 8.5)
    camp.await_ready()
    motion = {"altitude": 900, "speedOverGround": 1.5, "courseOverGround": 270}
    camp.send({"location": {"latitude": 47.2, "longitude": 8.6, **motion}})
    position = camp.other.await_one(f"{BASE}/position", lambda body: body["latitude"] == 47.2)
    assert (position["altitude"], position["speed"], position["course"]) == (900, 1.5, 270)
    # Of another program's Package, only the position is published.
    topics = {each.topic for each in camp.other.got if "/package/" in each.topic}
    assert topics == {f"{BASE}/package/2"}


def test_retained_command_is_ignored(camp: Camp) -> None:
    camp.other.say(f"{BASE}/send/house", message("each connection would send this"), retain=True)
    camp.begin(**PAYS)
    camp.await_ready()
    until(lambda: camp.mqtt()["commands"]["retained"] == 1)
    assert camp.send(message("once"))["id"] == 1
    assert [each["text"] for each in camp.packages()] == ["once"]


def test_command_flood_is_dropped_and_counted(camp: Camp) -> None:
    camp.begin(satellite_port=None, radio_port="/nowhere", radio_station="3")
    camp.await_ready()
    for number in range(500):
        camp.other.client.publish(f"{BASE}/send", f"text {number}", number % 2)
    camp.other.say(f"{BASE}/send", b"x" * 200_000)

    def all_counted() -> bool:
        counts = camp.mqtt()["commands"]
        return bool(sum(counts.values()) == 501)

    until(all_counted)
    counts = camp.mqtt()["commands"]
    # Ten at once, and one per minute if the machine is that slow.
    assert 10 <= counts["taken"] < 20
    assert counts["too long"] == 1
    assert counts["too many"] == 500 - counts["taken"]
    assert len(camp.packages()) == counts["taken"]
    figures = camp.kit.call("GET", "/metrics").body
    assert f'fieldagent_mqtt_commands_total{{result="too many"}} {counts["too many"]}' in figures
    assert "fieldagent_mqtt_linked 1" in figures
    camp.kit.expect("dropped, the last as too many")


def refused(result: Any, *words: str) -> bool:
    assert not result["accepted"]
    return all(word in result["problem"]["detail"] for word in words)


def test_paid_channels_need_a_listed_sender_and_a_budget(camp: Camp) -> None:
    camp.begin()
    camp.await_ready()
    assert refused(camp.send(message("x")), "Satellite: house is not in mqtt-senders")
    camp.kit.stop()
    camp.begin(mqtt_senders="house")
    camp.await_ready()
    assert refused(camp.send(message("x")), "takes 1 of the 0 left", "mqtt-credits-per-day")
    camp.kit.stop()
    more: dict[str, str] = {"radio_port": "/nowhere", "radio_station": "3"}
    camp.begin(**PAYS, **more)
    camp.await_ready()
    assert refused(camp.send(message("x", channels=["Satellite"]), "stranger"), "not in")
    result = camp.send(message("by radio alone"), "stranger")
    assert result["channels"] == {"Radio": {"status": None}}
    assert result["withheld"] == {"Satellite": "stranger is not in mqtt-senders"}
    result = camp.send(message("x" * 120, key="long"))
    assert result["channels"] == {"Radio": {"status": None}, "Satellite": {"status": None}}
    assert camp.mqtt()["creditsToday"] == 3
    # A repetition is paid once, and is recognised although the budget is used up.
    assert camp.send(message("x" * 120, key="long"))["id"] == result["id"]
    assert camp.mqtt()["creditsToday"] == 3
    assert refused(camp.send(message("other", key="long")), "used for another body")
    again = camp.send(message("later"))
    assert again["withheld"].keys() == {"Satellite"}
    camp.kit.kill()
    camp.begin(**PAYS, **more)
    camp.await_ready()
    assert camp.mqtt()["creditsToday"] == 3
    assert camp.send(message("after a restart"))["withheld"].keys() == {"Satellite"}


@pytest.mark.skipif("sms" not in NAMES, reason="its modem pays for messages")
def test_sms_is_charged_to_the_budget_like_credits(camp: Camp) -> None:
    by_sms = {
        "satellite_port": None,
        "hub_address": f"http://127.0.0.1:{free_port()}",
        "hub_token": "fal_c29tZQ",
        "sms_port": "/nowhere",
        "sms_hub_number": "+41791234567",
    }
    camp.begin(**PAYS, **by_sms)
    camp.await_ready()
    assert refused(camp.send(message("x"), "stranger"), "Cellular: stranger is not in mqtt-senders")
    assert camp.send(message("x"))["channels"] == {"Cellular": {"status": None}}
    assert camp.mqtt()["creditsToday"] == 1
    assert refused(camp.send(message("x" * 400)), "Cellular: it takes", "of the 2 left of 3")


@pytest.mark.full
@pytest.mark.skipif("imt" not in NAMES, reason="its modem pays for bytes")
def test_billed_bytes_are_charged_to_the_budget_as_credits(tmp_path: Path) -> None:
    with (
        imt_sky(tmp_path),
        Mosquitto(tmp_path, free_port()) as broker,
        neighbour(broker.port) as other,
    ):
        settings = {
            "mqtt-address": f"mqtt://127.0.0.1:{broker.port}",
            "mqtt-senders": "house",
            "mqtt-credits-per-day": "3",
            "satellite-modem": "imt",
        }
        with agent(tmp_path, settings) as kit:
            other.await_one(f"{BASE}/state", lambda state: state["satellite"] == "ready")
            until(lambda: kit.call("GET", "/api/status").body["mqtt"]["state"] == "ready")
            other.say(f"{BASE}/send/house", message("x" * 400))
            result = other.await_one(f"{BASE}/result/house")
            assert refused(result, "Satellite: it takes", "of the 3 left")
            other.say(f"{BASE}/send/house", message("short"))
            other.await_one(f"{BASE}/package/1", lambda body: body["status"] == "Delivered")
            assert kit.call("GET", "/api/status").body["mqtt"]["creditsToday"] == 1


def test_unlisted_sender_cannot_set_recipient_or_author(camp: Camp) -> None:
    camp.begin(**PAYS)
    camp.await_ready()
    assert refused(camp.send(message("x", to="+41791234567"), "stranger"), "cannot set `to`")
    assert refused(camp.send(message("x", **{"from": "Ada"}), "stranger"), "cannot set `from`")
    assert refused(camp.send(message("x", collapseKey=4), "stranger"), "cannot set `collapseKey`")
    assert camp.send(message("x", to="Ada", **{"from": "Ben"}))["accepted"]


def test_mqtt_sos_needs_a_setting_and_a_listed_sender(camp: Camp) -> None:
    camp.begin(**PAYS)
    camp.await_ready()
    assert refused(camp.send(message("help", priority=100)), "mqtt-sos does not let MQTT")
    camp.kit.stop()
    camp.begin(mqtt_sos="on", mqtt_senders="house")
    camp.await_ready()
    assert refused(camp.send(message("help", priority=100), "stranger"), "cannot raise an SOS")
    assert not camp.kit.call("GET", "/api/sos").body["active"]
    # The budget does not delay it.
    assert camp.send(message("help", priority=100))["accepted"]
    assert camp.kit.call("GET", "/api/sos").body["active"]
    camp.other.await_one(f"{BASE}/state", lambda state: state["sos"])


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "not JSON"),
        (b"\xff\xfe", 400, "not UTF-8"),
        (b" ", 400, "empty"),
        (b'{"message": {}, "colour": 1, "key": ""}', 422, "1 fault"),
        (b'{"message": {}, "colour": 1}', 422, "2 faults"),
        (b'{"checkIn": {"within": 600}}', 422, "fault"),
        (b'{"incident": {"number": 1, "state": "seen"}}', 422, "fault"),
    ],
)
def test_invalid_command_is_reported_as_by_the_local_api(
    camp: Camp, body: bytes, status: int, said: str
) -> None:
    camp.begin(mqtt_commands_per_hour="1000")
    camp.await_ready()
    result = camp.send(body)
    assert (result["accepted"], result["problem"]["status"]) == (False, status)
    assert said in result["problem"]["detail"]
    if status == 422 and b"key" not in body:
        assert result["problem"] == camp.kit.call("POST", "/api/package/async", body).body


@pytest.mark.full
def test_two_kits_with_one_client_id_report_the_cause_and_remedy(tmp_path: Path) -> None:
    """Each kit disconnects the other at the broker, which gives no reason."""
    why = "give another client fieldagent-kit a different mqtt-name"
    quick = environment(tmp_path, Put("fieldagent.extensions.mqtt.session:RETRY_WAITS_S", (0.1,)))
    with ExitStack() as stack:
        broker = stack.enter_context(Mosquitto(tmp_path, free_port()))
        kits: dict[Path, Agent] = {}
        for home in (tmp_path / "one", tmp_path / "two"):
            home.mkdir()
            settings = {
                "mqtt-address": f"mqtt://127.0.0.1:{broker.port}",
                "satellite-port": None,
                "api-port": str(free_port()),
            }
            kits[home] = stack.enter_context(agent(home, settings, MODULE, **quick))
        for home, kit in kits.items():
            kit.expect(why)
            assert why in kit.call("GET", "/api/status").body["mqtt"]["reason"]
            assert said_by(home, why)()


def test_inbound_items_are_published_once_the_broker_is_back(camp: Camp) -> None:
    port = camp.broker.port
    camp.other.close()
    camp.broker.kill()
    camp.begin(**PAYS)
    camp.kit.expect("MQTT: 127.0.0.1: connection refused")
    for number in range(5):
        camp.sky.type(f"mt {number}")
    until(lambda: camp.mqtt()["inboundWaiting"] == 5)
    camp.kit.kill()
    camp.begin(**PAYS)
    until(lambda: camp.mqtt()["inboundWaiting"] == 5)
    camp.stack.enter_context(Mosquitto(camp.home, port))
    with neighbour(port) as other:
        until(lambda: camp.mqtt()["inboundWaiting"] == 0)
        until(lambda: len(other.of(f"{BASE}/inbound")) == 5)
        said = [each.body["payloads"][0]["events"][0] for each in other.of(f"{BASE}/inbound")]
        assert [each["content"] for each in said] == [*"01234"]
    hooks = [each["hooks"] for each in camp.kit.call("GET", "/api/inbound").body["payloads"]]
    # An absent broker is not a failure of a payload.
    assert [each["MQTT"]["attempts"] for each in hooks] == [1] * 5


def check(home: Path) -> list[str]:
    command = [*MODULE, "check", "--json", "--config", str(home / "agent.properties")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [each["text"] for each in json.loads(done.stdout)["findings"]]


def said_by(home: Path, word: str) -> Callable[[], bool]:
    return lambda: any(word in each for each in check(home))


@pytest.mark.full
def test_refused_password_and_unknown_certificate_authority_are_reported(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    proof = authority.issue_cert("localhost")
    proof.private_key_pem.write_to_path(tmp_path / "key.pem")
    proof.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    for each in tmp_path.iterdir():
        each.chmod(0o644)
    tmp_path.chmod(0o755)
    passwords = password_file(tmp_path, "kit", "edelweiss")
    lines = (
        f"cafile {tmp_path}/ca.pem",
        f"certfile {tmp_path}/cert.pem",
        f"keyfile {tmp_path}/key.pem",
        "allow_anonymous false",
        f"password_file {passwords}",
    )
    port = free_port()
    settings: dict[str, str | None] = {
        "satellite-port": None,
        "mqtt-address": f"mqtts://localhost:{port}",
    }
    known = settings | {"mqtt-user": "kit", "mqtt-password": "edelweiss"}
    trusted = known | {"mqtt-ca-file": str(tmp_path / "ca.pem")}
    with Mosquitto(tmp_path, port, *lines):
        with agent(tmp_path, known) as kit:
            kit.expect("the certificate is not trusted")
            assert said_by(tmp_path, "set mqtt-ca-file to its authority's certificate")()
        with agent(tmp_path, trusted | {"mqtt-password": "enzian"}) as kit:
            kit.expect("correct mqtt-user and mqtt-password")
            assert kit.call("GET", "/api/status").body["mqtt"]["state"] == "fault"
            assert said_by(tmp_path, "correct mqtt-user and mqtt-password")()
        with agent(tmp_path, trusted) as kit:
            until(lambda: kit.call("GET", "/api/status").body["mqtt"]["state"] == "ready")
            assert said_by(tmp_path, f"the broker at mqtts://localhost:{port} accepts this kit")()
            # The check has not ended the agent's session.
            assert kit.call("GET", "/api/status").body["mqtt"]["state"] == "ready"
            assert not any("MQTT: the" in each and "WARN" in each for each in kit.output())
