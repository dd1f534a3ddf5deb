"""What the notes of an IP link say: `docs/ip-link.md`, "Notes".

A kit tells how its last update ended, again over each link.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import cbor2

from fieldagent.wire import strict_cbor
from fieldagent.wire.errors import RemoteProtocolError

WORDS_MAX = 2_000
"""Characters of a reason; what is longer is cut."""


class NoteKind(IntEnum):
    REPORT = 0


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
class KitReport:
    """What a kit tells of itself."""

    update: UpdateReport | None = None

    def encode(self) -> bytes:
        update = self.update
        row = None if update is None else [update.version, update.before, _cut(update.why)]
        return cbor2.dumps([NoteKind.REPORT, row])


def decode(body: bytes) -> KitReport | None:
    """None is what a later version may say. Raises RemoteProtocolError."""
    items = strict_cbor.loads(body)
    if not isinstance(items, list) or not items or type(items[0]) is not int:
        raise RemoteProtocolError("a note is no array that starts with its kind")
    if items[0] != NoteKind.REPORT:
        return None
    update = _row(items[1:2], (str, str, str))
    return KitReport(None if update is None else UpdateReport(*update))


def _row(found: list[Any], types: tuple[type, ...]) -> list[Any] | None:
    """The members of a part that may be missing."""
    row = found[0] if found else None
    if row is None:
        return None
    if not isinstance(row, list) or tuple(map(type, row[: len(types)])) != types:
        raise RemoteProtocolError("a report is damaged")
    return [_cut(each) if isinstance(each, str) else each for each in row[: len(types)]]


def _cut(text: str) -> str:
    return text if len(text) <= WORDS_MAX else f"{text[:WORDS_MAX]} …"
