"""When a Package is likely to be delivered, in words."""

from __future__ import annotations

from typing import Any

from fieldagent.system.wording import counted, lasting


def expected_in_words(found: dict[str, Any] | None) -> list[str]:
    """Return a line for what the agent expects of a channel; none where it knows too little."""
    if found is None:
        return []
    times = []
    if found["half"] is not None:
        times.append(f"half within {lasting(found['half'])}")
    if found["most"] is not None:
        times.append(f"9 of 10 within {lasting(found['most'])}")
    else:
        times.append(f"{10 * found['share']:.0f} of 10 within {lasting(found['last'])}")
    return [f"  expected: {', '.join(times)} (by the last {found['of']})"]


def forecast_lines(found: dict[str, Any]) -> list[str]:
    """Return what is expected, and how good such words were."""
    lines, kept = expected_in_words(found["expected"]), found["kept"]
    if kept["of"]:
        lines.append(
            f"  of the last {counted(kept['of'], 'Package')} with such a time for 9 of 10,"
            f" {kept['within']} were delivered within it"
        )
    return lines
