"""Processes accepted events: receipts, messages, markers, arriving phones, cancelled alerts."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from functools import partial

import trio

from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak import map_events as tak_map
from fieldagent.extensions.tak.bridge import alert_intake, inward, records
from fieldagent.extensions.tak.bridge.door import EventAdmission, ReceivedEvent
from fieldagent.extensions.tak.bridge.inward import TakInbox, TakOutcome
from fieldagent.extensions.tak.bridge.users import UserLink
from fieldagent.extensions.tak.cot import CotEvent
from fieldagent.extensions.tak.events import GeoChat, PhoneAlert, TakUnit
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.bridge.connecting import ConnectionLost
from fieldagent.hub.bridge.contract import BridgeHost
from fieldagent.hub.bridge.repeating import Alarm
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.persist import persist
from fieldagent.system.wording import make_visible

log = logging.getLogger(__name__)


class TakIntake:
    """Processes events. `links` are the bridge's connections by member. `alarms` are its alarms by
    incident.
    """

    def __init__(
        self,
        host: BridgeHost,
        inbox: TakInbox,
        links: Mapping[int, UserLink],
        alarms: Mapping[int, Alarm],
        admission: EventAdmission,
        get: trio.MemoryReceiveChannel[ReceivedEvent],
    ) -> None:
        self._host = host
        self._inbox = inbox
        self._links = links
        self._alarms = alarms
        self._admission = admission
        self._get = get

    async def run(self) -> None:
        """Process the waiting events one after the other until the channel is closed. If the
        database is unavailable, wait for it, because the server does not repeat events.
        """
        in_hand = 0
        try:
            async for received in self._get:
                in_hand = 1
                await self._process_event(received)
                in_hand = 0
        except trio.Cancelled:
            if lost_count := in_hand + self._get.statistics().current_buffer_used:
                log.error(
                    "%d events from the TAK server are lost: they were never stored", lost_count
                )
            raise

    async def _process_event(self, received: ReceivedEvent) -> None:
        now = self._host.clock()
        try:
            await self._store(received, now)
        except Refused as refused:
            log.warning("an event from the TAK server is refused: %s", refused)
            self._host.note_events(ItemResult.REFUSED)

    async def _store(self, received: ReceivedEvent, now: float) -> None:
        store, event = self._host.store, received.event
        if received.kind.startswith("a-"):
            unit = tak.read_unit(event)
            assert unit is not None, "events without a unit are refused earlier"
            await persist(store, lambda db: self._note_unit(db, unit, now))
        elif received.kind == tak.CANCEL and event.uid.startswith(records.PREFIX):
            await self._process_cancel(event, now)
        elif received.kind in (tak.ON_PHONE, tak.READ):
            await self._process_receipt(event, now)
        elif (alert := tak.read_alert(event)) is not None:
            result = await persist(store, lambda db: self._process_alert(db, alert, now))
            self._host.note_events(result)
        else:
            await self._process_item(received, now)

    def _note_unit(self, db: Db, unit: TakUnit, now: float) -> None:
        if unit.callsign in self._inbox.rules.allow:
            records.record_person(db, self._inbox.workspace, unit.callsign, unit.uid, now)
        records.record_return(db, self._inbox.workspace, unit.uid, now)

    def _process_alert(self, db: Db, alert: PhoneAlert, now: float) -> ItemResult:
        inbox, sender = self._inbox, alert.sender
        person = inbox.person_of(db, inbox.workspace, sender.callsign, sender.uid, now)
        member = None if person is None else person.member
        result = alert_intake.accept_alert(db, inbox.workspace, member, alert, now)
        if result is ItemResult.TAKEN and not alert.cancels:
            log.warning("a 911 alert of %s at the TAK server is an SOS", sender.callsign)
        return result

    async def _process_cancel(self, event: CotEvent, now: float) -> None:
        """Record that somebody at the server has cancelled a user's alert. Make all open alerts
        due, so that the bridge sends them again now.
        """
        emergency_element = event.find("emergency")
        canceler = (
            ""
            if emergency_element is None
            else make_visible(emergency_element.text)[: inward.CALLSIGN_MAX]
        ) or "somebody"
        self._host.note_events(ItemResult.REFUSED)
        uid = event.uid.removesuffix(tak.ALERT_SUFFIX)
        owner = next((each for each, link in self._links.items() if link.unit.uid == uid), None)
        if owner is None:
            return
        for alarm in self._alarms.values():
            alarm.due_at = 0.0
        note = partial(
            records.record_cancel_at_server, workspace=self._inbox.workspace, member=owner
        )
        await persist(self._host.store, partial(note, canceller=canceler, now=now))

    async def _process_receipt(self, event: CotEvent, now: float) -> None:
        receipt = tak.read_receipt(event)
        is_ours = receipt is not None and await persist(
            self._host.store,
            lambda db: records.record_receipt(
                db,
                self._inbox.workspace,
                receipt.sender.uid,
                receipt.message_id,
                now,
                read=receipt.read,
            ),
        )
        self._host.note_events(ItemResult.RECEIPT if is_ours else ItemResult.REPEATED)

    async def _process_item(self, received: ReceivedEvent, now: float) -> None:
        chat = tak.read_chat(received.event) if received.kind == tak.CHAT else None
        author = tak.read_marker_author(received.event) if chat is None else chat.sender
        link = self._links.get(received.member)
        outcome = TakOutcome(ItemResult.REFUSED)
        if author is not None and link is not None:
            take = partial(self._add_event, received, author, chat, link.unit.callsign)
            outcome = await persist(self._host.store, partial(take, now=now))
            is_question = outcome.result is ItemResult.ASKED
            if outcome.why and (is_question or self._admission.admit_reply(author.uid, now)):
                await self._explain(link, author, outcome.why)
        self._host.note_events(outcome.result)

    def _add_event(
        self,
        received: ReceivedEvent,
        author: TakUnit,
        chat: GeoChat | None,
        name: str,
        db: Db,
        now: float,
    ) -> TakOutcome:
        if chat is not None:
            return inward.accept_chat(db, self._inbox, received.member, chat, now)
        placed = tak.read_marker(received.event)
        if placed is None or name not in placed.to:
            return TakOutcome(ItemResult.REFUSED)
        sent = inward.SentMarker(author, received.event.uid, placed)
        return inward.accept_marker(db, self._inbox, received.member, sent, now)

    async def _explain(self, link: UserLink, to: TakUnit, reason: str) -> None:
        reply = GeoChat(link.unit, to, str(uuid.uuid4()), f"[hub] {reason}")
        try:
            if link.session is not None:
                await link.session.send_events(
                    [tak.make_chat(reply, tak_map.make_date(self._host.clock()))]
                )
        except ConnectionLost as lost:
            log.debug("not sent to the TAK server: %s", lost)
