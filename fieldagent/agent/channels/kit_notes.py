"""Exchanges notes between kit and hub, in addition to messages. Notes contain offers of settings
and programs, their results, the last update, modem signals, and the kit's condition.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from math import inf
from pathlib import Path

import trio

from fieldagent.agent import outcomes, update_news
from fieldagent.agent.channels.condition_news import ConditionNews
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.outcomes import OFFER, PROGRAM_OFFER
from fieldagent.system import waits
from fieldagent.system.folder import replace_file
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.backup_note import (
    BackupSummary,
    Copies,
    Inventory,
    InventoryRequest,
    ItemRequest,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_note import (
    ZIPAPP,
    Directory,
    HasDirectory,
    KitReport,
    ModemReport,
    OfferReport,
    ProgramOffer,
    SettingsOffer,
    StationsInRange,
    decode,
)
from fieldagent.wire.settings_change import NotAChange, parse_change

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 5.0
"""Seconds between two checks of the files that root's systemd units write, while these files may
change."""
WATCH_FILES_S = 1_200.0
"""Seconds for which the files are checked after an offer or after a link has opened, because a unit
may be running. Each applied offer restarts the agent."""
MODEMS = ("satellite", "radio")
"""Modems whose signal the kit reports."""
MODEMS_INTERVAL_S = 1_800.0
"""Minimum seconds between two reports of modem signals. If the signal changes all the time, the
reports take 5 kB a day."""


STATIONS_INTERVAL_S = 10.0
"""Seconds between two checks of the stations in range, for which the hub may have items."""


class DirectoryShelf(NamedTuple):
    version: Callable[[], int]
    """Returns the version of the stored directory, or 0 if there is none."""
    keep: Callable[[Directory], Awaitable[None]]
    """Stores a new directory on disk."""


class BackupShelf(NamedTuple):
    summary: Callable[[], Awaitable[BackupSummary]]
    """Returns the last items that the hub is known to have."""
    answer: Callable[[InventoryRequest | ItemRequest], Awaitable[Inventory | Copies]]
    """Waits until the kit is idle, and then returns the data that the hub requests."""


@dataclass(slots=True)
class KitNotes:
    """Notes between this kit and the hub. `state_directory` is the agent's state directory; `links`
    contains all channels by name. `directory` stores the hub's directory. It is None if the
    directory is not needed.
    """

    state_directory: Path
    links: Mapping[str, ChannelLink]
    installed: str = field(default_factory=lambda: find_installation_kind(Path(__file__)))
    last_report: KitReport = field(default_factory=KitReport)
    """Last report that was sent over this link."""
    watch_until: float = -inf
    modems_again: float = -inf
    """Time on trio's clock from which modem signals may be reported again."""
    offered: trio.Event = field(default_factory=trio.Event)

    directory: DirectoryShelf | None = None
    read_in_range: Callable[[], Mapping[int, int]] | None = None
    """Returns the stations in range, and the number of hops to each. None if the hub should not
    know them."""
    reported_in_range: Mapping[int, int] = field(default_factory=dict)
    backup: BackupShelf | None = None
    reported_backup: bool = False
    backup_requests: deque[InventoryRequest | ItemRequest] = field(default_factory=deque)
    """Requests for backup data that the hub has sent over this link."""
    named_directory: bool = False
    """True if the kit has reported its directory's version over this link."""
    condition: ConditionNews | None = None
    """Reports the kit's condition. None if the kit does not report it."""

    def begin(self) -> None:
        """Start again for a new link. All notes are sent over each new link."""
        remaining_note = self._read_offer_file(OFFER) or self._read_offer_file(PROGRAM_OFFER)
        if remaining_note or outcomes.is_at_work(self.state_directory):
            self.watch_until = trio.current_time() + WATCH_FILES_S
        self.last_report, self.modems_again = KitReport(), -inf
        self.named_directory, self.reported_in_range, self.reported_backup = False, {}, False
        self.backup_requests.clear()
        if self.condition is not None:
            self.condition.begin()

    async def wait_for_next(self) -> bytes:
        """Wait for the next note to the hub and return its bytes. The first notes over each link
        contain the directory's version, and the last items that the hub is known to have. The later
        notes contain changes, and answers to the hub's requests.
        """
        if self.directory is not None and not self.named_directory:
            self.named_directory = True
            return HasDirectory(self.directory.version()).encode()
        if self.backup is not None and not self.reported_backup:
            self.reported_backup = True
            summary = await self.backup.summary()
            if summary != BackupSummary():
                return summary.encode()
        while (report := self._make_report()) == self.last_report:
            if self.backup is not None and self.backup_requests:
                return (await self.backup.answer(self.backup_requests.popleft())).encode()
            if (
                self.read_in_range is not None
                and (in_range := self.read_in_range()) != self.reported_in_range
            ):
                self.reported_in_range = in_range
                return StationsInRange(in_range).encode()
            if (
                self.condition is not None
                and (note := self.condition.encode_due_note()) is not None
            ):
                return note
            with waits.move_on_after(
                CHECK_INTERVAL_S if self._can_change_soon(report) else self._compute_longest_pause()
            ):
                await self.offered.wait()
            self.offered = trio.Event()
        if report.modems != self.last_report.modems:
            self.modems_again = trio.current_time() + MODEMS_INTERVAL_S
        self.last_report = report
        return report.encode()

    def _compute_longest_pause(self) -> float:
        """Return the seconds after which the parts of the report are checked again."""
        if self.read_in_range is not None:
            return STATIONS_INTERVAL_S
        rest = MODEMS_INTERVAL_S if self.links else inf
        return rest if self.condition is None else min(rest, self.condition.compute_pause())

    def _can_change_soon(self, report: KitReport) -> bool:
        """Return True if the report may change soon. This is also possible if an offered program
        still waits, because a slow link may still be downloading it.
        """
        waits = report.program is not None and report.program.state == "waiting"
        return waits or trio.current_time() < self.watch_until

    def _make_report(self) -> KitReport:
        report = outcomes.read(self.state_directory)
        soon = trio.current_time() < self.modems_again
        return replace(
            report,
            modems=self.last_report.modems if soon else tuple(_list_modems(self.links)),
            settings=self._find_waiting_offer(OFFER) or report.settings,
            program=self._find_waiting_offer(PROGRAM_OFFER) or report.program,
            installed=self.installed,
        )

    def _find_waiting_offer(self, file: str) -> OfferReport | None:
        """Return the offer in `file` that root's unit has not fetched yet, or None if there is
        none.
        """
        offer = _parse_offer(self._read_offer_file(file))
        return None if offer is None else OfferReport(offer.number, "waiting")

    def _read_offer_file(self, file: str) -> bytes:
        try:
            return (self.state_directory / file).read_bytes()
        except OSError:
            return b""

    async def process_note(self, body: bytes) -> None:
        """Process a note of the hub. A directory is stored, a request for backup data is queued,
        and a new offer is written to a file for root's unit. The agent does not verify offers,
        because the unit does this.
        """
        document = _decode_note(body)
        if isinstance(document, Directory):
            if self.directory is not None:
                await self.directory.keep(document)
            return
        if isinstance(document, InventoryRequest | ItemRequest):
            self.backup_requests.append(document)
            self.offered.set()
            return
        offer = _parse_offer(body)
        if offer is None or body == self._read_offer_file(offer.file):
            return
        if offer.file == PROGRAM_OFFER and self.installed != ZIPAPP:
            log.warning("the hub offers %s, but only a zipapp can install it", offer.what)
            return
        report = outcomes.read(self.state_directory)
        last = report.program if offer.file == PROGRAM_OFFER else report.settings
        if last is not None and last.number == offer.number:
            return
        log.info("the hub sent %s: %s checks it", offer.what, UNITS[offer.file])
        try:
            await trio.to_thread.run_sync(partial(self._store_offer, offer, body))
        except OSError as error:
            log.warning("%s cannot be stored, the hub will send it again: %s", offer.what, error)
            return
        self.watch_until = trio.current_time() + WATCH_FILES_S
        self.offered.set()

    def _store_offer(self, offer: _OfferFile, body: bytes) -> None:
        replace_file(self.state_directory / offer.file, body)
        if offer.address:
            update_news.store_offer_address(self.state_directory, offer.address)


def _list_modems(links: Mapping[str, ChannelLink]) -> Iterator[ModemReport]:
    for name, link in links.items():
        if name not in MODEMS:
            continue
        battery = link.facts.get("battery")
        level = battery if isinstance(battery, int) else None
        if link.signal is not None or level is not None:
            yield ModemReport(name, link.signal, level)


def find_installation_kind(module: Path) -> str:
    """Return the kind of installation of the program that contains the file `module`. In a zipapp,
    a parent of this path is a file.
    """
    if any(each.is_file() for each in module.parents):
        return ZIPAPP
    return "package" if module.is_relative_to("/usr/lib") else "sources"


UNITS = {OFFER: "fieldagent-settings.service", PROGRAM_OFFER: "fieldagent-update-offer.service"}


class _OfferFile(NamedTuple):
    number: int
    file: str
    """Name of the file to which the offer is written."""
    what: str
    """Description of the offer for people."""
    address: str = ""
    """URL of the program."""


def _parse_offer(body: bytes) -> _OfferFile | None:
    """Return the offer in a note, or None if the note is not an offer or cannot be decoded."""
    match _decode_note(body) if body else None:
        case SettingsOffer(text):
            try:
                number = parse_change(text).number
            except NotAChange as error:
                log.warning(UNREADABLE, error)
                return None
            return _OfferFile(number, OFFER, f"settings {number}")
        case ProgramOffer(number, version, url) if url:
            return _OfferFile(number, PROGRAM_OFFER, f"version {version}", url)
    return None


UNREADABLE = "a note of the hub cannot be read: %s"


def _decode_note(body: bytes) -> object:
    try:
        return decode(body)
    except RemoteProtocolError as error:
        log.warning(UNREADABLE, error)
        return None
