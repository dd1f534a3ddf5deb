"""What rides along with Packages to the peer, as the packing of a transmission sees it: what of
theirs has come, and who we are.

To the hub those are receipts and reports of missing fragments (`hub_piggyback`); on the air they
are acknowledgements, our name, and the request to relay (`radio_piggyback`). Each kind knows when
it is worth a transmission of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

from fieldagent.agent.journal.inbound import RungOwed, UnreadableOwed
from fieldagent.agent.outbound.draft import Draft
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import Entry

RungKey = tuple[int, int, int, str]


@dataclass(slots=True)
class Piggybacked:
    """What rode in one transmission, by the peer's number, to be given back if it failed."""

    reports: dict[int, Entry] = field(default_factory=dict)
    receipts: dict[int, Entry] = field(default_factory=dict)
    rungs: dict[RungKey, RungOwed] = field(default_factory=dict)
    unreadable: list[UnreadableOwed] = field(default_factory=list)
    introduced: bool = False
    asked: bool = False
    """It was asked who is who."""
    named_incident: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """One packet that goes on the air once more: entries of the station `origin`."""

    origin: int
    entries: Sequence[Entry]
    lacking: Sequence[Entry] = ()
    """Left out where they do not fit: which name those who lack it, or whose word it is."""
    sos: bool = False
    hops: int = 0
    """Transmissions that brought it here."""
    joins: bool = False
    """It goes with others in one packet, of whichever stations."""


class Piggyback(Protocol):
    def look(self) -> None:
        """Look in the journal for what the peer is owed by now."""

    def report(self, origin: int, report: Entry) -> None:
        """Tell the peer which fragments of an item have come, so that it sends the rest."""

    def ask_names(self) -> None:
        """Ask for names: something came from somebody who was not introduced."""

    def is_worth_sending(self) -> bool:
        """Return whether there is something to say that does not wait for a Package to ride
        with."""

    def fill(self, draft: Draft, capacity: int) -> Piggybacked:
        """Add to `draft` what still fits into `capacity` bytes."""

    def next_repeat(self, *, busy: bool | None) -> Repeat | None:
        """Return what goes in a packet of its own before anything else. While a Package waits
        (`busy`) an SOS does alone, and nothing while that is one itself (None)."""

    def joining(self) -> Repeat | None:
        """Return another that goes in the same packet if it fits."""

    def joined(self, repeat: Repeat) -> None:
        """Note that what `joining` returned fits, and goes."""

    def record(self, db: sqlite3.Connection, words: Piggybacked) -> None:
        """Write down, in the same commit, that the transmission left with these words."""

    def settled(self, words: Piggybacked, *, sent: bool, beside_packages: bool) -> None:
        """Note that the transmission is over, and whether it was sent."""
