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
    count_text: str
    """Number of parts that have arrived, as a text for people."""


class StoreContent(NamedTuple):
    """Content of the modem's store: complete messages, messages with missing parts, and unreadable
    messages.
    """

    whole: list[Arrival]
    """Complete messages in the order of their places."""
    waiting: list[WaitingParts]
    unreadable: Sequence[StoredMessage] = ()
    """Messages that may be readable at the next read, because there is noise on the serial line."""


class _StoredPart(NamedTuple):
    place: int
    message: Deliver
    part: Part


_Group = dict[int, _StoredPart]
"""Known parts of one message, by part number."""


def find_arrivals(messages: Sequence[StoredMessage]) -> StoreContent:
    """Sort the messages in the modem's store into complete, incomplete and unreadable messages."""
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
        stored_part = _StoredPart(place, message, part)
        alike = groups.setdefault((message.number, part.reference, part.total), [])
        if any(_is_repeated(stored_part, group) for group in alike):
            arrivals.append(Arrival((place,), None))
            continue
        group = _find_group(stored_part, alike)
        group[part.number] = stored_part
        if len(group) == part.total:
            alike.remove(group)
            arrivals.append(_join_parts(group))
    waiting = [_make_waiting(each) for alike in groups.values() for each in alike]
    return StoreContent(arrivals, waiting, unreadable)


def _compute_distance(stored_part: _StoredPart, group: _Group) -> float:
    return min(abs(stored_part.message.at - each.message.at) for each in group.values())


def _is_repeated(stored_part: _StoredPart, group: _Group) -> bool:
    """Return True if the network delivered a part a second time."""
    before = group.get(stored_part.part.number)
    if before is None or before.message.content != stored_part.message.content:
        return False
    return abs(before.message.at - stored_part.message.at) <= PARTS_APART


def _find_group(stored_part: _StoredPart, alike: list[_Group]) -> _Group:
    """Return the message to which the part belongs, as its known parts. If there are several such
    messages, return the nearest in time. If there is none, add a new message to `alike` and return
    it.
    """
    fits = [
        each
        for each in alike
        if stored_part.part.number not in each
        and _compute_distance(stored_part, each) <= PARTS_APART
    ]
    if fits:
        # If several messages are equally near in time, use the last one in the store, because the
        # sender may have started the message again.
        return min(reversed(fits), key=lambda each: _compute_distance(stored_part, each))
    alike.append({})
    return alike[-1]


def _make_waiting(group: _Group) -> WaitingParts:
    stored_parts = list(group.values())
    places = tuple(each.place for each in stored_parts)
    number, (reference, total, _) = stored_parts[0].message.number, stored_parts[0].part
    return WaitingParts(
        places,
        number,
        f"{number} {reference} {total} {min(places)}",
        max(each.message.at for each in stored_parts),
        f"{len(group)} of its {total} parts came",
    )


def _join_parts(group: _Group) -> Arrival:
    ordered = [group[number] for number in sorted(group)]
    body = b"".join(each.message.content.body for each in ordered)
    first = ordered[0].message
    content = Content(first.content.coding, body)
    return Arrival(tuple(each.place for each in group.values()), first._replace(content=content))
