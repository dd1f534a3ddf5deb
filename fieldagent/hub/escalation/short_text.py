"""The text of a notice in as many characters as a few SMS have."""

from __future__ import annotations

from collections.abc import Callable

from fieldagent.hub.escalation.contract import Notice
from fieldagent.hub.escalation.language import say
from fieldagent.wire import sms_alphabet
from fieldagent.wire.sms_alphabet import Alphabet

PARTS = {Alphabet.GSM7: 2, Alphabet.UCS2: 3}
"""Largest number of SMS for one notice. One has 160 characters in GSM-7, 70 in UCS-2."""


def short_text(notice: Notice, *, answers: bool) -> str:
    """Return a text that fits a few SMS: the device, the text, the map, and how to answer. With
    `answers`, an SMS sent back reaches the hub.
    """
    language = notice.language
    if notice.whole:
        return notice.text
    if not notice.link and not notice.code:
        return _cut(notice.text, lambda text: text)
    lines = [notice.place] if notice.place else [say(language, "Position unknown.")]
    if answers and notice.code:
        lines.append(say(language, "To take over, reply: OK {code}", code=notice.code))
    elif notice.link:
        lines.append(say(language, "To take over: {link}", link=notice.link))
    elif notice.desk:
        lines.append(notice.desk)

    def whole(said: str) -> str:
        head = f"{notice.subject}{': ' if said else ''}{said}"
        return "\n".join([head, *lines])

    if answers and notice.code:
        full = f"{whole(notice.said)}. {say(language, 'Other text goes to the kit.')}"
        if _fits(full):
            return full
    return _cut(notice.said, whole)


def _fits(text: str) -> bool:
    return sms_alphabet.count_parts(text) <= PARTS[sms_alphabet.choose_alphabet(text)]


def _cut(text: str, whole: Callable[[str], str]) -> str:
    """Return `whole` of as much of `text` as fits."""
    if _fits(whole(text)):
        return whole(text)
    while text and not _fits(whole(text + "...")):
        text = text[:-1]
    return whole(text + "..." if text else "")
