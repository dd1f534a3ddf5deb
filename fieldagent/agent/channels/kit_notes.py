"""What the kit and the hub tell each other beside the messages: settings and programs for the kit,
what came of them and of its last update, how its modems hear, and how the kit is."""

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
from fieldagent.system.folder import put_file
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.backup_note import Ask, Copies, Fetch, Holding, Inventory
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_note import (
    ZIPAPP,
    Directory,
    Earshot,
    HasDirectory,
    KitReport,
    ModemReport,
    OfferReport,
    ProgramOffer,
    SettingsOffer,
    decode,
)
from fieldagent.wire.settings_change import NotAChange, read_change

log = logging.getLogger(__name__)

LOOK = 5.0
"""Seconds between two looks at what root's units have written, while that may change."""
MAY_CHANGE = 1_200.0
"""Seconds in which it may, after an offer, or after a start while one of them is at work: each
change starts the agent."""
MODEMS = ("satellite", "radio")
"""Of whose the report tells."""
MODEMS_EVERY = 1_800.0
"""Seconds at the least between two reports of how the modems hear: where the signal never rests,
these are 5 kB a day."""


EARSHOT_LOOK = 10.0
"""Seconds between two looks at who is in earshot: the hub has something for them, perhaps."""


class DirectoryShelf(NamedTuple):
    version: Callable[[], int]
    """Which is there; 0 for none."""
    keep: Callable[[Directory], Awaitable[None]]
    """Put another on disk."""


class BackupShelf(NamedTuple):
    holding: Callable[[], Awaitable[Holding]]
    """What the hub is known to have had last."""
    answer: Callable[[Ask | Fetch], Awaitable[Inventory | Copies]]
    """Wait until there is nothing better to do, and find what the hub asks for."""


@dataclass(slots=True)
class KitNotes:
    """`state_directory` is the agent's, `links` are all channels', by name; `directory` is where
    the hub's directory is kept, None where nobody wants it."""

    state_directory: Path
    links: Mapping[str, ChannelLink]
    installed: str = field(default_factory=lambda: installed(Path(__file__)))
    told: KitReport = field(default_factory=KitReport)
    """Over this link."""
    watch_until: float = -inf
    modems_again: float = -inf
    """When they may be told of; trio's clock."""
    offered: trio.Event = field(default_factory=trio.Event)

    directory: DirectoryShelf | None = None
    earshot: Callable[[], Mapping[int, int]] | None = None
    """By station that is heard on the air over how many transmissions; None where the hub is not
    to know."""
    told_earshot: Mapping[int, int] = field(default_factory=dict)
    backup: BackupShelf | None = None
    told_holding: bool = False
    asked: deque[Ask | Fetch] = field(default_factory=deque)
    """What the hub wants back, over this link."""
    named_directory: bool = False
    """The hub was told over this link which one is here."""
    condition: ConditionNews | None = None
    """None where the kit tells nothing of how it is."""

    def begin(self) -> None:
        """Begin with a new link: the hub is told again."""
        left = self._left(OFFER) or self._left(PROGRAM_OFFER)
        if left or outcomes.at_work(self.state_directory):
            self.watch_until = trio.current_time() + MAY_CHANGE
        self.told, self.modems_again = KitReport(), -inf
        self.named_directory, self.told_earshot, self.told_holding = False, {}, False
        self.asked.clear()
        if self.condition is not None:
            self.condition.begin()

    async def next(self) -> bytes:
        """Wait for the next note to the hub and return its bytes. Over each link the directory's
        version and what the hub was known to have come first, then whatever is news."""
        if self.directory is not None and not self.named_directory:
            self.named_directory = True
            return HasDirectory(self.directory.version()).encode()
        if self.backup is not None and not self.told_holding:
            self.told_holding = True
            holding = await self.backup.holding()
            if holding != Holding():
                return holding.encode()
        while (report := self._report()) == self.told:
            if self.backup is not None and self.asked:
                return (await self.backup.answer(self.asked.popleft())).encode()
            if self.earshot is not None and (heard := self.earshot()) != self.told_earshot:
                self.told_earshot = heard
                return Earshot(heard).encode()
            if self.condition is not None and (note := self.condition.news()) is not None:
                return note
            with waits.move_on_after(LOOK if self._may_change(report) else self._rest()):
                await self.offered.wait()
            self.offered = trio.Event()
        if report.modems != self.told.modems:
            self.modems_again = trio.current_time() + MODEMS_EVERY
        self.told = report
        return report.encode()

    def _rest(self) -> float:
        """Return the seconds until something else may be told."""
        if self.earshot is not None:
            return EARSHOT_LOOK
        rest = MODEMS_EVERY if self.links else inf
        return rest if self.condition is None else min(rest, self.condition.pause())

    def _may_change(self, report: KitReport) -> bool:
        """Or what waits is a program, which a slow link brings."""
        waits = report.program is not None and report.program.state == "waiting"
        return waits or trio.current_time() < self.watch_until

    def _report(self) -> KitReport:
        report = outcomes.read(self.state_directory)
        soon = trio.current_time() < self.modems_again
        return replace(
            report,
            modems=self.told.modems if soon else tuple(_modems(self.links)),
            settings=self._waiting(OFFER) or report.settings,
            program=self._waiting(PROGRAM_OFFER) or report.program,
            installed=self.installed,
        )

    def _waiting(self, file: str) -> OfferReport | None:
        """Return what root's unit has not taken yet."""
        offer = _read(self._left(file))
        return None if offer is None else OfferReport(offer.number, "waiting")

    def _left(self, file: str) -> bytes:
        try:
            return (self.state_directory / file).read_bytes()
        except OSError:
            return b""

    async def take_in(self, body: bytes) -> None:
        """Hand an offer to root's unit, once. Nothing of it is trusted here: the unit verifies it
        before anything else. A directory is kept here."""
        said = _decoded(body)
        if isinstance(said, Directory):
            if self.directory is not None:
                await self.directory.keep(said)
            return
        if isinstance(said, Ask | Fetch):
            self.asked.append(said)
            self.offered.set()
            return
        offer = _read(body)
        if offer is None or body == self._left(offer.file):
            return
        if offer.file == PROGRAM_OFFER and self.installed != ZIPAPP:
            log.warning("the hub brings %s: this is no zipapp, which alone takes it", offer.what)
            return
        report = outcomes.read(self.state_directory)
        last = report.program if offer.file == PROGRAM_OFFER else report.settings
        if last is not None and last.number == offer.number:
            return
        log.info("the hub brings %s: %s looks at it", offer.what, UNITS[offer.file])
        try:
            await trio.to_thread.run_sync(partial(self._leave, offer, body))
        except OSError as error:
            log.warning("%s cannot be kept, the hub brings it again: %s", offer.what, error)
            return
        self.watch_until = trio.current_time() + MAY_CHANGE
        self.offered.set()

    def _leave(self, offer: _Brought, body: bytes) -> None:
        put_file(self.state_directory / offer.file, body)
        if offer.address:
            update_news.note_offer(self.state_directory, offer.address)


def _modems(links: Mapping[str, ChannelLink]) -> Iterator[ModemReport]:
    for name, link in links.items():
        if name not in MODEMS:
            continue
        battery = link.facts.get("battery")
        known = battery if isinstance(battery, int) else None
        if link.signal is not None or known is not None:
            yield ModemReport(name, link.signal, known)


def installed(module: Path) -> str:
    """Return how the program is that holds this module: what a zipapp holds has the file above
    it."""
    if any(each.is_file() for each in module.parents):
        return ZIPAPP
    return "package" if module.is_relative_to("/usr/lib") else "sources"


UNITS = {OFFER: "fieldagent-settings.service", PROGRAM_OFFER: "fieldagent-update-offer.service"}


class _Brought(NamedTuple):
    number: int
    file: str
    """Where it is left."""
    what: str
    """In words."""
    address: str = ""
    """Where the program is."""


def _read(body: bytes) -> _Brought | None:
    """None is what could not be taken."""
    match _decoded(body) if body else None:
        case SettingsOffer(text):
            try:
                number = read_change(text).number
            except NotAChange as error:
                log.warning(UNREADABLE, error)
                return None
            return _Brought(number, OFFER, f"settings {number}")
        case ProgramOffer(number, version, url) if url:
            return _Brought(number, PROGRAM_OFFER, f"version {version}", url)
    return None


UNREADABLE = "a note of the hub cannot be read: %s"


def _decoded(body: bytes) -> object:
    try:
        return decode(body)
    except RemoteProtocolError as error:
        log.warning(UNREADABLE, error)
        return None
