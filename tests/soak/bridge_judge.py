"""Checks the end of the bridges' soak: the disks of hubs and kits, and the received data of phones
and programs.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from tests.soak.bridge_ledger import (
    UNSAVED,
    BridgeLedger,
    Sighting,
    named,
    was_interrupted,
)
from tests.soak.bridge_traffic import lacks, unit_of
from tests.soak.bridge_world import (
    MQTT_CREDITS,
    SCOUT,
    TAK_CREDITS,
    BridgeWorld,
    SoakHub,
    SoakKit,
    SoakPhone,
)
from tests.soak.mortal import Mortal

READ_WITHIN = 10.0
"""Seconds in which this program has read the output of the program at the broker."""
LAN_WRITER = f"{SCOUT}: "


def unsettled(world: BridgeWorld, ledger: BridgeLedger) -> list[str]:
    """Return items that have not arrived yet."""
    why = [f"{chat.text!r} has no tick" for chat in ledger.chats.values() if lacks(chat)]
    inboxes = {kit.name: {*kit.inbox()} for kit in world.kits}
    at_hub = {hub.name: {text for _, text, _ in hub.items()} for hub in world.hubs}
    for post in ledger.posts:
        if post.text not in at_hub[post.kit.hub.name]:
            why.append(f"{post.text!r} is not at the hub")
        elif post.phone is not None and f"on {named(post.phone)}'s kit" not in post.seen:
            why.append(f"{post.text!r} is not told to be on {post.phone.callsign}'s phone")
    for key, command in ledger.commands.items():
        if not command.results:
            why.append(f"{key} has no result")
        elif command.kit.name != "Ben" and command.text not in inboxes[command.kit.name]:
            why.append(f"{command.text!r} is not at {command.kit.name}'s kit")
    for text in ledger.by_lan:
        if f"{LAN_WRITER}{text}" not in at_hub["valley"]:
            why.append(f"{text!r} of the kit's own network is not at the hub")
    why += [f"{text!r} is paid, and not at Ben's kit" for text in paid(world) - inboxes["Ben"]]
    why += [f"{each.text!r} rings" for each in ledger.incidents if not each.closed]
    why += misplaced(world)
    seen = {sighting.text for sighting in ledger.sightings}
    why += [f"the program has not {text!r}" for text in published(world, ledger) - seen]
    return why


def misplaced(world: BridgeWorld) -> list[str]:
    """Return clients that show a kit at another position than its hub."""
    why = []
    for kit in (world.kit("Ada"), world.kit("Cem")):
        at = f"SELECT latitude FROM contact WHERE device = {kit.device} AND latitude IS NOT NULL"
        tracker = f"fieldagent-{kit.hub.name}-{kit.device}_position"
        for (latitude,) in kit.hub.disk(at):
            shown = [
                each.told["body"]["latitude"]
                for each in world.program.heard
                if each.told.get("attributes") == tracker
            ]
            units = {"the program": shown}
            for phone in world.phones:
                if phone.hub is kit.hub:
                    cot_events = [cot_event for _, cot_event in phone.of("a-f-G-U-C")]
                    own = [each for each in cot_events if each["uid"] == unit_of(kit)]
                    units[phone.callsign] = [float(each["lat"]) for each in own]
            for who, places in units.items():
                if not places or abs(places[-1] - latitude) > 1e-5:
                    why.append(f"{who} shows {kit.name} at {places[-1:]}, not {latitude}")
    return why


def paid(world: BridgeWorld) -> set[str]:
    """Return items that may go to Ben's kit over satellite."""
    ben = world.kit("Ben")
    rows = ben.hub.disk(
        "SELECT item.id FROM item JOIN delivery ON delivery.item = item.id JOIN device"
        " ON device.id = delivery.device WHERE device.name = 'Ben' AND unpaid = 0 AND"
        " (item.id IN (SELECT item FROM tak_event WHERE credits > 0)"
        " OR item.id IN (SELECT item FROM mqtt_item JOIN item AS own ON own.id = mqtt_item.item"
        " WHERE own.source_device IS NULL))"
    )
    numbers = {number for (number,) in rows}
    return {text for number, text in numbered(ben.hub) if number in numbers}


def numbered(hub: SoakHub) -> list[tuple[int, str]]:
    numbers = [number for (number,) in hub.disk("SELECT id FROM item ORDER BY id")]
    texts = [text for _, text, _ in hub.items()]
    return [*zip(numbers, texts, strict=False)]


def published(world: BridgeWorld, ledger: BridgeLedger) -> set[str]:
    """Return texts of kits to all that the program must have, except those that its broker lost
    when it was killed.
    """
    to_all = {post.text for post in ledger.posts if post.phone is None}
    to_all |= {f"{LAN_WRITER}{text}" for text in ledger.by_lan}
    crashes = [time.time() - time.monotonic() + at for at in world.crashes]
    words = set()
    for hub in world.hubs:
        for accepted, text, _ in hub.items():
            if text in to_all and not is_unsaved(accepted, crashes):
                words.add(text)
    return words


def is_unsaved(at: float, crashes: Iterable[float]) -> bool:
    return any(at - 5.0 <= crash <= at + UNSAVED for crash in crashes)


def judge(world: BridgeWorld, ledger: BridgeLedger, rows: list[str]) -> None:
    _Judge(world, ledger, rows).judge()


class _Judge:
    def __init__(self, world: BridgeWorld, ledger: BridgeLedger, rows: list[str]) -> None:
        self._world = world
        self._ledger = ledger
        self._rows = rows
        self._wrong = ledger.wrong
        self._inboxes = {kit.name: Counter(kit.inbox()) for kit in world.kits}

    def judge(self) -> None:
        for hub in self._world.hubs:
            self._once_at(hub)
        for kit in self._world.kits:
            self._at_kit(kit)
        for phone in self._world.phones:
            self._at_phone(phone)
        self._on_the_lan()
        self._at_program()
        self._budgets()
        self._incidents()
        self._nothing_went_round()
        ticks = Counter(tick for chat in self._ledger.chats.values() for tick in chat.ticks)
        self._row("ticks at phones: on the kit's disk", ticks["b-t-f-d"])
        self._row("ticks at phones: read", ticks["b-t-f-r"])
        self._row("`Delivered` at kits by link, on the hub's disk", self._ledger.delivered)
        self._row("questions what it costs, answers", len(self._ledger.questions))
        self._rows[-1] = self._rows[-1].replace("| | | |", f"| {self._ledger.answers} | | |")

    def _row(
        self, what: str, said: int, came: object = "", twice: object = "", lost: object = ""
    ) -> None:
        cells = " | ".join(str(each) for each in (what, said, came, twice, lost))
        self._rows.append(f"| {cells} |".replace("  ", " "))

    def _once_at(self, hub: SoakHub) -> None:
        """Check that each repeated text is one item."""
        count = Counter(text for _, text, _ in hub.items() if text)
        notices = {*self._ledger.notices}
        for text, times in count.items():
            if times > 1 and text not in notices:
                self._wrong.append(f"{text!r} is {times} items at {hub.name}")
        self._row(f"items at hub {hub.name}", len(count), sum(count.values()))

    def _at_kit(self, kit: SoakKit) -> None:
        inbox = self._inboxes[kit.name]
        chats = {each.text for each in self._ledger.chats.values() if each.kit is kit}
        commands = {each.text for each in self._ledger.commands.values() if each.kit is kit}
        notices = {text for text in self._ledger.notices if f" to {kit.name} " in text}
        for what, said in (("by TAK", chats), ("by MQTT", commands), ("by discovery", notices)):
            if not said:
                continue
            came = said & inbox.keys()
            again = {text for text in came if inbox[text] > 1}
            lost = said - came
            if kit.name == "Ben":
                lost = lost & paid(self._world)
            excused = self._excused_notices(again, lost) if what == "by discovery" else set()
            self._wrong += [f"{text!r} is {kit.name}'s twice" for text in again - excused]
            self._wrong += [f"{text!r} never came to {kit.name}" for text in lost - excused]
            left = f"{len(lost & excused)}"
            self._row(f"to {kit.name}'s kit {what}", len(said), len(came), len(again), left)
        self._handed_at_acknowledgement(kit)

    def _excused_notices(self, again: Collection[str], lost: Collection[str]) -> set[str]:
        """Return notices with an excuse. An entity's text has no key: the hub recognises it until
        its restart, and texts that its program or broker had not sent before a kill are lost.
        """
        notices = set()
        for text in {*again, *lost}:
            at = self._ledger.notices[text]
            by = (self._world.program, self._world.broker, self._world.alps.process)
            if was_interrupted(at, at + UNSAVED, *by):
                notices.add(text)
        return notices

    def _handed_at_acknowledgement(self, kit: SoakKit) -> None:
        """Check that the program at the broker has each item that a kit calls handed over."""
        rows = kit.disk(
            "SELECT request_id, received FROM inbound JOIN handover USING (number)"
            f" WHERE hook = 'MQTT' AND state = 'handed' AND received < {time.time() - READ_WITHIN}"
        )
        if not rows:
            return
        seen = {each.id.rpartition(" ")[2] for each in self._ledger.sightings}
        crashes = [time.time() - time.monotonic() + at for at in self._world.crashes]
        lost = [request for request, at in rows if request not in seen]
        excused = [request for request, at in rows if is_unsaved(at, crashes)]
        self._wrong += [
            f"{request} counts as handed to the broker of {kit.name}'s, and nobody has it"
            for request in lost
            if request not in excused
        ]
        self._row(
            f"{kit.name}'s inbound by its broker, once acknowledged",
            len(rows),
            len(rows) - len(lost),
            "",
            len(lost),
        )

    def _at_phone(self, phone: SoakPhone) -> None:
        posts = {each.text for each in self._ledger.posts if each.phone is phone}
        arrivals = self._by_text(phone)
        again = 0
        for text in posts & arrivals.keys():
            sightings = arrivals[text]
            if len({id_ for _, id_ in sightings}) > 1:
                self._wrong.append(f"{text!r} has several ids at {phone.callsign}")
            for (before, _), (after, _) in itertools.pairwise(sightings):
                again += 1
                by = {each.name: each for each in (phone.process, phone.server, phone.hub.process)}
                if not was_interrupted(before, after, *by.values()):
                    self._wrong.append(f"{text!r} came to {phone.callsign} twice, and why?")
        came = posts & arrivals.keys()
        self._wrong += [f"{text!r} never came to {phone.callsign}" for text in posts - came]
        self._row(f"to the phone of {phone.callsign}", len(posts), len(came), again)

    def _on_the_lan(self) -> None:
        """Check that each item of Cem's kit was sent at most once there: no phone there confirms
        anything.
        """
        inbox = self._inboxes["Cem"]
        said = {each.text for each in self._ledger.chats.values()} & inbox.keys()
        said |= {each.text for each in self._ledger.commands.values()} & inbox.keys()
        words = Counter(each.findtext("detail/remarks") for each in self._world.lan.of("b-t-f"))
        self._wrong += [f"{text!r} is on the network twice" for text in said if words[text] > 1]
        self._row("of that on Cem's network", len(said), sum(words[text] > 0 for text in said))

    def _by_text(self, phone: SoakPhone) -> dict[str, list[tuple[float, str]]]:
        arrivals: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for at, cot_event in phone.of("b-t-f"):
            arrivals[cot_event["remarks"]["text"]].append((at, cot_event["__chat"]["messageId"]))
        return arrivals

    def _at_program(self) -> None:
        wanted = {post.text for post in self._ledger.posts if post.phone is None}
        wanted |= {f"{LAN_WRITER}{text}" for text in self._ledger.by_lan}
        by_id: dict[tuple[str, str], list[Sighting]] = defaultdict(list)
        for each in self._ledger.sightings:
            # Each event of an incident is a separate item with the same number.
            if not each.id.startswith("incident "):
                by_id[each.id, _topic(each)].append(each)
        again = 0
        for (id_, _), sightings in by_id.items():
            for before, after in itertools.pairwise(sightings):
                again += 1
                if not was_interrupted(before.at, after.at, *self._carriers()):
                    self._wrong.append(f"{id_} {before.text!r} came to the program twice, and why?")
        ids: dict[str, set[str]] = defaultdict(set)
        for (id_, topic), sightings in by_id.items():
            if topic == "item":
                ids[sightings[0].text].add(id_)
        self._wrong += [f"{text!r} has ids {ids[text]}" for text in wanted if len(ids[text]) > 1]
        came = {text for text in wanted if ids[text]}
        self._row("items at the program", len(wanted), len(came), again, len(wanted - came))

    def _carriers(self) -> list[Mortal[Any]]:
        hubs = [each.process for each in self._world.hubs]
        kits = [each.process for each in self._world.kits]
        return [self._world.program, self._world.broker, *hubs, *kits]

    def _budgets(self) -> None:
        for table, most in (("tak_event", TAK_CREDITS), ("mqtt_command", MQTT_CREDITS)):
            for hub in self._world.hubs:
                rows = hub.disk(
                    f"SELECT sum(credits) FROM {table} GROUP BY CAST(at / 86400 AS INTEGER)"
                )
                spent = max((int(credit or 0) for (credit,) in rows), default=0)
                if spent > most:
                    self._wrong.append(f"{table} of {hub.name} has {spent} of {most} credits")
                if spent:
                    self._row(f"credits of {most} by {table} of {hub.name}", spent)
        ((called,),) = self._world.alps.disk("SELECT coalesce(sum(credits), 0) FROM spent")
        self._row("credits that the satellites' operator has taken", int(called))
        over = {*self._inboxes["Ben"]} - paid(self._world)
        theirs = {each.text for each in self._ledger.chats.values()}
        theirs |= {each.text for each in self._ledger.commands.values()}
        self._wrong += [f"{text!r} went to Ben, and nobody paid" for text in over & theirs]
        for key, command in self._ledger.commands.items():
            results = {str(each) for each in command.results}
            if len({each.get("id") for each in command.results}) > 1:
                self._wrong.append(f"{key} has several results: {results}")

    def _incidents(self) -> None:
        raised = Counter(each.kit.hub.name for each in self._ledger.incidents)
        for hub in self._world.hubs:
            # If its kit does not know that it was closed, it opens again and rings like a new one.
            ((count,),) = hub.disk(
                "SELECT count(*) FROM sos_event JOIN sos ON sos.id = sos"
                " WHERE kind = 'sos' AND event = 'raised'"
            )
            if count != raised[hub.name]:
                self._wrong.append(f"{count} incidents at {hub.name}, {raised[hub.name]} raised")
        self._row("incidents, each rung at all phones of its hub", len(self._ledger.incidents))

    def _nothing_went_round(self) -> None:
        """Check that no item from a bridge returned to one."""
        brought = {each.text for each in self._ledger.chats.values()} | {*self._ledger.questions}
        brought |= {each.text for each in self._ledger.commands.values()}
        brought |= {*self._ledger.notices}
        for phone in self._world.phones:
            echoes = brought & self._by_text(phone).keys()
            self._wrong += [f"{text!r} went round, to {phone.callsign}" for text in echoes]
        items = {each.text for each in self._ledger.sightings if _topic(each) == "item"}
        self._wrong += [f"{text!r} went round, to the program" for text in brought & items]
        on_lan = {
            each.findtext("detail/remarks")
            for each in self._world.lan.of("b-t-f")
            if "FA-U-" in str(each.get("uid"))
        }
        own = {f"{LAN_WRITER}{text}" for text in self._ledger.by_lan}
        self._wrong += [f"{text!r} went round, to the kit's network" for text in own & on_lan]
        asked = {*self._ledger.questions}
        for kit in self._world.kits:
            sent = asked & self._inboxes[kit.name].keys()
            self._wrong += [f"{text!r} was asked about, and sent" for text in sent]


def _topic(seen: Sighting) -> str:
    """Return the kind: `item` of a hub, `inbound` of a kit's own broker."""
    if "/" in seen.source:
        return seen.source.rpartition("/")[2]
    return "inbound" if seen.source == "fieldagent-ada" else "item"
