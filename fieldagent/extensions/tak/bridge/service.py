"""Keeps the hub connected to a TAK server. One process has the connections, with a session for each
user.

1. A round reads everything that may be due, and passes it to the users' connections. It then waits
   until something is written or becomes due. A busy connection gets its next events in the next
   round.
2. Only events that the server has accepted are stored as sent. If a connection is lost or the hub
   dies before that, these events are sent again with the same id.
3. Incoming events are filtered by type before they are decoded, and by rate before they are stored.
   Only one connection listens for arriving phones, because all connections receive the same events.
   Accepted events are stored even if this process stops or another process takes over the bridge.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import trio

from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak import map_events as tak_map
from fieldagent.extensions.tak.bridge import outward, records
from fieldagent.extensions.tak.bridge.door import EventAdmission, ReceivedEvent
from fieldagent.extensions.tak.bridge.intake import TakIntake
from fieldagent.extensions.tak.bridge.inward import TakInbox, TakRules
from fieldagent.extensions.tak.bridge.link import STABLE_AFTER_S, wait_before
from fieldagent.extensions.tak.bridge.records import KitUser, OpenAlert, OutEvent, PendingReceipt
from fieldagent.extensions.tak.bridge.site import OpenSite, TakSession, TakSite
from fieldagent.extensions.tak.bridge.users import UserLink
from fieldagent.extensions.tak.cot import CotEvent
from fieldagent.extensions.tak.events import ChatReceipt, TakUnit
from fieldagent.extensions.tak.map_events import SentPosition
from fieldagent.hub.api.event_stream import ROWS_PER_READ, UNSETTLED_S, Follower
from fieldagent.hub.bridge import tenure
from fieldagent.hub.bridge.connecting import ConnectionLost
from fieldagent.hub.bridge.contract import BridgeHost
from fieldagent.hub.bridge.repeating import Alarm
from fieldagent.hub.bridge.tenure import BridgePost
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.records import ledger
from fieldagent.hub.records.due_receipts import THE_HUB
from fieldagent.hub.store.contract import ANY_WRITE_TOPIC, Db
from fieldagent.hub.store.persist import persist, skip_if_unavailable
from fieldagent.package.delivery import Stage
from fieldagent.system import waits
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)

REST_S = 1.0
"""Seconds between two rounds. The pause prevents the bridge from slowing down a busy hub."""
TURN_MAX_S = 30.0
"""Seconds after which a round runs in any case."""
LOOK_BACK_S = 300.0
"""Seconds between two checks for events that are too old."""
ROWS_PER_ROUND = 500
"""Largest number of rows that one round processes."""
WAITING_MAX = 64
"""Largest number of events that can wait to be stored."""
NO_KIT = "only users with a kit can write to the TAK server"


class ReadResult(NamedTuple):
    """Data that one round reads from the database."""

    users: Sequence[KitUser]
    out: Sequence[OutEvent]
    receipts: Sequence[PendingReceipt]
    alerts: Sequence[OpenAlert]


class Outgoing(NamedTuple):
    """Events to send, and the functions to call when the server has accepted them."""

    events: Sequence[CotEvent]
    write_down: Callable[[Db, float], object] = lambda db, now: None
    note: Callable[[float], object] = lambda now: None


async def run(host: BridgeHost, open_site: OpenSite, rules: TakRules) -> None:
    """Run the bridge until cancelled. Only one process of the hub runs it."""
    async with trio.open_nursery() as storing:

        async def work(identity: str, workspace: int) -> None:
            async with open_site(workspace) as site:
                await _Bridge(host, site, rules, identity, workspace).run(storing)

        post = BridgePost(records.NAME, rules.workspace, "tak-workspace")
        await tenure.run_exclusively(host, post, work)


LISTENING_KEY = 0
"""Key of the connection that only receives. No member has this id."""


class _Bridge:
    """Bridge in the process that currently runs it."""

    def __init__(
        self,
        host: BridgeHost,
        site: TakSite,
        rules: TakRules,
        identity: str,
        workspace: int,
    ) -> None:
        self._host = host
        self._site = site
        self._rules = rules
        self._identity = identity
        self._workspace = workspace
        self._links: dict[int, UserLink] = {}
        self._alarms: dict[int, Alarm] = {}
        self._connection_done = trio.Event()
        """Set when a connection has been established or is free again."""
        self._admission = EventAdmission(
            host.note_events, host.clock, markers="waypoints" in rules.shares
        )
        self._put, get = trio.open_memory_channel[ReceivedEvent](WAITING_MAX)
        inbox = TakInbox(workspace, rules, site.person_of)
        self._intake = TakIntake(host, inbox, self._links, self._alarms, self._admission, get)
        self._logged_reason = "not connected yet"
        """Last logged reason why no user is connected; empty while a user is connected."""
        self._listening_member: int | None = None
        """Member whose connection listens for arriving phones."""
        self._looked_back = 0.0

    async def run(self, nursery: trio.Nursery) -> None:
        """Run until cancelled. Events that were accepted by then are stored in `nursery`, which
        lives longer than this method, because the server does not send them to another process.
        """
        store = self._host.store
        start = await store.read(partial(tenure.read_place, name=records.NAME))
        follower = Follower(start, UNSETTLED_S if store.shared else 0.0)
        nursery.start_soon(waits.run_to_the_end, self._intake.run)
        with self._put:
            await self._work_with(follower)

    async def _work_with(self, follower: Follower) -> None:
        store = self._host.store
        async with trio.open_nursery() as nursery:
            while True:
                any_write, end_event = store.get_event(ANY_WRITE_TOPIC), self._connection_done
                pause_s = TURN_MAX_S
                with skip_if_unavailable():
                    has_more = await self._queue_items(follower)
                    await self._end_old_events()
                    work = await store.read(self._list_work)
                    self._update_links(work.users, nursery)
                    pause_s = self._distribute_work(work, nursery)
                    pause_s = 0.0 if has_more else pause_s
                await trio.sleep(REST_S)
                with waits.move_on_after(pause_s - REST_S):
                    await waits.wait_for_either(any_write, end_event)

    async def _queue_items(self, follower: Follower) -> bool:
        """Add new items for the server. Return True if there may be more."""
        store, now = self._host.store, self._host.clock()
        items = await store.read(
            lambda db: records.list_fresh_items(
                db, self._workspace, follower.place, follower.capacity
            )
        )
        fresh_items = follower.select_fresh([(each.id, each.accepted) for each in items], now)
        new = [each for each in items if each.id in fresh_items]
        if new:
            await persist(store, lambda db: self._add_items(db, new, follower.place, now))
        return len(new) >= ROWS_PER_READ

    def _add_items(self, db: Db, new: Sequence[records.NewItem], up_to: int, now: float) -> None:
        people = records.list_people(db, self._workspace)
        kits = records.list_members_with_kits(db, self._workspace)
        items = []
        for item in new:
            person = outward.find_person(item, people, self._rules.shares)
            if person is not None and item.sender in kits:
                items.append((item, person or None))
            elif person and person not in kits:
                ledger.record_stage(db, item.id, THE_HUB, Stage.NOBODY, NO_KIT, now)
        records.queue_items(db, items, up_to, now)

    async def _end_old_events(self) -> None:
        now = self._host.clock()
        if now >= self._looked_back + LOOK_BACK_S:
            self._looked_back = now
            await self._host.store.commit(lambda db: records.end_old_events(db, now))

    def _list_work(self, db: Db) -> ReadResult:
        now = self._host.clock()
        sos = "sos" in self._rules.shares
        users = records.list_kit_users(db, self._workspace, self._rules.people)
        members = {each.member for each in users}
        return ReadResult(
            users,
            records.list_due_events(db, members, now, ROWS_PER_ROUND),
            records.list_pending_receipts(db, members, ROWS_PER_ROUND),
            records.list_alerts(db, self._workspace) if sos else [],
        )

    def _update_links(self, users: Sequence[KitUser], nursery: trio.Nursery) -> None:
        """Keep a connection for each user with a kit, and end all other connections. If there is no
        such user, keep one connection that only receives, because a phone's 911 alert needs no kit.
        """
        units = {each.member: outward.make_unit(self._identity, each) for each in users}
        units = units or {LISTENING_KEY: outward.make_listening_unit(self._identity)}
        for gone_member in [member for member in self._links if member not in units]:
            self._links.pop(gone_member).scope.cancel()
        for member, unit in units.items():
            known = self._links.get(member)
            if known is None:
                self._links[member] = link = UserLink(unit)
                nursery.start_soon(self._run_connection, member, link)
            else:
                known.unit = unit

    def _distribute_work(self, work: ReadResult, nursery: trio.Nursery) -> float:
        """Pass due events to the free connections. Return the seconds until more events are due."""
        now = self._host.clock()
        soonest = now + TURN_MAX_S
        open_alarms = {alert.sos for alert in work.alerts}
        for ended_alarm in [each for each in self._alarms if each not in open_alarms]:
            del self._alarms[ended_alarm]
        for user in work.users:
            link = self._links[user.member]
            if link.session is None or link.busy:
                continue
            due = tak_map.compute_position_due(link.sent_position, user, now)
            outgoing: list[Outgoing] = []
            if due <= now:
                outgoing.append(self._send_position(link, user, now))
            else:
                soonest = min(soonest, due)
            outgoing += self._make_item_events(work, user, link.unit, now)
            alarms, again = self._make_alert_events(work, user, link.unit, now)
            outgoing += alarms
            soonest = min(soonest, again)
            if outgoing:
                link.busy = True
                nursery.start_soon(self._send_and_record, link, link.session, outgoing)
        return max(0.0, soonest - now)

    def _send_position(self, link: UserLink, user: KitUser, now: float) -> Outgoing:
        shared = "positions" in self._rules.shares
        events = outward.make_position_events(
            link.unit, user, link.sent_position, now, is_shared=shared
        )

        def record_position(now: float) -> None:
            link.sent_position = SentPosition(user, now, tak_map.is_old(user, now))

        return Outgoing(events, note=record_position)

    def _make_item_events(
        self, work: ReadResult, user: KitUser, unit: TakUnit, now: float
    ) -> list[Outgoing]:
        outgoing: list[Outgoing] = []
        for out in work.out:
            event = outward.make_event(out, unit, now) if out.member == user.member else None
            if event is not None:
                note = partial(_record_item_sent, out=out, site=self._site)
                outgoing.append(Outgoing([event], note))
        for pending in work.receipts:
            if pending.member == user.member:
                receipt = ChatReceipt(unit, pending.uid, pending.message_id, pending.read)
                event = tak.make_receipt(
                    receipt, TakUnit(pending.uid, pending.callsign), tak_map.make_date(now)
                )
                outgoing.append(Outgoing([event], partial(_record_receipt_sent, pending=pending)))
        return outgoing

    def _make_alert_events(
        self, work: ReadResult, user: KitUser, unit: TakUnit, now: float
    ) -> tuple[list[Outgoing], float]:
        outgoing: list[Outgoing] = []
        soonest = now + TURN_MAX_S
        for alert in work.alerts:
            if alert.member != user.member:
                continue
            alarm = self._alarms.get(alert.sos)
            if alarm is None or alarm.ends != alert.ends:
                alarm = self._alarms[alert.sos] = Alarm(alert.ends)
            if alarm.due_at <= now:
                event = outward.make_alert(alert, unit, now)
                outgoing.append(
                    Outgoing([event], partial(_record_alert_sent, alert=alert), alarm.record_sent)
                )
            else:
                soonest = min(soonest, alarm.due_at)
        return outgoing, soonest

    async def _send_and_record(
        self, link: UserLink, session: TakSession, outgoing: Sequence[Outgoing]
    ) -> None:
        """Send the events. When the server has accepted them, record that they were sent."""
        try:
            await session.send_events([event for each in outgoing for event in each.events])
        except ConnectionLost as lost:
            log.debug("not sent to the TAK server: %s", lost)
        else:
            now = self._host.clock()
            for each in outgoing:
                await persist(self._host.store, partial(_record_sent, each, now))
                each.note(now)
        finally:
            link.busy = False
            self._note_done()

    def _note_done(self) -> None:
        self._connection_done.set()
        self._connection_done = trio.Event()

    async def _run_connection(self, member: int, link: UserLink) -> None:
        """Keep a user's connection until it is no longer needed."""
        tries = 0
        with link.scope:
            while True:
                started_at = trio.current_time()
                try:
                    await self._work_on_connection(member, link)
                except ConnectionLost as lost:
                    self._note_lost(str(lost))
                finally:
                    link.session, link.sent_position = None, None
                    self._note_links()
                tries = 0 if trio.current_time() - started_at >= STABLE_AFTER_S else tries
                await waits.sleep(wait_before(tries))
                tries += 1

    async def _work_on_connection(self, member: int, link: UserLink) -> None:
        """Send and receive on one connection until it is lost."""
        async with self._site.connect(link.unit) as session:
            link.session = session
            self._note_links()
            self._note_done()
            await session.run(partial(self._filter_event, member, link))

    def _note_links(self) -> None:
        up = [member for member, link in self._links.items() if link.session is not None]
        if (ear := min(up, default=None)) != self._listening_member:
            self._listening_member = ear
            self._admission.forget_units()
        self._host.note_link(bool(up))
        if up and self._logged_reason:
            log.info("connected to %s", self._site.title)
            self._logged_reason = ""

    def _note_lost(self, reason: str) -> None:
        if reason != self._logged_reason:
            log.warning("the TAK server: %s", reason)
        self._logged_reason = reason

    def _filter_event(self, member: int, link: UserLink, kind: str, raw: bytes) -> None:
        """Drop an unwanted event before the hub stores any of it. Queue all other events."""
        if kind.startswith("a-"):
            event = (
                self._admission.find_returned_unit(raw, self._host.clock())
                if member == self._listening_member
                else None
            )
        elif kind.startswith(tak.ALERTS) and not (
            kind == tak.CANCEL and records.PREFIX.encode() in raw
        ):
            # All connections receive an alert, so use only the listening connection.
            event = (
                self._admission.admit_alert(raw, self._host.clock())
                if member == self._listening_member
                else None
            )
        else:
            event = self._admission.admit(kind, raw, link.unit.uid, self._host.clock())
        if event is None:
            return
        try:
            self._put.send_nowait(ReceivedEvent(member, kind, event))
        except trio.WouldBlock:
            self._admission.drop(ItemResult.LIMITED)


def _record_sent(outgoing: Outgoing, now: float, db: Db) -> None:
    outgoing.write_down(db, now)


def _record_item_sent(db: Db, now: float, *, out: OutEvent, site: TakSite) -> None:
    records.record_sent(db, out, now, handed=site.has(out.uid))


def _record_receipt_sent(db: Db, now: float, *, pending: PendingReceipt) -> None:
    records.record_receipt_sent(db, pending)


def _record_alert_sent(db: Db, now: float, *, alert: OpenAlert) -> None:
    records.record_alert_sent(db, alert, now)
