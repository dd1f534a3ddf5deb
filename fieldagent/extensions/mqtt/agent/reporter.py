"""Publishes the state of the kit, and of Packages that arrived over MQTT, after each change.

The reporter reads the changes from the journal, like `GET /api/events`. If the broker cannot be
reached, changes are published when it is available again, with the state at that time. After a
restart of the agent, everything that the journal still contains is published again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

import trio

from fieldagent.agent.journal import changes, inbound, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.listing import list_newest_positions
from fieldagent.agent.journal.records import DamagedPackage, StoredPackage
from fieldagent.agent.outbound.day_budget import DayBudget
from fieldagent.agent.outbound.package_state import UnknownPackage, get_package_state, list_reached
from fieldagent.extensions.mqtt.agent import documents
from fieldagent.extensions.mqtt.agent.door import KEY_PREFIX
from fieldagent.extensions.mqtt.agent.topics import MqttTopics
from fieldagent.extensions.mqtt.discovery import encode_compact
from fieldagent.extensions.mqtt.session import MqttSession
from fieldagent.package.delivery import encode_deliveries
from fieldagent.package.package import Location

LOOK_EVERY, LOOK_APART = 10.0, 1.0
"""Longest and shortest time in seconds between two checks of the state."""
POSITIONS_READ_MAX = 20


class Reporter:
    """Publishes the kit's documents to the broker. Call `run` for each session. The reporter
    continues where it stopped in the last session.
    """

    def __init__(self, journal: Journal, topics: MqttTopics, name: str, budget: DayBudget) -> None:
        self._journal = journal
        self._topics = topics
        self._name = name
        self._budget = budget
        self._place = changes.get_oldest(journal)
        self._announce = trio.Event()
        self._moved = trio.Event()

    def announce(self) -> None:
        """Announce the kit again. Called when Home Assistant has restarted and does not know the
        kit any more.
        """
        self._announce.set()
        self._announce = trio.Event()

    async def run(self, session: MqttSession, status: Callable[[], Mapping[str, Any]]) -> None:
        """Publish during a session until cancelled. Raises BrokerLost when the session ends."""
        async with trio.open_nursery() as nursery:
            if self._topics.config:
                nursery.start_soon(self._announce_discovery, session, status)
            nursery.start_soon(self._publish_state, session, status)
            nursery.start_soon(self._publish_position, session)
            nursery.start_soon(self._publish_packages, session)

    async def _announce_discovery(
        self, session: MqttSession, status: Callable[[], Mapping[str, Any]]
    ) -> NoReturn:
        while True:
            again = self._announce
            links = status()["channels"].items()
            channels = {name.lower(): bool(link["configured"]) for name, link in links}
            discovery = documents.make_discovery(self._topics, self._name, channels)
            await session.publish(self._topics.config, encode_compact(discovery), retain=True)
            await again.wait()

    async def _publish_state(
        self, session: MqttSession, status: Callable[[], Mapping[str, Any]]
    ) -> NoReturn:
        published = b""
        while True:
            credits_left = self._budget.compute_remaining() or 0
            document = encode_compact(
                documents.make_state(status(), self._find_last_inbound(), credits_left)
            )
            if document != published:
                await session.publish(self._topics.state, document, retain=True)
                published = document
            await trio.sleep(LOOK_APART)
            with trio.move_on_after(LOOK_EVERY):
                await self._journal.wait_for_commit()

    def _find_last_inbound(self) -> str | None:
        """Return the time of the newest item, as in its body. The kit's own time of arrival is not
        used, because it changes when someone sets the clock. An automation would then react to a
        new item.
        """
        newest_payloads = inbound.list_payloads(self._journal, 1)
        return documents.find_item_date(newest_payloads[0]["body"]) if newest_payloads else None

    async def _publish_position(self, session: MqttSession) -> NoReturn:
        published = b""
        while True:
            moved = self._moved
            own, _ = await list_newest_positions(self._journal, POSITIONS_READ_MAX)
            positions = [
                replace(each.place, timestamp=each.moment)
                for each in own
                if isinstance(each.place, Location)
            ]
            if (
                positions
                and (now := encode_compact(documents.make_position(positions[0]))) != published
            ):
                await session.publish(self._topics.position, now, retain=True)
                published = now
            await trio.sleep(LOOK_APART)
            await moved.wait()

    async def _publish_packages(self, session: MqttSession) -> NoReturn:
        while True:
            if not changes.is_known(self._journal, self._place):
                self._place = changes.get_oldest(self._journal)
            news, place = changes.list_since(self._journal, self._place, ("package",))
            for change in news:
                await self._publish_package(session, change.subject)
            self._place = place
            if place == changes.get_newest(self._journal):
                await self._journal.wait_for_commit()
            else:
                await trio.lowlevel.checkpoint()

    async def _publish_package(self, session: MqttSession, sequence: int) -> None:
        with suppress(DamagedPackage, UnknownPackage):
            accepted = outbound.read_kept_package(self._journal, sequence)
            if accepted is None or accepted.origin:
                return
            if isinstance(accepted.package.item, Location):
                self._moved.set()
                self._moved = trio.Event()
            if (accepted.idempotency_key or "").startswith(KEY_PREFIX):
                package_state = self._describe_standing(accepted)
                await session.publish(
                    self._topics.get_package_topic(accepted.id), encode_compact(package_state)
                )

    def _describe_standing(self, accepted: StoredPackage) -> dict[str, Any]:
        package_state = get_package_state(self._journal, accepted.sequence)
        package = outbound.find_by_sequence(self._journal, accepted.sequence)
        steps = [] if package is None else list_reached(self._journal, package)
        return {
            "id": package_state.id,
            "status": package_state.status,
            "channels": encode_deliveries(package_state.deliveries),
            "reached": [step._asdict() for step in steps],
        }
