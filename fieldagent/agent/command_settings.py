"""Setting for the hub's commands that a kit carries out."""

from __future__ import annotations

from fieldagent.system.properties import Key, WrongProperty
from fieldagent.wire.command import VERB_BY_NAME, VERBS

ALLOWED_VERBS = tuple(verb.name for verb in VERBS if verb.allowed)


def read_names(value: str) -> tuple[str, ...]:
    """Parse a list of command names such as `status log`, or `none`. Raises WrongProperty for any
    other value.
    """
    if value == "none":
        return ()
    names = tuple(dict.fromkeys(value.replace(",", " ").split()))
    if unknown := [name for name in names if name not in VERB_BY_NAME]:
        raise WrongProperty(f"has {unknown[0]!r}: use {', '.join(VERB_BY_NAME)}, or none")
    return names


KEYS = (
    Key(
        "remote-commands",
        read_names,
        ALLOWED_VERBS,
        "commands that the hub may send to this kit, from "
        + ", ".join(VERB_BY_NAME)
        + "; none for none"
        f" ({' '.join(ALLOWED_VERBS)})",
    ),
)
