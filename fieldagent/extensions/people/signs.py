"""Signs with which a person sees the progress of their own message.

    📥  the kit has it on disk
    🛰  it was sent by satellite, but it is unknown whether a receiver has it
    ✅  a person or their kit has it
    ❌  the kit has given up, and a text contains the reason

A sign is sent only if the stage has changed, and only for the highest stage, so a message gets at
most three signs. The stage "only the hub has it" has no sign.
"""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.agent.outbound.package_state import Step

STORED_SIGN, LEFT_SIGN, ARRIVED_SIGN, GIVEN_UP = "📥", "🛰", "✅", "❌"
SIGNS_MAX = 3
STAGES = {
    "kept": STORED_SIGN,
    "left": LEFT_SIGN,
    "stored": ARRIVED_SIGN,
    "programs": ARRIVED_SIGN,
    "read": ARRIVED_SIGN,
    "nobody": GIVEN_UP,
    "ended": GIVEN_UP,
}
"""Sign for each value of `outbound.package_state.Step.stage`. A value that is not listed has no
sign."""
SIGN_MEANINGS = {
    STORED_SIGN: "on the kit's disk",
    LEFT_SIGN: "left by satellite",
    ARRIVED_SIGN: "a person has it, or their kit",
    GIVEN_UP: "given up",
}
"""Meanings of the signs, which are sent as text to radios without reactions."""
ORDER = (STORED_SIGN, LEFT_SIGN, GIVEN_UP, ARRIVED_SIGN)


def find_due_sign(signs: str, steps: Sequence[Step]) -> tuple[str, str]:
    """Return the sign that is due for a message, and a text that explains the sign. Both are empty
    if no sign is due. `signs` are the signs that were sent already.
    """
    reached = {STAGES[step.stage]: step for step in steps if step.stage in STAGES}
    highest = max(reached, key=ORDER.index, default="")
    if not highest or highest in signs or sum(signs.count(sign) for sign in ORDER) >= SIGNS_MAX:
        return "", ""
    if signs and ORDER.index(highest) < max(ORDER.index(sign) for sign in ORDER if sign in signs):
        return "", ""
    return highest, reached[highest].text if highest == GIVEN_UP else ""
