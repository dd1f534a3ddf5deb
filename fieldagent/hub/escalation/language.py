"""Texts of notifications in the contacts' languages. The English text is the key of each text.

A catalogue is a JSON file beside this module, read when its language is first used.
"""

from __future__ import annotations

import json
import logging
import re
from functools import cache
from typing import Any

from fieldagent.page.language import ENGLISH
from fieldagent.system.data_files import read_data

log = logging.getLogger(__name__)

_PLACE = re.compile(r"\{(\w+)\}")


def say(language: str, text: str, /, **values: object) -> str:
    """Return the text in that language, with `values` in its placeholders such as {name}. A text
    missing in the catalogue stays English.
    """
    said = _catalogue(language).get(text, text)
    return _PLACE.sub(lambda place: str(values.get(place[1], place[0])), said)


def worded(language: str, text: str) -> str:
    """Return a canned text, which is transmitted as a number, in that language; any other text
    unchanged.
    """
    return _words(language).get(text, text)


def unworded(language: str, text: str) -> str:
    """Return the English original of a canned text in that language; any other text unchanged."""
    said = text.casefold()
    matches = (word for word, own in _words(language).items() if own.casefold() == said)
    return next(matches, text)


def _words(language: str) -> dict[str, str]:
    """Return the canned texts of the console's catalogue, so that mail and desk use the same
    ones.
    """
    words: dict[str, str] = _loaded("fieldagent.hub.console", language).get("words", {})
    return words


def _catalogue(language: str) -> dict[str, str]:
    return _loaded(__package__, language)


@cache
def _loaded(package: str, language: str) -> dict[str, Any]:
    """Return a catalogue. If the file is missing or damaged, people get English texts rather than
    none.
    """
    if language == ENGLISH:
        return {}
    try:
        loaded: dict[str, Any] = json.loads(read_data(package, f"{language}.json"))
    except (OSError, ValueError) as error:
        log.error("the texts in %s cannot be read, English is used: %s", language, error)
        return {}
    return loaded
