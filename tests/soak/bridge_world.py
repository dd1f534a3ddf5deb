"""The processes of the bridges' soak: two hubs, one at taky and one with its own TAK server, both
at a mosquitto. Kits with IP and with the simulated sky, one of them with phones on its own
network, phones, and a program at the broker that makes devices from announcements.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fieldagent.hub.records.stored_entry import decode_stored_entry
from tests.agent.channels.test_satellite_soak import AGAIN_SOON
from tests.breaking import Put, environment
from tests.extensions.mqtt.brokers import Mosquitto, Neighbour
from tests.extensions.tak.tak_server import Phone, Taky
from tests.extensions.tak.test_lan import Phone as LanPhone
from tests.hub.test_journey import IMEI, behind_directip, folder, sky
from tests.processes import MODULE, Agent, Hub, Running, administer, free_port
from tests.soak.mortal import Mortal

PROCESS = os.getpid()
LAN_ADDRESS = f"127.{PROCESS >> 8 & 255}.{PROCESS & 255}.9"
"""Address of a kit on the loopback interface, which other tests use at the same time."""
LAN = (f"FA-KIT-Soak-{PROCESS}", f"Soak-{PROCESS}")
"""Uid and callsign of the kit's TAK unit on its own network."""
SCOUT = f"SCOUT-{PROCESS}"
"""Author of texts to it."""
SOON = [1.0, 2.0, 3.0]
REACHES_SOON = (
    Put("fieldagent.extensions.tak.bridge.link:RETRY_WAITS_S", SOON),
    Put("fieldagent.extensions.mqtt.session:RETRY_WAITS_S", SOON),
    Put("fieldagent.extensions.tak.bridge.records:REPEAT_WAITS_S", [15.0, 20.0]),
)
"""Only pauses are shorter. Otherwise a soak with constant kills would spend its time in them."""
TAK_CREDITS, MQTT_CREDITS = 8, 20
PROGRAM = Path(__file__).parents[1] / "extensions/mqtt/home_automation.py"


@dataclass
class SoakKit:
    """A kit. `member` and `device` are the ids of its user and device at its hub."""

    name: str
    hub: SoakHub
    home: Path
    member: int
    device: int
    process: Mortal[Agent]

    def disk(self, sql: str) -> list[tuple[Any, ...]]:
        """Query its disk, whether or not it runs."""
        return _rows(self.home / "state" / "journal.sqlite3", sql)

    def inbox(self) -> list[str]:
        """Return the texts of all incoming messages, with duplicates."""
        return [_words(body) for (body,) in self.disk("SELECT body FROM inbound ORDER BY number")]


@dataclass
class SoakHub:
    name: str
    database: Path
    settings: dict[str, str]
    process: Mortal[Hub]
    kits: list[SoakKit] = field(default_factory=list)

    def disk(self, sql: str) -> list[tuple[Any, ...]]:
        return _rows(self.database, sql)

    def items(self) -> list[tuple[float, str, bool]]:
        """Return the time of each message, its text, and whether a kit has sent it."""
        rows = self.disk("SELECT accepted, body, source_device IS NOT NULL FROM item ORDER BY id")
        entries = [
            (at, decode_stored_entry(body).content, bool(of_kit)) for at, body, of_kit in rows
        ]
        return [(at, getattr(item, "content", ""), of_kit) for at, item, of_kit in entries]


@dataclass
class SoakPhone:
    uid: str
    callsign: str
    hub: SoakHub
    process: Mortal[Phone]
    server: Mortal[Any]
    """TAK server of the phone."""

    def of(self, kind: str) -> list[tuple[float, dict[str, Any]]]:
        return [(each.at, each.told) for each in self.process.heard if each.told["type"] == kind]


@dataclass
class BridgeWorld:
    home: Path
    taky: Mortal[Taky]
    broker: Mortal[Mosquitto]
    crashes: list[float]
    """Times at which the broker was killed without saving."""
    program: Mortal[Running]
    house: Neighbour
    alps: SoakHub
    valley: SoakHub
    phones: list[SoakPhone]
    lan: LanPhone
    above: Running

    @property
    def hubs(self) -> list[SoakHub]:
        return [self.alps, self.valley]

    @property
    def kits(self) -> list[SoakKit]:
        return [*self.alps.kits, *self.valley.kits]

    def mortals(self) -> list[Mortal[Any]]:
        return [
            self.taky,
            self.broker,
            self.program,
            *(each.process for each in self.hubs),
            *(each.process for each in self.kits),
            *(each.process for each in self.phones),
        ]

    def kit(self, name: str) -> SoakKit:
        return next(each for each in self.kits if each.name == name)


def _rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path, timeout=30.0)) as opened:
        return opened.execute(sql).fetchall()


def _words(body: str) -> str:
    (event,) = json.loads(body)["payloads"][0]["events"]
    return str(event.get("content") or event.get("name") or "")


def _hub(home: Path, name: str, settings: dict[str, str], people: Sequence[str]) -> SoakHub:
    database = home / f"{name}.sqlite3"
    administer(str(database), "init", "Alps")
    for person in people:
        administer(str(database), "user", "add", person)
    own = folder(home / name)
    values = {**settings, "database": str(database), "port": str(free_port())}

    def begin() -> Hub:
        return Hub(own, values, MODULE, **environment(own, *REACHES_SOON))

    return SoakHub(name, database, values, Mortal(f"hub {name}", begin))


def _kit(hub: SoakHub, home: Path, name: str, settings: dict[str, str | None], *more: str) -> None:
    device = administer(str(hub.database), "device", "add", name, "--user", name, *more)
    own = folder(home / f"kit-{name}")
    link = {
        "satellite-port": None,
        "hub-address": f"http://127.0.0.1:{hub.settings['port']}",
        "hub-token": device["hub-token"],
    }
    if "--imei" in more:
        link = {"satellite-port": str(home / "modem"), "satellite-key": device["satellite-key"]}
    values = {**link, **settings, "keep-ended-count": "100000"}

    def begin() -> Agent:
        changes = environment(own, *AGAIN_SOON, REACHES_SOON[1])
        return Agent(own, values, MODULE, **changes)

    process = Mortal(f"kit of {name}", begin)
    number = int(device["id"])
    hub.kits.append(SoakKit(name, hub, own, _member(hub, name), number, process))


def _member(hub: SoakHub, name: str) -> int:
    ((number,),) = hub.disk(f"SELECT id FROM member WHERE name = '{name}'")
    return int(number)


def _broker(home: Path, port: int) -> Mosquitto:
    kept = home / "kept"
    kept.mkdir(exist_ok=True)
    return Mosquitto(
        home,
        port,
        "allow_anonymous true",
        "persistence true",
        f"persistence_location {kept}/",
        "autosave_on_changes true",
        "autosave_interval 1",
        "max_queued_messages 0",
    )


@contextmanager
def bridge_world(home: Path) -> Iterator[BridgeWorld]:
    mo_port, mt_port = free_port(), free_port()
    taky_port, broker_port, phones_port = free_port(), free_port(), free_port()
    at_broker = {
        "mqtt-address": f"mqtt://127.0.0.1:{broker_port}",
        "mqtt-workspace": "Alps",
        "mqtt-senders": "house",
        "mqtt-credits-per-day": str(MQTT_CREDITS),
        "mqtt-acknowledge": "on",
        "mqtt-commands-per-hour": "100000",
    }
    with ExitStack() as stack:
        taky = Mortal("taky", lambda: Taky(home, taky_port, tls=True))
        broker = Mortal("mosquitto", lambda: _broker(home, broker_port))
        for each in (taky, broker):
            stack.callback(each.kill, 0.0)
            assert not each.tend()
        own = taky.it.identity("hub")
        alps = _hub(
            home,
            "alps",
            {
                **behind_directip("", mo_port, mt_port),
                **at_broker,
                "mqtt-name": "alps",
                "tak-server": taky.it.url,
                "tak-workspace": "Alps",
                "tak-certificate": str(own.certificate),
                "tak-key": str(own.key),
                "tak-ca-file": str(own.authority),
                "tak-allow": "BRAVO",
                "tak-credits-per-day": str(TAK_CREDITS),
            },
            ["Ada", "Ben"],
        )
        valley = _hub(
            home,
            "valley",
            {
                **at_broker,
                "mqtt-name": "valley",
                "tak-listen": f"127.0.0.1:{phones_port}",
                "tak-address": f"localhost:{phones_port}",
                "tak-workspace": "Alps",
            },
            ["Cem", "Dora", "Eva"],
        )
        above = stack.enter_context(sky(home, mo_port, mt_port))
        by_mqtt: dict[str, str | None] = {
            "mqtt-address": at_broker["mqtt-address"],
            "mqtt-name": "ada",
        }
        _kit(alps, home, "Ada", by_mqtt)
        _kit(alps, home, "Ben", {}, "--imei", IMEI, "--tagged")
        _kit(valley, home, "Cem", {"tak-lan": LAN_ADDRESS, "tak-lan-name": LAN[1]})
        program = Mortal(
            "the program at the broker",
            lambda: Running(
                [sys.executable, str(PROGRAM), str(broker_port), "home"], "at the broker"
            ),
            may_end=True,
        )
        phones = [
            *(
                _at_taky(taky, alps, number, name)
                for number, name in enumerate(("BRAVO", "CHARLIE"))
            ),
            *(_at_valley(home, valley, name) for name in ("Dora", "Eva")),
        ]
        house = Neighbour(broker_port)
        stack.callback(house.close)
        lan = stack.enter_context(LanPhone(f"ANDROID-{SCOUT}", SCOUT))
        world = BridgeWorld(
            home, taky, broker, [], program, house, alps, valley, phones, lan, above
        )
        for each in world.mortals():
            # Each one, even if another's end fails.
            stack.callback(each.kill, 0.0)
        yield world


def _at_taky(taky: Mortal[Taky], hub: SoakHub, number: int, name: str) -> SoakPhone:
    uid = f"ANDROID-{number}"
    identity, url = taky.it.identity(uid), taky.it.url
    process = Mortal(name, lambda: Phone(url, uid, name, identity), may_end=True)
    return SoakPhone(uid, name, hub, process, taky)


def _at_valley(home: Path, hub: SoakHub, name: str) -> SoakPhone:
    uid, package = f"ANDROID-{name}", home / f"{name}.zip"

    def begin() -> Phone:
        if not package.exists():
            database = str(hub.database)
            config = str(home / "valley" / "hub.properties")
            administer(database, "user", "tak", name, "--out", str(package), "--config", config)
        return Phone(str(package), uid, name)

    return SoakPhone(uid, name, hub, Mortal(name, begin, may_end=True), hub.process)
