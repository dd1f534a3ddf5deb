"""What rides along with Packages in a transmission: words about what the peers have sent.

To the hub those are receipts and reports of missing fragments, on the air the answers to what was
heard. Each kind of rider knows when it is worth a transmission of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from fieldagent.agent.journal import inbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.package.package import Channel
from fieldagent.package.payload import Identity
from fieldagent.wire.credit import CREDIT_BYTES
from fieldagent.wire.envelope import Ack, Entry, Introduction, Receipt, RelayRequest, Report

Size = Callable[[list[Entry]], int]
"""How many bytes the envelope of these entries takes."""

ANSWERS_MAX = 256
"""Answers that wait; one that is dropped is asked for again."""
INTRODUCE_EVERY = 3600.0
"""Seconds."""


@dataclass(slots=True)
class Ride:
    """What rode in one transmission, by the peer and its number, to be given back if it failed."""

    reports: dict[int, Entry] = field(default_factory=dict)
    receipts: dict[int, Entry] = field(default_factory=dict)
    introduced: bool = False


class Riders(Protocol):
    def look(self) -> None:
        """Something in the journal is owed to the peer."""

    def report(self, origin: int, sequence: int, count: int, arrived: frozenset[int]) -> None:
        """Tell the peer which fragments of its `sequence` have come, so that it sends the rest."""

    def wait(self) -> bool:
        """Whether something is worth a transmission of its own."""

    def board(self, entries: list[Entry], room: int, size: Size) -> Ride:
        """Add to `entries` what still fits into `room` bytes."""

    def arrived(self, db: sqlite3.Connection, ride: Ride) -> None:
        """The transmission left: record it in the same commit."""

    def alight(self, ride: Ride, *, sent: bool, beside_packages: bool) -> None:
        """The transmission is settled."""


class HubRiders:
    """Receipts for what the hub sent, and reports of fragments that are missing of it."""

    def __init__(self, journal: Journal, channel: Channel, *, at_once: bool = False) -> None:
        self._journal = journal
        self._channel = channel
        self._at_once = at_once
        self._reports: dict[int, Entry] = {}
        self._owed: dict[int, Entry] = {}
        self._riding: set[int] = set()
        self.look()

    def look(self) -> None:
        """Receipts are owed: they go with the next transmission, and an SOS's at once."""
        for sequence, at, sos in inbound.owed(self._journal, self._channel):
            if sequence not in self._riding:
                self._owed[sequence] = Entry(sequence, Receipt(), at, sos)

    def report(self, origin: int, sequence: int, count: int, arrived: frozenset[int]) -> None:
        self._reports[sequence] = Entry(sequence, Report(count, arrived))

    def wait(self) -> bool:
        at_once = self._at_once or any(entry.sos for entry in self._owed.values())
        return bool(self._reports) or (bool(self._owed) and at_once)

    def board(self, entries: list[Entry], room: int, size: Size) -> Ride:
        ride = Ride()
        for sequence, report in list(self._reports.items()):
            if size([*entries, report]) <= room:
                entries.append(report)
                ride.reports[sequence] = self._reports.pop(sequence)
        self._board_receipts(entries, room, size, ride)
        return ride

    def _board_receipts(self, entries: list[Entry], room: int, size: Size, ride: Ride) -> None:
        """Those that cost nothing; where nothing else goes, those that are worth it."""
        if entries:
            room = min(room, -(-size(entries) // CREDIT_BYTES) * CREDIT_BYTES)
        elif not self.wait():
            return
        for sequence, receipt in sorted(self._owed.items(), key=lambda owed: not owed[1].sos):
            # Its own urgency was for getting here.
            entry = Entry(sequence, receipt.content, receipt.time)
            if size([*entries, entry]) <= room:
                entries.append(entry)
                ride.receipts[sequence] = self._owed.pop(sequence)
        self._riding |= ride.receipts.keys()

    def arrived(self, db: sqlite3.Connection, ride: Ride) -> None:
        inbound.told(db, self._channel, ride.receipts)

    def alight(self, ride: Ride, *, sent: bool, beside_packages: bool) -> None:
        self._riding -= ride.receipts.keys()
        if not sent:
            self._owed |= ride.receipts
        if not sent and beside_packages:
            # Alone, a report has no retry of its own: it is asked for again when it is due.
            self._reports = ride.reports | self._reports


class AirRiders:
    """Answers to what was heard, our name, and the plea to carry what goes out.

    An answer that is lost is given again, as what it answered comes again.
    """

    def __init__(
        self,
        station: int,
        identity: Identity,
        *,
        pleads: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._introduction = Entry(station, Introduction(identity))
        self._pleads = pleads
        self._clock = clock
        self._introduced = -INTRODUCE_EVERY
        self._answers: dict[tuple[int, int], Ack] = {}
        """By the station that is answered, and the number it gave the item."""

    def answer(self, sequence: int, heard: Ack) -> None:
        self._answers[heard.station, sequence] = heard
        while len(self._answers) > ANSWERS_MAX:
            del self._answers[next(iter(self._answers))]

    def overhear(self, sequence: int, heard: Ack) -> None:
        """Another has said it: as much of an item, or more, is at a station already.

        Who has it whole says so all the same: its sender wants to know who does.
        """
        ours = self._answers.get((heard.station, sequence))
        if ours is None or ours.whole or ours.count != heard.count:
            return
        if ours.arrived <= heard.arrived:
            del self._answers[heard.station, sequence]

    def look(self) -> None:
        pass

    def report(self, origin: int, sequence: int, count: int, arrived: frozenset[int]) -> None:
        self.answer(sequence, Ack(-origin, count, arrived))

    def wait(self) -> bool:
        return bool(self._answers)

    def board(self, entries: list[Entry], room: int, size: Size) -> Ride:
        ride = Ride()
        riders = [Entry(0, RelayRequest())] if entries and self._pleads() else []
        if not entries and not self._answers:
            return ride
        if abs(self._clock() - self._introduced) >= INTRODUCE_EVERY:
            riders.append(self._introduction)
        riders += [Entry(sequence, heard) for (_, sequence), heard in self._answers.items()]
        for entry in riders:
            if size([*entries, entry]) > room:
                continue
            entries.append(entry)
            if isinstance(entry.content, Ack):
                del self._answers[entry.content.station, entry.sequence]
            elif isinstance(entry.content, Introduction):
                ride.introduced = True
        return ride

    def arrived(self, db: sqlite3.Connection, ride: Ride) -> None:
        pass

    def alight(self, ride: Ride, *, sent: bool, beside_packages: bool) -> None:
        if ride.introduced and sent:
            self._introduced = self._clock()
