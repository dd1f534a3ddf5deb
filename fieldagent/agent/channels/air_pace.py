"""When to speak on an air that others share, how long to wait for an answer, and when to go again.
Pure: `now` is of any one clock, `share` of chance from 0 to 1.

Everybody who heard the same would answer at the same moment, so each waits a random while; the more
there are, the longer. While one sends a round of fragments the others keep quiet.
"""

from __future__ import annotations

from dataclasses import field
from math import exp, inf, log

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

WINDOW = 4
"""Packets that wait to be answered; what is urgent may join them."""
ROUND = 20
"""Fragments of one item that follow each other, before their answer is waited for."""
PATIENCE = 3.0
"""Seconds for an answer, beside the time on air of what is under way and of the answer."""
ACK_WITHIN, ACK_EACH, ACK_MOST = 2.0, 1.0, 20.0
"""Seconds in which one of a crowd says that what is no SOS has come: at the least, for each station
beyond `CROWD`, and at the most. Where many speak, it rides in what one of them sends anyway."""
PAUSE = 1.0
"""Seconds, at random up to this, of quiet before a packet."""
CROWD = 10
"""Stations in earshot from which on the pause is all of that; fewer need less of it."""
ON_CALL = 3
"""About so many of a crowd say, or repeat, what any of them could: of all who could, some would not
hear that another did."""
SLOWER = 0.25
"""The pause on a slow air, as a share of what a packet takes there."""
AGAIN_FIRST, AGAIN_MAX, URGENT_AGAIN_MAX = 3.0, 600.0, 60.0
"""Seconds after which a packet goes again: the first, which doubles, up to the last; an SOS does
not wait for longer than a minute."""
LATELY = 60.0
"""Seconds since a packet was heard for which somebody counts as there."""
PRODS = 16
"""Rounds in vain after which who is there counts as not hearing us."""
SPACING = 0.5
"""Seconds between two fragments of a round, before any two were heard."""
LEAST = 0.25
"""Seconds to wait for an answer at the least."""
MEAN_SHARE, STRAY_SHARE, STRAYS = 1 / 8, 1 / 4, 4.0
"""What one answer counts for, and how many times as far as usual it may stray (RFC 6298, 2.3)."""


def backoff(share: float, most: float, crowd: int) -> float:
    """Return the seconds at random, up to `most`, until one of a crowd says what any of them could:
    early with few, late with most, so that about one begins and the others hear it (RFC 5401,
    RandomBackoff)."""
    steep = log(max(1, crowd)) + 1
    return most / steep * log(share * (exp(steep) - 1) + 1)


def ack_within(crowd: int) -> float:
    """Return the seconds in which one of a crowd says that what is no SOS has come."""
    return min(ACK_MOST, ACK_WITHIN + ACK_EACH * max(0, crowd - CROWD))


def drawn(share: float, crowd: int) -> float:
    """Return a share from 0 to 1 where this kit is one of those that speak for all, else more: up
    to `CROWD` all do, of more about `ON_CALL`."""
    return share * max(1.0, (crowd - CROWD + ON_CALL) / ON_CALL)


def alone_after(share: float, crowd: int) -> float:
    """Return the seconds until one of those in earshot says by itself that what is no SOS has come.
    In a crowd that is the second half of the time, as it mostly rides in what somebody sends
    before, and what many hear some hear not: inf where this kit is none of those who speak for
    all."""
    share, most = drawn(share, crowd), ack_within(crowd)
    if share >= 1:
        return inf
    if crowd <= CROWD:
        return backoff(share, most, crowd)
    return most / 2 + backoff(share, most / 2, ON_CALL)


class AirTurn(NamedTuple):
    """What a packet says of whose turn it is."""

    follows: int = 0
    """Fragments that its sender may add at once."""
    crowd: int = 1
    """Stations in earshot."""
    known: bool = False
    """It is a station's of ours."""


@dataclass(slots=True)
class AirPace:
    on_air: float = 0.0
    """Seconds that the slowest of the last packets took."""
    mute: int = 0
    """Packets in a row of which the radio did not say what became."""
    _turn: AirTurn = field(default_factory=AirTurn)
    """What the last packet said."""
    _heard_at: float = -inf
    _met_at: float = -inf
    """When a station of ours was heard last."""
    _missed: bool = False
    """Something was not answered since what waits was hastened."""
    _vain: int = 0
    """Misses since the last answer, a few seconds apart, though somebody was heard."""
    _vain_at: float = -inf
    _spacing: float = SPACING
    _answered_at: float = -inf
    _mean: float = 0.0
    """Seconds until a round is answered; 0 is not known."""
    _stray: float = 0.0

    def note_heard(self, turn: AirTurn, now: float) -> None:
        """Note that a packet was heard at `now`: it sets whose turn it is, and from fragments of a
        round that follow each other learns the seconds between them."""
        since = now - self._heard_at
        if turn.follows and self._turn.follows and since < PATIENCE:
            # Of those in between some may be lost.
            self._spacing = min(since, self._spacing * 1.2)
        self._turn, self._heard_at = turn, now
        if turn.known:
            if now - self._met_at > LATELY:
                self._vain = 0
            self._met_at = now

    def note_missed(self, now: float) -> None:
        """Note that nobody answered in time."""
        self._missed = True
        if now - self._met_at < LATELY and now - self._vain_at >= AGAIN_FIRST:
            self._vain, self._vain_at = self._vain + 1, now

    def take_hastening(self) -> bool:
        """Return whether what waits for its next try may go at once, as somebody is heard again.
        Not towards who hears nothing of us, time after time."""
        hastens = self._missed and self._vain < PRODS
        self._missed = False
        return hastens

    def note_transmitted(self, seconds: float) -> None:
        """Note how many seconds a packet took on the air; the next waits for a turn of its own."""
        self.on_air = max(seconds, self.on_air * 0.8)
        self._turn = AirTurn(crowd=self._turn.crowd)

    def note_answered(self, now: float, seconds: float, *, part: bool) -> None:
        """Note that an answer took so long; of a round of fragments (`part`), since all of it had
        left."""
        self._answered_at, self._vain = now, 0
        if not self._mean:
            self._mean, self._stray = seconds, seconds / 2
        if not part:
            return
        self._stray += STRAY_SHARE * (abs(seconds - self._mean) - self._stray)
        self._mean += MEAN_SHARE * (seconds - self._mean)

    def pause(self, share: float) -> float:
        """Return the seconds of quiet before a packet of ours."""
        longest = max(PAUSE, self.on_air * SLOWER) * min(1.0, max(1, self._turn.crowd) / CROWD)
        held = self._turn.follows * self._spacing
        return held + (0.1 + 0.9 * share) * longest

    def patience(self, tries: int, *, part: bool, urgent: bool = False) -> float:
        """Return the seconds to wait for an answer; what is `urgent`, and a fragment, is answered
        at once."""
        longest = PATIENCE + self.on_air * (WINDOW + 2)
        if not (part or urgent):
            longest += ack_within(self._turn.crowd) - ACK_WITHIN
        if not part or not self._mean or tries >= PRODS:
            return longest
        return min(longest, max(LEAST, self._mean + STRAYS * self._stray))

    def again(self, tries: int, now: float, share: float, *, urgent: bool, part: bool) -> float:
        """Return the seconds until what nobody answered goes again."""
        since = self._answered_at
        if part and now - self._heard_at < LATELY:
            if tries < PRODS:
                return 0.0
            tries -= PRODS
        elif self._vain < PRODS:
            since = max(since, self._met_at)
        longest = URGENT_AGAIN_MAX if urgent else AGAIN_MAX
        # Towards who answered or was heard lately it does not double, but grows with the silence.
        silence = max(2 * AGAIN_FIRST, (now - since) / 2)
        return (0.5 + 0.5 * share) * min(longest, AGAIN_FIRST * 2.0 ** min(tries, 10), silence)
