"""Why calls to satellite operators fail, whom that concerns, and when the same bytes may be tried
again. Each operator's own codes are beside the operator."""

from __future__ import annotations

from enum import StrEnum

from fieldagent.system.lazy_named_tuple import NamedTuple

HOURLY = 3600.0
"""Seconds after which people may have corrected what a call failed on; a refused one is free."""
FULL_PAUSE = 600.0
"""Seconds until a full queue is tried again: the modem has to come and empty it."""


class Scope(StrEnum):
    """What a failure holds for."""

    MESSAGE = "message"
    """These bytes: others to the same device go by them."""
    DEVICE = "device"
    """All messages to one device."""
    ACCOUNT = "account"
    """Every device of the operator, until people act: it raises an alarm."""
    GATEWAY = "gateway"
    """The operator's service or the way to it, at this moment."""


class Failure(NamedTuple):
    """Why a call did not succeed."""

    code: str
    """The operator's own, or a word for what has none: few values, for the figures."""
    scope: Scope
    text: str
    """What is wrong, and what to do about it."""
    again: float = 0.0
    """Seconds until another call has a chance; 0: that depends on how often it was tried."""


def unknown(answer: str) -> Failure:
    """Return the failure of a code that no table has: it is tried again as any trouble of
    theirs."""
    return Failure(
        "other", Scope.GATEWAY, f"the operator answered {answer}, which this hub does not know"
    )


def unreachable(reason: str) -> Failure:
    """Return the verdict that nothing left."""
    return Failure("unreachable", Scope.GATEWAY, reason)


def no_answer(reason: str) -> Failure:
    """Return the verdict that the message may have left."""
    return Failure("no answer", Scope.GATEWAY, reason)


def not_set_up(operator: str) -> Failure:
    """Return the verdict that the device names an operator that the settings do not."""
    text = f"the hub has no settings for the operator {operator!r}: add them"
    return Failure("not set up", Scope.GATEWAY, text, HOURLY)
