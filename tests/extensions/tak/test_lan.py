"""A kit in the multicast of its network, and an independent phone there: sockets and the standard
library's XML. The network is the loopback interface.
"""

from __future__ import annotations

import errno
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest
import trio

from fieldagent.agent.journal import incident
from fieldagent.agent.outbound.day_budget import DayBudget
from fieldagent.agent.outbound.incident_status import list_heard_incidents
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.cot import CotEvent, CotPoint
from fieldagent.extensions.tak.cot import encode as encode_event
from fieldagent.extensions.tak.events import GeoChat, TakUnit
from fieldagent.extensions.tak.lan import service
from fieldagent.extensions.tak.lan.distress import OPEN_MAX
from fieldagent.extensions.tak.lan.door import LanAdmission
from fieldagent.extensions.tak.lan.outward import make_own_unit
from fieldagent.extensions.tak.lan.service import TakLan
from fieldagent.extensions.tak.lan.settings import TakLanSettings
from fieldagent.package.package import Channel, Message, Waypoint
from fieldagent.wire.envelope import Entry, encode
from tests.breaking import Put, environment
from tests.kit import START, kit
from tests.processes import MODULE, PATIENCE, Agent, Running, agent, sky, until

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
GROUP, PORT, DIRECT = "239.2.3.1", 6969, 4242
LO = "127.0.0.1"
ROOM = "All Chat Rooms"


class Phone:
    """A phone. `got` contains its received events."""

    def __init__(self, uid: str, callsign: str) -> None:
        self.uid, self.callsign = uid, callsign
        self.got: list[ET.Element] = []
        self._ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._ear.bind((GROUP, PORT))
        membership = socket.inet_aton(GROUP) + socket.inet_aton(LO)
        self._ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        self._ear.settimeout(0.2)
        self._mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._mouth.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LO))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hear)
        self._thread.start()

    def __enter__(self) -> Phone:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._ear.close()
        self._mouth.close()

    def _hear(self) -> None:
        while not self._over.is_set():
            try:
                data = self._ear.recv(65_536)
            except TimeoutError:
                continue
            with suppress(ET.ParseError):
                self.got.append(ET.fromstring(data))

    def of(self, kind: str, callsign: str = "") -> list[ET.Element]:
        return [
            each
            for each in self.got
            if each.get("type") == kind
            and (not callsign or callsign in ET.tostring(each, "unicode"))
        ]

    def chat(self, words: str, to: tuple[str, str], message_id: str = "", uid: str = "") -> bytes:
        now, mine = datetime.now(UTC), uid or self.uid
        start, stale = (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in (now, now + timedelta(days=1)))
        event = ET.Element(
            "event",
            {
                "version": "2.0",
                "uid": f"GeoChat.{mine}.{to[0]}.{message_id}",
                "type": "b-t-f",
                "how": "h-g-i-g-o",
                "time": start,
                "start": start,
                "stale": stale,
            },
        )
        ET.SubElement(event, "point", dict.fromkeys(("lat", "lon", "hae", "ce", "le"), "0"))
        detail = ET.SubElement(event, "detail")
        chat = ET.SubElement(
            detail,
            "__chat",
            {
                "chatroom": to[1],
                "id": to[0],
                "senderCallsign": self.callsign,
                "messageId": message_id or str(uuid.uuid4()),
            },
        )
        ET.SubElement(chat, "chatgrp", {"uid0": mine, "uid1": to[0], "id": to[0]})
        ET.SubElement(detail, "link", {"uid": mine, "type": "a-f-G-U-C", "relation": "p-p"})
        ET.SubElement(detail, "remarks", {"source": f"BAO.F.ATAK.{mine}"}).text = words
        return ET.tostring(event)

    def say(self, raw: bytes) -> None:
        self._mouth.sendto(raw, (GROUP, PORT))

    def say_directly(self, raw: bytes) -> None:
        with socket.create_connection((LO, DIRECT), timeout=10) as opened:
            opened.sendall(raw)


class Camp:
    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.home, self.stack = home, stack
        self.sky: Running = stack.enter_context(sky(home))
        self.phone = stack.enter_context(Phone("ANDROID-1", "BRAVO"))
        self.kit: Agent

    def begin(self, *changes: Put, **settings: str) -> None:
        named = {f"tak-lan-{name}".replace("_", "-"): value for name, value in settings.items()}
        env = environment(self.home, *changes) if changes else {}
        self.kit = self.stack.enter_context(
            agent(self.home, {"tak-lan": LO, **named}, MODULE, **env)
        )
        until(lambda: self.lan()["state"] == "ready")

    def lan(self) -> dict[str, Any]:
        status: dict[str, Any] = self.kit.call("GET", "/api/status").body["takLan"]
        return status

    def came(self, became: str) -> int:
        count: int = self.lan()["came"][became]
        return count

    def texts(self) -> list[str]:
        listed = self.kit.call("GET", "/api/packages").body["packages"]
        return [each["text"] for each in listed]


@pytest.fixture
def camp(tmp_path: Path) -> Iterator[Camp]:
    with ExitStack() as stack:
        yield Camp(tmp_path, stack)


def read_remarks(event: ET.Element) -> str | None:
    return event.findtext("detail/remarks")


def test_phones_on_the_lan_receive_and_send_through_the_kit(camp: Camp) -> None:
    camp.begin(name="Hut 7", allow="BRAVO", credits_per_day="2")
    phone = camp.phone
    own = ("FA-KIT-Hut_7", "Hut 7")
    until(lambda: phone.of("a-f-G-U-C", "Hut 7"))
    # The kit's position, immediately. Messages for it go to its TCP port.
    place = {"latitude": 46.5, "longitude": 8.1, "altitude": 1520, "speedOverGround": 1.5}
    camp.kit.call("POST", "/api/package/async", {"location": place})
    until(lambda: phone.of("a-f-G-U-C")[-1].find("point[@lat='46.500000']") is not None)
    assert phone.of("a-f-G-U-C")[-1].find("point[@hae='1520.0']") is not None
    assert phone.of("a-f-G-U-C")[-1].find("detail/track[@speed='1.5']") is not None
    contact = phone.of("a-f-G-U-C")[-1].find("detail/contact")
    assert contact is not None
    assert (contact.get("callsign"), contact.get("endpoint")) == ("Hut 7", f"{LO}:4242:tcp")
    # An incoming message becomes a chat for all, once.
    camp.sky.type("mt storm at <17:00> & rising")
    until(lambda: phone.of("b-t-f"))
    (said,) = phone.of("b-t-f")
    assert read_remarks(said) == "storm at <17:00> & rising"
    chat = said.find("detail/__chat")
    assert chat is not None
    assert (chat.get("senderCallsign"), chat.get("chatroom")) == ("Base camp", ROOM)

    # A phone sends through the kit, by multicast and directly, once for each id.
    hello = phone.chat("we are at the ford", own, "m-1")
    phone.say(hello)
    until(lambda: camp.came("taken") == 1)
    phone.say(hello)
    until(lambda: camp.came("repeated") == 1)
    camp.sky.expect("BRAVO: we are at the ford")
    phone.say_directly(phone.chat("down at six", own, "m-2"))
    until(lambda: camp.came("taken") == 2)
    assert "BRAVO: down at six" in camp.texts()
    # Each question about the cost is answered, and nothing is queued.
    for number in (1, 2):
        phone.say(phone.chat("? up", own, f"q-{number}"))
        until(lambda number=number: len(phone.of("b-t-f", "Not sent, because it begins")) == number)  # type: ignore[misc]
    assert "0 of 2 of tak-lan-credits-per-day are left" in str(read_remarks(phone.got[-1]))
    assert camp.came("asked") == 2
    # The day's credits are used up, and the phone gets a note about that.
    assert camp.lan()["creditsToday"] == 2
    phone.say(phone.chat("too much", own, "m-3"))
    until(lambda: camp.came("refused") == 1)
    until(lambda: phone.of("b-t-f", "Not sent: "))
    assert "tak-lan-credits-per-day" in str(read_remarks(phone.of("b-t-f", "Not sent: ")[-1]))
    # The kit ignores messages between phones, and those of kits or hubs.
    phone.say(phone.chat("to all", (ROOM, ROOM), "m-4"))
    phone.say(phone.chat("to CHARLIE", ("ANDROID-2", "CHARLIE"), "m-5"))
    phone.say(b"\xbf\x01\xbf\x12\x00")
    phone.say(b'<event type="b-t-f"')
    phone.say(phone.chat("of another kit", own, "m-6", uid="FA-U-3"))
    until(lambda: (camp.came("other"), camp.came("unreadable")) == (2, 2))
    until(lambda: camp.came("own") > 0)
    assert len(camp.texts()) == 3

    # An SOS rings until it is over, and contains the kit's position.
    camp.kit.call("POST", "/api/sos", {"text": "leg broken"})
    until(lambda: phone.of("b-a-o-tbl"))
    alert = phone.of("b-a-o-tbl")[0]
    assert (alert.get("uid"), alert.findtext("detail/emergency")) == (f"{own[0]}-9-1-1", own[1])
    assert alert.find("point[@lat='46.500000']") is not None
    camp.kit.call("DELETE", "/api/sos")
    until(lambda: phone.of("b-a-o-can"))


def test_all_events_of_one_tcp_connection_are_accepted(camp: Camp) -> None:
    camp.begin(name="Hut 7", allow="BRAVO", credits_per_day="4")
    own = ("FA-KIT-Hut_7", "Hut 7")
    two = [camp.phone.chat(words, own, words) for words in ("first", "second")]
    camp.phone.say_directly(b"".join(two))
    until(lambda: camp.came("taken") == 2)
    assert sorted(camp.texts()) == ["BRAVO: first", "BRAVO: second"]


def test_unlisted_phone_spends_no_credits_and_a_flood_is_dropped(camp: Camp) -> None:
    camp.begin(messages_per_hour="20")
    phone, own = camp.phone, ("FA-KIT-kit", "kit")
    phone.say(phone.chat("down at six", own, "m-1"))
    until(lambda: phone.of("b-t-f", "BRAVO is not in tak-lan-allow"))
    for number in range(300):
        phone.say_directly(phone.chat(f"word {number}", own, f"n-{number}"))
    until(lambda: camp.came("limited") > 250)
    assert camp.texts() == []
    assert camp.lan()["creditsToday"] == 0
    # The kit does not wait for the end of invalid data.
    phone.say_directly(b"x" * 1_000_000)
    phone.say_directly(b"")
    phone.say(phone.chat("another", own, "m-2"))
    until(lambda: camp.came("limited") + camp.came("refused") == 302)


def test_full_disk_is_reported_to_the_phone_and_the_agent_continues(camp: Camp) -> None:
    """The agent may have an SOS, perhaps only in memory. Clients in the network must not end it."""
    camp.begin(
        Put("fieldagent.agent.journal.journal:FREE_MIN_BYTES", 1 << 60),
        allow="BRAVO",
        credits_per_day="2",
    )
    assert camp.kit.call("POST", "/api/sos", {"text": "leg broken"}).status == 201
    camp.phone.say(camp.phone.chat("we come", ("FA-KIT-kit", "kit"), "m-1"))
    until(lambda: camp.phone.of("b-t-f", "Not sent: the disk has less than"))
    assert (camp.came("refused"), camp.lan()["creditsToday"]) == (1, 0)
    assert camp.kit.call("GET", "/api/sos").body["active"] == 1


def test_absent_network_is_reported_and_retried(camp: Camp) -> None:
    kit = camp.stack.enter_context(agent(camp.home, {"tak-lan": "192.0.2.1"}))
    until(lambda: any("TAK: tak-lan 192.0.2.1: " in line for line in kit.output()))
    status = kit.call("GET", "/api/status").body["takLan"]
    assert status["state"] == "no service"
    assert kit.call("POST", "/api/package/async", {"message": {"content": "x"}}).status == 202


async def test_message_received_during_a_network_outage_is_sent_once_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: object
) -> None:
    """No sender repeats the received message."""
    said: list[CotEvent] = []
    up = [False]

    async def say(_: object, event: CotEvent) -> None:
        if not up[0]:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")
        said.append(event)

    async with kit(tmp_path) as k:
        settings = TakLanSettings(address=LO)
        lan = TakLan(
            settings, k.journal, cast(LanAdmission, None), lambda: {"incident": None, "heard": []}
        )
        monkeypatch.setattr(lan, "_send_events", say)
        await k.hear(encode([Entry(7, Message("storm at five"), int(START))]), tagged=True)
        with pytest.raises(OSError, match="unreachable"):
            await lan._send_regularly(cast(trio.socket.SocketType, None))
        up[0] = True
        with trio.move_on_after(30):
            await lan._send_regularly(cast(trio.socket.SocketType, None))
        assert [each.type for each in said].count("b-t-f") == 1


def alert(uid: str = "ANDROID-1", *, cancels: bool = False) -> bytes:
    event = tak.make_alert(TakUnit(uid, "BRAVO"), CotPoint(46.5, 8.1), NOW, cancels=cancels)
    return encode_event(event).replace(b"_flow-tags_", b"x")


async def test_phones_911_alert_opens_a_separate_incident(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        outboxes = {k.outbox.channel: k.outbox}
        budget = DayBudget(k.journal, service.PAYER, 0)
        settings = TakLanSettings(LO)
        door = LanAdmission(settings, k.journal, k.intake, outboxes, budget, bearer_bytes=0)
        assert (await door.receive_event(alert())).result == "taken"
        assert (await door.receive_event(alert())).result == "repeated"
        (own,) = list_heard_incidents(k.journal)
        assert (own["state"], own["name"]) == ("open", "BRAVO")
        assert own["text"] == "SOS from BRAVO (TAK phone), at 46.50000 8.10000"
        assert incident.find_open(k.journal) is None, "it is not the kit's own"
        # A uid proves no identity: the cancel is only a message, and ends nothing.
        assert (await door.receive_event(alert(cancels=True))).result == "taken"
        (own,) = list_heard_incidents(k.journal)
        assert own["state"] == "open"
        # An alert without a time that can be read, and in another's place, rings too.
        odd = alert("ANDROID-2").replace(b'time="2026', b'time="soon').replace(b"46.5", b"north")
        assert (await door.receive_event(odd)).result == "taken"
        for number in range(3, 60):
            await door.receive_event(alert(f"ANDROID-{number}"))
        assert len(incident.list_all_open(k.journal)) == OPEN_MAX + 1


@pytest.mark.parametrize(
    ("text", "to", "asked"),
    [
        ("SOS leg broken", "kit", "Is this an emergency? Send the 911 alert of your TAK app"),
        ("¡Auxilio!", "kit", "¿Es una emergencia? Envíe la alerta 911"),
        ("SOS leg broken", "all", "Is this an emergency?"),
        ("help me with the tent", "all", ""),
        ("we come", "kit", ""),
    ],
)
async def test_chat_that_reads_like_an_sos_is_answered_with_a_question(
    tmp_path: Path, text: str, to: str, asked: str
) -> None:
    async with kit(tmp_path) as k:
        outboxes = {k.outbox.channel: k.outbox}
        budget = DayBudget(k.journal, service.PAYER, 0)
        settings = TakLanSettings(LO, name="kit", allow=frozenset(["BRAVO"]), credits_per_day=9)
        door = LanAdmission(settings, k.journal, k.intake, outboxes, budget, bearer_bytes=0)
        room = TakUnit(tak.ALL_CHAT_ROOMS, tak.ALL_CHAT_ROOMS)
        whom = room if to == "all" else make_own_unit("kit")
        chat = GeoChat(TakUnit("ANDROID-1", "BRAVO"), whom, "m-1", text)
        raw = encode_event(tak.make_chat(chat, NOW)).replace(b"_flow-tags_", b"x")
        outcome = await door.receive_event(raw)
        assert outcome.why.startswith(asked)
        assert ("?" in outcome.why) is bool(asked)


async def test_chats_that_cost_nothing_leave_the_budget_unspent(tmp_path: Path) -> None:
    """Another channel delivers each chat before a satellite session begins."""
    async with kit(tmp_path) as k:
        outboxes = {k.outbox.channel: k.outbox}
        budget = DayBudget(k.journal, service.PAYER, 2)
        settings = TakLanSettings(LO, name="kit", allow=frozenset(["BRAVO"]), credits_per_day=2)
        door = LanAdmission(settings, k.journal, k.intake, outboxes, budget, bearer_bytes=0)
        for number in range(9):
            chat = GeoChat(TakUnit("ANDROID-1", "BRAVO"), make_own_unit("kit"), f"m-{number}", "x")
            raw = encode_event(tak.make_chat(chat, NOW)).replace(b"_flow-tags_", b"x")
            assert (await door.receive_event(raw)).result == "taken"
            await k.cancellation.clear(Channel.SATELLITE)


async def test_item_too_long_for_a_datagram_does_not_block_others(tmp_path: Path) -> None:
    """Such an item is, for example, a waypoint with long notes, which arrived over the IP link."""
    async with kit(tmp_path) as k:
        lan = TakLan(
            TakLanSettings(address=LO),
            k.journal,
            cast(LanAdmission, None),
            lambda: {"incident": None, "heard": []},
        )
        point = Waypoint(46.5, 8.0, "Hut", notes=70_000 * "x")
        await k.hear(encode([Entry(7, point, int(START))]), tagged=True)
        await k.hear(encode([Entry(8, Message("storm at five"), int(START))]), tagged=True)
        with Phone("ANDROID-1", "BRAVO") as phone, service._open_sender(LO) as speaking:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lan._send_regularly, speaking)
                nursery.cancel_scope.deadline = trio.current_time() + PATIENCE
                while not phone.of("b-t-f", "storm at five"):
                    await trio.sleep(0.05)
                nursery.cancel_scope.cancel()
            assert phone.of("b-t-f", "storm at five")
