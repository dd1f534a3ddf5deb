"""The records of the bridges' soak: texts, senders and receivers, and whether each shown state was
true.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.soak.bridge_world import BridgeWorld, SoakHub, SoakKit, SoakPhone
from tests.soak.ledger import INTERRUPTED
from tests.soak.mortal import Mortal

UNSAVED = 20.0
"""Seconds before a broker's kill in which acknowledged messages may be unsaved: its promise ends
there."""


@dataclass
class Chat:
    """A phone's text to a user with a kit, repeated until it has a tick."""

    text: str
    message_id: str
    phone: SoakPhone
    kit: SoakKit
    told: float
    ticks: list[str] = field(default_factory=list)


@dataclass
class Post:
    """A kit's text. `phone` is its receiver, None for all."""

    text: str
    kit: SoakKit
    phone: SoakPhone | None
    number: int
    seen: set[str] = field(default_factory=set)
    """Stages that the kit shows."""


@dataclass
class Command:
    """A program's MQTT command, repeated with its key until it has a result."""

    text: str
    kit: SoakKit
    told: float
    results: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Incident:
    text: str
    kit: SoakKit
    raised: float
    """Time on the monotonic clock."""
    number: int = 0
    """Number at its hub."""
    closed: float = 0.0


class Sighting(NamedTuple):
    at: float
    id: str
    text: str
    source: str
    """Topic or device on which it came."""


@dataclass
class BridgeLedger:
    chats: dict[str, Chat] = field(default_factory=dict)
    """Chats by the id of the message."""
    posts: list[Post] = field(default_factory=list)
    commands: dict[str, Command] = field(default_factory=dict)
    """Commands by key."""
    notices: dict[str, float] = field(default_factory=dict)
    """The program's texts to entities, with their times."""
    by_lan: dict[str, float] = field(default_factory=dict)
    """Texts of the phone beside a kit, with their last times."""
    incidents: list[Incident] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    answers: int = 0
    read_at_kit: set[str] = field(default_factory=set)
    read_at_phone: set[str] = field(default_factory=set)
    delivered: int = 0
    sightings: list[Sighting] = field(default_factory=list)
    """Events at the program."""
    wrong: list[str] = field(default_factory=list)


class Truth:
    """Checks shown states that are new since the last check against the data on the disks."""

    def __init__(self, world: BridgeWorld, ledger: BridgeLedger) -> None:
        self._world = world
        self._ledger = ledger
        self._heard: dict[str, int] = defaultdict(int)
        self._checked: dict[str, set[str]] = defaultdict(set)

    def look(self) -> None:
        for phone in self._world.phones:
            for line in self._news(phone.process):
                self._of_phone(phone, line.told)
        for line in self._news(self._world.program):
            self._of_program(line.at, line.told)
        for hub in self._world.hubs:
            self._of_house(hub)

    def look_at_disks(self) -> None:
        """Check the kits' reports about their own Packages."""
        for kit in self._world.kits:
            self._delivered(kit)
        for post in self._ledger.posts:
            if post.phone is not None and post.kit.process.running is not None:
                self._stages(post, post.phone)

    def _news(self, process: Mortal[Any]) -> Iterable[Any]:
        begin = self._heard[process.name]
        entries = process.heard[begin:]
        self._heard[process.name] += len(entries)
        return entries

    def _of_phone(self, phone: SoakPhone, cot_event: dict[str, Any]) -> None:
        wrong, chat = self._ledger.wrong, self._ledger.chats.get(cot_event["uid"])
        if cot_event["type"] == "b-t-f" and cot_event["remarks"]["text"].startswith(
            "[hub] Not sent, as"
        ):
            self._ledger.answers += 1
        if cot_event["type"] not in ("b-t-f-d", "b-t-f-r") or chat is None:
            return
        if cot_event["type"] not in chat.ticks:
            chat.ticks.append(cot_event["type"])
        if chat.phone is not phone:
            wrong.append(f"{phone.callsign} has a tick for {chat.text!r} of another's")
        if chat.text not in chat.kit.inbox():
            wrong.append(
                f"{cot_event['type']} for {chat.text!r}, which {chat.kit.name}'s kit has not"
            )
        if cot_event["type"] == "b-t-f-r" and chat.text not in self._ledger.read_at_kit:
            wrong.append(f"{cot_event['type']} for {chat.text!r}, which nobody has read")

    def _of_program(self, at: float, report: dict[str, Any]) -> None:
        if "wrong" in report:
            self._ledger.wrong.append(f"announced is {report['wrong']}")
        if "notified" in report:
            self._ledger.notices[report["notified"]] = at
        if "event" in report:
            if report["retained"]:
                self._ledger.wrong.append(f"an event is retained: {report}")
            self._note(at, report["event"], report["body"])
        elif "other" in report and report["other"].endswith(("/item", "/inbound")):
            self._note(at, report["other"], json.loads(report["payload"]))

    def _note(self, at: float, source: str, body: dict[str, Any]) -> None:
        if "payloads" in body:
            event, id_ = body["payloads"][0]["events"][0], body["requestId"]
        else:
            event, id_ = body["event"], body["id"]
        text = str((event or {}).get("content", ""))
        self._ledger.sightings.append(Sighting(at, f"{body['event_type']} {id_}", text, source))

    def _of_house(self, hub: SoakHub) -> None:
        results = self._world.house.of(f"fieldagent/{hub.name}/result/house")
        begin = self._heard[f"house {hub.name}"]
        self._heard[f"house {hub.name}"] = len(results)
        for each in results[begin:]:
            command = self._ledger.commands.get(each.body.get("key") or "")
            if command is not None:
                command.results.append(each.body)

    def _delivered(self, kit: SoakKit) -> None:
        """Check that each `Delivered` over a link is on the hub's disk."""
        rows = kit.disk(
            "SELECT idempotency_key FROM package WHERE status = 'Delivered'"
            " AND idempotency_key IS NOT NULL"
        )
        known = self._checked[kit.name]
        fresh = {text for (text,) in rows} - known
        by_link = {each.text for each in self._ledger.posts if each.kit is kit}
        if kit.name != "Ben" and (claimed := fresh & by_link):
            there = {text for _, text, _ in kit.hub.items()}
            for text in claimed - there:
                self._ledger.wrong.append(f"{text!r} is Delivered, and not on the hub's disk")
            self._ledger.delivered += len(claimed)
        known |= fresh

    def _stages(self, post: Post, phone: SoakPhone) -> None:
        name = named(phone)
        if f"read by {name}" in post.seen:
            return
        steps = post.kit.process.it.call("GET", f"/api/package/{post.number}").body["reached"]
        fresh = {each["text"] for each in steps} - post.seen
        post.seen |= fresh
        # It may have arrived since the start of this turn.
        phone.process.listen()
        heard = {cot_event["remarks"]["text"] for _, cot_event in phone.of("b-t-f")}
        if f"on {name}'s kit" in fresh and post.text not in heard:
            self._ledger.wrong.append(f"{post.text!r} is not on {name}'s phone, as was told")
        if f"read by {name}" in fresh and post.text not in self._ledger.read_at_phone:
            self._ledger.wrong.append(f"{post.text!r} was not read by {name}, as was told")


def named(phone: SoakPhone) -> str:
    """Return the phone's name for users of the hub."""
    return phone.callsign if phone.hub.name == "valley" else f"{phone.callsign} (TAK)"


def was_interrupted(begin: float, end: float, *by: Mortal[Any]) -> bool:
    """Return True if one of these was killed so early that a shown state was not stored."""
    return any(each.died_between(begin - INTERRUPTED, end) for each in by)
