"""Numbers and errors in sentences."""

from __future__ import annotations


def counted(number: int, unit: str) -> str:
    """1 credit, 2 credits."""
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def reason_of(error: Exception) -> str:
    """What it says, without the number that the system has for it. urllib hangs the reason below
    an error of its own."""
    reason = getattr(error, "reason", None)
    cause = reason if isinstance(reason, OSError) else error
    if not isinstance(cause, OSError) or not cause.strerror:
        return str(error)
    text = cause.strerror[:1].lower() + cause.strerror[1:]
    return f"{cause.filename}: {text}" if cause.filename else text
