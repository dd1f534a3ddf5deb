"""A hub at Debian's mosquitto with a third-party client and a linked kit: real processes."""

from __future__ import annotations

import json
import sqlite3
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.extensions.mqtt.brokers import (
    Mosquitto,
    Neighbour,
    Packet,
    StrangeBroker,
    Visit,
    needs_mosquitto,
    neighbour,
    password_file,
    strange_broker,
)
from tests.extensions.mqtt.test_mosquitto import (
    DEVICE,
    ENTITY,
    NEEDED,
    OF_PLATFORM,
    members,
    present,
    refused,
)
from tests.hub.test_journey import folder
from tests.hub.test_people_journey import came
from tests.postgres import new_database
from tests.processes import Agent, Hub, administer, agent, free_port, hub, until

BASE = "fieldagent/hub"
KIT = f"{BASE}/kit/1"
CONFIG = "homeassistant/device/fieldagent-hub"


class Alps:
    """A workspace with Ada's kit, and a hub at a broker."""

    def __init__(self, home: Path, stack: ExitStack, broker: int, database: str = "") -> None:
        self.home, self.stack = home, stack
        self.database = database or str(home / "hub.sqlite3")
        administer(self.database, "init", "Alps")
        self.ada = administer(self.database, "user", "add", "Ada")["id"]
        device = administer(self.database, "device", "add", "hut", "--user", "Ada")
        self.token = device["hub-token"]
        self.broker = broker
        self.hub: Hub
        self.hubs = 0

    def begin(self, **settings: str) -> Hub:
        named = {name.replace("_", "-"): value for name, value in settings.items()}
        self.hubs += 1
        running: Hub = self.stack.enter_context(
            hub(
                folder(self.home / f"hub{self.hubs}"),
                {
                    "database": self.database,
                    "mqtt-address": f"mqtt://127.0.0.1:{self.broker}",
                    "mqtt-workspace": "Alps",
                    **named,
                },
            )
        )
        self.hub = running
        return running

    def await_linked(self) -> None:
        until(lambda: self.figures()["bridges_linked"] == 1)

    def kit(self, **settings: str) -> Agent:
        home = self.home / "ada"
        home.mkdir(exist_ok=True)
        named = {name.replace("_", "-"): value for name, value in settings.items()}
        own = {"satellite-port": None, "hub-address": self.hub.address, "hub-token": self.token}
        return self.stack.enter_context(agent(home, {**own, **named}))

    def figures(self) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.hub.address}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name.removeprefix("fieldagent_hub_"): float(value) for name, _, value in samples}

    def events(self, became: str) -> float:
        named = f'bridge_events_total{{bridge="mqtt",became="{became}"}}'
        return self.figures().get(named, 0.0)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database)) as opened:
            return opened.execute(sql).fetchall()


def command(other: Neighbour, body: Any, sender: str = "house", of: str = BASE) -> Any:
    """Send a command and return its result."""
    topic = f"{BASE}/result/{sender}"
    before = len(other.of(topic))
    other.say(f"{of}/send/{sender}", body)
    until(lambda: len(other.of(topic)) > before)
    return other.of(topic)[before].body


def message(text: str, **more: Any) -> dict[str, Any]:
    return {"message": {"content": text}, **more}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@needs_mosquitto
def test_fleet_and_broker_exchange_messages(tmp_path: Path, stack: ExitStack) -> None:
    broker = stack.enter_context(Mosquitto(tmp_path, free_port()))
    other = stack.enter_context(neighbour(broker.port))
    alps = Alps(tmp_path, stack, broker.port)
    # Before the hub starts. Otherwise each connection would send it again.
    other.say(f"{KIT}/send/house", "retained", retain=True)
    settings = {"mqtt_senders": "house", "mqtt_credits_per_day": "5", "mqtt_acknowledge": "on"}
    settings["mqtt_commands_per_hour"] = "100000"
    alps.begin(**settings)
    alps.await_linked()
    until(lambda: alps.events("retained") == 1)
    # A kit's own bridge at the same broker: the two do not hear each other through it.
    kit = alps.kit(mqtt_address=f"mqtt://127.0.0.1:{broker.port}")
    until(lambda: kit.call("GET", "/api/status").body["mqtt"]["state"] == "ready")

    # The kit's items, its position, and their stages.
    motion = {"altitude": 1520, "speedOverGround": 1.5, "courseOverGround": 270}
    location = {"location": {"latitude": 46.5, "longitude": 8.1}}
    kit.call("POST", "/api/package", {"location": {**location["location"], **motion}})
    place = other.await_one(f"{KIT}/position")
    assert (place["latitude"], place["longitude"]) == (46.5, 8.1)
    assert (place["altitude"], place["speed"], place["course"]) == (1520, 1.5, 270)
    kit.post("all at the hut")
    said = other.await_one(f"{KIT}/item", lambda body: body["event_type"] == "message")
    assert (said["event"]["content"], said["sender"]["name"]) == ("all at the hut", "Ada")
    state = other.await_one(f"{KIT}/state", lambda state: state["linked"] and state["over"])
    assert (state["name"], state["user"], state["over"], state["sos"]) == (
        "hut",
        "Ada",
        "ip",
        False,
    )
    assert state["lastHeard"].endswith("Z")
    # An item for one person stays private.
    kit.call("POST", "/api/package", message("for Ada alone", to="Ada"))
    kit.call("POST", "/api/package", {"waypoint": {**location["location"], "name": "spring"}})
    other.await_one(f"{KIT}/item", lambda body: body["event_type"] == "waypoint")
    assert "for Ada alone" not in json.dumps([each.body for each in other.of(f"{KIT}/item")])

    # Home Assistant's notify, and JSON: each reaches the kit, and its stages are published.
    answer = command(other, "storm at five", of=KIT)
    assert (answer["accepted"], answer["credits"]) == (True, 0)
    payload = came(kit, "storm at five")
    assert payload["body"]["payloads"][0]["identity"]["name"] == "house (MQTT)"
    kit.call("POST", f"/api/inbound/{payload['requestId']}/read", {"by": "Ada"})
    way = f"{BASE}/reached/{answer['id']}"
    read = other.await_one(way, lambda body: body["reached"][-1]["stage"] == "read")
    assert read["id"] == answer["id"]
    once = command(other, message("once", key="k1", targetUserId=str(alps.ada)))
    again = command(other, message("once", key="k1", targetUserId=str(alps.ada)))
    assert once["id"] == again["id"]
    assert refused(command(other, message("other", key="k1")), "another body")
    assert refused(command(other, message("to whom?")), "1 fault")
    assert refused(command(other, message("x", targetUserId="99")), "has the number 99")
    assert refused(command(other, "x", of=f"{BASE}/kit/9"), "no kit here has the number 9")
    assert refused(command(other, message("x", sourceUserId="1"), of=KIT), "1 fault")
    assert refused(command(other, message("x", priority=100), of=KIT), "raise it at a kit")
    assert refused(command(other, "{"), "not JSON")

    # An SOS rings until it is answered. An answer over MQTT reaches its kit.
    kit.call("POST", "/api/package", {**location, "priority": 100})
    raised = other.await_one(f"{KIT}/incident", lambda body: body["event"]["event"] == "raised")
    other.await_one(f"{KIT}/state", lambda state: state["sos"] and not state["sosAnswered"])
    # The hub is killed: it knows its published messages, and repeats unanswered ones.
    alps.hub.kill()
    until(lambda: other.of(f"{BASE}/online")[-1].payload == b"offline")
    alps.begin(**settings)
    other.await_one(f"{KIT}/incident", lambda body: body["event"] is None)
    number = {"acknowledge": raised["id"], "text": "coming"}
    assert refused(command(other, number, "stranger"), "cannot answer an incident")
    assert command(other, number)["state"] == "seen"
    assert command(other, {"acknowledge": raised["id"]})["state"] == "seen"
    assert refused(command(other, {"acknowledge": 99}), "no incident here")
    assert refused(command(other, {"acknowledge": "1", "text": 5, "x": 1}), "3 faults")
    seen = other.await_one(f"{KIT}/incident", lambda body: body["state"] == "seen")
    assert seen["seen"]["by"]["name"] == "house (MQTT)"
    other.await_one(f"{KIT}/state", lambda state: state["sosAnswered"])

    # Only the hub accepted the commands, so there is no loop.
    assert kit.call("GET", "/api/status").body["mqtt"]["commands"]["taken"] == 0
    inbound = [each.body for each in other.of("fieldagent/kit/inbound")]
    contents = [each["payloads"][0]["events"][0].get("content") for each in inbound]
    words = [each for each in contents if each and "SOS" not in each]
    assert words == ["for Ada alone", "storm at five", "once"]
    assert "once" not in json.dumps([each.body for each in other.of(f"{KIT}/item")])
    ids = [each.body["id"] for each in other.of(f"{KIT}/item")]
    assert len({*ids}) == len(ids)

    # No retained message contains a text, and the killed hub is offline.
    alps.hub.kill()
    until(lambda: other.of(f"{BASE}/online")[-1].payload == b"offline")
    with neighbour(broker.port) as late:
        until(lambda: late.of(f"{KIT}/state") and late.of(f"{BASE}/online"))
        kept = b"".join(each.payload for each in late.got if each.topic.startswith(BASE))
        assert b"storm" not in kept.replace(b"retained", b"")
        assert b"all at the hut" not in kept


def announced(other: Neighbour) -> None:
    """Check the announcements against Home Assistant's documentation: a device for the hub, and one
    for the kit.
    """
    of_hub, of_kit = other.await_one(f"{CONFIG}/config"), other.await_one(f"{CONFIG}-1/config")
    state = other.await_one(f"{KIT}/state")
    states = {f"{BASE}/state": other.await_one(f"{BASE}/state"), f"{KIT}/state": state}
    ids: list[str] = []
    for config in (of_hub, of_kit):
        assert config["device"].keys() <= DEVICE | {"via_device"}
        assert config["origin"]["name"]
        assert config["availability"][0]["topic"] == f"{BASE}/online"
        for each in present(config).values():
            assert NEEDED[each["platform"]] | {"platform", "unique_id"} <= each.keys()
            assert each.keys() <= ENTITY | OF_PLATFORM[each["platform"]]
            ids.append(each["unique_id"])
            assert members(each) <= states.get(each.get("state_topic", ""), {}).keys()
            assert each["platform"] != "button"
    assert len({*ids}) == len(ids)
    assert of_kit["device"]["via_device"] in of_hub["device"]["identifiers"]
    known = len(other.of(f"{CONFIG}-1/config"))
    other.say("homeassistant/status", "online")
    until(lambda: len(other.of(f"{CONFIG}-1/config")) > known)


@needs_mosquitto
def test_kits_are_announced_as_devices_and_a_flood_is_dropped(
    tmp_path: Path, stack: ExitStack
) -> None:
    broker = stack.enter_context(Mosquitto(tmp_path, free_port()))
    other = stack.enter_context(neighbour(broker.port))
    alps = Alps(tmp_path, stack, broker.port)
    administer(alps.database, "device", "imei", "1", "300234010753370")
    budget = {"mqtt_senders": "house", "mqtt_credits_per_day": "2"}
    alps.begin(mqtt_commands_per_hour="100", **budget)
    alps.await_linked()
    announced(other)
    assert "is not in mqtt-senders" in command(other, "x", "stranger", KIT)["withheld"]
    first = command(other, message("short", key="a"), of=KIT)
    # It includes the author's name, which the kit does not know yet.
    assert (first["credits"], "withheld" in first) == (2, False)
    # A repetition is paid once.
    assert command(other, message("short", key="a"), of=KIT)["credits"] == 2
    assert "mqtt-credits-per-day is spent" in command(other, "later", of=KIT)["withheld"]
    unpaid = "SELECT count(*) FROM delivery WHERE unpaid = 1"
    assert alps.rows(unpaid) == [(2,)]
    assert alps.rows("SELECT name FROM member WHERE name LIKE '%MQTT%' ORDER BY id") == [
        ("MQTT",),
        ("house (MQTT)",),
    ]
    for number in range(300):
        other.client.publish(f"{KIT}/send", f"text {number}", number % 2)
    until(lambda: alps.events("taken") + alps.events("limited") == 303)
    assert alps.events("limited") > 280
    alps.hub.expect("dropped, the last as too many")
    # A disabled kit is no longer a device, and none of its messages stay retained.
    administer(alps.database, "device", "disable", "1")
    until(lambda: other.of(f"{CONFIG}-1/config")[-1].payload == b"")
    until(lambda: other.of(f"{KIT}/state")[-1].payload == b"")


def is_item(packet: Packet) -> bool:
    return packet.kind == 3 and packet.topic == f"{KIT}/item"


def ready(visit: Visit) -> None:
    visit.answer(visit.until(lambda packet: packet.kind == 8))


def test_item_is_published_again_if_the_broker_dies_before_its_puback(
    tmp_path: Path, stack: ExitStack
) -> None:
    broker: StrangeBroker = stack.enter_context(strange_broker())
    alps = Alps(tmp_path, stack, broker.port)
    alps.begin()
    kit = alps.kit()
    with broker.visit() as visit:
        ready(visit)
        kit.post("come down")
        first = json.loads(visit.until(is_item).payload)
    with broker.visit() as visit:
        again = json.loads(visit.until(is_item).payload)
        alps.hub.kill()
    assert again == first
    alps.begin()
    with broker.visit() as visit:
        packet = visit.until(is_item)
        assert json.loads(packet.payload)["id"] == first["id"]
        visit.answer(packet)
        item, place = "(SELECT max(id) FROM item)", "SELECT place FROM bridge WHERE name = 'mqtt'"
        until(lambda: alps.rows(f"SELECT 1 WHERE ({place}) = {item}") == [(1,)])
        # A command whose acknowledgement is lost is carried out once.
        said = b'{"message":{"content":"up"}}'
        visit.command(f"{KIT}/send/h", said, 5)
        assert visit.until(lambda packet: packet.kind == 4).number == b"\0\5"
    with broker.visit() as visit:
        ready(visit)
        visit.command(f"{KIT}/send/h", said, 5, again=True)
        # An acknowledged message does not come again.
        seen: list[bytes] = []

        def is_ack(packet: Packet) -> bool:
            seen.append(packet.rest)
            return packet.kind == 4

        assert visit.until(is_ack).number == b"\0\5"
        assert not [each for each in seen if b"come down" in each]
        assert alps.rows("SELECT count(*) FROM mqtt_command") == [(1,)]


@pytest.mark.full
@needs_mosquitto
def test_refused_password_and_unknown_certificate_authority_are_reported(
    tmp_path: Path, stack: ExitStack
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    proof = authority.issue_cert("localhost")
    proof.private_key_pem.write_to_path(tmp_path / "key.pem")
    proof.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    (tmp_path / "right").write_text("edelweiss\n")
    (tmp_path / "wrong").write_text("enzian\n")
    passwords = password_file(tmp_path, "hub", "edelweiss")
    tmp_path.chmod(0o755)
    port = free_port()
    stack.enter_context(
        Mosquitto(
            tmp_path,
            port,
            f"cafile {tmp_path}/ca.pem",
            f"certfile {tmp_path}/cert.pem",
            f"keyfile {tmp_path}/key.pem",
            "allow_anonymous false",
            f"password_file {passwords}",
        )
    )
    alps = Alps(tmp_path, stack, port)
    known = {"mqtt_address": f"mqtts://localhost:{port}", "mqtt_user": "hub"}
    right = {**known, "mqtt_password_file": str(tmp_path / "right")}
    trusted = {"mqtt_ca_file": str(tmp_path / "ca.pem")}
    wrong = {
        "set mqtt-ca-file to its authority's certificate": right,
        "correct mqtt-user and mqtt-password-file": {
            **known,
            **trusted,
            "mqtt_password_file": str(tmp_path / "wrong"),
        },
        "nowhere cannot be read": {**known, **trusted, "mqtt_password_file": "/nowhere"},
        "mqtt-workspace: ": {**right, **trusted, "mqtt_workspace": "Jura"},
    }
    for words, settings in wrong.items():
        running = alps.begin(**settings)
        running.expect(words)
        running.stop()
    alps.begin(**right, **trusted)
    alps.await_linked()


@pytest.mark.full
@needs_mosquitto
def test_one_of_two_hubs_on_a_database_runs_the_bridge(tmp_path: Path, postgres: str) -> None:
    """The other hub takes over after half a minute, when the dead hub's lease has expired."""
    with ExitStack() as stack:
        broker = stack.enter_context(Mosquitto(tmp_path, free_port()))
        other = stack.enter_context(neighbour(broker.port))
        alps = Alps(tmp_path, stack, broker.port, new_database(postgres))
        first = alps.begin()
        alps.await_linked()
        second = alps.begin()
        assert alps.figures()["bridges_linked"] == 0
        kit = alps.kit()
        kit.post("while both are there")
        other.await_one(f"{KIT}/item")
        first.kill()
        kit.post("while none is")
        other.await_one(f"{KIT}/item", lambda body: body["event"]["content"] == "while none is")
        assert second is alps.hub
        alps.await_linked()
        ids = [each.body["id"] for each in other.of(f"{KIT}/item")]
        assert len({*ids}) == 2
