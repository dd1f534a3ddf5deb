"""Formats numbers, errors and third-party text for sentences."""

from __future__ import annotations

from math import ceil


def format_count(number: int, unit: str) -> str:
    """Return the number with its unit, in the plural unless the number is 1: `1 credit`, `2
    credits`.
    """
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def describe_reason(error: Exception) -> str:
    """Return the text of an error without the system's error number. For an error of urllib, use
    the reason inside it.
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
