"""The objects that an extension's part and the agent exchange once the part is turned on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fieldagent.agent.inbound.hooks import Hook
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.package import Channel
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.supervisor import Note


class PartHost(NamedTuple):
    """The parts of the agent that an extension's part may use."""

    journal: Journal
    intake: Intake
    inbox: Inbox
    outboxes: Mapping[Channel, ChannelOutbox]
    incidents: Callable[[], dict[str, Any]]
    """Returns the answer to `GET /api/sos`."""
    bearer_bytes: int
    """Bytes of an item on Cellular that one paid message carries; 0 if Cellular costs nothing."""


class PartService(Protocol):
    def status(self) -> dict[str, Any]:
        """Return the part's member of `GET /api/status`."""

    async def run(self, agent_status: Callable[[], Mapping[str, Any]], note_fault: Note) -> None:
        """Work until cancelled. `agent_status` returns the answer to `GET /api/status`;
        `note_fault` logs and counts a failure of one call."""


class PartPlan(NamedTuple):
    """A part that the settings turn on, before the rest of the agent exists."""

    service: Callable[[PartHost], PartService]
    hooks: Sequence[Hook] = ()
    """Hooks that get every inbound payload, beside those of the settings."""
