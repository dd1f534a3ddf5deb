"""A team at a TAK server and people at kits, connected by the hub: positions, messages and their
ticks.

Real processes: taky with its own authority, telephones with PyTAK, the hub, and a linked kit.
"""

from __future__ import annotations

import json
import sqlite3
import urllib.request
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

from fieldagent.extensions.tak import cot
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.cot import CotPoint
from fieldagent.extensions.tak.events import TakUnit
from tests.extensions.tak.open_tak_server import OpenTakServer
from tests.extensions.tak.tak_server import Phone, Taky
from tests.hub.test_cluster import contents
from tests.hub.test_journey import folder
from tests.hub.test_people_journey import came, stages
from tests.postgres import new_database
from tests.processes import Agent, Hub, administer, agent, free_port, frozen, hub, until

ALL = ("All Chat Rooms", "All Chat Rooms")


class Mountain:
    """A TAK server, a hub that is connected to it, and Ada's kit."""

    def __init__(
        self,
        home: Path,
        stack: ExitStack,
        server: Taky | OpenTakServer | None = None,
        **settings: str,
    ) -> None:
        self.home, self.stack = home, stack
        self.database = settings.get("database", str(home / "hub.sqlite3"))
        administer(self.database, "init", "Alps")
        self.ada = administer(self.database, "user", "add", "Ada")["id"]
        device = administer(self.database, "device", "add", "kit", "--user", "Ada")
        self.token = device["hub-token"]
        self.server = server or stack.enter_context(Taky(home, free_port(), tls=True))
        own = self.server.identity("hub")
        self.settings = {
            "database": self.database,
            "tak-server": self.server.url,
            "tak-workspace": "Alps",
            "tak-certificate": str(own.certificate),
            "tak-key": str(own.key),
            "tak-ca-file": str(own.authority),
            **{name.replace("_", "-"): value for name, value in settings.items()},
        }
        (home / "hub").mkdir()
        self.begin()

    def begin(self) -> None:
        self.hub: Hub = self.stack.enter_context(hub(self.home / "hub", self.settings))
        until(lambda: self.figure("bridges_linked") == 1)

    def kit(self) -> Agent:
        home = self.home / "ada"
        home.mkdir(exist_ok=True)
        settings = {"satellite-port": None, "hub-address": self.hub.address}
        running = agent(home, {**settings, "hub-token": self.token, "inbound-hook": "cat"})
        return self.stack.enter_context(running)

    def phone(self, uid: str, callsign: str, **environment: str) -> Phone:
        identity = self.server.identity(uid)
        phone = Phone(self.server.url, uid, callsign, identity, **environment)
        return self.stack.enter_context(phone)

    @property
    def unit(self) -> str:
        """Return Ada's uid at the server."""
        ((identity,),) = self.rows("SELECT identity FROM bridge")
        return f"{identity}-{self.ada}"

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database)) as opened:
            return opened.execute(sql).fetchall()

    def figures(self) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.hub.address}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name.removeprefix("fieldagent_hub_"): float(value) for name, _, value in samples}

    def figure(self, name: str) -> float:
        return self.figures().get(name, 0.0)

    def events(self, became: str) -> float:
        return self.figure(f'bridge_events_total{{bridge="tak",became="{became}"}}')


def ticks(phone: Phone, message_id: str) -> list[str]:
    return [
        each["type"]
        for each in phone.got
        if each["type"] in ("b-t-f-d", "b-t-f-r") and each["uid"] == message_id
    ]


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.full
def test_tak_team_and_kit_exchange_messages(tmp_path: Path, stack: ExitStack) -> None:
    there = Mountain(tmp_path, stack)
    kit = there.kit()
    bravo = there.phone("ANDROID-1", "BRAVO")
    location = {"location": {"latitude": 46.5, "longitude": 8.1}}
    assert kit.call("POST", "/api/package", location).body["status"] == "Delivered"
    seen = bravo.await_one("a-f-G-U-C", lambda event: event["lat"] == "46.500000")
    assert (seen["uid"], seen["contact"]["callsign"], seen["how"]) == (there.unit, "Ada", "m-g")
    assert parse_time(seen["stale"]) > parse_time(seen["time"]) >= parse_time(seen["start"])
    assert "kit last heard over the internet" in seen["remarks"]["text"]

    # A message for an absent kit has no tick. When the kit has it on its disk, it has one.
    kit.kill()
    ada = (there.unit, "Ada")
    bravo.say("storm at <17:00> & rising", ada, "m-1")
    until(lambda: there.events("taken") == 1)
    bravo.say("storm at <17:00> & rising", ada, "m-1")
    until(lambda: there.events("repeated") == 1)
    assert ticks(bravo, "m-1") == []
    # The hub is killed too: its accepted messages and its debts are on disk.
    there.hub.kill()
    there.begin()
    assert ticks(bravo, "m-1") == []
    kit = there.kit()
    payload = came(kit, "storm at <17:00> & rising")
    sender = payload["body"]["payloads"][0]["identity"]
    assert (sender["name"], sender["type"]) == ("BRAVO (TAK)", "Integration")
    until(lambda: ticks(bravo, "m-1") == ["b-t-f-d"])
    assert contents(kit) == ["storm at <17:00> & rising"]
    # When a person has read it, it gets another tick.
    path = f"/api/inbound/{payload['requestId']}/read"
    assert kit.call("POST", path, {"by": "Ada"}).status == 200
    until(lambda: ticks(bravo, "m-1") == ["b-t-f-d", "b-t-f-r"])

    # The kit's answer reaches only that phone, and shows its progress.
    charlie = there.phone("ANDROID-2", "CHARLIE")
    charlie.command(silent=True)
    body = {"message": {"content": "in the hut"}, "to": "BRAVO (TAK)", "receipt": "read"}
    sent = kit.call("POST", "/api/package", body).body["id"]
    chat = bravo.await_one("b-t-f", lambda event: event["remarks"]["text"] == "in the hut")
    assert (chat["link"]["uid"], chat["__chat"]["senderCallsign"]) == ada
    handed, on_phone = "handed over to the TAK server, for BRAVO (TAK)", "on BRAVO (TAK)'s kit"
    until(lambda: on_phone in stages(kit, sent))
    assert handed in stages(kit, sent)
    assert not [each for each in stages(kit, sent) if each.startswith("read")]
    bravo.command(read=chat["__chat"]["messageId"])
    until(lambda: "read by BRAVO (TAK)" in stages(kit, sent))

    # A question about the cost is answered in the name of the kit's user, and the kit gets nothing.
    bravo.say("? are you all right", ada, "m-4")
    event = bravo.await_one("b-t-f", lambda event: "Not sent" in event["remarks"]["text"])
    assert (event["link"]["uid"], event["__chat"]["senderCallsign"]) == ada
    assert "kit: over its link, 0 credits." in event["remarks"]["text"]
    assert there.events("asked") == 1

    # A message to all goes out and does not return.
    kit.post("all at the hut")
    said = charlie.await_one("b-t-f", lambda event: event["remarks"]["text"] == "all at the hut")
    assert said["__chat"]["id"] == "All Chat Rooms"
    bravo.say("party line", ALL, "m-2")
    charlie.await_one("b-t-f", lambda event: event["remarks"]["text"] == "party line")
    assert "in the hut" not in [each["remarks"]["text"] for each in charlie.of("b-t-f")]

    # A phone that confirms nothing: only the server's reception is reported.
    charlie.say("who is there?", ada, "m-3")
    came(kit, "who is there?")
    body = {"message": {"content": "Ada"}, "to": "CHARLIE (TAK)"}
    lost = kit.call("POST", "/api/package", body).body["id"]
    until(lambda: stages(kit, lost) == ["at the hub", handed.replace("BRAVO", "CHARLIE")])

    # The server is killed and replaced: positions are sent again, and messages continue.
    there.server.kill()
    until(lambda: there.figure("bridges_linked") == 0)
    waiting = {"message": {"content": "still here"}, "to": "BRAVO (TAK)"}
    kept = kit.call("POST", "/api/package", waiting).body["id"]
    until(lambda: there.rows("SELECT count(*) FROM tak_event WHERE inward = 0")[0][0] == 4)
    assert stages(kit, kept) == ["at the hub"]
    there.server = stack.enter_context(Taky(tmp_path, there.server.port, tls=True))
    again = there.phone("ANDROID-1", "BRAVO")
    again.await_one("a-f-G-U-C", lambda event: event["uid"] == there.unit)
    again.await_one("b-t-f", lambda event: event["remarks"]["text"] == "still here")
    until(lambda: on_phone in stages(kit, kept))
    assert {"party line", "are you all right"} & {*contents(kit)} == set()
    assert there.events("unreadable") == 0


@pytest.mark.full
def test_phones_911_alert_reaches_desk_and_kit(tmp_path: Path, stack: ExitStack) -> None:
    """The server is another team's. The hub is one of its clients."""
    there = Mountain(tmp_path, stack)
    kit = there.kit()
    bravo = there.phone("ANDROID-1", "BRAVO")
    alert = tak.make_alert(TakUnit("ANDROID-1", "BRAVO"), CotPoint(46.5, 8.1), datetime.now(UTC))
    raw = cot.encode(alert).decode().partition("?>")[2]
    bravo.command(raw=raw.replace("_flow-tags_", "_sent-by_"))
    until(lambda: there.rows("SELECT kind, state FROM sos") == [("sos", "open")])
    (incident,) = administer(there.database, "sos", "list")
    shown = administer(there.database, "sos", "show", str(incident["id"]))
    assert shown["device"]["name"] == "BRAVO"
    assert (shown["position"]["latitude"], shown["position"]["longitude"]) == (46.5, 8.1)
    until(lambda: "BRAVO" in json.dumps(kit.call("GET", "/api/inbound").body))


def test_kits_sos_rings_at_the_tak_server_until_the_desk_answers(
    tmp_path: Path, stack: ExitStack
) -> None:
    there = Mountain(tmp_path, stack)
    kit = there.kit()
    bravo = there.phone("ANDROID-1", "BRAVO")
    location = {"latitude": 46.5, "longitude": 8.1}
    kit.call("POST", "/api/package", {"location": location, "priority": 100})
    alert = bravo.await_one("b-a-o-tbl")
    assert (alert["uid"], alert["lat"]) == (f"{there.unit}-9-1-1", "46.500000")
    assert alert["emergency"] == {"type": "911 Alert", "text": "Ada"}
    # A later phone sees it too: servers forget it, and the hub repeats it.
    charlie = there.phone("ANDROID-2", "CHARLIE")
    charlie.await_one("b-a-o-tbl")
    # An operator there cancels it: it continues to ring, and the desk shows that person.
    cancel = bravo.of("b-a-o-tbl")[0]
    bravo.command(
        raw=f'<event version="2.0" uid="{cancel["uid"]}" type="b-a-o-can" how="h-e"'
        f' time="{cancel["time"]}" start="{cancel["time"]}" stale="{cancel["stale"]}">'
        '<point lat="46.5" lon="8.1" hae="0" ce="1" le="1"/><detail><emergency cancel="true">'
        f'BRAVO</emergency><link uid="{there.unit}" type="a-f-G-U-C" relation="p-p"/></detail>'
        "</event>"
    )
    before = len(charlie.of("b-a-o-tbl"))
    until(lambda: there.rows("SELECT 1 FROM sos_event WHERE name = 'BRAVO (TAK)'"))
    until(lambda: len(charlie.of("b-a-o-tbl")) > before)
    ((number, state),) = there.rows("SELECT id, state FROM sos")
    assert state == "open"
    incident = administer(there.database, "sos", "show", str(number))
    assert "cancelled the alert in TAK" in json.dumps(incident)
    administer(there.database, "sos", "close", str(number), "found", "--by", "Ada")
    until(
        lambda: (
            len([each for each in charlie.of("b-a-o-can") if "cancel" in each["emergency"]]) >= 2
        )
    )


def list_received_texts(kit: Agent) -> list[str]:
    """Return the texts of incoming messages, and the names of waypoints."""
    payloads = kit.call("GET", "/api/inbound").body["payloads"]
    events = [each["body"]["payloads"][0]["events"][0] for each in payloads]
    return [each.get("content") or each["name"] for each in events]


def await_words(kit: Agent, words: str) -> None:
    until(lambda: words in list_received_texts(kit))


def is_tick_of(message_id: str, event: dict[str, Any]) -> bool:
    return bool(event["uid"] == message_id)


def texts(phone: Phone) -> list[str]:
    return [each["remarks"]["text"] for each in phone.of("b-t-f")]


@pytest.mark.full
def test_two_hubs_at_one_server_cause_no_message_loop(tmp_path: Path, stack: ExitStack) -> None:
    everything = "positions sos messages waypoints"
    there = Mountain(tmp_path, stack, tak_shares=everything)
    adas = there.kit()
    database = str(tmp_path / "jura.sqlite3")
    administer(database, "init", "Jura")
    ben = administer(database, "user", "add", "Ben")["id"]
    token = administer(database, "device", "add", "kit", "--user", "Ben")["hub-token"]
    own = {**there.settings, "database": database, "tak-workspace": "Jura"}
    other = stack.enter_context(hub(folder(tmp_path / "jura"), own))
    settings = {"satellite-port": None, "hub-address": other.address, "hub-token": token}
    bens = stack.enter_context(agent(folder(tmp_path / "ben"), settings))
    bravo = there.phone("ANDROID-1", "BRAVO")
    units = {"Ada": there.unit}
    position = bravo.await_one("a-f-G-U-C", lambda event: event["contact"]["callsign"] == "Ben")
    units["Ben"] = position["uid"]
    assert units["Ben"].endswith(f"-{ben}")

    # Each kit's message to all appears once, and not at all at the other hub.
    adas.post("of Ada to all")
    bens.post("of Ben to all")
    until(lambda: {*texts(bravo)} == {"of Ada to all", "of Ben to all"})
    place = {"latitude": 46.5, "longitude": 8.1, "name": "hut", "notes": "dry & warm"}
    adas.call("POST", "/api/package", {"waypoint": place})
    marker = bravo.await_one("b-m-p-s-m", lambda event: event["contact"]["callsign"] == "hut")
    assert (marker["lat"], marker["remarks"]["text"]) == ("46.500000", "dry & warm")

    # A marker from BRAVO to Ada becomes her waypoint, once.
    bravo.command(
        raw='<event version="2.0" uid="spot-1" type="b-m-p-s-m" how="h-g-i-g-o"'
        f' time="{marker["time"]}" start="{marker["time"]}" stale="{marker["stale"]}"><point'
        ' lat="46.7" lon="8.3" hae="0" ce="1" le="1"/><detail><contact callsign="spring"/>'
        '<link uid="ANDROID-1" type="a-f-G-U-C" relation="p-p" parent_callsign="BRAVO"/>'
        '<marti><dest callsign="Ada"/></marti></detail></event>'
    )

    until(lambda: "spring" in list_received_texts(adas))

    # Thousands of positions are dropped and counted, and messages still arrive.
    before = there.events("other")
    bravo.command(
        raw='<event version="2.0" uid="ANDROID-9" type="a-f-G-U-C" how="m-g"'
        f' time="{marker["time"]}" start="{marker["time"]}" stale="{marker["stale"]}"><point'
        ' lat="46.7" lon="8.3" hae="0" ce="1" le="1"/><detail/></event>',
        times=5_000,
    )
    for name, kit in (("Ada", adas), ("Ben", bens)):
        bravo.say(f"to {name}", (units[name], name), f"m-{name}")
        await_words(kit, f"to {name}")
        bravo.await_one("b-t-f-d", partial(is_tick_of, f"m-{name}"))
    until(lambda: there.events("other") - before >= 5_000)
    assert sorted(list_received_texts(adas)) == ["spring", "to Ada"]
    assert list_received_texts(bens) == ["to Ben"]
    assert sorted(texts(bravo)) == ["of Ada to all", "of Ben to all"]


def test_refused_connection_is_logged_with_cause_and_remedy(
    tmp_path: Path, stack: ExitStack
) -> None:
    """Each hub has another fault, and logs it once."""
    server = stack.enter_context(Taky(tmp_path, free_port(), tls=True))
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "device", "add", "kit", "--user", "push")
    own, strange = server.identity("hub"), tmp_path / "strange.pem"
    stranger = trustme.CA()
    stranger.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(strange)
    stranger.cert_pem.write_to_path(tmp_path / "ca.pem")
    right = {
        "database": database,
        "tak-server": server.url,
        "tak-workspace": "Alps",
        "tak-certificate": str(own.certificate),
        "tak-key": str(own.key),
        "tak-ca-file": str(own.authority),
    }
    wrong = {
        "refuses this hub's certificate": {
            "tak-certificate": str(strange),
            "tak-key": str(strange),
        },
        "set tak-ca-file to its authority's certificate": {"tak-ca-file": str(tmp_path / "ca.pem")},
        "is not a PEM certificate with its key": {"tak-key": str(strange)},
        "hostname mismatch": {"tak-server-name": "other.example.org"},
        "tak-workspace: ": {"tak-workspace": "Jura"},
    }
    for number, (fault, settings) in enumerate(wrong.items()):
        with hub(folder(tmp_path / str(number)), {**right, **settings}) as running:
            running.expect(fault)
    with hub(folder(tmp_path / "right"), right):
        until(lambda: any('uid="FA-' in line for line in server.output()))


@pytest.mark.full
def test_hanging_server_receives_nothing_that_counts_as_delivered(
    tmp_path: Path, stack: ExitStack
) -> None:
    """The server's kernel accepts the hub's bytes, but the server answers no ping. Detection takes
    20 s.
    """
    there = Mountain(tmp_path, stack)
    kit = there.kit()
    bravo = there.phone("ANDROID-1", "BRAVO")
    bravo.await_one("a-f-G-U-C", lambda event: event["contact"]["callsign"] == "Ada")
    bravo.say("hello", (there.unit, "Ada"), "m-1")
    came(kit, "hello")
    with frozen(there.server):
        body = {"message": {"content": "answer"}, "to": "BRAVO (TAK)"}
        sent = kit.call("POST", "/api/package", body).body["id"]
        until(lambda: there.figure("bridges_linked") == 0)
        assert stages(kit, sent) == ["at the hub"]
    until(lambda: "on BRAVO (TAK)'s kit" in stages(kit, sent))
    ids = {each["__chat"]["messageId"] for each in bravo.of("b-t-f")}
    assert len(ids) == 1, "it may have come twice, under its one id"


@pytest.mark.full
def test_another_process_takes_over_the_bridge_of_a_dead_one(tmp_path: Path, postgres: str) -> None:
    """The process waits half a minute, until the dead process's lease has expired."""
    database = new_database(postgres)
    with ExitStack() as stack:
        there = Mountain(tmp_path, stack, database=database)
        kit = there.kit()
        bravo = there.phone("ANDROID-1", "BRAVO")
        bravo.await_one("a-f-G-U-C", lambda event: event["contact"]["callsign"] == "Ada")
        first = there.hub
        there.hub = stack.enter_context(hub(folder(tmp_path / "second"), there.settings))
        assert there.figure("bridges_linked") == 0
        first.kill()
        before = len(bravo.of("a-f-G-U-C"))
        # Until the other process has connected Ada again, a server sends no messages to her.
        until(lambda: len(bravo.of("a-f-G-U-C")) > before)
        kit.kill()
        kit = there.kit()
        unit = bravo.of("a-f-G-U-C")[-1]["uid"]
        bravo.say("are you there?", (unit, "Ada"), "m-1")
        came(kit, "are you there?")
        until(lambda: ticks(bravo, "m-1") == ["b-t-f-d"])
