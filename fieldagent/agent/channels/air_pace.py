"""Timing on a shared radio channel: when to transmit, how long to wait for an answer, when to
retry. Pure: `now` (always of the same clock) and `share` (a random number from 0 to 1) are
parameters.

If all stations answered a packet at once, their answers would collide. So each station waits a
random time, which grows with the number of stations. While one station sends a round of fragments,
the others stay silent.
"""

from __future__ import annotations

from dataclasses import field
from math import exp, inf, log

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

AIR_BYTES = 200
"""Default size of a packet in bytes; each radio of a group must be able to send packets of this
size."""
AIR_BYTES_MIN, AIR_BYTES_MAX = 50, 250
"""Range of the packet size in the settings, between the limits of LoRaWAN's slowest rate (51) and
of the buffer in LoRa chips (255)."""
WINDOW = 4
"""Maximum number of packets that wait for an answer at the same time. An urgent packet may exceed
this number."""
ROUND_FRAGMENTS_MAX = 20
"""Maximum number of fragments of one item that are transmitted before the sender waits for an
answer."""
ANSWER_TIMEOUT_S = 3.0
"""Seconds to wait for an answer, in addition to the time on air of the waiting packets and of the
answer."""
ACK_WITHIN, ACK_EACH, ACK_MOST = 2.0, 1.0, 20.0
"""Seconds within which one station confirms an item that is not an SOS: the minimum, the addition
for each station beyond `CROWD_STATIONS`, and the maximum. In a dense network the wait is long,
because the confirmation can be part of a packet that a station sends anyway."""
PAUSE_MAX_S = 1.0
"""Longest random quiet time before a packet, in seconds."""
CROWD_STATIONS = 10
"""Number of stations in range from which the full `PAUSE_MAX_S` is used. If there are fewer
stations, the pause is shorter."""
ANSWERING_STATIONS = 3
"""Number of stations in a dense network that send an answer if every station could send it. One
station is not enough, because some stations would not hear it."""
PAUSE_AIR_TIME_SHARE = 0.25
"""Longest pause on a slow channel, as a share of a packet's time on air."""
AGAIN_FIRST, AGAIN_MAX, URGENT_AGAIN_MAX = 3.0, 600.0, 60.0
"""Seconds until a packet is retried: the first wait, which doubles, the longest wait, and the
longest wait for an SOS."""
PRESENT_S = 60.0
"""Seconds after a neighbour's last packet for which the neighbour is considered present."""
UNANSWERED_ROUNDS_MAX = 16
"""Number of unanswered rounds after which we assume that the stations in range do not hear us."""
FRAGMENT_SPACING_S = 0.5
"""Assumed seconds between two fragments of a round, until the real interval has been measured."""
ANSWER_WAIT_MIN_S = 0.25
"""Shortest wait for an answer, in seconds."""
MEAN_SHARE, STRAY_SHARE, DEVIATION_WEIGHTS = 1 / 8, 1 / 4, 4.0
"""Weight of one answer time in the mean and in the deviation, and the number of deviations that are
added to the mean (RFC 6298, 2.3)."""


def draw_backoff(share: float, maximum: float, crowd: int) -> float:
    """Return a random delay, up to `maximum` seconds, before an answer that any of `crowd` stations
    could send. If there are many stations, most delays are long, so that usually one station begins
    and the others hear it (RFC 5401, RandomBackoff).
    """
    steep = log(max(1, crowd)) + 1
    return maximum / steep * log(share * (exp(steep) - 1) + 1)


def compute_ack_wait(crowd: int) -> float:
    """Return the longest wait in seconds until a station confirms an item that is not an SOS.
    `crowd` is the number of stations in range.
    """
    return min(ACK_MOST, ACK_WITHIN + ACK_EACH * max(0, crowd - CROWD_STATIONS))


def scale_share(share: float, crowd: int) -> float:
    """Scale the random number `share` (0 to 1) by the number of stations in range (`crowd`). A kit
    whose result is below 1 answers; other kits stay silent. If at most `CROWD_STATIONS` are in
    range, all stations answer, otherwise about `ANSWERING_STATIONS`.
    """
    return share * max(1.0, (crowd - CROWD_STATIONS + ANSWERING_STATIONS) / ANSWERING_STATIONS)


def compute_lone_wait(share: float, crowd: int) -> float:
    """Return the seconds until this kit confirms, in a packet of its own, an item that is not an
    SOS. Return inf if this kit stays silent, because other stations answer.

    In a dense network, the delay is in the second half of `compute_ack_wait`, because usually an
    earlier packet of another station contains the confirmation. Some stations may miss that packet,
    so this kit still confirms.
    """
    share, longest_wait = scale_share(share, crowd), compute_ack_wait(crowd)
    if share >= 1:
        return inf
    if crowd <= CROWD_STATIONS:
        return draw_backoff(share, longest_wait, crowd)
    return longest_wait / 2 + draw_backoff(share, longest_wait / 2, ANSWERING_STATIONS)


class AirTurn(NamedTuple):
    """Facts about a received packet that show which station transmits next."""

    more_fragments: int = 0
    """Number of fragments that the sender may send directly after this packet."""
    stations_in_range: int = 1
    """Number of stations in range of this kit."""
    is_from_known_station: bool = False
    """True if a known station transmitted the packet."""


@dataclass(slots=True)
class AirPace:
    slowest_air_time: float = 0.0
    """Time on air of the slowest recent packet, in seconds."""
    packets_without_result: int = 0
    """Number of consecutive packets for which the radio reported no result."""
    _last_turn: AirTurn = field(default_factory=AirTurn)
    """Facts from the last received packet: further fragments, and stations in range."""
    _heard_at: float = -inf
    _met_at: float = -inf
    """Time when a known station was last heard."""
    _missed: bool = False
    """True if a packet was not answered since `read_retry_request` was last called."""
    _missed_answers: int = 0
    """Number of missed answers since the last answer, counted every few seconds, while a known
    station was present."""
    _missed_at: float = -inf
    _spacing: float = FRAGMENT_SPACING_S
    _answered_at: float = -inf
    _mean: float = 0.0
    """Mean seconds until a round is answered. 0 if unknown."""
    _stray: float = 0.0

    def record_packet(self, turn: AirTurn, now: float) -> None:
        """Record that a packet was heard at `now`. The packet's `turn` shows which station
        transmits next. The time between two fragments of one round is measured.
        """
        since = now - self._heard_at
        if turn.more_fragments and self._last_turn.more_fragments and since < ANSWER_TIMEOUT_S:
            # Fragments between these two may have been lost, so increase the interval only slowly.
            self._spacing = min(since, self._spacing * 1.2)
        self._last_turn, self._heard_at = turn, now
        if turn.is_from_known_station:
            if now - self._met_at > PRESENT_S:
                self._missed_answers = 0
            self._met_at = now

    def record_missed_answer(self, now: float) -> None:
        """Record that no station answered a packet in time. While a known station is present, count
        this at most once every AGAIN_FIRST seconds.
        """
        self._missed = True
        if now - self._met_at < PRESENT_S and now - self._missed_at >= AGAIN_FIRST:
            self._missed_answers, self._missed_at = self._missed_answers + 1, now

    def read_retry_request(self) -> bool:
        """Return True if a packet was not answered since the last call, so that it may be retried
        now. The caller has just heard a station. Return False after `UNANSWERED_ROUNDS_MAX` missed
        answers, because the stations seem not to hear us.
        """
        may_retry = self._missed and self._missed_answers < UNANSWERED_ROUNDS_MAX
        self._missed = False
        return may_retry

    def record_transmission(self, seconds: float) -> None:
        """Record that our packet took `seconds` on the air. This ends the turn of the station that
        was heard last.
        """
        self.slowest_air_time = max(seconds, self.slowest_air_time * 0.8)
        self._last_turn = AirTurn(stations_in_range=self._last_turn.stations_in_range)

    def record_answer(self, now: float, seconds: float, *, part: bool) -> None:
        """Record that a packet was answered after `seconds`. For a fragment (`part`), the seconds
        count from the end of its round.
        """
        self._answered_at, self._missed_answers = now, 0
        if not self._mean:
            self._mean, self._stray = seconds, seconds / 2
        if not part:
            return
        self._stray += STRAY_SHARE * (abs(seconds - self._mean) - self._stray)
        self._mean += MEAN_SHARE * (seconds - self._mean)

    def compute_pause(self, share: float) -> float:
        """Return the seconds to stay silent before our next packet. The time is long enough for the
        further fragments of the station that was heard last.
        """
        longest = max(PAUSE_MAX_S, self.slowest_air_time * PAUSE_AIR_TIME_SHARE) * min(
            1.0, max(1, self._last_turn.stations_in_range) / CROWD_STATIONS
        )
        held_time = self._last_turn.more_fragments * self._spacing
        return held_time + (0.1 + 0.9 * share) * longest

    def compute_answer_wait(self, tries: int, *, part: bool, urgent: bool = False) -> float:
        """Return the seconds to wait for an answer. The wait is shorter for urgent packets and for
        fragments, because they are answered at once.
        """
        longest = ANSWER_TIMEOUT_S + self.slowest_air_time * (WINDOW + 2)
        if not (part or urgent):
            longest += compute_ack_wait(self._last_turn.stations_in_range) - ACK_WITHIN
        if not part or not self._mean or tries >= UNANSWERED_ROUNDS_MAX:
            return longest
        return min(longest, max(ANSWER_WAIT_MIN_S, self._mean + DEVIATION_WEIGHTS * self._stray))

    def compute_retry_wait(
        self, tries: int, now: float, share: float, *, urgent: bool, part: bool
    ) -> float:
        """Return the seconds until an unanswered packet is retried after `tries` attempts. A
        fragment (`part`) is retried at once in the first `UNANSWERED_ROUNDS_MAX` attempts, if a
        station was heard in the last PRESENT_S seconds.
        """
        since = self._answered_at
        if part and now - self._heard_at < PRESENT_S:
            if tries < UNANSWERED_ROUNDS_MAX:
                return 0.0
            tries -= UNANSWERED_ROUNDS_MAX
        elif self._missed_answers < UNANSWERED_ROUNDS_MAX:
            since = max(since, self._met_at)
        longest = URGENT_AGAIN_MAX if urgent else AGAIN_MAX
        # Stations that were heard recently are probably still in range. So limit the wait to half
        # the time since then, but not below 6 s.
        silence = max(2 * AGAIN_FIRST, (now - since) / 2)
        return (0.5 + 0.5 * share) * min(longest, AGAIN_FIRST * 2.0 ** min(tries, 10), silence)
