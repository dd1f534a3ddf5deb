"""What lies in a modem's store, put together: a message of several parts counts once all are there.

Nothing is remembered between two looks: parts stay in the store until the last has come, so that a
restart loses none. Parts are of one message if sender, reference and count agree and the service
centre had them within PARTS_APART: references come round again, and some senders have one alone.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.sms_modem import Stored
from fieldagent.wire.sms_pdu import Content, Deliver, Part, StatusReport

PARTS_APART = 3_600.0
"""Seconds between two parts of one message, at the service centre."""


class Arrival(NamedTuple):
    """One message, or what the network says of one of ours."""

    places: tuple[int, ...]
    """That may be freed once it is taken in."""
    message: Deliver | StatusReport | None
    """None where it came before, or is one of our own that somebody stored."""


class WaitingParts(NamedTuple):
    """Parts of one message, whose others have not come."""

    places: tuple[int, ...]
    number: str
    """The sender's."""
    name: str
    """Tells it from others in the store."""
    at: float
    """When the service centre had the last of them, Unix time."""
    told: str
    """How many came, for people."""


class Found(NamedTuple):
    """All that a look at the store found."""

    whole: list[Arrival]
    """In the order of the store."""
    waiting: list[WaitingParts]
    unreadable: Sequence[Stored] = ()
    """What may read otherwise at another look: the line has noise."""


class _Piece(NamedTuple):
    place: int
    message: Deliver
    part: Part


_Group = dict[int, _Piece]
"""What is there of one message, by the number of the part."""


def arrivals(stored: Sequence[Stored]) -> Found:
    """Return what is whole, and what waits for the rest of it."""
    whole: list[Arrival] = []
    groups: dict[tuple[str, int, int], list[_Group]] = {}
    unreadable = [each for each in stored if each.message is None]
    for place, message, *_ in stored:
        if message is None:
            continue
        part = message.content.part if isinstance(message, Deliver) else None
        if not isinstance(message, Deliver) or part is None:
            known = message if isinstance(message, Deliver | StatusReport) else None
            whole.append(Arrival((place,), known))
            continue
        piece = _Piece(place, message, part)
        alike = groups.setdefault((message.number, part.reference, part.total), [])
        if any(_is_again(piece, group) for group in alike):
            whole.append(Arrival((place,), None))
            continue
        group = _group_of(piece, alike)
        group[part.number] = piece
        if len(group) == part.total:
            alike.remove(group)
            whole.append(_joined(group))
    waiting = [_waiting(each) for alike in groups.values() for each in alike]
    return Found(whole, waiting, unreadable)


def _apart(piece: _Piece, group: _Group) -> float:
    return min(abs(piece.message.at - each.message.at) for each in group.values())


def _is_again(piece: _Piece, group: _Group) -> bool:
    """Return whether the network brought it twice."""
    before = group.get(piece.part.number)
    if before is None or before.message.content != piece.message.content:
        return False
    return abs(before.message.at - piece.message.at) <= PARTS_APART


def _group_of(piece: _Piece, alike: list[_Group]) -> _Group:
    """Return the message that it completes, the nearest in time; a new one where it is of none."""
    fits = [
        each
        for each in alike
        if piece.part.number not in each and _apart(piece, each) <= PARTS_APART
    ]
    if fits:
        # Of several the later in the store: what has a part twice was begun anew.
        return min(reversed(fits), key=lambda each: _apart(piece, each))
    alike.append({})
    return alike[-1]


def _waiting(group: _Group) -> WaitingParts:
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


def _joined(group: _Group) -> Arrival:
    ordered = [group[number] for number in sorted(group)]
    body = b"".join(each.message.content.body for each in ordered)
    first = ordered[0].message
    content = Content(first.content.coding, body)
    return Arrival(tuple(each.place for each in group.values()), first._replace(content=content))
