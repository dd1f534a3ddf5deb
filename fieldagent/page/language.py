"""Languages of pages and messages, and their catalogues. The user's browser selects the language
(`http.headers`).

A catalogue is a JSON file `de.json` of a package, read when its language is first used. The English
text is the key of each text.
"""

from __future__ import annotations

import json
import logging
import re
from functools import cache
from typing import Any

from fieldagent.system.data_files import read_data

log = logging.getLogger(__name__)

ENGLISH = "en"
LANGUAGES = (ENGLISH, "de", "es", "fr", "uk")
"""Codes of the languages. The first, English, is the default."""

_PLACE = re.compile(r"\{(\w+)\}")


def fill_in(text: str, values: dict[str, object]) -> str:
    """Return the text with `values` in its placeholders, such as {name}."""
    return _PLACE.sub(lambda place: str(values.get(place[1], place[0])), text)


@cache
def read_catalogue(package: str, language: str) -> dict[str, Any]:
    """Return the catalogue of a package in `language`. The catalogue is empty if its file is
    missing or damaged. People then get English texts.
    """
    if language == ENGLISH:
        return {}
    try:
        loaded: dict[str, Any] = json.loads(read_data(package, f"{language}.json"))
    except (OSError, ValueError) as error:
        log.error(
            "the texts of %s in %s cannot be read, English is used: %s", package, language, error
        )
        return {}
    return loaded


def translate_from(package: str, language: str, text: str, /, **values: object) -> str:
    """Return the text in `language`, from the catalogue of a package. `values` replace placeholders
    such as {name}. If the catalogue does not contain the text, return it in English.
    """
    return fill_in(read_catalogue(package, language).get(text, text), values)
