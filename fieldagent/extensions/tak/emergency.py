"""Question to a phone whose chat message looks like a call for help.

A chat message raises no SOS. Only the 911 alert of the app raises an SOS.
"""

from __future__ import annotations

from fieldagent.package import distress
from fieldagent.package.distress import Call
from fieldagent.page.language import ENGLISH, read_catalogue

QUESTION = "Is this an emergency? Send the 911 alert of your TAK app: it raises an SOS."


def make_question(text: str, *, direct: bool) -> str:
    """Return the question in the language of `text`, if the language is known. Return an empty text
    if `text` does not look like a call for help. `direct` is False if `text` was sent to a chat
    room.
    """
    if distress.read(text, direct=direct).call not in (Call.SOS, Call.MAYBE):
        return ""
    language = distress.find_help_language(text) or ENGLISH
    question: str = read_catalogue(__package__, language).get(QUESTION, QUESTION)
    return question
