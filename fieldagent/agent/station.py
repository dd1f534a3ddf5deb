"""The contract of a station: the kit among other kits on the channel Radio.

An extension adds the station with a `kit_part.KitPart`. The assembly makes a plan first, because
the queues of the other channels report to neighbours through the station.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from fieldagent.agent.channels.contract import ChannelLink, Reception
from fieldagent.agent.inbound.hub_reception import Carrier
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import StoredPackage
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.ending import Acknowledger, Endings
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.settings import Settings
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import Channel, CommandAnswer
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.supervisor import Part


class StationBase(NamedTuple):
    """The parts of the agent that exist before the station."""

    settings: Settings
    own: Any
    """Settings of the station's part."""
    journal: Journal
    links: Mapping[Channel, ChannelLink]
    secrets: Sequence[bytes]
    """Secrets that only this kit and the hub share."""


class Station(Protocol):
    """Interface of a station that is part of an agent."""

    @property
    def outbox(self) -> ChannelOutbox:
        """Outbox of the channel Radio."""

    @property
    def reception(self) -> Reception:
        """Reception of the channel Radio."""

    @property
    def has_relay_down(self) -> bool:
        """True if this kit sends the hub's messages to neighbours by radio."""

    def make_driver(
        self, heal: Callable[[], Awaitable[bool]], progress: Callable[[], None]
    ) -> Part:
        """Return the task that serves the radio forever. `heal` takes the recovery step that is due
        while the radio's port is closed. The task calls `progress` at least every two minutes.
        """

    async def run(self) -> NoReturn:
        """Repeat items that neighbours have missed, until cancelled."""

    async def delete_old_entries(self) -> None:
        """Delete entries in the journal that are no longer repeated."""

    def get_in_range(self) -> dict[int, int]:
        """Return the number of transmissions that a packet needs to reach a station, by the
        station's number. The stations were heard within the last hour.
        """

    def get_facts(self) -> dict[str, Any]:
        """Return additional members of Radio in `GET /api/status`."""

    def list_notices(self, date: Callable[[float], float]) -> list[str]:
        """Return the notices for people. `date` converts elapsed time to Unix time."""

    def list_neighbours(self) -> dict[str, Any]:
        """Return the response to `GET /api/neighbours`."""

    def list_unconfirmed_stations(
        self, sequence: int, deliveries: Mapping[Channel, ChannelDelivery]
    ) -> list[dict[str, Any]]:
        """Return the stations in range that have not confirmed a Package that waits for the radio
        or is being repeated.
        """

    async def change_key(self, step: int, sealed: bytes) -> str:
        """Carry out step `step` of a change of the group's `radio-key`, and return the result as
        text. `sealed` is the encrypted new key. Raises CannotBeDone if this kit cannot use the key,
        and CommandFailed if the key cannot be stored.
        """

    def store_answer(
        self, db: sqlite3.Connection, answer: CommandAnswer, now: float
    ) -> StoredPackage:
        """Store the answer to a command that arrived by radio, and return its Package. `now` is the
        journal's elapsed time.
        """


class StationPlan(Protocol):
    """Description of a station that is not built yet. The queues need it to report endings."""

    @property
    def acknowledger(self) -> Acknowledger | None:
        """Part that acknowledges items of neighbours. None if this kit does not relay."""

    def make_carrier(self, intake: Intake) -> Carrier | None:
        """Return the Carrier for the hub's messages. None if this kit does not relay."""

    def set_up(
        self, inbox: Inbox, intake: Intake, endings: Endings, queue: ChannelQueue
    ) -> Station:
        """Build the station without starting a task."""
