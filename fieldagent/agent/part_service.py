"""The objects that the agent and an extension's part exchange when the part is turned on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fieldagent.agent.inbound.hooks import Hook
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.cancel import Cancellation
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
    cancellation: Cancellation
    proof_keys: Sequence[bytes]
    """Keys that only this kit and the hub share."""
    incidents: Callable[[], dict[str, Any]]
    """Returns the response to `GET /api/sos`."""
    bearer_bytes: int
    """Bytes of an item that one paid message of Cellular can carry. 0 if Cellular costs nothing."""


class PartService(Protocol):
    """Interface of a running part. The class of an extension inherits from this class, so it only
    needs to define the methods that it uses.
    """

    def get_status(self) -> dict[str, Any]:
        """Return the part's member of `GET /api/status`."""

    async def run(self, agent_status: Callable[[], Mapping[str, Any]], note_fault: Note) -> None:
        """Work until cancelled. `agent_status` returns the response to `GET /api/status`.
        `note_fault` logs and counts a failure that does not end the part.
        """

    def list_notices(self) -> list[str]:
        """Return the notices that people should see."""
        return []

    def list_people(self) -> list[dict[str, Any]]:
        """Return the people whose handheld radios are in range, for `GET /api/mesh`."""
        return []

    def list_doubtful_people(self) -> list[dict[str, Any]]:
        """Return the people of `list_people` whose entries a person should check, for the stream of
        events.
        """
        return []


class PartBase(NamedTuple):
    """The parts of the agent that exist before the hooks are made."""

    journal: Journal
    package_time_to_live: int
    """Default life of a Package in seconds, from the settings."""


class PartPlan(NamedTuple):
    """A part that the settings turn on. It is made before the rest of the agent exists."""

    service: Callable[[PartHost], PartService]
    hooks: Sequence[Hook] = ()
    """Hooks that get every inbound payload, in addition to the hooks of the settings."""
