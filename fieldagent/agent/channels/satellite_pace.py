"""Decides when the satellite link may be tried again. Pure: the time and the random number are
parameters.

A session fails because of the link, not because of the Package. So the link has one pause for all
Packages, and a successful session ends it. A mailbox check costs a credit. If messages wait at the
gateway but a check fetches none, the wait before the next check becomes longer.
"""

from __future__ import annotations

from math import inf

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.wording import format_count
from fieldagent.wire.sbd import (
    URGENT_WAIT_MAX_S,
    MoStatus,
    SessionResult,
    compute_early_retry_wait,
    compute_retry_wait,
)

FRUITLESS_FIRST, FRUITLESS_MAX = 300.0, 6 * 3600.0
"""Seconds to wait after a check that fetched no message: the first wait, which doubles, and the
longest wait."""
REQUESTED_WAIT_MAX_S = 3600.0
"""Longest wait in seconds that is accepted from the network, because a damaged number could request
a whole day."""
WITHHELD_REASON = (
    "the modem holds a message and does not hand it over; no other can be fetched before it"
)
TOO_LARGE = 1
"""MO status: the first message of the queue is too large for this modem, and blocks the queue."""


@dataclass(slots=True)
class LinkRest:
    failures: int = 0
    """Number of consecutive sessions that failed."""
    until: float = -inf
    urgent_until: float = -inf
    """Time until which an SOS waits. It is usually earlier than `until`, but not before the network
    or the account allows a session."""
    earliest_retry: float = -inf
    """Earliest time of the next attempt if the network becomes available during the pause, or if a
    person requests an attempt."""
    was_without_network: bool = False
    """True if the modem was without a network at any time since the last session."""

    def start_after_failure(self, status: MoStatus, now: float, random_share: float) -> None:
        """Start a pause after a session that failed with this status. `random_share` is a random
        number from 0 to 1, which spreads the calls of many kits.
        """
        self.until = now + compute_retry_wait(status, self.failures, random_share, urgent=False)
        self.urgent_until = now + compute_retry_wait(
            status, self.failures, random_share, urgent=True
        )
        self.earliest_retry = now + compute_early_retry_wait(status, random_share)
        self.failures += 1
        self.was_without_network = False

    def start_until_traffic(self, seconds: float, now: float, random_share: float) -> None:
        """Pause for the `seconds` until the network accepts sessions again. An SOS waits no longer
        than its usual maximum.
        """
        seconds = min(seconds, REQUESTED_WAIT_MAX_S) * (1 + 0.1 * random_share)
        self.until = now + seconds
        self.urgent_until = self.earliest_retry = now + min(seconds, URGENT_WAIT_MAX_S)

    def end_after_success(self) -> None:
        """Record a successful session, which ends every pause."""
        self.failures, self.until, self.urgent_until, self.earliest_retry = 0, -inf, -inf, -inf

    def end(self) -> None:
        """End the pause, unless the network requested it, because a person has requested another
        attempt.
        """
        self.until = self.urgent_until = self.earliest_retry

    def compute_end(self, service: bool | None, *, urgent: bool = False) -> float:
        """Return the time from which every Package may be tried again or, if `urgent`, an SOS. If
        the network is available again (`service`), only a pause that the network requested
        continues.
        """
        self.was_without_network = self.was_without_network or service is False
        until = self.urgent_until if urgent else self.until
        return min(until, self.earliest_retry) if self.was_without_network and service else until


@dataclass(slots=True)
class GatewayMailbox:
    """State of our mailbox at the gateway, as far as it is known."""

    queued: int = 0
    fruitless_checks: int = 0
    """Number of consecutive checks that fetched no message although messages wait."""
    until: float = -inf
    withheld: bool = False
    """True if the modem contains a message but does not return it. Then no check is made, because
    another message would overwrite it."""
    uncleared_message: bytes = b""
    """The last message that was stored and booked, kept until the modem confirms that it has
    cleared the message. If the same message is read again, it is not booked again. A restart loses
    this value, so a message may then be booked twice."""
    begun_check: tuple[str, int] | None = None
    """IMEI and MOMSN of the modem before a mailbox check whose result is unknown."""

    def record_check(self, result: SessionResult, now: float, random_share: float) -> None:
        """Record that a session reached the gateway. Start a pause if messages wait but none
        arrived, or if a message that is too large for the modem blocks the queue.
        """
        has_message = result.mt_status == 1 and result.mt_length > 0
        blocked = result.mo_status == TOO_LARGE
        self.queued = result.queued
        if has_message or not (blocked or result.queued):
            self.fruitless_checks, self.until = 0, -inf
            return
        self.rest(now, random_share, FRUITLESS_MAX if blocked else 0.0)

    def rest(self, now: float, random_share: float, minimum: float = 0.0) -> None:
        """Pause after a check that fetched no message, for at least `minimum` seconds."""
        wait = max(
            minimum, min(FRUITLESS_MAX, FRUITLESS_FIRST * 2 ** min(self.fruitless_checks, 10))
        )
        self.until = now + wait * (1 + 0.1 * random_share)
        self.fruitless_checks += 1

    def describe_wait(self) -> str:
        """Return the reason, for people, why messages at the gateway do not arrive, or '' if there
        is no obstacle.
        """
        if self.withheld:
            return WITHHELD_REASON
        if not self.fruitless_checks:
            return ""
        return (
            f"{format_count(max(1, self.queued), 'message')} at the gateway did not arrive when"
            f" requested ({self.fruitless_checks} times); trying less often"
        )
