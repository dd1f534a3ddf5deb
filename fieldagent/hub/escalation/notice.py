"""Notifications of an SOS for contacts, in texts that fit a mail, a pager and a lock screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fieldagent.hub.api import reading, sos_desk
from fieldagent.hub.api.sos_desk import describe_for_pager
from fieldagent.hub.escalation.contract import Notice
from fieldagent.hub.escalation.language import say, worded
from fieldagent.hub.records import sos
from fieldagent.hub.records.alarm import AGAIN, ESCALATED
from fieldagent.hub.records.sos import Sos, SosState
from fieldagent.hub.store.contract import Db
from fieldagent.package.writing import format_clock_time
from fieldagent.page.language import ENGLISH
from fieldagent.system.lazy_named_tuple import NamedTuple

WORDS = 300
"""Largest number of characters of the kit's text."""


class AnswerWays(NamedTuple):
    """Ways in which a contact can answer an alarm; an unavailable way is an empty string."""

    desk: str = ""
    """Address of the console."""
    link: str = ""
    """Path of the link that acknowledges it."""
    code: str = ""
    """Code that acknowledges it in an answer."""


def of(
    db: Db, incident: Sos, message_id: str, why: str, ways: AnswerWays, language: str = ENGLISH
) -> Notice:
    """Return the notice of an unanswered incident."""
    facts = describe_for_pager(db, incident.id, ways.desk, ways.link)
    device, said = device_in_words(facts, language), said_in(db, incident, language)
    subject = of_device(incident, device, language)
    lines = [
        f"{subject}{': ' + said if said else ''}",
        _unanswered(why, format_clock_time(incident.raised), language),
        *_places(facts.get("position"), language),
    ]
    if "desk" in facts:
        lines.append(say(language, "At the desk: {link}", link=facts["desk"]))
    if "acknowledge" in facts:
        link = facts["acknowledge"]
        lines.append(say(language, "To take over: {link}", link=link))
        lines.append(say(language, "The link is personal, works once, and asks you to confirm."))
    return Notice(
        message_id,
        subject,
        "\n".join(lines),
        incident.id,
        device,
        said,
        facts.get("desk", ""),
        facts.get("acknowledge", ""),
        ways.code,
        _short_map(facts.get("position")),
        language=language,
        alarm=_alarm(incident),
    )


def _alarm(incident: Sos) -> str:
    return incident.kind if incident.is_alarm else ""


def _unanswered(why: str, time: str, language: str) -> str:
    if why == ESCALATED:
        text = "Raised {time}. No one has answered, so the alarm goes to the next contact."
        return say(language, text, time=time)
    if why == AGAIN:
        text = "Raised {time}. No one has answered yet. This is a reminder."
        return say(language, text, time=time)
    return say(language, "Raised {time}. No one has answered yet.", time=time)


def together(notices: Sequence[Notice]) -> Notice:
    """Return one notice for all that waited for the end of quiet hours: one line each, then in
    full.
    """
    first = notices[0]
    if len(notices) == 1:
        return first
    subject = say(first.language, "{n} alarms in quiet hours", n=len(notices))
    lines = [f"{each.subject}{': ' + each.said if each.said else ''}" for each in notices]
    text = "\n\n".join([f"{subject}:", "\n".join(lines), *(each.text for each in notices)])
    said = "; ".join(each.subject for each in notices)
    return Notice(
        first.message_id,
        subject,
        text,
        first.sos,
        alarm=first.alarm if all(each.alarm for each in notices) else "",
        said=said,
        desk=first.desk,
        language=first.language,
    )


def asked(
    db: Db, incident: Sos, message_id: str, text: str, ways: AnswerWays, language: str
) -> Notice:
    """Return the notice to a dispatcher who is asked to take an SOS over. `text` contains the
    asking dispatcher and their note.
    """
    facts = describe_for_pager(db, incident.id, ways.desk, "")
    device, words = device_in_words(facts, language), visible(text)[:WORDS]
    what = of_device(incident, device, language)
    subject = say(language, "Take over {what}?", what=what)
    desk, line = facts.get("desk", ""), f"{subject} {words}"
    told = Notice(message_id, subject, line, incident.id, device, words, desk, language=language)
    return replace(told, alarm=_alarm(incident))


def of_device(incident: Sos, device: str, language: str) -> str:
    """Return the name of an incident with its kit. `device` is the kit's name for people."""
    return say(language, "{what} of {device}", what=title(incident, language), device=device)


def device_in_words(facts: Mapping[str, Any], language: str) -> str:
    """Return the kit's name in `describe_for_pager`, with the time of its revocation if it is
    revoked."""
    device, since = visible(facts["device"]), facts.get("revokedSince")
    if since is None:
        return device
    text = "{device} (revoked since {time}, possibly stolen)"
    return say(language, text, device=device, time=format_clock_time(since))


def reply(incident: Sos, device: str, message_id: str, text: str, language: str) -> Notice:
    """Return the reply to a contact about their answer."""
    subject = f"Re: {of_device(incident, visible(device), language)}"
    told = Notice(message_id, subject, text, incident.id, visible(device), language=language)
    return replace(told, alarm=_alarm(incident))


def test(name: str, message_id: str, language: str) -> Notice:
    """Return the test notice of a contact, which states that it is not an emergency."""
    text = "TEST. This is a test of the contact {name}. There is no emergency."
    said = say(language, text, name=visible(name))
    return Notice(message_id, say(language, "Test of an SOS contact"), said, language=language)


def why_over(db: Db, incident: Sos, language: str) -> str:
    """Return the reason why no one else can answer it, as `sos_desk.explain_end` does."""
    if incident.state == SosState.CLOSED:
        return say(language, "{what} is closed", what=title(incident, language))
    who = visible(sos_desk.find_answerer(db, incident))
    return say(language, "{who} already has {what}", who=who, what=title(incident, language))


def _short_map(position: dict[str, Any] | None) -> str:
    """Return a map address that is short enough for an SMS with the rest."""
    if position is None:
        return ""
    return f"https://osm.org/?mlat={position['latitude']:.5f}&mlon={position['longitude']:.5f}"


def title(incident: Sos, language: str) -> str:
    """Return the name of an incident in a language, such as "SOS 377"."""
    kinds = {
        "sos": "SOS",
        "overdue": say(language, "Overdue"),
        "operator": say(language, "Satellite operator"),
        "watch": say(language, "Watch"),
        "fence": say(language, "Fence"),
    }
    return f"{kinds.get(incident.kind, incident.kind)} {incident.short}"


def _places(position: dict[str, Any] | None, language: str) -> list[str]:
    if position is None:
        return [say(language, "Position: unknown.")]
    where = f"{position['latitude']:.5f} {position['longitude']:.5f}"
    time = format_clock_time(position["at"])
    return [
        say(language, "Position: {where}, {time}", where=where, time=time),
        say(language, "Map: {link}", link=position["map"]),
        position["geo"],
    ]


def said_in(db: Db, incident: Sos, language: str) -> str:
    """Return the newest text of the incident's kit, with canned texts in that language."""
    for item in reading.list_items(db, sos.items_of(db, incident.id, 10)):
        said = item.encode()["event"].get("content")
        if item.device is not None and isinstance(said, str) and said:
            return worded(language, visible(said))[:WORDS]
    return ""


def visible(text: str) -> str:
    """Return the text as one line without hidden characters, because its author may be unknown."""
    line = " ".join(text.split())
    shown = (each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)
    return "".join(shown)
