"""Describes the expected delivery of a Package."""

from __future__ import annotations

from typing import Any

from fieldagent.system.wording import format_count, format_duration


def describe_start(cost: dict[str, Any]) -> list[str]:
    """If a Package begins later on a channel, return a line with the delay and its reason.
    Otherwise return an empty list.
    """
    after = cost.get("begins", 0)
    return [f"  begins after {format_duration(after)}: {cost['why']}"] if after else []


def describe_turns(channels: dict[str, dict[str, Any]]) -> list[str]:
    """If one channel waits for another, return a line with the order of the channels, such as: "by
    Radio within 40 s (7 of 10), otherwise by Satellite within 3 min (9 of 10) for 2 credits".
    """
    able = [each for each in channels.items() if not each[1].get("reason")]
    turns = sorted(able, key=lambda each: each[1].get("begins", 0))
    if not turns or not turns[-1][1].get("begins", 0):
        return []
    return [", otherwise ".join(_describe_turn(name, cost) for name, cost in turns)]


def _describe_turn(name: str, cost: dict[str, Any]) -> str:
    text, after = f"by {name}", cost.get("begins", 0)
    if expectation := cost["expected"]:
        of_ten, within = _choose_most(expectation)
        text += f" within {format_duration(after + within)} ({of_ten:.0f} of 10)"
    elif after:
        text += f" after {format_duration(after)}"
    return f"{text} for {format_count(cost['credits'], 'credit')}" if cost["credits"] else text


def _choose_most(expectation: dict[str, Any]) -> tuple[float, float]:
    """Return the number of Packages in ten that are delivered, at most nine, and the seconds within
    which they are delivered.
    """
    if expectation["p90"] is None:
        return 10 * expectation["share"], expectation["longest"]
    return 9, expectation["p90"]


def describe_forecast(expectation: dict[str, Any] | None) -> list[str]:
    """Return a line with the forecast of a channel, or an empty list if there is too little
    data.
    """
    if expectation is None:
        return []
    times = []
    if expectation["median"] is not None:
        times.append(f"half within {format_duration(expectation['median'])}")
    of_ten, within = _choose_most(expectation)
    times.append(f"{of_ten:.0f} of 10 within {format_duration(within)}")
    return [f"  expected: {', '.join(times)} (from the last {expectation['samples']})"]


def format_forecast(forecast: dict[str, Any]) -> list[str]:
    """Return the lines with the forecast and the accuracy of earlier forecasts."""
    lines, accuracy = describe_forecast(forecast["expected"]), forecast["accuracy"]
    if accuracy["forecasts"]:
        count = format_count(accuracy["forecasts"], "Package")
        lines.append(f"  earlier forecasts: {accuracy['within']} of {count} arrived in time")
    return lines
