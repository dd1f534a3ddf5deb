"""Text of a notice, shortened to the length of a few SMS."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fieldagent.hub.contact.contract import Notice
from fieldagent.page.language import translate_from
from fieldagent.wire import sms_alphabet
from fieldagent.wire.sms_alphabet import Alphabet, replace_typography

PARTS_BY_ALPHABET = {Alphabet.GSM7: 2, Alphabet.UCS2: 3}
"""Largest number of SMS for one notice. One SMS has 160 characters in GSM-7 and 70 characters in
UCS-2."""


def make_short_text(notice: Notice, *, answers: bool) -> str:
    """Return a text that fits into a few SMS: the device, the text, the map, and how to answer. If
    the notice must be sent in full (`whole`), return its text unchanged. `answers` is True if a
    reply by SMS reaches the hub.
    """
    translate = partial(translate_from, __package__, notice.language)
    if notice.whole:
        return notice.text
    subject, said = replace_typography(notice.subject), replace_typography(notice.said)
    if not notice.link and not notice.code:
        return _cut_to_fit(replace_typography(notice.text), lambda text: text)
    lines = [notice.place] if notice.place else [translate("Position unknown.")]
    if answers and notice.code:
        lines.append(translate("To take over, reply: OK {code}", code=notice.code))
    elif notice.link:
        lines.append(translate("To take over: {link}", link=notice.link))
    elif notice.desk:
        lines.append(notice.desk)

    def make_text(detail: str) -> str:
        heading = f"{subject}{': ' if detail else ''}{detail}"
        return "\n".join([heading, *lines])

    if answers and notice.code:
        hint = translate("Other text goes to the kit.")
        full = f"{make_text(said)}. {hint}"
        if _is_fitting(full):
            return full
    return _cut_to_fit(said, make_text)


def _is_fitting(text: str) -> bool:
    return sms_alphabet.count_parts(text) <= PARTS_BY_ALPHABET[sms_alphabet.choose_alphabet(text)]


def _cut_to_fit(text: str, make_text: Callable[[str], str]) -> str:
    """Return `make_text(text)`. If the result does not fit, shorten `text` until it fits, and mark
    the end with "...".
    """
    if _is_fitting(make_text(text)):
        return make_text(text)
    while text and not _is_fitting(make_text(text + "...")):
        text = text[:-1]
    return make_text(text + "..." if text else "")
