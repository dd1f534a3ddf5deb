"""The satellite operator, as the hub sees one: takes MT messages for an IMEI, and says how."""

from __future__ import annotations

from typing import Protocol

from fieldagent.hub.contract import Estimate
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.outcome import Outcome


class TakeIn(Protocol):
    """The hub, as an operator's gateway brings it what came."""

    async def __call__(self, imei: str, body: bytes, estimate: Estimate | None) -> None:
        """One MO message, of whatever IMEI and content. On disk once it returns."""


class NoteSession(Protocol):
    """The hub, as an operator tells it of sessions."""

    async def __call__(self, imei: str, *, fetched: bool) -> None:
        """A modem reached the operator, who gave it a message, or had none for it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a call ended; DOUBTFUL is one that got no answer after the request had left."""

    outcome: Outcome
    reason: str = ""
    retry_after: float = 0.0
    """Seconds; counts for NOT_SENT."""
    waiting: int = 0
    """Messages that the operator keeps for the modem with this one; 0: they do not tell, and a
    ring that was missed cannot be rung again."""


class Operator(Protocol):
    async def send(self, imei: str, body: bytes, *, number: int, priority: bool) -> Verdict:
        """Hand over one MT message. `number` is the same whenever the same bytes are called in."""

    async def ring(self, imei: str) -> Verdict:
        """Ring the modem for what waits, and hand over nothing."""
