"""Question to a phone whose chat reads like a call for help.

A chat message raises nothing: the 911 alert of the app does.
"""

from __future__ import annotations

from fieldagent.package import distress
from fieldagent.package.distress import Call
from fieldagent.page.language import ENGLISH, read_catalogue

QUESTION = "Is this an emergency? Send the 911 alert of your TAK app: it raises an SOS."


def make_question(text: str, *, direct: bool) -> str:
    """Return the question, in the language of the text, if known; empty if the text does not read
    like a call for help. `direct` is False for a text in a chat room.
    """
    if distress.read(text, direct=direct).call not in (Call.SOS, Call.MAYBE):
        return ""
    language = distress.find_help_language(text) or ENGLISH
    asked: str = read_catalogue(__package__, language).get(QUESTION, QUESTION)
    return asked
