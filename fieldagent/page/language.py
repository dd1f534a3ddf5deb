"""The languages that pages and messages are in, and which of them somebody reads."""

from __future__ import annotations

ENGLISH = "en"
LANGUAGES = (ENGLISH, "de", "es", "fr", "uk")


def chosen(accept: str) -> str:
    """Return the first of ours that a browser's Accept-Language asks for (RFC 9110 12.5.4), English
    where it asks for none."""
    asked = [_read(each) for each in accept.split(",")]
    ours = [each for each in asked if each[0] > 0 and each[1] in LANGUAGES]
    # The earlier one where two weigh the same.
    return max(ours, key=lambda each: each[0])[1] if ours else ENGLISH


def _read(part: str) -> tuple[float, str]:
    """Return the weight of a language, and its code without the country; 0 is not wanted."""
    tag, _, weight = part.partition(";")
    number = weight.strip().removeprefix("q=")
    try:
        how_much = float(number) if number else 1.0
    except ValueError:
        how_much = 0.0
    return how_much, tag.strip().partition("-")[0].lower()
