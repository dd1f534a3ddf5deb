"""What a person is shown on their own message, as far as it is known and no further.

📥  the kit has it on its disk
🛰  it left by satellite; whether anybody has it is not known by that
✅  a person has it, or a person's kit
❌  given up; a line says why

Only a change is shown, and the highest that is true: at most three signs a message. What only the
hub has is none of these.
"""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.agent.outbound.reach import Step

KEPT, LEFT, THERE, GIVEN_UP = "📥", "🛰", "✅", "❌"
MOST = 3
RUNGS = {
    "kept": KEPT,
    "left": LEFT,
    "stored": THERE,
    "programs": THERE,
    "read": THERE,
    "nobody": GIVEN_UP,
    "ended": GIVEN_UP,
}
"""Of `outbound.reach.Step.rung`; another shows nothing."""
WORDS = {
    KEPT: "on the kit's disk",
    LEFT: "left by satellite",
    THERE: "a person has it, or their kit",
    GIVEN_UP: "given up",
}
"""What each means, where there are no signs to put on a message."""
ORDER = (KEPT, LEFT, GIVEN_UP, THERE)


def due(signs: str, steps: Sequence[Step]) -> tuple[str, str]:
    """Return the sign that is to be put on a message now, and a line that goes with it; both empty
    where nothing is. `signs` are the signs that were put there."""
    reached = {RUNGS[step.rung]: step for step in steps if step.rung in RUNGS}
    highest = max(reached, key=ORDER.index, default="")
    if not highest or highest in signs or sum(signs.count(sign) for sign in ORDER) >= MOST:
        return "", ""
    if signs and ORDER.index(highest) < max(ORDER.index(sign) for sign in ORDER if sign in signs):
        return "", ""
    return highest, reached[highest].text if highest == GIVEN_UP else ""
