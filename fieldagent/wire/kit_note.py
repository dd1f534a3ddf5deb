"""What the notes of an IP link say: `docs/reference/ip-link.md`, "Notes".

The hub offers settings and programs that a kit's operator has signed; the kit tells what came of
them and of its last update, and how its modems hear. Either says so again over each link, for as
long as it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

import cbor2

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import backup_note, kit_condition, strict_cbor
from fieldagent.wire.backup_note import BackupNote
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_condition import KitCondition

WORDS_MAX = 2_000
"""Characters of a reason; what is longer is cut."""
MODEMS_MAX = 8
"""How many a kit may tell of."""
BARS, PERCENT = 5, 100
OFFER_MAX = 16_384
"""Characters of the settings that are offered, and of their signature."""


ZIPAPP = "zipapp"
"""How a program is installed that can be replaced from afar."""


class NoteKind(IntEnum):
    REPORT = 0
    OFFER = 1
    PROGRAM = 2
    DIRECTORY = 3
    HAS_DIRECTORY = 4
    EARSHOT = 5


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """How the last update of a kit's program ended."""

    version: str
    before: str
    why: str = ""
    """Why it went back to what was before; empty where it did not."""

    def __str__(self) -> str:
        if self.why:
            return f"{self.version} fell back to {self.before}: {self.why}"
        return f"{self.version} runs (before: {self.before})"


@dataclass(frozen=True, slots=True)
class OfferReport:
    """What came of the settings, or of the program, that a kit was offered last."""

    number: int
    """Of the offer."""
    state: str
    """`waiting` for its unit, on `trial`, `taken`, `refused`, or put `back`."""
    why: str = ""

    def row(self) -> list[int | str]:
        """Return it as an element of a KitReport; a long reason is cut."""
        return [self.number, self.state, _cut(self.why)]


@dataclass(frozen=True, slots=True)
class ModemReport:
    """How a modem of a kit hears, and how long its battery lasts."""

    channel: str
    """`satellite` or `radio`."""
    signal: int | None
    """Bars, 0 to 5; None while unknown."""
    battery: int | None
    """Percent; None where it has none, or does not tell."""


@dataclass(frozen=True, slots=True)
class KitReport:
    """What a kit tells of itself."""

    update: UpdateReport | None = None
    settings: OfferReport | None = None
    program: OfferReport | None = None
    installed: str = ""
    """`zipapp`, `package` or `sources`; empty is of an agent that knows no offer of a program."""
    modems: tuple[ModemReport, ...] = ()

    def encode(self) -> bytes:
        """Return the report as CBOR; what is empty at its end is left out."""
        update, settings, program = self.update, self.settings, self.program
        members: list[object] = [
            NoteKind.REPORT,
            None if update is None else [update.version, update.before, _cut(update.why)],
            None if settings is None else settings.row(),
        ]
        modems = [[each.channel, each.signal, each.battery] for each in self.modems]
        later = [None if program is None else program.row(), self.installed, modems]
        while later and not later[-1]:
            later.pop()
        return cbor2.dumps(members + later)


@dataclass(frozen=True, slots=True)
class SettingsOffer:
    """Settings for a kit, and minisign's signature of them."""

    text: str
    signature: str
    by_satellite: bool = False
    """A command has brought them over satellite: nobody promises an IP link."""

    def encode(self) -> bytes:
        """Return the note as CBOR."""
        by = [True] if self.by_satellite else []
        return cbor2.dumps([NoteKind.OFFER, self.text, self.signature, *by])


@dataclass(frozen=True, slots=True)
class ProgramOffer:
    """Where a kit finds a program; minisign's signature lies beside it, as `URL.minisig`."""

    number: int
    version: str
    url: str
    """Empty where a command has brought what makes it of the one that is there: no link says so."""

    def encode(self) -> bytes:
        """Return the note as CBOR."""
        return cbor2.dumps([NoteKind.PROGRAM, self.number, self.version, self.url])


KINDS = ("user", "group", "device")
"""Of who is in a directory, by their number in the note."""


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """Somebody whom a Package may be for."""

    kind: str
    number: int
    name: str
    handles: tuple[str, ...] = ()
    """Of a user: their radios."""
    members: tuple[int, ...] = ()
    """Of a group: its users."""

    def row(self) -> list[object]:
        """Return it as an element of a Directory; what is empty at its end is left out."""
        more = [list(self.handles), list(self.members)]
        while more and not more[-1]:
            more.pop()
        return [KINDS.index(self.kind), self.number, self.name, *more]


@dataclass(frozen=True, slots=True)
class Directory:
    """Who there is in the kit's workspace."""

    version: int
    """Which the hub gave it; never 0."""
    owner: int
    """The user whose kit it is."""
    people: tuple[DirectoryEntry, ...]

    def encode(self) -> bytes:
        """Return the note as CBOR."""
        rows = [each.row() for each in self.people]
        return cbor2.dumps([NoteKind.DIRECTORY, self.version, self.owner, rows])


@dataclass(frozen=True, slots=True)
class HasDirectory:
    """The kit's word which directory it has: the hub tells another one."""

    version: int
    """0: none."""

    def encode(self) -> bytes:
        """Return the note as CBOR."""
        return cbor2.dumps([NoteKind.HAS_DIRECTORY, self.version])


STATIONS_MAX, HOPS_MAX = 64, 255
"""How many a kit tells of; those that are nearest."""


@dataclass(frozen=True, slots=True)
class Earshot:
    """Which stations a kit hears by radio, to which it brings what the hub has for them."""

    hops: Mapping[int, int]
    """By station, the transmissions that bring something from one to the other."""

    def encode(self) -> bytes:
        """Return the note as CBOR, with the STATIONS_MAX nearest."""
        nearest = sorted(self.hops.items(), key=lambda each: (each[1], each[0]))[:STATIONS_MAX]
        return cbor2.dumps([NoteKind.EARSHOT, [[*each] for each in nearest]])


Offer = SettingsOffer | ProgramOffer


Note = KitReport | Offer | Directory | HasDirectory | Earshot | BackupNote | KitCondition


def decode(body: bytes) -> Note | None:
    """Decode a note; None is what a later version may say. Raises RemoteProtocolError."""
    items = strict_cbor.loads(body)
    if not isinstance(items, list) or not items or type(items[0]) is not int:
        raise RemoteProtocolError("a note is no array that starts with its kind")
    read = _READERS.get(items[0])
    return None if read is None else read(items)


def _report(items: list[Any]) -> KitReport:
    update = _row(items[1:2], (str, str, str))
    settings = _row(items[2:3], (int, str, str))
    program = _row(items[3:4], (int, str, str))
    return KitReport(
        None if update is None else UpdateReport(*update),
        None if settings is None else OfferReport(*settings),
        None if program is None else OfferReport(*program),
        items[4] if items[4:] and isinstance(items[4], str) else "",
        _modems(items[5:6]),
    )


def _settings(items: list[Any]) -> SettingsOffer:
    if [type(item) for item in items[1:3]] != [str, str]:
        raise RemoteProtocolError("an offer has no text and signature")
    if max(len(item) for item in items[1:3]) > OFFER_MAX:
        raise RemoteProtocolError(f"an offer has more than {OFFER_MAX} characters")
    return SettingsOffer(items[1], items[2], items[3:4] == [True])


def _program(items: list[Any]) -> ProgramOffer:
    members = items[1:4]
    if [type(item) for item in members] != [int, str, str] or members[0] <= 0:
        raise RemoteProtocolError("an offer of a program has no number, version and address")
    if members[2] and not is_address(members[2]):
        raise RemoteProtocolError("an offer of a program names no http:// or https:// address")
    return ProgramOffer(*members)


def _has_directory(items: list[Any]) -> HasDirectory:
    if not items[1:] or not _is_number(items[1]):
        raise RemoteProtocolError("which directory the kit has is damaged")
    return HasDirectory(items[1])


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _earshot(items: list[Any]) -> Earshot:
    rows = items[1] if items[1:] else None
    if isinstance(rows, list) and len(rows) <= STATIONS_MAX and all(map(_is_heard, rows)):
        return Earshot(dict(rows))
    raise RemoteProtocolError("which stations the kit hears is damaged")


def _is_heard(row: Any) -> bool:
    match row:
        case [station, hops]:
            return _is_number(station) and station > 0 and _is_number(hops) and hops <= HOPS_MAX
    return False


def _directory(items: list[Any]) -> Directory:
    match items[1:4]:
        case [version, owner, list(rows)] if _is_number(version) and _is_number(owner):
            return Directory(version, owner, tuple(_listed(row) for row in rows))
    raise RemoteProtocolError("a directory has no version, owner and people")


def _listed(row: Any) -> DirectoryEntry:
    match row:
        case [kind, number, str(name), *more] if (
            type(kind) is int and 0 <= kind < len(KINDS) and _is_number(number)
        ):
            handles, members = [*more, [], []][:2]
            if (
                isinstance(handles, list)
                and isinstance(members, list)
                and all(isinstance(each, str) for each in handles)
                and all(_is_number(each) for each in members)
            ):
                return DirectoryEntry(KINDS[kind], number, name, tuple(handles), tuple(members))
    raise RemoteProtocolError("somebody in a directory is damaged")


def is_address(url: str) -> bool:
    """Return whether a program may be offered from there."""
    plain = url.isascii() and url.isprintable() and " " not in url
    return plain and len(url) <= WORDS_MAX and url.startswith(("https://", "http://"))


def _row(items: list[Any], types: tuple[type, ...]) -> list[Any] | None:
    """The members of a part that may be missing."""
    row = items[0] if items else None
    if row is None:
        return None
    if not isinstance(row, list) or tuple(map(type, row[: len(types)])) != types:
        raise RemoteProtocolError("a report is damaged")
    return [_cut(each) if isinstance(each, str) else each for each in row[: len(types)]]


def _modems(items: list[Any]) -> tuple[ModemReport, ...]:
    rows = items[0] if items else None
    if rows is None:
        return ()
    if not isinstance(rows, list) or len(rows) > MODEMS_MAX:
        raise RemoteProtocolError("a report tells of no modems, or of too many")
    return tuple(_modem(row) for row in rows)


def _modem(row: Any) -> ModemReport:
    match row:
        case [str(channel), signal, battery, *_] if _up_to(BARS, signal) and _up_to(
            PERCENT, battery
        ):
            return ModemReport(_cut(channel), signal, battery)
    raise RemoteProtocolError("a report of a modem is damaged")


def _up_to(most: int, number: Any) -> bool:
    return number is None or (type(number) is int and 0 <= number <= most)


def _cut(text: str) -> str:
    return text if len(text) <= WORDS_MAX else f"{text[:WORDS_MAX]} …"


_READERS: Mapping[int, Callable[[list[Any]], Note]] = {
    NoteKind.REPORT: _report,
    NoteKind.OFFER: _settings,
    NoteKind.PROGRAM: _program,
    NoteKind.DIRECTORY: _directory,
    NoteKind.HAS_DIRECTORY: _has_directory,
    NoteKind.EARSHOT: _earshot,
    kit_condition.KIND: kit_condition.read,
    **dict.fromkeys(backup_note.KINDS, backup_note.read),
}
"""Each takes the whole note, its kind first."""
