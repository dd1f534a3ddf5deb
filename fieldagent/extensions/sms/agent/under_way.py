"""Frames that the hub has not acknowledged, the network's reports about them, and the pauses after
failures.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import field
from math import inf

import trio

from fieldagent.agent.channels.contract import Transmission
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.sms_pdu import ReportState, StatusReport

log = logging.getLogger(__name__)

REST_FIRST, REST_MAX, REST_URGENT = 30.0, 900.0, 30.0
"""Seconds of pause after the modem did not accept a message. The first pause doubles with each
failure, up to the longest pause. The third value is the pause of an SOS."""
REFUSED_PAUSE_S = 3_600.0
"""Seconds of pause if the network refuses permanently, because a subscription or a number is
wrong."""
REPORT_FAILED_S = 60.0
"""Seconds after which a message that the network failed to deliver is sent again."""


@dataclass(slots=True)
class SentFrame:
    """One frame that the hub has not acknowledged."""

    transmission: Transmission
    text: str
    copies: int = 0
    due: float = -inf
    """Time of the next attempt on trio's clock."""
    references: dict[int, int] = field(default_factory=dict)
    """Copies without a final report: the number of each copy, by the reference in the network's
    reports."""

    @property
    def urgent(self) -> bool:
        """Return True if the frame contains a part of an SOS."""
        return self.transmission.urgent


@dataclass(slots=True)
class SendPause:
    """Pause after the modem or the network did not accept a message."""

    until: float = -inf
    urgent_until: float = -inf
    tries: int = 0

    def begin(self, *, final: bool) -> None:
        """Begin a pause that is twice as long as the last pause. `final` is True if the refusal is
        permanent.
        """
        now = trio.current_time()
        pause = min(REST_MAX, REST_FIRST * 2 ** min(self.tries, 10))
        self.tries += 1
        self.until = now + (REFUSED_PAUSE_S if final else pause)
        self.urgent_until = now + REST_URGENT

    def end_pause(self) -> None:
        """End the pause. Called when a message was accepted."""
        self.tries, self.until, self.urgent_until = 0, -inf, -inf

    def compute_end(self, *, urgent: bool) -> float:
        """Return the time on trio's clock when a message may be tried again. An SOS may be tried
        earlier.
        """
        return self.urgent_until if urgent else self.until


def forget_reference(frames: Iterable[SentFrame], reference: int | None) -> None:
    """Remove a reference from all frames. Called when the network has given the reference to
    another SMS.
    """
    if reference is not None:
        for each in frames:
            each.references.pop(reference, None)


def apply_report(frames: Iterable[SentFrame], report: StatusReport) -> None:
    """Process a status report, which shows that the SMS reached the hub's telephone or failed
    permanently. An SMS that reached the telephone may not have reached the hub yet.

    Each copy has one report. A second report about a copy, or a report about a frame that is
    already settled, has no effect. After a failure, the frame is sent again unless a later copy is
    on its way.
    """
    if report.state is ReportState.TRYING:
        return
    for each in frames:
        copy = each.references.pop(report.reference, None)
        if copy is None:
            continue
        if report.state is ReportState.DELIVERED:
            log.info("the hub's telephone has an SMS; the hub has not confirmed it yet")
        elif report.state is ReportState.FAILED and copy < each.copies:
            log.info("a repeated SMS was not delivered (status %02X)", report.status)
        elif report.state is ReportState.FAILED:
            log.warning("the network failed to deliver an SMS (status %02X)", report.status)
            each.due = min(each.due, trio.current_time() + REPORT_FAILED_S)
