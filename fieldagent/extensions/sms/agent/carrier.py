"""Sends items to the hub by SMS while there is no IP link, and receives the hub's SMS.

1. An SMS contains a frame of `wire.sms_frame`. The frame is Delivered when a frame from the hub
   acknowledges its tag, because the hub then has it on disk. Reports that the network has accepted
   the SMS, or that the hub's telephone has it, are stored but have no effect.
2. Only a few SMS are on their way at a time. If an SMS is not answered in time, its result is in
   doubt, and it is sent again unchanged. The hub ignores a duplicate and acknowledges it too. After
   COPIES_MAX attempts, the content waits in the queue again.
3. Each SMS is booked against the day's limit before the modem gets it. The booking is cancelled
   only if the SMS was certainly not sent.
4. A received SMS is stored on the kit's disk, then deleted from the modem, and then acknowledged.
   An SMS from a number that is not allowed is counted and deleted. An SMS that cannot be read is
   read again later. If it remains unreadable, it is stored unchanged and deleted.
5. When the IP link works again, SMS on their way are returned to the queue at once, and use the
   link.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import NoReturn, Protocol

import trio

from fieldagent.agent.bearer import BearerOutbox
from fieldagent.agent.channels.contract import (
    ChannelLink,
    IpTurn,
    LinkState,
    MessageLimits,
    Reception,
    Transmission,
)
from fieldagent.agent.channels.reopening import forbid_healing, run_and_reopen
from fieldagent.agent.channels.satellite_waits import wait_for_first
from fieldagent.extensions.sms.agent.contract import MODEM_LOST_ERRORS, GsmRefuses, SmsModem
from fieldagent.extensions.sms.agent.modem_kinds import find_modem_kind
from fieldagent.extensions.sms.agent.parts_kept import GivenUpParts, PartsKept
from fieldagent.extensions.sms.agent.pin import PinMemory
from fieldagent.extensions.sms.agent.settings import SmsSettings
from fieldagent.extensions.sms.agent.under_way import (
    SendPause,
    SentFrame,
    apply_report,
    forget_reference,
)
from fieldagent.extensions.sms.sms_modem import StoredMessage
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import sms_frame, sms_pdu
from fieldagent.wire.credit import Tariff
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sms_frame import ENVELOPE_BYTES, SmsFrame
from fieldagent.wire.sms_pdu import Coding, Content, Deliver, StatusReport, Submit

log = logging.getLogger(__name__)

TARIFF = Tariff("sms", ENVELOPE_BYTES, booked=False)
MESSAGE_LIMITS = MessageLimits(ENVELOPE_BYTES, ENVELOPE_BYTES, TARIFF)
FRAMES_UNDER_WAY_MAX = 3
"""Largest number of SMS that are on their way at a time. For an SOS, the same number is added."""
COPIES_MAX = 3
"""Largest number of copies of one message. After the last copy, its content waits in the queue
again."""
URGENT_AFTER = 20.0
"""Longest time in seconds without an IP link before an SOS is sent by SMS."""
READ_ATTEMPTS_MAX = 3
"""Number of attempts to read a message, after which the carrier gives up the message."""
CHECK_INTERVAL_S = 600.0
"""Seconds between two reads of the modem's store while the IP link works."""
ANSWER_WAIT_MAX_S = 3_600.0
"""Longest time in seconds to wait for the hub to acknowledge an SMS, and then for its content to
wait in the queue."""
DAY_OVER_S = 3_600.0
"""Seconds after which the carrier checks again whether a limit still applies."""
URGENT_DAY_OVER_S = 60.0
"""The same for an SOS. It is short, because the SOS waits for this time even if the IP link
returns."""


class SmsBudget(Protocol):
    """Daily limit on the number of SMS."""

    def compute_remaining(self, *, urgent: bool = False, is_halved: bool = False) -> int | None:
        """Return the number of SMS that may still be sent today, or None if there is no limit.

        If `urgent`, the result includes the reserve. If `is_halved`, half of the reserve is kept.
        """

    def compute_spent(self) -> int:
        """Return the number of SMS sent today."""

    async def spend(self, count: int) -> None:
        """Record `count` SMS as spent. A negative number cancels records of SMS that were not sent.
        The record is on disk when the method returns.
        """


@dataclass(frozen=True, slots=True)
class SmsSeat:
    """Parts of the agent that the carrier uses."""

    settings: SmsSettings
    token_digest: bytes
    outbox: BearerOutbox
    """Outbox of channel Cellular."""
    reception: Reception
    cellular: ChannelLink
    """Link of the channel Cellular, which shows the modem's state to people."""
    turn: IpTurn
    budget: SmsBudget
    folder: Path
    link: ChannelLink
    """Link that shows the condition of the modem itself."""
    heal: Callable[[], Awaitable[bool]] = forbid_healing
    progress: Callable[[], None] = lambda: None


async def run(seat: SmsSeat) -> NoReturn:
    """Serve one modem until cancelled, even while it is absent, unplugged or locked."""
    carrier = SmsCarrier(seat)
    pin = PinMemory(seat.settings.pin, seat.folder / "sms-pin-refused")
    port = seat.settings.port
    assert port is not None

    async def work() -> None:
        async with find_modem_kind(port).open(port, seat.settings, seat.link, pin) as modem:
            await carrier.work(modem)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(carrier.return_frames_on_link)
        await run_and_reopen(
            work,
            MODEM_LOST_ERRORS,
            carrier.show_absence,
            seat.progress,
            seat.link,
            seat.heal,
        )


class SmsCarrier:
    """Sends and receives SMS while there is no IP link. While the modem's port is closed, it keeps
    the frames in flight and the acknowledgements that the hub must still receive.
    """

    def __init__(self, seat: SmsSeat) -> None:
        self._seat = seat
        self._settings = seat.settings
        self._outbox = seat.outbox
        self._name = sms_frame.derive_name(seat.token_digest)
        self._key_up = sms_frame.derive_key_up(seat.token_digest)
        self._key_down = sms_frame.derive_key_down(seat.token_digest)
        self._outgoing: dict[bytes, SentFrame] = {}
        """Unacknowledged frames by tag. Only the code that removes a frame from this dictionary may
        settle the frame."""
        self._due_acks: list[bytes] = []
        """Tags of received frames that the kit must still acknowledge to the hub."""
        self._rest = SendPause()
        self._has_turn = False
        self._next_look = -inf
        self._parts = PartsKept()
        self._garbled: dict[int, int] = {}
        """Number of consecutive reads in which a message was unreadable, by the place of the
        message in the store."""
        self._refused_count = 0
        self._show()

    async def return_frames_on_link(self) -> NoReturn:
        """When the IP link works, return the frames on their way to the queue, even if the modem is
        not available.
        """
        while True:
            if self._seat.turn.linked:
                self._has_turn = False
                self._due_acks.clear()
                for tag in list(self._outgoing):
                    await self._release(tag, "the IP link is back: the item is sent over IP", 0.0)
            await self._seat.turn.wait_for_change()

    async def _requeue_earlier(self) -> None:
        """Take over the transmissions that the last link has not acknowledged, so that they are
        packed again for SMS.
        """
        self._has_turn = True
        self._outbox.set_limits(MESSAGE_LIMITS)
        unacknowledged = self._seat.turn.unacknowledged
        while unacknowledged:
            reason = "the link ended before the hub acknowledged it"
            await self._outbox.release(unacknowledged.popleft(), reason=reason)

    async def _release(self, tag: bytes, reason: str, retry_after: float) -> None:
        sending = self._outgoing.pop(tag, None)
        if sending is not None:
            await self._outbox.release(sending.transmission, reason=reason, retry_after=retry_after)

    def _compute_earliest(self, *, urgent: bool) -> float:
        """Return the earliest time when another SMS may be sent, or infinity if no SMS may be
        sent.
        """
        turn, modem = self._seat.turn, self._seat.link
        if turn.linked or modem.state is not LinkState.READY:
            return inf
        count = sum(each.urgent is urgent for each in self._outgoing.values())
        if count >= FRAMES_UNDER_WAY_MAX:
            return inf
        after = float(self._settings.after)
        starts_at = turn.since + (min(URGENT_AFTER, after) if urgent else after)
        return max(starts_at, self._rest.compute_end(urgent=urgent))

    def _is_affordable(self, *, urgent: bool, is_halved: bool = False) -> bool:
        return self._seat.budget.compute_remaining(urgent=urgent, is_halved=is_halved) != 0

    def _can_pay(self, transmission: Transmission) -> bool:
        """Return True if today's budget allows another SMS for the transmission. An SOS of others
        leaves half of the reserve to the kit's own people, because any person with a radio can
        send such an SOS.
        """
        others = transmission.is_sos_of_others
        return self._is_affordable(urgent=transmission.urgent, is_halved=others)

    async def work(self, modem: SmsModem) -> NoReturn:
        """Serve one opened modem until it fails: receive SMS, and send waiting items while there is
        no IP link. Raises one of `contract.MODEM_LOST_ERRORS` if the modem must be opened again.
        """
        self._next_look = -inf
        while True:
            self._seat.progress()
            now = trio.current_time()
            if modem.arrived or now >= self._next_look:
                await self._read_stored_messages(modem)
            elif now >= min(
                self._compute_earliest(urgent=True), self._compute_earliest(urgent=False)
            ) and (not self._has_turn):
                await self._requeue_earlier()
            elif not await self._send_one(modem):
                await self._wait(modem)
            self._show()
            if modem.lost is not None:
                raise modem.lost

    async def _send_one(self, modem: SmsModem) -> bool:
        """Send the SMS that is due now. Return True if there was such an SMS."""
        if not self._has_turn:
            return False
        now = trio.current_time()
        late = [tag for tag, each in self._outgoing.items() if each.due <= now]
        if late:
            await self._handle_unanswered(modem, late[0])
            return True
        for is_urgent in (True, False):
            if now >= self._compute_earliest(urgent=is_urgent) and await self._is_ready(
                urgent=is_urgent
            ):
                return await self._load(modem, urgent=is_urgent)
        if self._due_acks and now >= self._rest.until and self._is_affordable(urgent=False):
            await self._acknowledge(modem)
            return True
        return False

    async def _is_ready(self, *, urgent: bool) -> bool:
        with trio.CancelScope(deadline=-inf) as at_once:
            await self._outbox.wait_until_ready(urgent=urgent)
        return not at_once.cancelled_caught

    async def _load(self, modem: SmsModem, *, urgent: bool) -> bool:
        if not urgent and not self._is_affordable(urgent=False):
            return False
        await self._outbox.fix_dates()
        # If the IP link works again, load nothing. Otherwise, the queue would get the transmission
        # back only after the end of the link.
        transmission = self._outbox.load(ENVELOPE_BYTES) if self._has_turn else None
        if transmission is None:
            return False
        # The first SMS of an SOS of the kit's own people is always sent.
        is_limited = transmission.attempts > 0 or transmission.is_sos_of_others
        if transmission.urgent and is_limited and not self._can_pay(transmission):
            await self._outbox.settle(
                transmission,
                Outcome.NOT_SENT,
                reason=self._describe_spent_day(),
                retry_after=URGENT_DAY_OVER_S,
            )
            return True
        acknowledgements = self._remove_fitting_acks(transmission.body)
        frame = SmsFrame(self._name, transmission.body, acknowledgements)
        tag = frame.tag_by(self._key_up)
        self._outgoing[tag] = SentFrame(transmission, frame.encode_text(self._key_up))
        if await self._submit(modem, tag):
            self._due_acks = [each for each in self._due_acks if each not in acknowledgements]
        return True

    def _remove_fitting_acks(self, envelope: bytes) -> tuple[bytes, ...]:
        """Return the acknowledgements that fit into the SMS of an envelope, so that no further SMS
        is needed.
        """
        for count in range(min(len(self._due_acks), sms_frame.ACKNOWLEDGED_MAX), 0, -1):
            if sms_frame.fits_into_one_sms(self._due_acks[:count], envelope):
                return tuple(self._due_acks[:count])
        return ()

    async def _submit(self, modem: SmsModem, tag: bytes) -> bool:
        """Send an SMS for the first time or again. Return True if the SMS may have been sent."""
        outgoing = self._outgoing[tag]
        await self._seat.budget.spend(1)
        self._show()
        if self._outgoing.get(tag) is not outgoing:
            # The IP link works again and delivers the content, so cancel the record of the cost.
            await self._seat.budget.spend(-1)
            return False
        packages = self._outbox.get_packages(outgoing.transmission)
        sent = await modem.send(self._make_message(outgoing.text))
        is_current = self._outgoing.get(tag) is outgoing  # False if the IP link works again.
        if sent.outcome is Outcome.NOT_SENT:
            await self._seat.budget.spend(-1)
            self._show()
            self._rest.begin(final=sent.final)
            log.warning("an SMS was not sent: %s", sent.reason)
            self._seat.link.reason = sent.reason
            if is_current and not outgoing.copies:
                del self._outgoing[tag]
                rest = self._rest.compute_end(urgent=outgoing.urgent) - trio.current_time()
                await self._outbox.settle(
                    outgoing.transmission,
                    Outcome.NOT_SENT,
                    reason=sent.reason,
                    retry_after=max(0.0, rest),
                )
            elif is_current:
                outgoing.due = self._rest.compute_end(urgent=outgoing.urgent)
            return False
        self._rest.end_pause()
        outgoing.copies += 1
        outgoing.due = trio.current_time() + self._compute_answer_limit(outgoing)
        forget_reference(self._outgoing.values(), sent.reference)
        if sent.reference is not None:
            outgoing.references[sent.reference] = outgoing.copies
        await self._outbox.record_sms(packages)
        is_current = self._outgoing.get(tag) is outgoing
        if is_current and sent.outcome is Outcome.DOUBTFUL:
            log.warning("an SMS may have left: %s", sent.reason)
            await self._outbox.settle(outgoing.transmission, Outcome.DOUBTFUL, reason=sent.reason)
        return True

    def _make_message(self, text: str) -> Submit:
        (content,) = sms_pdu.split(text, 0)
        return Submit(self._settings.hub_number, content)

    def _compute_answer_limit(self, under_way: SentFrame) -> float:
        within = float(self._settings.answer_within)
        if under_way.urgent:
            return within / 3
        return min(ANSWER_WAIT_MAX_S, within * 2.0 ** (under_way.copies - 1))

    async def _handle_unanswered(self, modem: SmsModem, tag: bytes) -> None:
        """Process a frame that the hub has not answered in time: send it again, or return its
        content to the queue.
        """
        outgoing = self._outgoing[tag]
        if outgoing.copies >= COPIES_MAX:
            reason = f"no answer of the hub to {outgoing.copies} SMS"
            rest = 0.0 if outgoing.urgent else self._compute_answer_limit(outgoing)
            await self._release(tag, reason, rest)
        elif not self._can_pay(outgoing.transmission):
            rest = URGENT_DAY_OVER_S if outgoing.urgent else DAY_OVER_S
            await self._release(tag, self._describe_spent_day(), rest)
        elif trio.current_time() < self._rest.compute_end(urgent=outgoing.urgent):
            outgoing.due = self._rest.compute_end(urgent=outgoing.urgent)
        else:
            reason = "the hub has not answered the SMS in time: sending again"
            await self._outbox.settle(outgoing.transmission, Outcome.DOUBTFUL, reason=reason)
            if self._outgoing.get(tag) is outgoing:
                await self._submit(modem, tag)

    async def _acknowledge(self, modem: SmsModem) -> None:
        """Send the hub an SMS that contains nothing but acknowledgements."""
        acknowledgements = tuple(self._due_acks[: sms_frame.ACKNOWLEDGED_MAX])
        text = SmsFrame(self._name, b"", acknowledgements).encode_text(self._key_up)
        await self._seat.budget.spend(1)
        sent = await modem.send(self._make_message(text))
        if sent.outcome is Outcome.NOT_SENT:
            await self._seat.budget.spend(-1)
            self._rest.begin(final=sent.final)
            return
        forget_reference(self._outgoing.values(), sent.reference)
        self._due_acks = [each for each in self._due_acks if each not in acknowledgements]

    async def _wait(self, modem: SmsModem) -> None:
        """Wait until a time or an event after which the carrier must look again for work."""
        now = trio.current_time()
        moments = [self._next_look]
        events: list[Callable[[], Awaitable[None]]] = [
            modem.news.wait,
            self._seat.turn.wait_for_change,
        ]
        if self._has_turn:
            moments += [each.due for each in self._outgoing.values()]
        for is_urgent in (True, False):
            starts_at = self._compute_earliest(urgent=is_urgent)
            if starts_at > now:
                moments.append(starts_at)
            elif is_urgent or self._is_affordable(urgent=False):
                events.append(partial(self._outbox.wait_until_ready, urgent=is_urgent))
        if self._has_turn and self._due_acks:
            moments.append(max(self._rest.until, now + 1.0))
        if not modem.arrived:
            await wait_for_first(max(0.0, min(moments) - now), self._seat.progress, *events)

    async def _read_stored_messages(self, modem: SmsModem) -> None:
        # Some modems do not report the arrival of an SMS.
        check_interval = CHECK_INTERVAL_S if self._seat.turn.linked else modem.look_soon
        self._next_look = trio.current_time() + check_interval
        contents = await modem.read_store()
        for arrival in contents.whole:
            match arrival.message:
                case Deliver() as message:
                    await self._process_message(message)
                case StatusReport() as report if self._settings.is_hub(report.number):
                    apply_report(self._outgoing.values(), report)
            for place in arrival.places:
                await modem.delete(place)
        await self._read_again(modem, contents.unreadable)
        waiting = {each.name: each for each in contents.waiting}
        for given_up in self._parts.list_expired(contents, trio.current_time()):
            await self._delete_given_up(modem, given_up)
            del waiting[given_up.parts.name]
        for each in list(waiting.values()):
            if not self._settings.can_come_from(each.number):
                self._count_refused_sender(each.number)
                await self._delete_given_up(modem, GivenUpParts(each, ""))
                del waiting[each.name]
        await modem.read_state()
        if modem.crowded and waiting:
            await self._delete_given_up(modem, self._parts.find_oldest(list(waiting.values())))
            modem.arrived = True

    async def _read_again(self, modem: SmsModem, unreadable: Sequence[StoredMessage]) -> None:
        """Read unreadable messages again, the first time immediately. The line may have noise, and
        the modem has the only copy. After `READ_ATTEMPTS_MAX` attempts, store the message unchanged
        and delete it from the modem.
        """
        before = self._garbled
        self._garbled = {each.place: before.get(each.place, 0) + 1 for each in unreadable}
        for each in unreadable:
            looks = self._garbled[each.place]
            modem.arrived = modem.arrived or looks == 1
            self._next_look = min(self._next_look, trio.current_time() + modem.look_soon)
            if looks == READ_ATTEMPTS_MAX:
                damage = f"an SMS cannot be read: {each.fault}"
                await self._seat.reception.receive(each.text.encode(), damage=damage)
            if looks >= READ_ATTEMPTS_MAX:
                await modem.delete(each.place)

    async def _delete_given_up(self, modem: SmsModem, given_up: GivenUpParts) -> None:
        if given_up.reason:
            log.warning("%s", given_up.reason)
        for place in given_up.parts.places:
            await modem.delete(place)

    def _count_refused_sender(self, number: str) -> None:
        self._refused_count += 1
        log.warning("an SMS of %s is deleted: see sms-allow", number)

    async def _process_message(self, message: Deliver) -> None:
        if not self._settings.can_come_from(message.number):
            self._count_refused_sender(message.number)
            return
        text = _read_text(message.content)
        try:
            frame = sms_frame.parse_frame(text)
            if frame.name != self._name or not frame.is_tagged_by(self._key_down):
                raise RemoteProtocolError(
                    "its tag is not from the hub: does this kit have a new hub-token?"
                )
        except RemoteProtocolError as error:
            damage = f"an SMS from {message.number} is not from the hub: {error}"
            await self._seat.reception.receive(text.encode(), damage=damage)
            return
        for tag in frame.acknowledged:
            outgoing = self._outgoing.pop(tag, None)
            if outgoing is not None:
                await self._outbox.settle(outgoing.transmission, Outcome.SENT)
        if frame.envelope:
            await self._seat.reception.receive(frame.envelope)
            if frame.tag not in self._due_acks and not self._seat.turn.linked:
                self._due_acks.append(frame.tag)

    def show_absence(self, error: BaseException) -> None:
        """Show on the link why the carrier cannot send SMS. Log the reason if it is new. The state
        is FAULT if the modem refuses to work, otherwise ABSENT.
        """
        link = self._seat.link
        state = LinkState.FAULT if isinstance(error, GsmRefuses) else LinkState.ABSENT
        if (link.state, link.reason) != (state, str(error)):
            log.warning("no SMS can be sent: %s; trying again", error)
        link.state, link.reason = state, str(error)
        link.record_signal(None)
        self._show()

    def _describe_spent_day(self) -> str:
        return f"the {self._settings.per_day} SMS of today are sent (sms-per-day)"

    def _show(self) -> None:
        link, facts = self._seat.link, self._seat.cellular.facts
        self._seat.cellular.record_signal(link.signal)
        spent_text = "" if self._is_affordable(urgent=False) else self._describe_spent_day()
        reason = spent_text or link.reason
        facts["sms"] = f"{link.state.value}{': ' if reason else ''}{reason}"
        facts["smsToday"] = self._seat.budget.compute_spent()
        facts["smsUnderWay"] = len(self._outgoing)
        facts["smsStrangers"] = self._refused_count
        for name in ("smsModem", "smsStore", "healing"):
            if name in link.facts:
                shown_name = "smsHealing" if name == "healing" else name
                facts[shown_name] = link.facts[name]
        if link.signal is not None:
            facts["smsSignal"] = link.signal
        else:
            facts.pop("smsSignal", None)


def _read_text(content: Content) -> str:
    """Return the text of a message, or an empty text if it contains binary data."""
    return "" if content.coding is Coding.DATA else content.text
