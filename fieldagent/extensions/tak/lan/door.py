"""Processes everything that phones on the kit's network send, and stores the results on disk.

| sent to                         | result                                        |
|---------------------------------|-----------------------------------------------|
| the kit's own unit              | a message to everyone                         |
| the unit of a user              | a message to that user                        |
| a chat room named like a group  | a message to that group                       |
| another unit, all chat rooms    | nothing, because phones hear each other       |
| everyone, as a 911 alert        | a separate SOS (`distress`)                   |

A message that begins with `?` asks for the cost of the rest. The kit answers such a message and
queues nothing.

A callsign is not authenticated, because anyone on the network can use any callsign. So each message
begins with the callsign of its sender. Only callsigns in `tak-lan-allow` may use channels that cost
money. They all share one budget.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping

from fieldagent.agent.journal import directory, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.affordable import SpendingLimits, find_affordable
from fieldagent.agent.outbound.cost import compute_costs
from fieldagent.agent.outbound.day_budget import DayBudget
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.extensions.tak import cot, emergency
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak import map_events as tak_map
from fieldagent.extensions.tak.events import GeoChat, TakUnit
from fieldagent.extensions.tak.lan import outward
from fieldagent.extensions.tak.lan.distress import LanAlertReceiver
from fieldagent.extensions.tak.lan.dry_run import describe_cost
from fieldagent.extensions.tak.lan.settings import TakLanSettings
from fieldagent.extensions.tak.map_events import PREFIX
from fieldagent.package.package import Channel, Message, Package, Person
from fieldagent.store.group import StoreFull
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import Rate
from fieldagent.wire.errors import RemoteProtocolError

BURST = 10
"""Number of messages that the kit accepts at once after a long silence."""
TEXT_MAX, CALLSIGN_MAX = 1_000, 40
PHONES_MAX = 200
"""Largest number of phones for which the kit stores the time of the last reply."""
REPLY_INTERVAL_S = 600.0
"""Seconds between two explanations to one phone. The pause also stops two machines that answer each
other."""
_OWN_UID_PREFIX = b' uid="' + PREFIX.encode()
"""Part of the kit's own events. Multicast returns these events to the kit, which ignores them."""
COUNTS = ("taken", "repeated", "asked", "own", "limited", "refused", "unreadable", "other")


class LanOutcome(NamedTuple):
    result: str
    """Result of the event, one of `COUNTS`."""
    to: TakUnit | None = None
    why: str = ""
    """Reason that the sender sees, if the message does not use all channels."""


class LanAdmission:
    """Accepts or drops messages of phones. `affordable.SpendingLimits` explains `bearer_bytes`."""

    def __init__(
        self,
        settings: TakLanSettings,
        journal: Journal,
        intake: Intake,
        outboxes: Mapping[Channel, ChannelOutbox],
        budget: DayBudget,
        *,
        bearer_bytes: int,
    ) -> None:
        self._settings = settings
        self._own_unit = outward.make_own_unit(settings.name)
        self._journal = journal
        self._intake = intake
        self._outboxes = outboxes
        self._bearer_bytes = bearer_bytes
        per_hour = settings.messages_per_hour
        self._rate = Rate(per_hour / 60, min(BURST, per_hour))
        self._distress = LanAlertReceiver(journal, intake, outboxes)
        self._next = 0.0
        self._replied: OrderedDict[str, float] = OrderedDict()
        self.budget = budget
        self.counts = dict.fromkeys(COUNTS, 0)

    async def receive_event(self, raw: bytes) -> LanOutcome:
        """Process a received event and return the result."""
        outcome = await self._receive_event(raw)
        self.counts[outcome.result] += 1
        return outcome

    async def _receive_event(self, raw: bytes) -> LanOutcome:
        try:
            # Nearly all events from phones are positions, so decode only events that may be chats
            # or alerts.
            chat = tak.read_chat(event) if (event := _read_wanted(raw)) is not None else None
        except RemoteProtocolError:
            return LanOutcome("unreadable")
        alert = None if event is None or tak.is_of(event, PREFIX) else tak.read_alert(event)
        if alert is not None:
            return LanOutcome(await self._distress.accept_alert(alert))
        if event is None:
            return LanOutcome("own" if _OWN_UID_PREFIX in cot.find_start_tag(raw) else "other")
        if tak.is_of(event, PREFIX):
            return LanOutcome("own")
        is_known, addressee = (False, None) if chat is None else self._find_addressee(chat.to)
        if chat is None:
            return LanOutcome("other")
        is_for_all = chat.to.uid == tak.ALL_CHAT_ROOMS
        question = emergency.make_question(chat.text, direct=not is_for_all)
        if not is_known:
            # A message from one phone to another phone is not for the kit.
            return LanOutcome("other", chat.sender, question if is_for_all else "")
        self._next, wait = self._rate.admit(self._next, self._journal.clock.now())
        if wait:
            return LanOutcome("limited")
        outcome = await self._accept(chat, addressee)
        if question and outcome.result in ("taken", "refused"):
            return outcome._replace(why=f"{question} {outcome.why}".rstrip())
        return outcome

    def _find_addressee(self, to: TakUnit) -> tuple[bool, Person | None]:
        """Return True and the addressee if the kit can reach the unit. The addressee None means
        everyone.
        """
        if to.uid == self._own_unit.uid:
            return True, None
        if (user := outward.find_user(to.uid)) is not None:
            return True, user
        person = directory.find_by_name(self._journal, f"{directory.GROUP}:{to.callsign}")
        return person is not None, None if person is None else person.as_named

    async def _accept(self, chat: GeoChat, to: Person | None) -> LanOutcome:
        callsign, text = _clean_line(chat.sender.callsign)[:CALLSIGN_MAX], _clean_line(chat.text)
        question = tak_map.find_question(text)
        text = question or text
        if not callsign or not text or len(text) > TEXT_MAX:
            refusal = f"Not sent: {TEXT_MAX} characters are the maximum." if text else ""
            return LanOutcome("refused", chat.sender, refusal)
        name = re.sub(r"[^\x21-\x7e]", "?", f"tak-{chat.sender.uid}-{chat.message_id}")[:200]
        if not question and outbound.find_by_idempotency_key(self._journal, name) is not None:
            return LanOutcome("repeated")
        await self.budget.refund_unspent()
        is_listed = callsign in self._settings.allow
        limits = SpendingLimits(
            "" if is_listed else f"{callsign} is not in tak-lan-allow",
            self.budget.compute_remaining() or 0,
            self._settings.credits_per_day,
            "tak-lan-credits-per-day allows for phones",
            self._bearer_bytes,
        )
        package = Package(Message(f"{callsign}: {text}"), to=to)
        now = self._journal.clock.date(self._journal.clock.now())
        plan = find_affordable(package, self._outboxes, now, limits)
        if question:
            answer = describe_cost(compute_costs(package, self._outboxes, now), plan, limits)
            return LanOutcome("asked", chat.sender, answer)
        if not plan.is_allowed:
            return LanOutcome("refused", chat.sender, f"Not sent: {plan.withheld_text}.")
        try:
            async with self.budget.book(plan.price):
                package_state = await self._intake.accept(plan.package, name)
        except StoreFull as full:
            return LanOutcome("refused", chat.sender, f"Not sent: {full}.")
        await self.budget.record_booking(package_state.sequence, plan)
        return LanOutcome(
            "taken",
            chat.sender,
            f"Without {plan.withheld_text}." if plan.withheld_text else "",
        )

    def admit_reply(self, uid: str, now: float) -> bool:
        """Return True if the kit may send an explanation to the phone now."""
        if now < self._replied.get(uid, -REPLY_INTERVAL_S) + REPLY_INTERVAL_S:
            return False
        self._replied[uid] = now
        self._replied.move_to_end(uid)
        if len(self._replied) > PHONES_MAX:
            self._replied.popitem(last=False)
        return True


def _read_wanted(raw: bytes) -> cot.CotEvent | None:
    """Return the decoded event if it is a chat or an alert, otherwise None. Raises
    RemoteProtocolError for malformed data.
    """
    if raw[:1] == b"\xbf":
        raise RemoteProtocolError("it is protobuf, not XML")
    kind = cot.find_type(raw)
    return cot.decode(raw) if kind == tak.CHAT or kind.startswith(tak.ALERTS) else None


def _clean_line(text: str) -> str:
    """Return the text as one line without invisible characters, because an unknown person wrote
    it.
    """
    line = " ".join(text.split())
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)
