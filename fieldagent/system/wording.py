"""Sentences for people that can be translated later, and the numbers, errors and third-party text
in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil

_PLACE = re.compile(r"\{(\w+)\}")


class Sentence(str):
    """A sentence in English that keeps its template and values.

    For logs, programs and tests, a Sentence is the English text. `str()` of a Sentence, or of an
    error that contains it, returns the same object, so that it can still be translated when it is
    sent.
    """

    __slots__ = ("form", "values")

    form: str
    values: Mapping[str, object]

    def __str__(self) -> str:
        return self


def sentence(form: str, /, **values: object) -> Sentence:
    """Return a Sentence made from the template `form`, with `values` in its placeholders, such as
    {name}.
    """
    filled_in = Sentence(_fill_in(form, {name: str(value) for name, value in values.items()}))
    filled_in.form, filled_in.values = form, values
    return filled_in


def join_sentences(sentences: Sequence[Sentence]) -> Sentence:
    """Return one sentence that contains these sentences, separated by semicolons."""
    values = {f"of{at}": each for at, each in enumerate(sentences)}
    return sentence("; ".join(f"{{{name}}}" for name in values), **values)


def translate_text(text: str, catalogue: Mapping[str, str]) -> str:
    """Return the text in the language of `catalogue`, which contains translations by the English
    template. Values are also translated. A text without a translation stays English.
    """
    if not isinstance(text, Sentence):
        return catalogue.get(text, text)
    values = {name: translate_text(str(each), catalogue) for name, each in text.values.items()}
    return _fill_in(catalogue.get(text.form, text.form), values)


def _fill_in(form: str, values: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), form)


def format_count(number: int, unit: str) -> str:
    """Return the number with its unit, in the plural unless the number is 1: `1 credit`, `2
    credits`.
    """
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def describe_reason(error: Exception) -> str:
    """Return the text of an error for people: for an OSError, the file's name if known, and the
    system's text without its number. For an error of urllib, use the OSError in its `reason`.
    """
    reason = getattr(error, "reason", None)
    cause = reason if isinstance(reason, OSError) else error
    if not isinstance(cause, OSError) or not cause.strerror:
        return str(error)
    text = cause.strerror[:1].lower() + cause.strerror[1:]
    return f"{cause.filename}: {text}" if cause.filename else text


def format_duration(seconds: float) -> str:
    """Return a duration, rounded up: `40 s`, `13 min`, `3 h`, `2 days`."""
    if seconds <= 90:
        return f"{ceil(seconds)} s"
    if seconds <= 120 * 60:
        return f"{ceil(seconds / 60)} min"
    if seconds <= 48 * 3600:
        return f"{ceil(seconds / 3600)} h"
    return f"{ceil(seconds / 86_400)} days"


def make_visible(text: str) -> str:
    """Return the text as one line without invisible characters, because an unknown person may have
    written it.
    """
    line = " ".join(text.split())
    visible = (each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)
    return "".join(visible)
