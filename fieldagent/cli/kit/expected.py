"""When a Package is likely to be delivered, in words."""

from __future__ import annotations

from typing import Any

from fieldagent.system.wording import counted, lasting


def begin_in_words(cost: dict[str, Any]) -> list[str]:
    """Return a line for why a Package does not begin on a channel at once; none where it does."""
    after = cost.get("begins", 0)
    return [f"  begins after {lasting(after)}: {cost['why']}"] if after else []


def in_turn_in_words(channels: dict[str, dict[str, Any]]) -> list[str]:
    """Return the line that tells what happens in turn, where one channel waits for another: "by
    Radio within 40 s (7 of 10), otherwise by Satellite within 3 min (9 of 10) for 2 credits"."""
    able = [each for each in channels.items() if not each[1].get("reason")]
    turns = sorted(able, key=lambda each: each[1].get("begins", 0))
    if not turns or not turns[-1][1].get("begins", 0):
        return []
    return [", otherwise ".join(_turn(name, cost) for name, cost in turns)]


def _turn(name: str, cost: dict[str, Any]) -> str:
    told, after = f"by {name}", cost.get("begins", 0)
    if found := cost["expected"]:
        of_ten, within = _most(found)
        told += f" within {lasting(after + within)} ({of_ten:.0f} of 10)"
    elif after:
        told += f" after {lasting(after)}"
    return f"{told} for {counted(cost['credits'], 'credit')}" if cost["credits"] else told


def _most(found: dict[str, Any]) -> tuple[float, float]:
    """Return how many of ten are delivered, nine at the most, and within how many seconds."""
    if found["most"] is None:
        return 10 * found["share"], found["last"]
    return 9, found["most"]


def expected_in_words(found: dict[str, Any] | None) -> list[str]:
    """Return a line for what the agent expects of a channel; none where it knows too little."""
    if found is None:
        return []
    times = []
    if found["half"] is not None:
        times.append(f"half within {lasting(found['half'])}")
    of_ten, within = _most(found)
    times.append(f"{of_ten:.0f} of 10 within {lasting(within)}")
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
