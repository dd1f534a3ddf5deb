"""Causes, scopes and retry times of failed calls to satellite operators. The codes of each operator
are in the operator's module.
"""

from __future__ import annotations

from enum import StrEnum

from fieldagent.system.lazy_named_tuple import NamedTuple

FIXED_CAUSE_RETRY_S = 3600.0
"""Seconds until a retry after a failure that people must fix. A refused call is free."""
FULL_PAUSE_S = 600.0
"""Seconds until a full queue is tried again, because the modem must empty it first."""


class Scope(StrEnum):
    """Scope of a failure."""

    MESSAGE = "message"
    """Only this message; other messages to the same device can overtake it."""
    DEVICE = "device"
    """All messages to one device."""
    ACCOUNT = "account"
    """All devices of the operator, until people act. Such a failure raises an alarm."""
    GATEWAY = "gateway"
    """The operator's service or the network to it, at this moment."""


class Failure(NamedTuple):
    """Cause of a failed call."""

    code: str
    """Code of the operator, or a short word. There are few values, because the code is a label in
    the metrics."""
    scope: Scope
    text: str
    """Cause and remedy."""
    retry_after: float = 0.0
    """Seconds until a retry makes sense. 0: the number of tries decides."""


def make_unknown(answer: str) -> Failure:
    """Return the failure for an unknown code. The call is retried like a problem at the
    operator.
    """
    return Failure(
        "other", Scope.GATEWAY, f"the operator answered {answer}, which this hub does not know"
    )


def make_unreachable(reason: str) -> Failure:
    """Return the failure of a call that did not leave."""
    return Failure("unreachable", Scope.GATEWAY, reason)


def make_no_answer(reason: str) -> Failure:
    """Return the failure of a call that may have left."""
    return Failure("no answer", Scope.GATEWAY, reason)


def make_not_set_up(operator: str) -> Failure:
    """Return the failure for a device whose operator is not configured."""
    text = f"the hub has no settings for the operator {operator!r}: add them"
    return Failure("not set up", Scope.GATEWAY, text, FIXED_CAUSE_RETRY_S)
