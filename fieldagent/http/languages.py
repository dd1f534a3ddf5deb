"""Choice of the best language for a user, from the browser's header (RFC 9110, 12.5.4)."""

from __future__ import annotations

from collections.abc import Sequence


def choose_language(accept_header: str, available: Sequence[str]) -> str:
    """Return the language of `available`, such as "de", with the highest weight in an
    Accept-Language header. If several languages have the same weight, the first one in the header
    is chosen. If none matches, return the first of `available`.

    A range such as "de-CH" selects "de". An unreadable weight is treated as 0.
    """
    best, best_weight = available[0], 0.0
    for each in accept_header.split(","):
        name, _, parameter = each.partition(";")
        language, weight = name.strip().lower().partition("-")[0], _read_weight(parameter)
        if language in available and weight > best_weight:
            best, best_weight = language, weight
    return best


def _read_weight(parameter: str) -> float:
    """Return the weight in a parameter such as `q=0.7`, or 1 if it is missing."""
    name, _, value = parameter.strip().partition("=")
    if not name:
        return 1.0
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if name.strip().lower() == "q" and 0.0 <= weight <= 1.0 else 0.0
