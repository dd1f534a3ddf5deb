"""Publishes items of kits, their state, and events of their incidents.

1. A document that is not retained counts as sent once the broker has acknowledged it. Only then
   is the place stored in the database. A document under way at the end of a session, or of the
   hub, is sent again with the same id.
2. A retained document is published in each new session, and after each change.
3. An unanswered incident is published again, because subscribers that came later have missed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import trio

from fieldagent.extensions.mqtt.discovery import encode_compact
from fieldagent.extensions.mqtt.hub import documents, records
from fieldagent.extensions.mqtt.hub.documents import KitItem, OpenIncident
from fieldagent.extensions.mqtt.hub.inward import CommandInbox
from fieldagent.extensions.mqtt.session import MqttSession
from fieldagent.hub.api.event_stream import UNSETTLED_S, Follower
from fieldagent.hub.bridge import tenure
from fieldagent.hub.bridge.contract import BridgeHost
from fieldagent.hub.bridge.repeating import Alarm
from fieldagent.hub.store.contract import ANY_WRITE_TOPIC, Db
from fieldagent.hub.store.persist import persist, skip_if_unavailable
from fieldagent.system import waits

REST_S = 1.0
"""Seconds between two rounds. The pause prevents the bridge from slowing down a busy hub. A round
publishes new items for at most this time."""
TURN_MAX_S = 30.0
"""Seconds after which a round runs in any case."""
FORGET_INTERVAL_S = 600.0


class HubReporter:
    """Publishes the hub's documents. Call `run` for each session. The reporter continues where it
    stopped in the last session.
    """

    def __init__(self, host: BridgeHost, inbox: CommandInbox, name: str) -> None:
        self._host = host
        self._inbox = inbox
        self._topics = inbox.topics
        self._name = name
        self._announce = trio.Event()
        self._items: Follower | None = None
        self._event_follower: Follower | None = None
        """Follower at the last event of an incident that was published. None if later events may
        not have been published."""
        self._alarms: dict[int, Alarm] = {}
        self._retained: dict[str, bytes] = {}
        """Payloads that the broker has received in this session, by topic."""
        self._has_removed_deleted = False
        """True if this session has removed the documents of all deleted kits, including kits that
        were deleted between two sessions."""
        self._forgotten = 0.0

    def announce(self) -> None:
        """Publish everything again. Called when Home Assistant has restarted and does not know this
        hub any more.
        """
        self._announce.set()
        self._announce = trio.Event()

    async def run(self, session: MqttSession) -> NoReturn:
        """Publish until cancelled. Raises BrokerLost when the session ends."""
        self._retained.clear()
        self._has_removed_deleted = False
        announced = self._announce
        while True:
            any_write, has_more, again = (
                self._host.store.get_event(ANY_WRITE_TOPIC),
                False,
                TURN_MAX_S,
            )
            if announced is not self._announce:
                announced = self._announce
                self._retained.clear()
            with skip_if_unavailable():
                again = await self._publish_incidents(session)
                await self._publish_kits(session)
                has_more = await self._publish_items(session, trio.current_time() + REST_S)
                await self._publish_delivery_steps(session)
                await self._forget()
            if has_more:
                continue
            await trio.sleep(REST_S)
            with waits.move_on_after(again - REST_S):
                await waits.wait_for_either(any_write, announced)

    async def _publish_incidents(self, session: MqttSession) -> float:
        """Publish events of incidents. Return the seconds until an incident must be published
        again.
        """
        if "incidents" not in self._inbox.rules.shares:
            return TURN_MAX_S
        try:
            await self._publish_incident_events(session)
        except BaseException:
            self._event_follower = None
            raise
        return await self._repeat_incidents(session)

    async def _publish_incident_events(self, session: MqttSession) -> None:
        store, workspace = self._host.store, self._inbox.workspace
        follower = self._event_follower or self._make_follower(
            await store.read(records.read_last_event)
        )
        events = await store.read(
            lambda db: records.list_events_since(db, workspace, follower.place, follower.capacity)
        )
        self._event_follower = follower
        before, now = follower.place, self._host.clock()
        fresh_events = follower.select_fresh([(each.number, each.at) for each in events], now)
        for each in events:
            if each.number in fresh_events:
                topic = self._topics.get_kit_topic(each.kit, "incident")
                await session.publish(topic, encode_compact(each.document))
                if each.sos not in self._alarms:
                    self._alarms[each.sos] = alarm = Alarm()
                    alarm.record_sent(now)
        if follower.place > before:
            await persist(store, partial(records.store_last_event, up_to=follower.place))

    async def _repeat_incidents(self, session: MqttSession) -> float:
        store, workspace = self._host.store, self._inbox.workspace
        incidents = await store.read(partial(records.list_open_incidents, workspace=workspace))
        unanswered = {each.id: each for each in incidents if each.state == "open"}
        self._alarms = {id_: self._alarms.get(id_, Alarm()) for id_ in unanswered}
        for id_, alarm in self._alarms.items():
            if alarm.due_at > self._host.clock():
                continue
            document = await store.read(
                partial(
                    records.find_repeated_incident, workspace=workspace, id_=id_, repeat=alarm.times
                )
            )
            if document is not None:
                topic = self._topics.get_kit_topic(unanswered[id_].kit, "incident")
                await session.publish(topic, encode_compact(document))
            alarm.record_sent(self._host.clock())
        soonest = min((alarm.due_at for alarm in self._alarms.values()), default=float("inf"))
        return min(TURN_MAX_S, soonest - self._host.clock())

    async def _publish_items(self, session: MqttSession, until: float) -> bool:
        """Publish new items until the time `until`. Return True if there may be more."""
        try:
            while await self._publish_fresh_items(session):
                if trio.current_time() >= until:
                    return True
            return False
        except BaseException:
            self._items = None
            raise

    async def _publish_fresh_items(self, session: MqttSession) -> bool:
        store, workspace = self._host.store, self._inbox.workspace
        follower = self._items
        if follower is None:
            place = await store.read(partial(tenure.read_place, name=records.NAME))
            follower = self._make_follower(place)
        rows = await store.read(
            lambda db: records.list_fresh_items(db, workspace, follower.place, follower.capacity)
        )
        self._items = follower
        before, now = follower.place, self._host.clock()
        fresh_items = follower.select_fresh([(item.id, item.accepted) for item in rows], now)
        new = [each for each in rows if each.id in fresh_items]
        items: list[tuple[KitItem, str]] = []
        for item, document in await store.read(partial(records.add_documents, items=new)):
            if documents.is_shared(item, self._inbox.rules.shares):
                body = {"event_type": documents.get_event_type(item), **document}
                await session.publish(
                    self._topics.get_kit_topic(item.kit, "item"), encode_compact(body)
                )
                items.append((item, self._topics.get_stages_topic(item.kit, item.request_id)))
        # If there are several hub processes, the place can be behind the published items.
        if items or follower.place > before:
            note = partial(records.record_published, items=items, up_to=follower.place, now=now)
            await persist(store, note)
        return follower.has_more and bool(fresh_items)

    def _make_follower(self, place: int) -> Follower:
        return Follower(place, UNSETTLED_S if self._host.store.shared else 0.0)

    async def _publish_delivery_steps(self, session: MqttSession) -> None:
        store, now = self._host.store, self._host.clock()
        for delivery_steps in await store.read(partial(records.list_unpublished_steps, now=now)):
            document = {"id": delivery_steps.request_id, "reached": delivery_steps.steps}
            await session.publish(delivery_steps.topic, encode_compact(document))
            await persist(store, partial(records.store_step_count, steps=delivery_steps))

    async def _publish_kits(self, session: MqttSession) -> None:
        now = self._host.clock()
        devices, incidents, spent = await self._host.store.read(partial(self._read_state, now=now))
        in_use = [each for each in devices if not each["disabled"]]
        wanted_states: dict[str, bytes] = {}
        credits_left = max(0, self._inbox.rules.credits_per_day - spent)
        wanted_states[self._topics.state] = encode_compact(
            documents.make_hub_state(len(in_use), incidents, credits_left)
        )
        if self._topics.discovery:
            config = self._topics.get_config_topic(self._topics.device)
            wanted_states[config] = encode_compact(
                documents.make_hub_discovery(self._topics, self._name)
            )
        for device in in_use:
            wanted_states |= self._make_kit_documents(
                device, [i for i in incidents if i.kit == device["id"]]
            )
        # Remove the documents of a disabled kit, including those from an earlier session.
        gone_topics = [topic for topic in self._retained if topic not in wanted_states]
        if not self._has_removed_deleted:
            deleted = partial(records.list_deleted_kits, workspace=self._inbox.workspace)
            for kit in await self._host.store.read(deleted):
                gone_topics += self._list_kit_topics(kit)
        for device in devices:
            if device["disabled"]:
                gone_topics += self._list_kit_topics(int(device["id"]))
        wanted_states |= dict.fromkeys(gone_topics, b"")
        for topic, payload in wanted_states.items():
            if self._retained.get(topic) != payload:
                await session.publish(topic, payload, retain=True)
                self._retained[topic] = payload
        self._has_removed_deleted = True

    def _read_state(
        self, db: Db, now: float
    ) -> tuple[list[dict[str, Any]], list[OpenIncident], int]:
        workspace = self._inbox.workspace
        return (
            records.list_kits(db, workspace, now),
            records.list_open_incidents(db, workspace),
            records.compute_spent_today(db, now),
        )

    def _make_kit_documents(
        self, device: dict[str, Any], incidents: Sequence[OpenIncident]
    ) -> dict[str, bytes]:
        topics, shares = self._topics, self._inbox.rules.shares
        kit = int(device["id"])
        state = documents.make_kit_state(device, incidents if "incidents" in shares else ())
        payloads = {topics.get_kit_topic(kit, "state"): encode_compact(state)}
        place = documents.make_position(device) if "positions" in shares else None
        if place is not None:
            payloads[topics.get_kit_topic(kit, "position")] = encode_compact(place)
        if topics.discovery:
            config = topics.get_config_topic(topics.get_device_id(kit))
            payloads[config] = encode_compact(documents.make_kit_discovery(topics, device))
        return payloads

    def _list_kit_topics(self, kit: int) -> list[str]:
        topics = self._topics
        names = [topics.get_kit_topic(kit, "state"), topics.get_kit_topic(kit, "position")]
        return (
            [*names, topics.get_config_topic(topics.get_device_id(kit))]
            if topics.discovery
            else names
        )

    async def _forget(self) -> None:
        now = self._host.clock()
        if now >= self._forgotten + FORGET_INTERVAL_S:
            self._forgotten = now
            await self._host.store.commit(partial(records.forget, now=now))
