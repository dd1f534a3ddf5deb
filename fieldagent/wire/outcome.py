"""Result of a transmission, as a driver of the agent or an operator of the hub reports it."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """Result of one transmission, as far as the modem's numbers show."""

    SENT = "sent"
    """The receiver at the other end of the link has it."""
    NOT_SENT = "not sent"
    """It did not leave, or was refused for now. Retry after `retry_after`."""
    DOUBTFUL = "doubtful"
    """It may have left. The same bytes must be sent again before anything else."""
    REFUSED = "refused"
    """It can never be sent on this channel: the Packages in it have failed there."""
