"""Describes why a Package waits on a channel, and when its next attempt is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import trio

from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.journal import history
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.budget import format_utc_day
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.head_start import CHEAPER_FIRST_REASON, GATHERING_REASON
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.delivery import ChannelDelivery, encode_deliveries
from fieldagent.package.package import Channel
from fieldagent.system.lazy_named_tuple import NamedTuple

NO_CHANNEL = (
    "no channel is configured: set satellite-port, radio-port or hub-address and restart the agent"
)
_AWAY_REASONS = {
    LinkState.STARTING: "the channel is starting",
    LinkState.ABSENT: "the modem is away",
    LinkState.NO_SERVICE: "no signal",
    LinkState.FAULT: "the channel refuses to work",
}


class _Hindrance(NamedTuple):
    """Obstacle that stops all Packages of a channel. The reason is empty if there is no
    obstacle.
    """

    reason: str
    next_try: float | None
    """Time of the next attempt; trio's clock."""
    next_urgent: float | None
    """Time of the next attempt for an SOS; trio's clock."""
    is_away: bool
    """True if the link is down, so that no Package can leave."""
    has_end_time: bool = False
    """True if the reason contains the time when it ends."""


class WaitReasons:
    """Finds the reasons why several Packages wait. Each channel's obstacle is determined only once.

    `now` is the journal's elapsed time; results contain Unix times.
    """

    def __init__(
        self,
        journal: Journal,
        queues: Mapping[Channel, ChannelQueue],
        outboxes: Mapping[Channel, ChannelOutbox],
        now: float,
    ) -> None:
        self._journal = journal
        self._queues = queues
        self._now = journal.clock.date(now)
        self._date = journal.clock.date
        self._steady = trio.current_time()
        self._hindrances = {name: self._find_hindrance(box) for name, box in outboxes.items()}
        self._foremost = {name: queue.find_foremost(self._steady) for name, queue in queues.items()}

    def describe_deliveries(
        self, sequence: int, deliveries: Mapping[Channel, ChannelDelivery]
    ) -> dict[str, dict[str, Any]]:
        """Return the channel deliveries in the form of `delivery.encode_deliveries`. Deliveries
        that wait also have a reason and the time of the next attempt.
        """
        document: dict[str, dict[str, Any]] = {**encode_deliveries(deliveries)}
        for channel, delivery in deliveries.items():
            if delivery.status is None and channel not in self._hindrances:
                # The channel was removed from the settings while this Package waited, so no link
                # can report a reason.
                document[channel] = {**document[channel], "reason": _GONE_REASON}
            elif delivery.status is None:
                reason, at = self._describe_wait(channel, sequence)
                unix = None if at is None else self._convert_to_unix(at)
                hindrance = self._hindrances[channel]
                told_already = hindrance.has_end_time and reason == hindrance.reason
                needs_no_reason = unix is None or told_already
                reason_text = (
                    reason
                    if needs_no_reason
                    else f"{reason}; next try {self._format_clock(unix or 0.0)}"
                )
                document[channel] = {"status": None, "reason": reason_text, "nextTry": unix}
        return document

    def compute_next_try(self, channel: Channel, sequence: int) -> float:
        """Return the Unix time of the next attempt on `channel`."""
        _, at = self._describe_wait(channel, sequence)
        return self._now if at is None else self._convert_to_unix(at)

    def _describe_wait(self, channel: Channel, sequence: int) -> tuple[str, float | None]:
        """Return the reason for the wait, and the time of the next attempt on trio's clock. The
        time is None if it is unknown.
        """
        queue, hindrance = self._queues[channel], self._hindrances[channel]
        if sequence not in queue:
            return "the agent resumes waiting items after its start", None
        # A Package of an unsettled intent counts as in flight, although the agent does not know
        # whether it left. If the link is down or pauses, show that instead.
        rests = hindrance.is_away or hindrance.reason == _RESTING_REASON
        if sequence in queue.get_in_flight() and not rests:
            return "being sent now", None
        next_try = hindrance.next_urgent if queue.is_urgent(sequence) else hindrance.next_try
        if hindrance.is_away:
            return hindrance.reason, next_try
        if sequence in queue.held:
            return "the hub has ordered this kit to hold this kind of item", None
        moment = queue.compute_due_time(sequence)
        if moment > self._steady:
            failed = history.read_last_failure(self._journal, sequence, channel)
            gathers = sequence in queue.gathering
            return failed or (GATHERING_REASON if gathers else CHEAPER_FIRST_REASON), moment
        if hindrance.reason:
            failed = history.read_last_failure(self._journal, sequence, channel)
            is_rest = hindrance.reason == _RESTING_REASON
            return (is_rest and failed) or hindrance.reason, next_try
        is_next = sequence == self._foremost[channel]
        return "next in the queue" if is_next else "other items are sent first", None

    def _find_hindrance(self, outbox: ChannelOutbox) -> _Hindrance:
        link = outbox.link
        look, next_urgent = (
            at if at > self._steady else None for at in (link.next_look, link.next_urgent)
        )
        if link.state in _AWAY_REASONS:
            reason = link.reason or _AWAY_REASONS[link.state]
            if link.last_success is not None:
                reason += (
                    f", the last success at {self._format_clock(self._date(link.last_success))}"
                )
            # If the link has no time for its next attempt, it is making an attempt now.
            return _Hindrance(
                reason, look or self._steady, next_urgent or self._steady, is_away=True
            )
        if hold_reason := outbox.describe_hold():
            renewal = self._steady + outbox.budget.compute_renewal_wait()
            return _Hindrance(hold_reason, renewal, renewal, is_away=False, has_end_time=True)
        rests = look is not None and link.state is not LinkState.BUSY
        return _Hindrance(_RESTING_REASON if rests else "", look, next_urgent, is_away=False)

    def _convert_to_unix(self, monotonic: float) -> float:
        return round(self._now + max(0.0, monotonic - self._steady), 3)

    def _format_clock(self, unix: float) -> str:
        """Return the time of day as text. If the time is not today, the text includes the date."""
        form = (
            "%H:%M:%S UTC"
            if format_utc_day(unix) == format_utc_day(self._now)
            else "%Y-%m-%d %H:%M UTC"
        )
        return datetime.fromtimestamp(unix, UTC).strftime(form)


_RESTING_REASON = "the last session failed"
_GONE_REASON = (
    "this channel is no longer in the settings: configure it again, or cancel the Package"
)
