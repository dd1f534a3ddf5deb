"""Notifications of an SOS for contacts. The texts are suitable for an email, a pager and a lock
screen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fieldagent.extensions.desk.hub.language import translate, translate_canned
from fieldagent.hub.api import reading, sos_desk
from fieldagent.hub.api.sos_desk import describe_for_pager
from fieldagent.hub.contact.contract import Notice
from fieldagent.hub.records import sos
from fieldagent.hub.records.alarm import AGAIN, ESCALATED
from fieldagent.hub.records.sos import Sos, SosState
from fieldagent.hub.store.contract import Db
from fieldagent.package.writing import format_clock_time
from fieldagent.page.language import ENGLISH
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import make_visible

TEXT_CHARACTERS_MAX = 300
"""Largest number of characters of the kit's text."""


class AnswerOptions(NamedTuple):
    """Ways in which a contact can answer an alarm. A way that is not available is an empty
    string.
    """

    desk: str = ""
    """Address of the console."""
    link: str = ""
    """Path of the link with which a person acknowledges the incident."""
    code: str = ""
    """Code that acknowledges the incident if a reply contains it."""


def make_notice(
    db: Db,
    incident: Sos,
    message_id: str,
    reason: str,
    options: AnswerOptions,
    language: str = ENGLISH,
) -> Notice:
    """Return the notice about an unanswered incident."""
    facts = describe_for_pager(db, incident.id, options.desk, options.link)
    device, newest_text = describe_device(facts, language), find_newest_text(db, incident, language)
    subject = name_incident(incident, device, language)
    lines = [
        f"{subject}{': ' + newest_text if newest_text else ''}",
        _describe_unanswered(reason, format_clock_time(incident.raised), language),
        *_list_places(facts.get("position"), language),
    ]
    if "desk" in facts:
        lines.append(translate(language, "At the desk: {link}", link=facts["desk"]))
    if "acknowledge" in facts:
        link = facts["acknowledge"]
        lines.append(translate(language, "To take over: {link}", link=link))
        lines.append(
            translate(language, "The link is personal, works once, and asks you to confirm.")
        )
    return Notice(
        message_id,
        subject,
        "\n".join(lines),
        incident.id,
        device,
        newest_text,
        facts.get("desk", ""),
        facts.get("acknowledge", ""),
        options.code,
        _shorten_map(facts.get("position")),
        language=language,
        alarm=_get_alarm_kind(incident),
    )


def _get_alarm_kind(incident: Sos) -> str:
    return incident.kind if incident.is_alarm else ""


def _describe_unanswered(reason: str, time: str, language: str) -> str:
    if reason == ESCALATED:
        text = "Raised {time}. No one has answered, so the alarm goes to the next contact."
        return translate(language, text, time=time)
    if reason == AGAIN:
        text = "Raised {time}. No one has answered yet. This is a reminder."
        return translate(language, text, time=time)
    return translate(language, "Raised {time}. No one has answered yet.", time=time)


def combine_notices(notices: Sequence[Notice]) -> Notice:
    """Combine all notices that waited for the end of quiet hours into one. Its text first contains
    one line for each notice, then all texts in full.
    """
    first = notices[0]
    if len(notices) == 1:
        return first
    subject = translate(first.language, "{n} alarms in quiet hours", n=len(notices))
    lines = [f"{each.subject}{': ' + each.said if each.said else ''}" for each in notices]
    text = "\n\n".join([f"{subject}:", "\n".join(lines), *(each.text for each in notices)])
    subjects = "; ".join(each.subject for each in notices)
    return Notice(
        first.message_id,
        subject,
        text,
        first.sos,
        alarm=first.alarm if all(each.alarm for each in notices) else "",
        said=subjects,
        desk=first.desk,
        language=first.language,
    )


def make_request(
    db: Db, incident: Sos, message_id: str, text: str, options: AnswerOptions, language: str
) -> Notice:
    """Return the notice to a dispatcher who is asked to take over an SOS. `text` contains the name
    of the dispatcher who asks, and their note.
    """
    facts = describe_for_pager(db, incident.id, options.desk, "")
    device, visible_text = (
        describe_device(facts, language),
        make_visible(text)[:TEXT_CHARACTERS_MAX],
    )
    title = name_incident(incident, device, language)
    subject = translate(language, "Take over {what}?", what=title)
    desk, line = facts.get("desk", ""), f"{subject} {visible_text}"
    request_notice = Notice(
        message_id, subject, line, incident.id, device, visible_text, desk, language=language
    )
    return replace(request_notice, alarm=_get_alarm_kind(incident))


def name_incident(incident: Sos, device: str, language: str) -> str:
    """Return the name of an incident and of its kit. `device` is the name of the kit that people
    see.
    """
    return translate(
        language, "{what} of {device}", what=make_title(incident, language), device=device
    )


def describe_device(facts: Mapping[str, Any], language: str) -> str:
    """Return the kit's name from the result of `describe_for_pager`. If the kit is revoked, the
    text contains the time of its revocation.
    """
    device, since = make_visible(facts["device"]), facts.get("revokedSince")
    if since is None:
        return device
    text = "{device} (revoked since {time}, possibly stolen)"
    return translate(language, text, device=device, time=format_clock_time(since))


def make_reply_notice(
    incident: Sos, device: str, message_id: str, text: str, language: str
) -> Notice:
    """Return the notice that responds to a contact's answer."""
    subject = f"Re: {name_incident(incident, make_visible(device), language)}"
    reply_notice = Notice(
        message_id, subject, text, incident.id, make_visible(device), language=language
    )
    return replace(reply_notice, alarm=_get_alarm_kind(incident))


def make_test_notice(name: str, message_id: str, language: str) -> Notice:
    """Return the test notice of a contact, which states that it is not an emergency."""
    text = "TEST. This is a test of the contact {name}. There is no emergency."
    test_text = translate(language, text, name=make_visible(name))
    return Notice(
        message_id, translate(language, "Test of an SOS contact"), test_text, language=language
    )


def explain_end(db: Db, incident: Sos, language: str) -> str:
    """Return the reason why the incident cannot be acknowledged now, in a language (see
    `sos_desk.explain_end`).
    """
    if incident.state == SosState.CLOSED:
        return translate(language, "{what} is closed", what=make_title(incident, language))
    answerer = make_visible(sos_desk.find_answerer(db, incident))
    return translate(
        language, "{who} already has {what}", who=answerer, what=make_title(incident, language)
    )


def _shorten_map(position: dict[str, Any] | None) -> str:
    """Return a map URL that is short enough for an SMS with all other facts."""
    if position is None:
        return ""
    return f"https://osm.org/?mlat={position['latitude']:.5f}&mlon={position['longitude']:.5f}"


def make_title(incident: Sos, language: str) -> str:
    """Return the name of an incident in a language, such as "SOS 377"."""
    kinds = {
        "sos": "SOS",
        "overdue": translate(language, "Overdue"),
        "operator": translate(language, "Satellite operator"),
        "watch": translate(language, "Watch"),
        "fence": translate(language, "Fence"),
    }
    return f"{kinds.get(incident.kind, incident.kind)} {incident.short}"


def _list_places(position: dict[str, Any] | None, language: str) -> list[str]:
    if position is None:
        return [translate(language, "Position: unknown.")]
    place_text = f"{position['latitude']:.5f} {position['longitude']:.5f}"
    time = format_clock_time(position["at"])
    return [
        translate(language, "Position: {where}, {time}", where=place_text, time=time),
        translate(language, "Map: {link}", link=position["map"]),
        position["geo"],
    ]


def find_newest_text(db: Db, incident: Sos, language: str) -> str:
    """Return the newest text of the incident's kit. A canned text is in the given language."""
    for item in reading.list_items(db, sos.list_items(db, incident.id, 10)):
        content = item.encode()["event"].get("content")
        if item.device is not None and isinstance(content, str) and content:
            return translate_canned(language, make_visible(content))[:TEXT_CHARACTERS_MAX]
    return ""
