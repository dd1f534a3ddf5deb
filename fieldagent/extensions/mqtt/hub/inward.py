"""Commands that arrive over MQTT, and their results.

| body                                   | result                                               |
|----------------------------------------|------------------------------------------------------|
| text, on a kit's topic                 | a message to its user                                |
| the JSON of a push, without            | that item, to a user, a group or (unless it is a     |
| `sourceUserId` and `workspaceId`       | message) to everyone                                 |
| `{"acknowledge": 12, "text": "…"}`     | with `mqtt-acknowledge`, the answer to an incident   |

1. The sender becomes a member who cannot sign in, called `SENDER (MQTT)`. A sender that is not in
   `mqtt-senders` becomes `MQTT`, because anyone can use any name.
2. The item goes over satellite or SMS if its sender is in `mqtt-senders` and the day's credits
   are sufficient. Otherwise it waits for a link, and the result contains the reason.
3. A command with a `key` is carried out only once, whatever fails. A command without a key is
   recognised by its packet number and body, if the broker marks it as a possible repeat.
4. A command with `dryRun` gets its cost as the answer, and is not carried out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fieldagent.extensions.mqtt.commands import parse_document, remove_key
from fieldagent.extensions.mqtt.hub import records
from fieldagent.extensions.mqtt.hub.records import StoredCommand
from fieldagent.extensions.mqtt.hub.topics import CommandAddress, HubTopics
from fieldagent.http.problem import Problem
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.access.people import find_carriers
from fieldagent.hub.access.push import Push, parse_push_document
from fieldagent.hub.api import sos_desk
from fieldagent.hub.api.push_api import make_posting
from fieldagent.hub.bridge import spending
from fieldagent.hub.bridge.spending import Allowance
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.field.satellite_sizes import SatelliteKits, delay_until_linked, find_unfit_kits
from fieldagent.hub.records import sos
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import SOS_PRIORITY
from fieldagent.package.reading import Fault, InvalidPackage
from fieldagent.package.strict_json import NotJson
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import format_count

OWN_MEMBERS = ("sourceUserId", "workspaceId")
TARGETS = ("targetUserId", "targetGroup")
TEXT_MAX = 200
NOT_ALLOWED = "waits for a link: {sender} is not in mqtt-senders"
SPENT_REASON = "waits for a link: mqtt-credits-per-day is spent"
KEY_REUSED = "nothing was queued: this key was used for another body"


class HubMqttRules(NamedTuple):
    """Settings of one workspace's MQTT bridge."""

    workspace: str
    """Id or name of the workspace of the bridge."""
    shares: frozenset[str]
    senders: frozenset[str]
    credits_per_day: int
    acknowledges: bool
    time_to_live: float = 604_800.0
    """Default lifetime in seconds of an item that a command sends."""


class CommandInbox(NamedTuple):
    """Workspace for incoming commands, and the rules for them."""

    workspace: int
    rules: HubMqttRules
    topics: HubTopics


class DeliveryMark(NamedTuple):
    """Facts about the delivery of a command by the broker. They identify a command that has no key,
    because an acknowledgement may be lost when this process ends.
    """

    number: int | None
    again: bool
    chance: str
    """Unique random text."""

    @property
    def prefix(self) -> str:
        """Return the prefix of the keys for commands that arrive in a packet with this number."""
        return f"own {self.number} "

    @property
    def own_key(self) -> str:
        """Return the key under which a command without a key of its own is stored."""
        return f"{self.prefix}{self.chance}"


class BrokerOutcome(NamedTuple):
    result: ItemResult
    answer: Mapping[str, Any]
    """Answer to the sender."""


def carry_out(
    db: Db,
    inbox: CommandInbox,
    address: CommandAddress,
    mark: DeliveryMark,
    body: bytes,
    now: float,
) -> BrokerOutcome:
    """Carry out a command in the database, and return the answer. A repeated command only gets the
    earlier answer. A dry run only computes the cost. If the command has no key, `mark` identifies
    it.
    """
    key = None
    try:
        document = parse_document(body)
        key = remove_key(document)
        name = address.sender if address.sender in inbox.rules.senders else ""
        if _remove_dry_run(document):
            member = records.find_member(db, inbox.workspace, name, now)
            posting, _ = _make_posting(db, inbox, address, document, member, now)
            cost = _describe_cost(db, posting, _make_allowance(db, inbox, address, now), now)
            answer = {"accepted": False, "dryRun": True, "key": key, **cost}
            return BrokerOutcome(ItemResult.ASKED, answer)
        digest = hashlib.blake2b(repr(address).encode() + body, digest_size=16).digest()
        # The result of a failed commit is unknown, so check whether the command was stored.
        known_command = records.find_known_command(db, address.sender, key or mark.own_key)
        if known_command is None and key is None and mark.again:
            known_command = records.find_earlier_outcome(
                db, address.sender, mark.prefix, digest, now
            )
        if known_command is not None:
            if known_command.digest != digest:
                raise Problem(422, KEY_REUSED)
            return BrokerOutcome(ItemResult.REPEATED, known_command.outcome)
        member = records.find_member(db, inbox.workspace, name, now)
        if "acknowledge" in document:
            answer, spent = _acknowledge(db, inbox, address, document, member, now), 0
        else:
            posting, unfit_kits = _make_posting(db, inbox, address, document, member, now)
            answer, spent = _send(
                db, inbox, posting, unfit_kits, _make_allowance(db, inbox, address, now), now
            )
        answer = {"accepted": True, "key": key, **answer}
        command = StoredCommand(digest, answer)
        records.record_command(db, address.sender, key or mark.own_key, command, spent, now)
        return BrokerOutcome(ItemResult.TAKEN, answer)
    except NotJson as error:
        return _make_refused(ItemResult.UNREADABLE, key, Problem(400, str(error)))
    except InvalidPackage as error:
        faults = [(fault.detail, fault.pointer) for fault in error.faults]
        text = f"nothing was queued: {format_count(len(faults), 'fault')}"
        return _make_refused(ItemResult.REFUSED, key, Problem(422, text, errors=faults))
    except Problem as problem:
        return _make_refused(ItemResult.REFUSED, key, problem)


def _make_refused(result: ItemResult, key: str | None, problem: Problem) -> BrokerOutcome:
    body = json.loads(problem.make_response().body)
    return BrokerOutcome(result, {"accepted": False, "key": key, "problem": body})


def _send(
    db: Db,
    inbox: CommandInbox,
    posting: Posting,
    satellite_kits: SatelliteKits,
    allowance: Allowance,
    now: float,
) -> tuple[dict[str, Any], int]:
    """Send the item of a command. Return the answer to the sender, and the largest possible cost in
    credits.
    """
    added = spending.add_item_within(db, posting, allowance, now)
    delay_until_linked(db, added.ids.item, satellite_kits)
    topic = inbox.topics.get_stages_topic(None, added.ids.request_id)
    records.follow_item(db, added.ids.item, topic, now)
    answer = {
        "id": added.ids.request_id,
        "credits": added.credits,
        **_make_withheld(added.reason),
    }
    return answer, added.credits


def _make_withheld(reason: str) -> dict[str, str]:
    return {"withheld": f"it {reason}"} if reason else {}


def _remove_dry_run(document: dict[str, Any]) -> bool:
    """Remove `dryRun` from a document and return its value. Raises InvalidPackage if the value is
    not true or false.
    """
    if "acknowledge" in document:
        return False
    is_dry_run = document.pop("dryRun", False)
    if not isinstance(is_dry_run, bool):
        raise InvalidPackage([Fault("must be true or false", "/dryRun")])
    return is_dry_run


def _describe_cost(db: Db, posting: Posting, allowance: Allowance, now: float) -> dict[str, Any]:
    """Return the answer to a sender who asks for the current cost of an item."""
    quote = spending.make_quote(db, posting, allowance, now)
    return {
        "credits": quote.credits,
        "creditsLeft": max(0, allowance.remaining),
        "kits": [each._asdict() for each in quote.kits],
        **_make_withheld(quote.reason),
    }


def _make_posting(
    db: Db,
    inbox: CommandInbox,
    address: CommandAddress,
    document: dict[str, Any],
    member: int,
    now: float,
) -> tuple[Posting, SatelliteKits]:
    """Return the posting of a command, and the kits whose modems cannot carry it. Raises
    InvalidPackage if the document is invalid, and Problem if it cannot be sent.
    """
    push = _push(db, inbox, address, document, member)
    members = find_carriers(db, [push])
    if (push.workspace, push.target or member) not in members:
        raise Problem(403, f"nothing was queued: no user here has the number {push.target}")
    life = inbox.rules.time_to_live
    posting = make_posting(db, push, members, now, life)
    if isinstance(posting, Problem):
        raise posting
    if address.kit is not None:
        posting = replace(posting, device=address.kit)
    unfit_kits = find_unfit_kits(db, posting, now)
    if refusal := unfit_kits.find_refusal():
        raise Problem(422, f"nothing was queued: {refusal}")
    return posting, unfit_kits


def _make_allowance(db: Db, inbox: CommandInbox, address: CommandAddress, now: float) -> Allowance:
    rules, sender = inbox.rules, address.sender or "a sender without a name"
    return Allowance(
        address.sender in rules.senders,
        rules.credits_per_day - records.compute_spent_today(db, now),
        NOT_ALLOWED.format(sender=sender),
        SPENT_REASON,
    )


def _push(
    db: Db,
    inbox: CommandInbox,
    address: CommandAddress,
    document: dict[str, Any],
    member: int,
) -> Push:
    refused = OWN_MEMBERS if address.kit is None else (*OWN_MEMBERS, *TARGETS)
    faults = [
        Fault("is set by the topic or the hub", f"/{name}") for name in refused if name in document
    ]
    if faults:
        raise InvalidPackage(faults)
    push_document = {**document, "sourceUserId": str(member), "workspaceId": str(inbox.workspace)}
    if address.kit is not None:
        user = records.find_user(db, inbox.workspace, address.kit)
        if user is None:
            raise Problem(404, f"nothing was queued: no kit here has the number {address.kit}")
        push_document["targetUserId"] = str(user)
    push = parse_push_document(push_document)
    if push.priority >= SOS_PRIORITY:
        raise Problem(403, "nothing was queued: MQTT cannot raise an SOS; raise it at a kit")
    return push


def _acknowledge(
    db: Db,
    inbox: CommandInbox,
    address: CommandAddress,
    document: dict[str, Any],
    member: int,
    now: float,
) -> dict[str, Any]:
    if not inbox.rules.acknowledges:
        raise Problem(403, "mqtt-acknowledge does not let MQTT answer an incident")
    if address.sender not in inbox.rules.senders:
        sender_text = address.sender or "a sender without a name"
        raise Problem(403, f"{sender_text} is not in mqtt-senders, and cannot answer an incident")
    number, text = document["acknowledge"], document.get("text", "")
    faults = [
        Fault("is not known", f"/{name}")
        for name in document
        if name not in ("acknowledge", "text")
    ]
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 2**63:
        faults.append(Fault("must be the number of an incident, such as 12", "/acknowledge"))
    if not isinstance(text, str) or len(text) > TEXT_MAX or not text.isprintable():
        faults.append(Fault(f"must be at most {TEXT_MAX} printable characters", "/text"))
    if faults:
        raise InvalidPackage(faults)
    incident = sos.find_incident(db, inbox.workspace, number, locked=True)
    if incident is None:
        raise Problem(404, f"no incident here has the number {number}")
    try:
        incident_now = sos_desk.acknowledge(db, incident, member, text, now)
    except Refused as refused:
        raise Problem(409, str(refused)) from None
    return {"incident": incident_now.id, "state": incident_now.state}
