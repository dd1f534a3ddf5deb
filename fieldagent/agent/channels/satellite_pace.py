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
from fieldagent.wire.sbd_status import MoStatus, retry_after

FRUITLESS_FIRST, FRUITLESS_MAX = 300.0, 6 * 3600.0
"""Seconds after a check that brought nothing: the first, which doubles, up to the last."""
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
    away: bool = False
    """The modem saw no network at some time since the last session."""

    def failed(self, status: MoStatus, now: float, chance: float) -> None:
        """`chance` is from 0 to 1, so that many kits don't call at one moment."""
        self.until = now + retry_after(status, self.failures, chance, urgent=False)
        self.urgent_until = now + retry_after(status, self.failures, chance, urgent=True)
        self.failures += 1
        self.away = False

    def succeeded(self) -> None:
        self.failures, self.until, self.urgent_until = 0, -inf, -inf

    def ends(self, service: bool | None) -> float:
        """When all may be tried again. A network that is back is news: nothing waits longer for it
        than an SOS would."""
        self.away = self.away or service is False
        return self.urgent_until if self.away and service else self.until


@dataclass(slots=True)
class GatewayMailbox:
    """What waits for us at the gateway, as far as we know."""

    queued: int = 0
    fruitless: int = 0
    """Checks in a row that brought nothing although something waits."""
    until: float = -inf
    withheld: bool = False
    """The modem holds a message and does not give it: another would take its place."""
    begun: tuple[str, int] | None = None
    """IMEI and MOMSN of the modem before a check whose end nobody has seen."""

    def checked(self, result: SessionResult, now: float, chance: float) -> None:
        """A session reached the gateway."""
        brought = result.mt_status == 1 and result.mt_length > 0
        blocked = result.mo_status == TOO_LARGE
        self.queued = result.queued
        if brought or not (blocked or result.queued):
            self.fruitless, self.until = 0, -inf
            return
        self.rest(now, chance, FRUITLESS_MAX if blocked else 0.0)

    def rest(self, now: float, chance: float, least: float = 0.0) -> None:
        """A check brought nothing."""
        wait = max(least, min(FRUITLESS_MAX, FRUITLESS_FIRST * 2 ** min(self.fruitless, 10)))
        self.until = now + wait * (1 + 0.1 * chance)
        self.fruitless += 1

    def in_words(self) -> str:
        if self.withheld:
            return WITHHELD
        if not self.fruitless:
            return ""
        return (
            f"{counted(max(1, self.queued), 'message')} at the gateway did not come when asked for"
            f" ({self.fruitless} times); asked for more seldom"
        )
