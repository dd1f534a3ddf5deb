"""Assembles the messages in a modem's store. A message of several parts is complete when all its
parts have arrived.

Parts remain in the store until the last part has arrived, so that a restart loses no part. Nothing
else is stored between two reads of the store. Parts belong together if their sender, reference and
count are equal and the service centre received them within `PARTS_APART` seconds. The time is
necessary because references are used again, and some senders always use the same reference. Pure
functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.extensions.sms.sms_modem import StoredMessage
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.sms_pdu import Content, Deliver, Part, StatusReport

PARTS_APART = 3_600.0
"""Longest time in seconds between two parts of one message, at the service centre."""


class Arrival(NamedTuple):
    """A complete message, or a status report for a message of this kit."""

    places: tuple[int, ...]
    """Indexes in the modem's message storage that can be deleted after the message has been
    accepted."""
    message: Deliver | StatusReport | None
    """Content of the message. None if the message is a duplicate, or a message that this kit has
    sent."""


class WaitingParts(NamedTuple):
    """Parts of one message whose other parts have not arrived yet."""

    places: tuple[int, ...]
    number: str
    """Number of the sender."""
    name: str
    """Text that identifies the message in the store."""
    at: float
    """Unix time when the service centre received the last of these parts."""
    told: str
    """Number of parts that have arrived, as a text for people."""


class StoreContent(NamedTuple):
    """Messages in the modem's store, by whether all their parts have arrived."""

    whole: list[Arrival]
    """Complete messages in the order of their places."""
    waiting: list[WaitingParts]
    unreadable: Sequence[StoredMessage] = ()
    """Messages that may be readable at the next read, because there is noise on the serial line."""


class _Piece(NamedTuple):
    place: int
    message: Deliver
    part: Part


_Group = dict[int, _Piece]
"""Known parts of one message, by part number."""


def find_arrivals(messages: Sequence[StoredMessage]) -> StoreContent:
    """Return the complete messages, and the messages with missing parts."""
    arrivals: list[Arrival] = []
    groups: dict[tuple[str, int, int], list[_Group]] = {}
    unreadable = [each for each in messages if each.message is None]
    for place, message, *_ in messages:
        if message is None:
            continue
        part = message.content.part if isinstance(message, Deliver) else None
        if not isinstance(message, Deliver) or part is None:
            parsed = message if isinstance(message, Deliver | StatusReport) else None
            arrivals.append(Arrival((place,), parsed))
            continue
        piece = _Piece(place, message, part)
        alike = groups.setdefault((message.number, part.reference, part.total), [])
        if any(_is_again(piece, group) for group in alike):
            arrivals.append(Arrival((place,), None))
            continue
        group = _find_group(piece, alike)
        group[part.number] = piece
        if len(group) == part.total:
            alike.remove(group)
            arrivals.append(_join_parts(group))
    waiting = [_make_waiting(each) for alike in groups.values() for each in alike]
    return StoreContent(arrivals, waiting, unreadable)


def _compute_distance(piece: _Piece, group: _Group) -> float:
    return min(abs(piece.message.at - each.message.at) for each in group.values())


def _is_again(piece: _Piece, group: _Group) -> bool:
    """Return True if the network delivered a part a second time."""
    before = group.get(piece.part.number)
    if before is None or before.message.content != piece.message.content:
        return False
    return abs(before.message.at - piece.message.at) <= PARTS_APART


def _find_group(piece: _Piece, alike: list[_Group]) -> _Group:
    """Return the message to which the part belongs. If there are several, return the nearest in
    time. If there is none, add a new message to `alike` and return it.
    """
    fits = [
        each
        for each in alike
        if piece.part.number not in each and _compute_distance(piece, each) <= PARTS_APART
    ]
    if fits:
        # If several messages fit, use the later one in the store. If a message already has the
        # part, its sender has started the message again.
        return min(reversed(fits), key=lambda each: _compute_distance(piece, each))
    alike.append({})
    return alike[-1]


def _make_waiting(group: _Group) -> WaitingParts:
    pieces = list(group.values())
    places = tuple(each.place for each in pieces)
    number, (reference, total, _) = pieces[0].message.number, pieces[0].part
    return WaitingParts(
        places,
        number,
        f"{number} {reference} {total} {min(places)}",
        max(each.message.at for each in pieces),
        f"{len(group)} of its {total} parts came",
    )


def _join_parts(group: _Group) -> Arrival:
    ordered = [group[number] for number in sorted(group)]
    body = b"".join(each.message.content.body for each in ordered)
    first = ordered[0].message
    content = Content(first.content.coding, body)
    return Arrival(tuple(each.place for each in group.values()), first._replace(content=content))
