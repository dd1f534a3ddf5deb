"""When the satellite link may be tried again. Pure: the moment and chance are given.

A session that fails says something of the link, and not of the Package in it: so there is one rest
for the link, which a success ends. A mailbox check is paid for: one that brings nothing although
something waits at the gateway makes the next one wait, ever longer.
"""

from __future__ import annotations

from math import inf

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.wording import counted
from fieldagent.wire.sbd import SessionResult
from fieldagent.wire.sbd_status import URGENT_WAIT_MAX, MoStatus, retry_after, retry_at_once

FRUITLESS_FIRST, FRUITLESS_MAX = 300.0, 6 * 3600.0
"""Seconds after a check that brought nothing: the first, which doubles, up to the last."""
TRAFFIC_MAX = 3600.0
"""Seconds that are waited at most where the network asks for a wait: a damaged number is no day."""
WITHHELD = "the modem holds a message and does not give it; no other is fetched before"
TOO_LARGE = 1
"""MO status: the message at the head of the queue is too large for this modem, and blocks it."""


@dataclass(slots=True)
class LinkRest:
    failures: int = 0
    """Sessions in a row that did not get through."""
    until: float = -inf
    urgent_until: float = -inf
    """An SOS looks sooner, but not before the network or the account allows it."""
    soonest: float = -inf
    """When all may be tried again where the sky is back."""
    away: bool = False
    """The modem saw no network at some time since the last session."""

    def failed(self, status: MoStatus, now: float, chance: float) -> None:
        """Rest after a session that failed so. `chance` is from 0 to 1, so that many kits don't
        call at one moment."""
        self.until = now + retry_after(status, self.failures, chance, urgent=False)
        self.urgent_until = now + retry_after(status, self.failures, chance, urgent=True)
        self.soonest = now + retry_at_once(status, chance)
        self.failures += 1
        self.away = False

    def until_traffic(self, seconds: float, now: float, chance: float) -> None:
        """Rest until the network takes sessions again, in so many seconds as it tells; an SOS does
        not rest for longer than it ever does."""
        seconds = min(seconds, TRAFFIC_MAX) * (1 + 0.1 * chance)
        self.until = now + seconds
        self.urgent_until = self.soonest = now + min(seconds, URGENT_WAIT_MAX)

    def succeeded(self) -> None:
        """Note that a session did: whatever rest there was ends."""
        self.failures, self.until, self.urgent_until, self.soonest = 0, -inf, -inf, -inf

    def end(self) -> None:
        """End the rest as far as the network allows, as a person who sees the sky asks for another
        try."""
        self.until = self.urgent_until = self.soonest

    def ends(self, service: bool | None, *, urgent: bool = False) -> float:
        """Return when all may be tried again, or an SOS. A network that is back ends every rest,
        but the one that it asks for itself."""
        self.away = self.away or service is False
        until = self.urgent_until if urgent else self.until
        return min(until, self.soonest) if self.away and service else until


@dataclass(slots=True)
class GatewayMailbox:
    """What waits for us at the gateway, as far as we know."""

    queued: int = 0
    fruitless: int = 0
    """Checks in a row that brought nothing although something waits."""
    until: float = -inf
    withheld: bool = False
    """The modem holds a message and does not give it: another would take its place."""
    uncleared: bytes = b""
    """What was stored and booked last, where the modem has not said that it has let go of it: it is
    read again, and costs nothing then. Unknown after a restart, which books it twice at worst."""
    begun: tuple[str, int] | None = None
    """IMEI and MOMSN of the modem before a check whose end nobody has seen."""

    def checked(self, result: SessionResult, now: float, chance: float) -> None:
        """Note that a session reached the gateway; where something still waits and none of it came,
        rest."""
        brought = result.mt_status == 1 and result.mt_length > 0
        blocked = result.mo_status == TOO_LARGE
        self.queued = result.queued
        if brought or not (blocked or result.queued):
            self.fruitless, self.until = 0, -inf
            return
        self.rest(now, chance, FRUITLESS_MAX if blocked else 0.0)

    def rest(self, now: float, chance: float, least: float = 0.0) -> None:
        """Rest after a check that brought nothing, `least` seconds or more."""
        wait = max(least, min(FRUITLESS_MAX, FRUITLESS_FIRST * 2 ** min(self.fruitless, 10)))
        self.until = now + wait * (1 + 0.1 * chance)
        self.fruitless += 1

    def in_words(self) -> str:
        """Return for people why messages at the gateway do not come; empty where nothing holds
        them."""
        if self.withheld:
            return WITHHELD
        if not self.fruitless:
            return ""
        return (
            f"{counted(max(1, self.queued), 'message')} at the gateway did not come when asked for"
            f" ({self.fruitless} times); asked for more seldom"
        )
