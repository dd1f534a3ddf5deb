"""Causes, scopes and retry times of failed calls to satellite operators. The codes of each operator
are in the module of the operator.
"""

from __future__ import annotations

from enum import StrEnum

from fieldagent.system.lazy_named_tuple import NamedTuple

NEEDS_PERSON_RETRY_S = 3600.0
"""Seconds until a retry after a failure that people must fix. A refused call costs nothing."""
FULL_PAUSE_S = 600.0
"""Seconds until a retry if the modem's queue is full, because the modem must fetch messages
first."""


class Scope(StrEnum):
    """Scope of a failure: the calls that the failure affects."""

    MESSAGE = "message"
    """Only this message. Other messages to the same device can overtake it."""
    DEVICE = "device"
    """All messages to one device."""
    ACCOUNT = "account"
    """All devices of the operator, until people fix the problem. Such a failure raises an alarm."""
    GATEWAY = "gateway"
    """The operator's service, or the network to the service, at this moment."""


class Failure(NamedTuple):
    """Cause of a failed call to an operator, and the time of the retry."""

    code: str
    """Code of the operator, or a short word. There are only few values, because the code is a label
    of a metric."""
    scope: Scope
    text: str
    """Cause of the failure and its remedy."""
    retry_after: float = 0.0
    """Seconds until a retry makes sense. If 0, the number of attempts determines the time."""


def make_unknown(answer: str) -> Failure:
    """Return the failure for an unknown code. The hub retries the call, as if the operator had a
    problem.
    """
    return Failure(
        "other", Scope.GATEWAY, f"the operator answered {answer}, which this hub does not know"
    )


def make_unreachable(reason: str) -> Failure:
    """Return the failure of a call that was not sent."""
    return Failure("unreachable", Scope.GATEWAY, reason)


def make_no_answer(reason: str) -> Failure:
    """Return the failure of a call that may have been sent."""
    return Failure("no answer", Scope.GATEWAY, reason)


def make_not_set_up(operator: str) -> Failure:
    """Return the failure for a device whose operator is not configured."""
    text = f"the hub has no settings for the operator {operator!r}: add them"
    return Failure("not set up", Scope.GATEWAY, text, NEEDS_PERSON_RETRY_S)
