"""Meaning of the MO status of +SBDIX, and the time of the next attempt."""

from __future__ import annotations

from enum import Enum

from fieldagent.system.lazy_named_tuple import NamedTuple


class SessionVerdict(Enum):
    SENT = "sent"
    DOUBTFUL = "doubtful"
    """It may have been sent; the next MOMSN shows it."""
    NOT_SENT = "not sent"
    REFUSED = "refused"
    """This message can never be sent."""
    FAULT = "fault"
    """The modem or the account refuses to work."""


class MoStatus(NamedTuple):
    verdict: SessionVerdict
    means: str
    wait: float | None = None
    """Minimum seconds to wait if network or account need more than the usual schedule; None
    otherwise."""
    bars_sos: bool = False
    """True if the wait also applies to an SOS, because the network itself asks for it."""
    network_waits: bool = False
    """True if the modem can report the waiting time (+SBDLOE)."""


OPERATOR_BUSY = 900.0
FAULT_WAIT = 600.0
BARRED_WAIT = 180.0

MO_STATUS: dict[int, MoStatus] = {
    0: MoStatus(SessionVerdict.SENT, "sent"),
    1: MoStatus(SessionVerdict.SENT, "sent; the waiting MT message is too large for this modem"),
    2: MoStatus(SessionVerdict.SENT, "sent; the location update was not accepted"),
    3: MoStatus(SessionVerdict.SENT, "sent"),
    4: MoStatus(SessionVerdict.SENT, "sent"),
    10: MoStatus(SessionVerdict.DOUBTFUL, "the gateway did not end the call in time"),
    11: MoStatus(
        SessionVerdict.NOT_SENT, "the gateway's queue for this modem is full", OPERATOR_BUSY
    ),
    12: MoStatus(SessionVerdict.REFUSED, "the message has too many segments for the gateway"),
    13: MoStatus(SessionVerdict.DOUBTFUL, "the session did not complete"),
    14: MoStatus(SessionVerdict.REFUSED, "the gateway refused the segment size"),
    15: MoStatus(SessionVerdict.FAULT, "access is denied: is the account active?", FAULT_WAIT),
    16: MoStatus(SessionVerdict.FAULT, "the modem is locked: ask the operator", FAULT_WAIT),
    17: MoStatus(SessionVerdict.DOUBTFUL, "the gateway did not answer within the session's time"),
    18: MoStatus(SessionVerdict.DOUBTFUL, "the connection was lost"),
    19: MoStatus(SessionVerdict.DOUBTFUL, "the link failed"),
    32: MoStatus(SessionVerdict.NOT_SENT, "no network service"),
    33: MoStatus(SessionVerdict.FAULT, "the antenna fails: check its cable"),
    34: MoStatus(SessionVerdict.FAULT, "the radio is switched off"),
    35: MoStatus(SessionVerdict.NOT_SENT, "the modem is busy", network_waits=True),
    36: MoStatus(
        SessionVerdict.NOT_SENT, "the network asks to wait three minutes", BARRED_WAIT, True
    ),
    37: MoStatus(SessionVerdict.NOT_SENT, "the SBD service is temporarily disabled"),
    38: MoStatus(
        SessionVerdict.NOT_SENT, "the network is managing its traffic", network_waits=True
    ),
    64: MoStatus(SessionVerdict.FAULT, "a band violation: the modem is faulty"),
    65: MoStatus(SessionVerdict.FAULT, "the PLL is not locked: power or modem is faulty"),
}


def mo_status(number: int) -> MoStatus:
    """Return the meaning of a status. A reserved number counts as not sent."""
    return MO_STATUS.get(number) or MoStatus(
        SessionVerdict.NOT_SENT, f"reserved MO status {number}"
    )


URGENT_WAIT_MAX = 60.0
_SPREADS = (0.0, 5.0, 5.0, 30.0, 30.0)
"""Maximum random delays, by the vendor's advice: at once, twice within 5 s, twice within 30 s, then
every five minutes."""
_STEADY = 300.0


def retry_after(status: MoStatus, tries: int, chance: float, *, urgent: bool) -> float:
    """Return the seconds until the next attempt after `tries` earlier ones. `chance`, from 0 to 1,
    spreads kits over time.

    An SOS waits at most a minute, unless the network itself asks for more, because a fault of kit,
    account or gateway may be fixed meanwhile.
    """
    steady = _STEADY * (0.75 + 0.5 * chance)
    wait = _SPREADS[tries] * chance if tries < len(_SPREADS) else steady
    least = status.wait
    if least is None and status.verdict is SessionVerdict.FAULT:
        least = FAULT_WAIT
    if urgent:
        wait = min(wait, URGENT_WAIT_MAX * (0.5 + 0.5 * chance))
        least = least if status.bars_sos else None
    return wait if least is None else max(wait, least * (1 + 0.1 * chance))


def retry_at_once(status: MoStatus, chance: float) -> float:
    """Return the seconds until the next attempt after the sky is back, or a person reports it."""
    soon = _SPREADS[1] * chance
    return max(soon, status.wait or 0.0) if status.bars_sos else soon


MT_STATUS = {
    0: "no message waits",
    1: "a message came in",
    2: "the gateway could not tell whether a message waits",
}
"""Results of a session that sent no message."""
