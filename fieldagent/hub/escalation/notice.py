"""What a contact is told of an SOS, in words that fit a mail, a pager and a lock screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fieldagent.hub.api import reading, sos_desk
from fieldagent.hub.api.sos_desk import for_a_pager
from fieldagent.hub.escalation.contract import Notice
from fieldagent.hub.escalation.language import say, worded
from fieldagent.hub.records import sos
from fieldagent.hub.records.alarm import AGAIN, ESCALATED
from fieldagent.hub.records.sos import Sos, SosState
from fieldagent.hub.store.contract import Db
from fieldagent.package.writing import clock_time
from fieldagent.page.language import ENGLISH
from fieldagent.system.lazy_named_tuple import NamedTuple

WORDS = 300
"""Characters of what was said, at most."""


class AnswerWays(NamedTuple):
    """How who is told answers; what there is none of is empty."""

    desk: str = ""
    """The console's address."""
    link: str = ""
    """The path of what acknowledges it."""
    code: str = ""
    """What acknowledges it in an answer."""


def of(
    db: Db, found: Sos, message_id: str, why: str, ways: AnswerWays, language: str = ENGLISH
) -> Notice:
    """Tell somebody of an incident that nobody has answered."""
    told = for_a_pager(db, found.id, ways.desk, ways.link)
    device, said = device_in_words(told, language), said_in(db, found, language)
    subject = of_device(found, device, language)
    lines = [
        f"{subject}{': ' + said if said else ''}",
        _unanswered(why, clock_time(found.raised), language),
        *_places(told.get("position"), language),
    ]
    if "desk" in told:
        lines.append(say(language, "At the desk: {link}", link=told["desk"]))
    if "acknowledge" in told:
        link = told["acknowledge"]
        lines.append(say(language, "To answer it as the one who has it: {link}", link=link))
        lines.append(say(language, "The link is yours, works once, and asks before it answers."))
    return Notice(
        message_id,
        subject,
        "\n".join(lines),
        found.id,
        device,
        said,
        told.get("desk", ""),
        told.get("acknowledge", ""),
        ways.code,
        _short_map(told.get("position")),
        language=language,
    )


def _unanswered(why: str, time: str, language: str) -> str:
    if why == ESCALATED:
        told = "Raised {time}, and nobody has answered: somebody else is told now."
        return say(language, told, time=time)
    if why == AGAIN:
        told = "Raised {time}, and nobody has answered yet: you are told again."
        return say(language, told, time=time)
    return say(language, "Raised {time}, and nobody has answered yet.", time=time)


def together(found: Sequence[Notice]) -> Notice:
    """Tell of all that waited for the end of quiet hours: each in a line, then in full."""
    first = found[0]
    if len(found) == 1:
        return first
    subject = say(first.language, "{n} alarms in quiet hours", n=len(found))
    lines = [f"{each.subject}{': ' + each.said if each.said else ''}" for each in found]
    text = "\n\n".join([f"{subject}:", "\n".join(lines), *(each.text for each in found)])
    said = "; ".join(each.subject for each in found)
    return Notice(
        first.message_id,
        subject,
        text,
        first.sos,
        said=said,
        desk=first.desk,
        language=first.language,
    )


def asked(
    db: Db, found: Sos, message_id: str, text: str, ways: AnswerWays, language: str
) -> Notice:
    """Tell a dispatcher that they are to take it over; `text` is who asks, and what they say."""
    told = for_a_pager(db, found.id, ways.desk, "")
    device, words = device_in_words(told, language), visible(text)[:WORDS]
    what = of_device(found, device, language)
    subject = say(language, "Take over {what}?", what=what)
    desk, line = told.get("desk", ""), f"{subject} {words}"
    return Notice(message_id, subject, line, found.id, device, words, desk, language=language)


def of_device(found: Sos, device: str, language: str) -> str:
    """Return which incident of which kit it is; `device` is as people are shown it."""
    return say(language, "{what} of {device}", what=title(found, language), device=device)


def device_in_words(told: Mapping[str, Any], language: str) -> str:
    """Return the name of the kit as `for_a_pager` tells it, and since when it is revoked."""
    device, since = visible(told["device"]), told.get("revokedSince")
    if since is None:
        return device
    text = "{device} (revoked since {time}, perhaps a thief)"
    return say(language, text, device=device, time=clock_time(since))


def reply(found: Sos, device: str, message_id: str, text: str, language: str) -> Notice:
    """Tell who answered what became of it."""
    subject = f"Re: {of_device(found, visible(device), language)}"
    return Notice(message_id, subject, text, found.id, visible(device), language=language)


def test(name: str, message_id: str, language: str) -> Notice:
    """Return the notice by which a contact is tried; it says that nobody is in distress."""
    text = "TEST. This is a test of the contact {name}. Nobody is in distress."
    said = say(language, text, name=visible(name))
    return Notice(message_id, say(language, "Test of an SOS contact"), said, language=language)


def why_over(db: Db, found: Sos, language: str) -> str:
    """Return why nobody else can answer it, as `sos_desk.why_over` does."""
    if found.state == SosState.CLOSED:
        return say(language, "SOS {id} is closed", id=found.id)
    who = visible(sos_desk.who_has(db, found))
    return say(language, "{who} has SOS {id} already", who=who, id=found.id)


def _short_map(position: dict[str, Any] | None) -> str:
    """Return an address of the map that fits an SMS beside the rest."""
    if position is None:
        return ""
    return f"https://osm.org/?mlat={position['latitude']:.5f}&mlon={position['longitude']:.5f}"


def title(found: Sos, language: str) -> str:
    """Return in a language what an incident is called, such as "SOS 7"."""
    kinds = {
        "sos": "SOS",
        "overdue": say(language, "Overdue"),
        "operator": say(language, "Satellite operator"),
        "watch": say(language, "Watch"),
        "fence": say(language, "Fence"),
    }
    return f"{kinds.get(found.kind, found.kind)} {found.id}"


def _places(position: dict[str, Any] | None, language: str) -> list[str]:
    if position is None:
        return [say(language, "Position: none is known.")]
    where = f"{position['latitude']:.5f} {position['longitude']:.5f}"
    time = clock_time(position["at"])
    return [
        say(language, "Position: {where}, {time}", where=where, time=time),
        say(language, "Map: {link}", link=position["map"]),
        position["geo"],
    ]


def said_in(db: Db, found: Sos, language: str) -> str:
    """Return the newest words of its kit, canned ones in that language."""
    for item in reading.items(db, sos.items_of(db, found.id, 10)):
        said = item.as_json()["event"].get("content")
        if item.device is not None and isinstance(said, str) and said:
            return worded(language, visible(said))[:WORDS]
    return ""


def visible(text: str) -> str:
    """Return it as one line in which nothing hides: strangers wrote it."""
    line = " ".join(text.split())
    shown = (each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)
    return "".join(shown)
