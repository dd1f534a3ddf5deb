"""Mailbox of a device for its IP link (`contract.Mailbox`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import inf

import trio

from fieldagent.hub.access import people
from fieldagent.hub.contract import Bearer, Device, OutgoingMessage
from fieldagent.hub.field import operator_handover, parcels, update_offers
from fieldagent.hub.field.envelope_packing import (
    Load,
    mark_introduced,
    mark_receipts_sent,
    record_journal,
)
from fieldagent.hub.field.mobile_originated import MobileOriginatedReceiver
from fieldagent.hub.field.own_positions import OwnPositions
from fieldagent.hub.field.position_feed import PositionFeeds
from fieldagent.hub.field.rebuilding import KEEPING_TIMES, KeepingTimes, Rebuilding
from fieldagent.hub.field.waiting_mail import Mail, MailRequest, UnconfirmedCounts, read_mail
from fieldagent.hub.records import (
    commands,
    contact,
    kit_condition,
    kit_report,
    newest,
    stations_in_range,
    workspace_log,
)
from fieldagent.hub.records.due_receipts import announce_mail, get_mail_topic
from fieldagent.hub.records.ledger import confirm_all
from fieldagent.hub.store.contract import Db, Store, make_membership
from fieldagent.store.group import StoreFull
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.backup_note import BackupNote
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_condition import KitCondition
from fieldagent.wire.kit_note import (
    Directory,
    HasDirectory,
    KitReport,
    Offer,
    StationsInRange,
    decode,
)

log = logging.getLogger(__name__)

RECHECK_AFTER_S = 300.0
"""Seconds between two checks for items that a kit must relay. Some items become due only because
time passes."""
LOG_READ_PAUSE_S = 1.0
"""Seconds between two reads of the workspace's log after something arrived. The pause lets several
new items share one message."""


class IpMailbox:
    """Mailbox of a device for one link. An item that was loaded is not loaded again before its
    result is known.

    An item that the satellite operator has accepted still waits for the link. Sending the item
    again over IP costs almost nothing, and the agent recognises a duplicate.
    """

    def __init__(
        self,
        store: Store,
        device: Device,
        mobile_originated: MobileOriginatedReceiver,
        *,
        clock: Callable[[], float],
        version: str = "",
        log_pause: float = LOG_READ_PAUSE_S,
        keeping_times: KeepingTimes = KEEPING_TIMES,
        feeds: PositionFeeds,
    ) -> None:
        self.device = device
        self._store = store
        self._mobile_originated = mobile_originated
        self._clock = clock
        self._version = version
        self._loads: dict[int, Load] = {}
        self._next_number = 1
        self._journal = 0
        self._sent_offers: set[Offer] = set()
        """Offers that were sent over this link."""
        self._kit_directory_version: int | None = None
        """Version of the directory that the kit has; None until the kit reports it."""
        self._log_pause = log_pause
        self._paused_until = -inf
        """Time on trio's clock until which the link does not read the workspace's log."""
        self._watches_log = True
        self._rebuilding = Rebuilding(store, device, keeping_times)
        self._devices_in_range: list[int] = []
        """Devices in the kit's radio range, as reported over this link."""
        self._news = trio.Event()
        """Event that `get_news` returns. It is set once, and the next call then makes a new
        event."""
        self._mail_event: trio.Event | None = None
        """Event that is set when mail other than positions may have arrived. None if such mail may
        wait already."""
        self._no_mail_until = inf
        self._skips_mail = False
        """True if the next load reads only positions, because nothing but positions was
        announced."""
        self._positions = OwnPositions(store, device, feeds)

    async def record_hello(self, journal_number: int) -> None:
        self._journal = journal_number
        now, device = self._clock(), self.device.id

        def store_greeting(db: Db) -> None:
            record_journal(db, device, journal_number)
            stations_in_range.delete_neighbours(db, device)
            contact.record_contact(db, device, Bearer.IP, now)
            contact.store_version(db, device, self._version)
            operator_handover.withdraw_updates(db, device)

        await self._store.commit(store_greeting)

    def get_news(self) -> trio.Event:
        self._skips_mail = not self._can_have_mail()
        may_watch_log = not self._watches_log and not self._is_paused()
        if self._news.is_set() or may_watch_log or not self._skips_mail:
            self._news = trio.Event()
            self._subscribe(self._news)
            self._positions.wake(self._news)
        return self._news

    def _subscribe(self, event: trio.Event) -> None:
        """Register `event` with the store, so that it is set when mail other than positions may
        have arrived.
        """
        topics = [get_mail_topic(device) for device in (self.device.id, *self._devices_in_range)]
        self._watches_log = not self._is_paused()
        if self._watches_log:
            topics.append(workspace_log.get_topic(self.device.workspace))
        self._store.wake(event, topics)

    def compute_recheck_delay(self) -> float:
        return self._compute_recheck_time() - trio.current_time()

    def _compute_recheck_time(self) -> float:
        for_others = trio.current_time() + RECHECK_AFTER_S if self._devices_in_range else inf
        return for_others if self._watches_log else min(for_others, self._paused_until)

    def _is_paused(self) -> bool:
        return trio.current_time() < self._paused_until

    async def load(self, capacity: int) -> OutgoingMessage | None:
        skips_mail, self._skips_mail = self._skips_mail, False
        if not skips_mail:
            news, self._mail_event = trio.Event(), None
            self._subscribe(news)
            load, is_all = await self._load_mail(capacity)
            if load.entries:
                number = self._make_number()
                self._loads[number] = load
                if is_all:
                    self._record_no_mail(news)
                return OutgoingMessage(number, load.encode())
            self._record_no_mail(news)
        bodies = await self._positions.load(capacity)
        if not bodies:
            return None
        self._positions.number = self._make_number()
        return OutgoingMessage(self._positions.number, bodies)

    def _record_no_mail(self, news: trio.Event) -> None:
        self._mail_event = news
        self._no_mail_until = self._compute_recheck_time()

    def _can_have_mail(self) -> bool:
        return (
            self._mail_event is None
            or self._mail_event.is_set()
            or trio.current_time() >= self._no_mail_until
        )

    def _make_number(self) -> int:
        number, self._next_number = self._next_number, self._next_number + 1
        return number

    async def _load_mail(self, capacity: int) -> tuple[Load, bool]:
        """Return the next load, and True if no more mail waits."""
        may_catch_up = not self._is_paused()
        mail = await self._read_mail()
        # Create rows for all items of the log before sending, because urgent items must be sent
        # first. Stop early if an SOS waits already.
        while may_catch_up and mail.is_behind:
            may_catch_up = await self._create_rows()
            mail = await self._read_mail()
            if mail.has_sos:
                break
        load, is_all = mail.pack(capacity, self._loads.values())
        if self._devices_in_range:
            is_all = False
            await self._store.read(lambda db: self._add_parcels(db, load, capacity))
        return load, is_all and not (may_catch_up and mail.is_behind)

    async def _read_mail(self) -> Mail:
        loads = self._loads.values()
        sent_numbers = UnconfirmedCounts(
            sum(len(load.items) for load in loads),
            sum(len(load.receipts) for load in loads),
            sum(len(load.commands) for load in loads),
        )
        mail_request = MailRequest(self.device, self._clock(), sent_numbers)
        return await self._store.read_together(read_mail, mail_request)

    async def _create_rows(self) -> bool:
        """Create some of the device's missing rows from the log of its workspace. Return True if
        more rows are missing.
        """
        started_at, parameters = trio.current_time(), (self.device.id, self._clock())
        try:
            has_more = await self._store.commit_together(
                workspace_log.create_missing_rows, parameters
            )
        except StoreFull:
            has_more = False  # Items that have rows are still sent, SOS first.
        self._paused_until = -inf if has_more else started_at + self._log_pause
        return has_more

    def _add_parcels(self, db: Db, load: Load, capacity: int) -> None:
        sent_parcels = {each for load in self._loads.values() for each in load.parcels}
        for due in parcels.list_due(db, self.device, self._journal, self._clock(), sent_parcels):
            load.entries.append(due.entry)
            if len(load.encode()) > capacity:
                load.entries.pop()
                return
            load.parcels.append((due.item, due.device))
        carried = {each for load in self._loads.values() for each in load.relayed_commands}
        for order in parcels.list_due_commands(
            db, self.device, self._journal, self._clock(), carried
        ):
            load.entries.append(order.entry)
            if len(load.encode()) > capacity:
                load.entries.pop()
                return
            load.relayed_commands.append((order.device, order.number))

    async def mark_stored(self, outgoing: OutgoingMessage) -> None:
        if outgoing.number == self._positions.number:
            load, place = self._positions.get_sent()
        else:
            load, place = self._loads[outgoing.number], None
        stored = _StoredLoad(self.device.id, self._journal, load, place, self._clock())
        await self._store.commit_together(_store_confirmations, stored)
        if place is None:
            del self._loads[outgoing.number]
        else:
            self._positions.mark_stored()

    async def return_message(
        self, outgoing: OutgoingMessage, *, reason: str, retry_after: float = 0.0
    ) -> None:
        self._loads.pop(outgoing.number, None)

    async def store_body(self, body: bytes) -> None:
        await self._mobile_originated.take_in(self.device, body, Bearer.IP)

    async def next_note(self) -> bytes:
        while True:
            news = self._store.get_event(kit_report.get_topic(self.device.id))
            for offer in await self._store.read_together(_list_offers, self.device.id):
                if offer not in self._sent_offers:
                    self._sent_offers.add(offer)
                    return offer.encode()
            if self._kit_directory_version is not None:
                directory = await self._store.read(self._make_new_directory)
                if directory is not None:
                    self._kit_directory_version = directory.version
                    return directory.encode()
            question = await self._rebuilding.choose_question()
            if question is not None:
                return question.encode()
            await news.wait()

    async def process_note(self, body: bytes) -> None:
        try:
            report = decode(body)
        except RemoteProtocolError as error:
            log.warning("a note of %s cannot be read: %s", self.device.name, error)
            return
        if isinstance(report, StationsInRange):
            await self._store.commit(lambda db: self._note_earshot(db, report))
        elif isinstance(report, HasDirectory):
            self._kit_directory_version = report.version
            # Wake the task that waits for notes to the kit.
            await self._store.commit(lambda db: db.announce(kit_report.get_topic(self.device.id)))
        elif isinstance(report, KitCondition):
            now = self._clock()
            await self._store.commit(
                lambda db: kit_condition.store_condition(db, self.device.id, report, now)
            )
        elif isinstance(report, BackupNote):
            await self._rebuilding.process_answer(report, self._clock())
        elif isinstance(report, KitReport):
            for text in await self._store.commit(lambda db: self._store_report(db, report)):
                log.warning("%s", text)

    def _note_earshot(self, db: Db, report: StationsInRange) -> None:
        self._devices_in_range = stations_in_range.store_neighbours(db, self.device.id, report.hops)
        if self._devices_in_range and not stations_in_range.can_relay(db, self.device.id):
            log.warning(
                "%s offers to relay items to its neighbours, but may not: allow it with"
                " `fieldagent hub device relay %d`",
                *(self.device.name, self.device.id),
            )
        announce_mail(db, self.device.id)

    def _make_new_directory(self, db: Db) -> Directory | None:
        """Return the workspace's directory, or None if the kit has the current version."""
        workspace = self.device.workspace
        if people.read_version(db, workspace) == self._kit_directory_version:
            return None
        return people.make_directory(db, workspace, self.device.member)

    def _store_report(self, db: Db, report: KitReport) -> list[str]:
        """Store the kit's report and continue the offers of updates. Return the warnings to log."""
        now = self._clock()
        kit_report.store_report(db, self.device.id, report, now)
        if report.program is None:
            return []
        update_offers.record_report(db, self.device.id, report.program, now)
        return update_offers.continue_offers(db, now)


@dataclass(frozen=True, slots=True)
class _StoredLoad:
    """Load that a device has on disk, and the number of the journal that contains it."""

    device: int
    journal: int
    load: Load
    place: int | None
    """Last place of the positions in the load; None if the load contains no positions."""
    at: float


def _store_confirmations(db: Db, loads: Sequence[_StoredLoad]) -> list[None]:
    """Record that these devices have confirmed their loads: items, positions, names, commands and
    receipts.
    """
    now = max(each.at for each in loads)
    pairs = [(item, each.device) for each in loads for item in each.load.items]
    confirm_all(db, pairs, Bearer.IP, now)
    newest.mark_positions_stored(
        db, {each.device: each.place for each in loads if each.place is not None}
    )
    _mark_introduced(db, loads)
    for each in loads:
        commands.mark_commands_stored(db, each.device, each.load.commands)
        stations_in_range.record_items_carried(
            db, each.device, each.journal, each.load.parcels, now
        )
        commands.record_commands_carried(
            db, each.device, each.journal, each.load.relayed_commands, now
        )
    mark_receipts_sent(db, [id_ for each in loads for id_ in each.load.receipts], now)
    return [None] * len(loads)


def _mark_introduced(db: Db, loads: Sequence[_StoredLoad]) -> None:
    names = [each for each in loads if each.load.introduced]
    if not names:
        return
    membership, devices = make_membership(db, {each.device for each in names})
    journals = dict(db.execute(f"SELECT id, journal FROM device WHERE id {membership}", *devices))
    mark_introduced(
        db,
        [
            (each.device, *mark)
            for each in names
            # A newer link may have reported another journal, which does not contain the names.
            if journals.get(each.device) == each.journal
            for mark in each.load.introduced
        ],
    )


def _list_offers(db: Db, devices: Sequence[int]) -> list[list[Offer]]:
    """Return the offers of settings and programs for each device."""
    kinds: list[dict[int, Offer]] = [
        {**kit_report.list_offers(db, devices)},
        {**update_offers.list_offers(db, devices)},
    ]
    return [[offers[device] for offers in kinds if device in offers] for device in devices]
