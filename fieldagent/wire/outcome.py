"""Result of a transmission, as an agent's driver or a hub's satellite operator reports it."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """Result of one transmission, which decides whether the transmission is repeated."""

    SENT = "sent"
    """The receiver at the other end of the link has the transmission."""
    NOT_SENT = "not sent"
    """The transmission did not leave, or was refused for now. Retry after `retry_after`."""
    DOUBTFUL = "doubtful"
    """The transmission may have left. The same bytes must be sent again before anything else."""
    REFUSED = "refused"
    """The transmission can never be sent on this channel, so its Packages have failed on the
    channel."""
