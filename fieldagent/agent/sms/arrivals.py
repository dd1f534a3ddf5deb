"""What lies in a modem's store, put together: a message of several parts counts once all are there.

Nothing is remembered between two looks: parts stay in the store until the last has come, so that a
restart loses none. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fieldagent.wire.sms_modem import Stored
from fieldagent.wire.sms_pdu import Content, Deliver, StatusReport


class Arrival(NamedTuple):
    """One message, or what the network says of one of ours."""

    places: tuple[int, ...]
    """That may be freed once it is taken in."""
    message: Deliver | StatusReport | None
    """None where it cannot be read, or is one of our own that somebody stored."""


class WaitingParts(NamedTuple):
    """Parts of one message, whose others have not come."""

    places: tuple[int, ...]
    key: tuple[str, int, int]
    """Sender, reference and number of parts."""


def arrivals(stored: Sequence[Stored]) -> tuple[list[Arrival], list[WaitingParts]]:
    """Return what is whole, in the order of the store, and what waits for the rest of it."""
    whole: list[Arrival] = []
    parts: dict[tuple[str, int, int], dict[int, Stored]] = {}
    for each in stored:
        message = each.message
        if isinstance(message, Deliver) and (part := message.content.part) is not None:
            key = (message.number, part.reference, part.total)
            found = parts.setdefault(key, {})
            if part.number in found:
                # The network brought it twice.
                whole.append(Arrival((each.place,), None))
                continue
            found[part.number] = each
            if len(found) == part.total:
                whole.append(_joined(parts.pop(key)))
        else:
            known = message if isinstance(message, Deliver | StatusReport) else None
            whole.append(Arrival((each.place,), known))
    return whole, [
        WaitingParts(tuple(each.place for each in found.values()), key)
        for key, found in parts.items()
    ]


def _joined(found: dict[int, Stored]) -> Arrival:
    messages = [found[number].message for number in sorted(found)]
    delivers = [each for each in messages if isinstance(each, Deliver)]
    first = delivers[0]
    body = b"".join(each.content.body for each in delivers)
    content = Content(first.content.coding, body)
    places = tuple(each.place for each in found.values())
    return Arrival(places, first._replace(content=content))
