"""What contacts are told, in their language. The English is the name of each text.

A catalogue is a JSON file beside this one, read once somebody is told in its language."""

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
    """Return the text in that language, with `values` in its places such as {name}. What a
    catalogue lacks is said in English."""
    said = _catalogue(language).get(text, text)
    return _PLACE.sub(lambda place: str(values.get(place[1], place[0])), said)


def worded(language: str, text: str) -> str:
    """Return canned words, which travel as numbers, in that language; any other text as it is."""
    return _words(language).get(text, text)


def unworded(language: str, text: str) -> str:
    """Return what travels of canned words in that language; any other text as it is."""
    said = text.casefold()
    matches = (word for word, own in _words(language).items() if own.casefold() == said)
    return next(matches, text)


def _words(language: str) -> dict[str, str]:
    """Return those of the console's catalogue: what is read at the desk is read in a mail."""
    words: dict[str, str] = _loaded("fieldagent.hub.console", language).get("words", {})
    return words


def _catalogue(language: str) -> dict[str, str]:
    return _loaded(__package__, language)


@cache
def _loaded(package: str, language: str) -> dict[str, Any]:
    """Where a file is not there, or spoilt, people are told in English rather than not at all."""
    if language == ENGLISH:
        return {}
    try:
        loaded: dict[str, Any] = json.loads(read_data(package, f"{language}.json"))
    except (OSError, ValueError) as error:
        log.error("the texts in %s cannot be read, English is said: %s", language, error)
        return {}
    return loaded
