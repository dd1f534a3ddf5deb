"""What a contact is told of an SOS, in words that fit a mail, a pager and a lock screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fieldagent.hub.api import reading
from fieldagent.hub.api.sos_desk import for_a_pager
from fieldagent.hub.escalation.contract import Notice
from fieldagent.hub.records import sos
from fieldagent.hub.records.alarm import AGAIN, ESCALATED
from fieldagent.hub.records.sos import Sos
from fieldagent.hub.store.contract import Db
from fieldagent.package.writing import clock_time

WORDS = 300
"""Characters of what was said, at most."""
_KINDS = {
    "sos": "SOS",
    "overdue": "Overdue",
    "operator": "Satellite operator",
    "watch": "Watch",
    "fence": "Fence",
}


_WHY = {
    ESCALATED: ": somebody else is told now.",
    AGAIN: " yet: you are told again.",
}
"""Behind `nobody has answered`."""


def of(
    db: Db, found: Sos, message_id: str, why: str, desk: str, link: str, code: str = ""
) -> Notice:
    """`desk` is the console's address, `link` the path of what acknowledges it, `code` what does
    in an answer."""
    told = for_a_pager(db, found.id, desk, link)
    device, said = device_in_words(told), said_in(db, found)
    subject = f"{title(found)} of {device}"
    lines = [
        f"{subject}{': ' + said if said else ''}",
        f"Raised {clock_time(found.raised)}, and nobody has answered" + _WHY.get(why, " yet."),
        *_places(told.get("position")),
    ]
    if "desk" in told:
        lines.append(f"At the desk: {told['desk']}")
    if "acknowledge" in told:
        lines += [f"To answer it as the one who has it: {told['acknowledge']}"]
        lines += ["The link is yours, works once, and asks before it answers."]
    return Notice(
        message_id,
        subject,
        "\n".join(lines),
        found.id,
        device,
        said,
        told.get("desk", ""),
        told.get("acknowledge", ""),
        code,
        _short_map(told.get("position")),
    )


def asked(db: Db, found: Sos, message_id: str, text: str, desk: str) -> Notice:
    """Tell a dispatcher that they are to take it over."""
    told = for_a_pager(db, found.id, desk, "")
    device, words = device_in_words(told), visible(text)[:WORDS]
    subject = f"Take over {title(found)} of {device}?"
    return Notice(
        message_id, subject, f"{subject} {words}", found.id, device, words, told.get("desk", "")
    )


def together(found: Sequence[Notice]) -> Notice:
    """Tell of all that waited for the end of quiet hours: each in a line, then in full."""
    first = found[0]
    if len(found) == 1:
        return first
    subject = f"{len(found)} alarms in quiet hours"
    lines = [f"{each.subject}{': ' + each.said if each.said else ''}" for each in found]
    text = "\n\n".join([f"{subject}:", "\n".join(lines), *(each.text for each in found)])
    said = "; ".join(each.subject for each in found)
    return Notice(first.message_id, subject, text, first.sos, said=said, desk=first.desk)


def device_in_words(told: Mapping[str, Any]) -> str:
    """Return the name of the kit as `for_a_pager` tells it, and since when it is revoked."""
    since = told.get("revokedSince")
    mark = "" if since is None else f" (revoked since {clock_time(since)}, perhaps a thief)"
    return f"{visible(told['device'])}{mark}"


def reply(found: Sos, device: str, message_id: str, text: str) -> Notice:
    """Tell who answered what became of it."""
    subject = f"Re: {title(found)} of {visible(device)}"
    return Notice(message_id, subject, text, found.id, visible(device))


def test(name: str, message_id: str) -> Notice:
    text = f"TEST. This is a test of the contact {visible(name)}. Nobody is in distress."
    return Notice(message_id, "Test of an SOS contact", text)


def _short_map(position: dict[str, Any] | None) -> str:
    """Return an address of the map that fits an SMS beside the rest."""
    if position is None:
        return ""
    return f"https://osm.org/?mlat={position['latitude']:.5f}&mlon={position['longitude']:.5f}"


def title(found: Sos) -> str:
    return f"{_KINDS.get(found.kind, found.kind)} {found.id}"


def _places(position: dict[str, Any] | None) -> list[str]:
    if position is None:
        return ["Position: none is known."]
    where = f"{position['latitude']:.5f} {position['longitude']:.5f}"
    return [
        f"Position: {where}, {clock_time(position['at'])}",
        f"Map: {position['map']}",
        position["geo"],
    ]


def said_in(db: Db, found: Sos) -> str:
    """Return the newest words of its kit."""
    for item in reading.items(db, sos.items_of(db, found.id, 10)):
        said = item.as_json()["event"].get("content")
        if item.device is not None and isinstance(said, str) and said:
            return visible(said)[:WORDS]
    return ""


def visible(text: str) -> str:
    """Return it as one line in which nothing hides: strangers wrote it."""
    line = " ".join(text.split())
    shown = (each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)
    return "".join(shown)
