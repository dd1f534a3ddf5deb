"""Random acts of people and programs in the bridges' soak, and their repetitions."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

from tests.processes import administer
from tests.soak.bridge_ledger import BridgeLedger, Chat, Command, Incident, Post, named
from tests.soak.bridge_world import (
    LAN,
    SCOUT,
    BridgeWorld,
    SoakHub,
    SoakKit,
    SoakPhone,
)
from tests.soak.mortal import Mortal

AGAIN = 25.0
"""Seconds after which a person repeats a text without a sign: the door admits 6 texts of a phone
per minute."""
HERE_EVERY = 15.0
"""Seconds between two positions of a phone."""
RINGS = 20.0
"""Minimum seconds of ringing of an SOS."""


class Traffic:
    def __init__(self, world: BridgeWorld, ledger: BridgeLedger, chance: random.Random) -> None:
        self._world = world
        self._ledger = ledger
        self._chance = chance
        self._numbers = 0
        self._looked: dict[str, int] = {}
        self._told_where: dict[str, float] = {}

    def act(self) -> None:
        """Do one random act, if its actors are present."""
        acts: list[tuple[float, Callable[[], None]]] = [
            (4, self._chat),
            (3, self._write_to_a_phone),
            (3, self._write_to_all),
            (2, self._be_somewhere),
            (4, self._command),
            (2, self._notify),
            (2, self._say_on_the_lan),
            (1, self._ask),
            (0.5, self._raise_sos),
        ]
        weights = [weight for weight, _ in acts]
        ((_, act),) = self._chance.choices(acts, weights)
        act()

    def _text(self, what: str) -> str:
        self._numbers += 1
        return f"{what} {self._numbers}"

    # New texts.

    def _chat(self) -> None:
        phone = self._chance.choice(self._world.phones)
        waiting = [each for each in self._ledger.chats.values() if each.phone is phone]
        if phone.process.running is None or len([each for each in waiting if lacks(each)]) > 2:
            return
        kit = self._chance.choice(phone.hub.kits)
        text = self._text(f"{phone.callsign} to {kit.name}")
        chat = Chat(text, f"m-{self._numbers}", phone, kit, time.monotonic())
        self._ledger.chats[chat.message_id] = chat
        self._tell(chat)

    def _tell(self, chat: Chat) -> None:
        chat.told = time.monotonic()
        say(chat.phone, chat.text, chat.kit, chat.message_id)

    def _post(self, kit: SoakKit, phone: SoakPhone | None, text: str) -> None:
        if kit.process.running is None:
            return
        body: dict[str, object] = {"message": {"content": text}}
        if phone is not None:
            body |= {"to": named(phone), "receipt": "read"}
        headers = {"Idempotency-Key": text, "Prefer": "wait=0"}
        answer = kit.process.it.call("POST", "/api/package", body, **headers)
        assert answer.status == 202, answer
        self._ledger.posts.append(Post(text, kit, phone, answer.body["id"]))

    def _write_to_a_phone(self) -> None:
        """A person must have written first to get a text."""
        known = {each.phone.callsign for each in self._ledger.chats.values() if each.ticks}
        phones = [each for each in self._world.phones if each.callsign in known]
        if phones:
            phone = self._chance.choice(phones)
            kit = phone.hub.kits[0]
            self._post(kit, phone, self._text(f"{kit.name} to {phone.callsign}"))

    def _write_to_all(self) -> None:
        kit = self._chance.choice(self._world.kits)
        self._post(kit, None, self._text(f"{kit.name} to all"))

    def _be_somewhere(self) -> None:
        kit = self._chance.choice([self._world.kit("Ada"), self._world.kit("Cem")])
        if kit.process.running is not None:
            place = {"latitude": 46 + self._chance.random(), "longitude": 8.1}
            kit.process.it.call("POST", "/api/package", {"location": place}, Prefer="wait=0")

    def _command(self) -> None:
        kit = self._chance.choice(self._world.kits)
        text = self._text(f"house to {kit.name}")
        key = f"k-{self._numbers}"
        self._ledger.commands[key] = command = Command(text, kit, 0.0)
        self._publish(key, command)

    def _publish(self, key: str, command: Command) -> None:
        command.told = time.monotonic()
        body = json.dumps({"key": key, "message": {"content": command.text}})
        topic = f"fieldagent/{command.kit.hub.name}/kit/{command.kit.device}/send/house"
        self._world.house.client.publish(topic, body, 1)

    def _notify(self) -> None:
        if self._world.program.running is not None:
            text = self._text("program to Ada")
            device = f"fieldagent-alps-{self._world.kit('Ada').device}"
            typed(self._world.program, {"notify": device, "text": text})

    def _say_on_the_lan(self) -> None:
        text = self._text("word")
        self._ledger.by_lan[text] = 0.0

    def _ask(self) -> None:
        phone = self._chance.choice(self._world.phones)
        if phone.process.running is not None:
            text = self._text("question")
            self._ledger.questions.append(text)
            kit = self._chance.choice(phone.hub.kits)
            say(phone, f"? {text}", kit, f"q-{self._numbers}")

    def _raise_sos(self) -> None:
        kit = self._chance.choice([self._world.kit("Ada"), self._world.kit("Cem")])
        rings = any(each.kit is kit and not each.closed for each in self._ledger.incidents)
        if rings or kit.process.running is None:
            return
        text = self._text(f"SOS of {kit.name}")
        body = {"message": {"content": text}, "priority": 100}
        headers = {"Idempotency-Key": text, "Prefer": "wait=0"}
        kit.process.it.call("POST", "/api/package", body, **headers)
        self._ledger.incidents.append(Incident(text, kit, time.monotonic()))

    # Reactions.

    def go_on(self) -> None:
        """Repeat texts without a sign, read incoming ones, and answer a ringing SOS."""
        now = time.monotonic()
        for chat in self._ledger.chats.values():
            here = chat.phone.process.running is not None and now - chat.told > AGAIN
            if here and lacks(chat):
                self._tell(chat)
        for key, command in self._ledger.commands.items():
            if not command.results and now - command.told > AGAIN:
                self._publish(key, command)
        for phone in self._world.phones:
            # As ATAK does: taky may have lost data that came with the end of the handshake.
            if now - self._told_where.get(phone.callsign, 0.0) > HERE_EVERY:
                self._told_where[phone.callsign] = now
                typed(phone.process, {"here": True})
        self._read()
        self._say_again_on_the_lan(now)
        for incident in self._ledger.incidents:
            if not incident.closed:
                self._answer(incident, now)

    def _read(self) -> None:
        for kit in self._world.kits:
            if kit.process.running is None:
                continue
            begin = self._looked.get(kit.name, 0)
            rows = kit.disk(f"SELECT number, request_id, body FROM inbound WHERE number > {begin}")
            for number, request, body in rows:
                self._looked[kit.name] = number
                (event,) = json.loads(body)["payloads"][0]["events"]
                if number % 2:
                    self._ledger.read_at_kit.add(str(event.get("content", "")))
                    path = f"/api/inbound/{request}/read"
                    kit.process.it.call("POST", path, {"by": kit.name})
        for phone in self._world.phones:
            begin = self._looked.get(phone.callsign, 0)
            lines = phone.process.heard[begin:]
            self._looked[phone.callsign] = begin + len(lines)
            for line in lines:
                cot_event = line.told
                if cot_event["type"] == "b-t-f" and cot_event["__chat"].get("id") == phone.uid:
                    self._read_at(phone, cot_event)

    def _read_at(self, phone: SoakPhone, cot_event: dict[str, dict[str, str]]) -> None:
        text, id_ = cot_event["remarks"]["text"], cot_event["__chat"]["messageId"]
        running = phone.process.running
        # A restarted phone has forgotten it.
        if text.rpartition(" ")[2] in "13579" and running is not None:
            heard = [each for each in running.got if each["type"] == "b-t-f"]
            if any(each["__chat"]["messageId"] == id_ for each in heard):
                self._ledger.read_at_phone.add(text)
                typed(phone.process, {"read": id_})

    def _say_again_on_the_lan(self, now: float) -> None:
        """Repeat unseen messages on the LAN. It has no confirmations, so people see whether a
        message has arrived at the other phones.
        """
        there = {text for _, text, _ in self._world.valley.items()}
        for text, said_at in self._ledger.by_lan.items():
            if f"{SCOUT}: {text}" not in there and now - said_at > 5.0:
                self._ledger.by_lan[text] = now
                lan = self._world.lan
                lan.say(lan.chat(text, LAN, text.replace(" ", "-")))

    def _answer(self, incident: Incident, now: float) -> None:
        hub = incident.kit.hub
        if not incident.number:
            open_ones = (each for each in self._ledger.incidents if not each.closed)
            known = {each.number for each in open_ones if each.kit.hub is hub}
            rows = hub.disk("SELECT id FROM sos WHERE kind = 'sos' AND state <> 'closed'")
            incident.number = next((id_ for (id_,) in rows if id_ not in known), 0)
        if incident.number and now - incident.raised > RINGS and self.is_seen(incident):
            # Over MQTT or at the desk, alternately.
            if incident.number % 2:
                body = json.dumps({"acknowledge": incident.number, "text": "coming"})
                topic = f"fieldagent/{hub.name}/send/house"
                self._world.house.client.publish(topic, body, 1)
            close(hub, incident.number, incident.kit.name)
            incident.closed = now

    def is_seen(self, incident: Incident) -> bool:
        """Return True if each phone at its hub's server has got it."""
        uid = f"{unit_of(incident.kit)}-9-1-1"
        phones = [each for each in self._world.phones if each.hub is incident.kit.hub]
        return all(
            any(
                at > incident.raised and cot_event["uid"] == uid
                for at, cot_event in phone.of("b-a-o-tbl")
            )
            for phone in phones
        )


def close(hub: SoakHub, number: int, by: str) -> None:
    administer(str(hub.database), "sos", "close", str(number), "found", "--by", by)


def lacks(chat: Chat) -> bool:
    """Return True if its author waits for a tick. A text for a satellite kit may never have one."""
    return not chat.ticks and chat.kit.name != "Ben"


def unit_of(kit: SoakKit) -> str:
    ((identity,),) = kit.hub.disk("SELECT identity FROM bridge WHERE name = 'tak'")
    return f"{identity}-{kit.member}"


def say(phone: SoakPhone, text: str, kit: SoakKit, message_id: str) -> None:
    typed(phone.process, {"say": text, "to": [unit_of(kit), kit.name], "id": message_id})


def typed(process: Mortal[Any], line: object) -> None:
    """Write a line to a process that may have just ended."""
    if process.running is None:
        return
    try:
        process.running.type(json.dumps(line))
    except OSError:
        process.listen()
