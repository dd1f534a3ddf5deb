"""Which of our languages somebody reads best, by what their browser says (RFC 9110, 12.5.4)."""

from __future__ import annotations

from collections.abc import Sequence


def preferred(accepted: str, ours: Sequence[str]) -> str:
    """Return the one of `ours`, such as "de", that a header Accept-Language names with the greatest
    weight, of equals the one that it names first; the first of `ours` where it names none.

    A range such as "de-CH" asks for "de". A weight that cannot be read counts as none.
    """
    best, best_weight = ours[0], 0.0
    for each in accepted.split(","):
        name, _, parameter = each.partition(";")
        language, weight = name.strip().lower().partition("-")[0], _weight(parameter)
        if language in ours and weight > best_weight:
            best, best_weight = language, weight
    return best


def _weight(parameter: str) -> float:
    """Return what `q=0.7` says, 1 where it is left out."""
    name, _, value = parameter.strip().partition("=")
    if not name:
        return 1.0
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if name.strip().lower() == "q" and 0.0 <= weight <= 1.0 else 0.0
