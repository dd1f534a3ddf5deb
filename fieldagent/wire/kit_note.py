"""Notes on an IP link: `docs/reference/ip-link.md`, "Notes".

The hub offers settings and programs that a kit's operator has signed. The kit reports the result of
an offer, the result of its last update, and the signal of its modems. Each side repeats its notes
on each new link, while they are valid.
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

REASON_MAX = 2_000
"""Maximum characters of a reason. A longer reason is cut."""
MODEMS_MAX = 8
"""Maximum number of modems in a kit's report."""
BARS, PERCENT = 5, 100
OFFER_MAX = 16_384
"""Maximum characters of offered settings, and of their signature."""
DIRECTORY_MAX = 1_000
"""Maximum names in a directory. For other names, the kit sends the typed text, and the hub finds
the addressee."""


ZIPAPP = "zipapp"
"""Kind of installation whose program can be replaced remotely."""


class NoteKind(IntEnum):
    REPORT = 0
    OFFER = 1
    PROGRAM = 2
    DIRECTORY = 3
    HAS_DIRECTORY = 4
    EARSHOT = 5


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """Result of the last update of a kit's program."""

    version: str
    before: str
    reason: str = ""
    """Reason of the fallback to the earlier program. Empty if the update succeeded."""

    def __str__(self) -> str:
        if self.reason:
            return f"{self.version} fell back to {self.before}: {self.reason}"
        return f"{self.version} runs (before: {self.before})"


@dataclass(frozen=True, slots=True)
class OfferReport:
    """Result of the last offer of settings or of a program."""

    number: int
    """Number of the offer."""
    state: str
    """State of the offer: `waiting` (for root's unit), `trial`, `taken`, `refused`, or `back`
    (rolled back)."""
    reason: str = ""

    def make_row(self) -> list[int | str]:
        """Return the report as an element of a KitReport. A long reason is cut."""
        return [self.number, self.state, _cut_text(self.reason)]


@dataclass(frozen=True, slots=True)
class ModemReport:
    """Signal and battery of a kit's modem."""

    channel: str
    """Either `satellite` or `radio`."""
    signal: int | None
    """Signal bars, 0 to 5. None while unknown."""
    battery: int | None
    """Charge in per cent. None if there is no battery or if unknown."""


@dataclass(frozen=True, slots=True)
class KitReport:
    """Report of a kit about its last update and offers, its modems and its installation."""

    update: UpdateReport | None = None
    settings: OfferReport | None = None
    program: OfferReport | None = None
    installed: str = ""
    """Kind of installation: `zipapp`, `package` or `sources`. Empty if the agent does not support
    offers of a program."""
    modems: tuple[ModemReport, ...] = ()

    def encode(self) -> bytes:
        """Return the report as CBOR. Empty members at the end are left out."""
        update, settings, program = self.update, self.settings, self.program
        members: list[object] = [
            NoteKind.REPORT,
            None if update is None else [update.version, update.before, _cut_text(update.reason)],
            None if settings is None else settings.make_row(),
        ]
        modems = [[each.channel, each.signal, each.battery] for each in self.modems]
        later_fields = [None if program is None else program.make_row(), self.installed, modems]
        while later_fields and not later_fields[-1]:
            later_fields.pop()
        return cbor2.dumps(members + later_fields)


@dataclass(frozen=True, slots=True)
class SettingsOffer:
    """Settings for a kit, and their minisign signature."""

    text: str
    signature: str
    by_satellite: bool = False
    """True if the settings arrived in a command over satellite, so that there may be no IP link."""

    def encode(self) -> bytes:
        """Return the note as CBOR, in the form for `decode`."""
        options = [True] if self.by_satellite else []
        return cbor2.dumps([NoteKind.OFFER, self.text, self.signature, *options])


@dataclass(frozen=True, slots=True)
class ProgramOffer:
    """Address of a program for a kit. The minisign signature is at `URL.minisig`."""

    number: int
    version: str
    url: str
    """Address of the program. Empty if a delta for the installed program arrived with a command.
    Such an offer is never sent over a link."""

    def encode(self) -> bytes:
        """Return the note as CBOR, in the form for `decode`."""
        return cbor2.dumps([NoteKind.PROGRAM, self.number, self.version, self.url])


KINDS = ("user", "group", "device")
"""Kinds of directory entries, by their numbers in the note."""


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A possible addressee of a Package."""

    kind: str
    number: int
    name: str
    handles: tuple[str, ...] = ()
    """Ids of a user's handheld radios."""
    members: tuple[int, ...] = ()
    """Users of a group."""

    def make_row(self) -> list[object]:
        """Return the entry as an element of a Directory. Empty members at the end are left out."""
        later_fields = [list(self.handles), list(self.members)]
        while later_fields and not later_fields[-1]:
            later_fields.pop()
        return [KINDS.index(self.kind), self.number, self.name, *later_fields]


@dataclass(frozen=True, slots=True)
class Directory:
    """Directory of the kit's workspace: the possible addressees of the kit's Packages."""

    version: int
    """Version number from the hub; never 0."""
    owner: int
    """Id of the kit's user."""
    people: tuple[DirectoryEntry, ...]

    def encode(self) -> bytes:
        """Return the note as CBOR, in the form for `decode`."""
        rows = [each.make_row() for each in self.people]
        return cbor2.dumps([NoteKind.DIRECTORY, self.version, self.owner, rows])


@dataclass(frozen=True, slots=True)
class HasDirectory:
    """Version of the kit's directory. If the hub has another version, it sends its directory."""

    version: int
    """Version number, or 0 if the kit has no directory."""

    def encode(self) -> bytes:
        """Return the note as CBOR, in the form for `decode`."""
        return cbor2.dumps([NoteKind.HAS_DIRECTORY, self.version])


STATIONS_MAX, HOPS_MAX = 64, 255
"""Maximum number of reported stations, and of hops. If there are more stations, the nearest are
reported."""


@dataclass(frozen=True, slots=True)
class StationsInRange:
    """Stations to which a kit can relay the hub's messages by radio."""

    hops: Mapping[int, int]
    """Number of transmissions from the kit to each station."""

    def encode(self) -> bytes:
        """Return the note as CBOR, with the STATIONS_MAX nearest stations."""
        nearest = sorted(self.hops.items(), key=lambda each: (each[1], each[0]))[:STATIONS_MAX]
        return cbor2.dumps([NoteKind.EARSHOT, [[*each] for each in nearest]])


Offer = SettingsOffer | ProgramOffer


Note = KitReport | Offer | Directory | HasDirectory | StationsInRange | BackupNote | KitCondition


def decode(body: bytes) -> Note | None:
    """Decode a note. Return None if its kind is from a later version. Raises RemoteProtocolError
    for malformed data.
    """
    items = strict_cbor.decode_single(body)
    if not isinstance(items, list) or not items or type(items[0]) is not int:
        raise RemoteProtocolError("a note is not an array that starts with its kind")
    read_note = _READERS.get(items[0])
    return None if read_note is None else read_note(items)


def _read_report(items: list[Any]) -> KitReport:
    update = _get_row(items[1:2], (str, str, str))
    settings = _get_row(items[2:3], (int, str, str))
    program = _get_row(items[3:4], (int, str, str))
    return KitReport(
        None if update is None else UpdateReport(*update),
        None if settings is None else OfferReport(*settings),
        None if program is None else OfferReport(*program),
        items[4] if items[4:] and isinstance(items[4], str) else "",
        _read_modems(items[5:6]),
    )


def _read_settings(items: list[Any]) -> SettingsOffer:
    if [type(item) for item in items[1:3]] != [str, str]:
        raise RemoteProtocolError("an offer has no text and signature")
    if max(len(item) for item in items[1:3]) > OFFER_MAX:
        raise RemoteProtocolError(f"an offer has more than {OFFER_MAX} characters")
    return SettingsOffer(items[1], items[2], items[3:4] == [True])


def _read_program(items: list[Any]) -> ProgramOffer:
    members = items[1:4]
    if [type(item) for item in members] != [int, str, str] or members[0] <= 0:
        raise RemoteProtocolError("an offer of a program has no number, version and address")
    if members[2] and not is_address(members[2]):
        raise RemoteProtocolError("an offer of a program names no http:// or https:// address")
    return ProgramOffer(*members)


def _read_has_directory(items: list[Any]) -> HasDirectory:
    if not items[1:] or not _is_number(items[1]):
        raise RemoteProtocolError("the note about the kit's directory is damaged")
    return HasDirectory(items[1])


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _read_stations_in_range(items: list[Any]) -> StationsInRange:
    rows = items[1] if items[1:] else None
    if isinstance(rows, list) and len(rows) <= STATIONS_MAX and all(map(_is_station_row, rows)):
        return StationsInRange(dict(rows))
    raise RemoteProtocolError("the note about the stations that the kit hears is damaged")


def _is_station_row(row: Any) -> bool:
    match row:
        case [station, hops]:
            return _is_number(station) and station > 0 and _is_number(hops) and hops <= HOPS_MAX
    return False


def _read_directory(items: list[Any]) -> Directory:
    match items[1:4]:
        case [version, owner, list(rows)] if _is_number(version) and _is_number(owner):
            return Directory(version, owner, tuple(_read_directory_entry(row) for row in rows))
    raise RemoteProtocolError("a directory has no version, owner and people")


def _read_directory_entry(row: Any) -> DirectoryEntry:
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
    raise RemoteProtocolError("a person in a directory is damaged")


def is_address(url: str) -> bool:
    """Return True if a program may be offered at the address `url`."""
    plain = url.isascii() and url.isprintable() and " " not in url
    return plain and len(url) <= REASON_MAX and url.startswith(("https://", "http://"))


def _get_row(items: list[Any], types: tuple[type, ...]) -> list[Any] | None:
    """Return the members of an optional part of a note, or None if the part is missing."""
    row = items[0] if items else None
    if row is None:
        return None
    if not isinstance(row, list) or tuple(map(type, row[: len(types)])) != types:
        raise RemoteProtocolError("a report is damaged")
    return [_cut_text(each) if isinstance(each, str) else each for each in row[: len(types)]]


def _read_modems(items: list[Any]) -> tuple[ModemReport, ...]:
    rows = items[0] if items else None
    if rows is None:
        return ()
    if not isinstance(rows, list) or len(rows) > MODEMS_MAX:
        raise RemoteProtocolError("a report names no modems, or too many")
    return tuple(_read_modem(row) for row in rows)


def _read_modem(row: Any) -> ModemReport:
    match row:
        case [str(channel), signal, battery, *_] if _is_up_to(BARS, signal) and _is_up_to(
            PERCENT, battery
        ):
            return ModemReport(_cut_text(channel), signal, battery)
    raise RemoteProtocolError("a report of a modem is damaged")


def _is_up_to(maximum: int, number: Any) -> bool:
    return number is None or (type(number) is int and 0 <= number <= maximum)


def _cut_text(text: str) -> str:
    return text if len(text) <= REASON_MAX else f"{text[:REASON_MAX]} …"


_READERS: Mapping[int, Callable[[list[Any]], Note]] = {
    NoteKind.REPORT: _read_report,
    NoteKind.OFFER: _read_settings,
    NoteKind.PROGRAM: _read_program,
    NoteKind.DIRECTORY: _read_directory,
    NoteKind.HAS_DIRECTORY: _read_has_directory,
    NoteKind.EARSHOT: _read_stations_in_range,
    kit_condition.KIND: kit_condition.decode_note,
    **dict.fromkeys(backup_note.KINDS, backup_note.decode_note),
}
"""For each kind of note, the function that parses it. The function gets the whole note, including
the kind."""
