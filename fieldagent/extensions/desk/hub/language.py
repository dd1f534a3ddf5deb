"""Texts of notifications in the languages of the contacts. The catalogues are in this folder."""

from __future__ import annotations

from fieldagent.page.language import read_catalogue, translate_from


def translate(language: str, text: str, /, **values: object) -> str:
    """Return the text in a language, with `values` in its placeholders (see `translate_from`)."""
    return translate_from(__package__, language, text, **values)


def translate_canned(language: str, text: str) -> str:
    """Return a canned text, which is transmitted as a number, in a language. Return any other text
    unchanged.
    """
    return _read_canned_texts(language).get(text, text)


def find_canned(language: str, text: str) -> str:
    """Return the English original of a canned text in a language. Return any other text
    unchanged.
    """
    folded = text.casefold()
    matches = (
        canned for canned, own in _read_canned_texts(language).items() if own.casefold() == folded
    )
    return next(matches, text)


def _read_canned_texts(language: str) -> dict[str, str]:
    """Return the canned texts in the console's catalogue, so that emails and the desk use the same
    texts.
    """
    canned_texts: dict[str, str] = read_catalogue("fieldagent.hub.console", language).get(
        "words", {}
    )
    return canned_texts
