"""How a transmission ended, for whoever sends: a driver of the agent, an operator of the hub."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """How one transmission ended, as far as the modem's own numbers can tell."""

    SENT = "sent"
    """The far side of the link has it."""
    NOT_SENT = "not sent"
    """It did not leave, or left and was refused for now: to be tried again after `retry_after`."""
    DOUBTFUL = "doubtful"
    """It may have left. The same bytes go again before anything else does."""
    REFUSED = "refused"
    """It can never be sent this way: the Packages in it have failed on this channel."""
