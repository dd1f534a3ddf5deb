"""`fieldagent hub fleet`: condition of all kits. Kits that differ from the others come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fieldagent.cli.hub.opened_store import Call, Result, make_transaction, show_list
from fieldagent.hub.access.directory import Row
from fieldagent.hub.fleet import view
from fieldagent.system.exit_codes import OK
from fieldagent.system.terminal import escape_line
from fieldagent.wire.kit_status import format_span

BARS = "▁▂▃▅▆█"
"""Characters for signal bars, 0 to 5."""


@make_transaction
def show_fleet(call: Call) -> Result:
    """Print the kits that differ from the others, with the differences. Then print a line for each
    kit.
    """
    answer = view.describe_fleet(*call.here, call.now)
    if call.arguments.json:
        return answer
    for kit in answer["kits"]:
        if kit["findings"]:
            print(f"{escape_line(kit['name'])}: {'; '.join(map(_make_sentence, kit['findings']))}")
    if any(kit["findings"] for kit in answer["kits"]):
        print()
    show_list(call.arguments, [_make_row(kit, call.now) for kit in answer["kits"]])
    if answer["more"]:
        print(f"and {answer['more']} more, which were not compared")
    return OK


def _make_sentence(difference: Mapping[str, Any]) -> str:
    text = escape_line(difference["text"])
    return f"{text} (!)" if difference["problem"] else text


def _make_row(kit: Mapping[str, Any], now: float) -> Row:
    """Return the row of a kit in the table: its version, start, disk, temperature, supply, clock,
    signal and credits. A missing value is None.
    """
    status, report = kit["status"] or {}, kit["about"] or {}
    booted = status.get("booted")
    return {
        "kit": kit["name"],
        "heard": _format_heard(kit, now),
        "next": kit["nextCheckIn"] and kit["nextCheckIn"]["due"],
        "version": kit["version"],
        "system": report.get("system"),
        "started": booted
        and f"{_format_age(booted, now)} ago, {report.get('bootCause', 'unknown')}",
        "disk": f"{100 - status['diskUsed']} % free" if status else None,
        "warmth": _format_with_unit(status.get("temperature"), "°C"),
        "supply": _format_supply(status, report),
        "clock": _format_clock(status, report),
        "signal": _format_signal(status, report),
        "credits": _format_credits(kit, status),
        "told": f"{_format_age(status['at'], now)} ago by {status['over']}" if status else None,
    }


def _format_heard(kit: Mapping[str, Any], now: float) -> str:
    if kit["revoked"] or kit["disabled"]:
        return "revoked" if kit["revoked"] else "disabled"
    if kit["linked"]:
        return "linked"
    return f"{_format_age(kit['lastContact'], now)} ago" if kit["lastContact"] else "never"


def _format_age(unix: float, now: float) -> str:
    return format_span(max(0, int(now - unix)))


def _format_with_unit(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value} {unit}"


def _format_supply(status: Mapping[str, Any], report: Mapping[str, Any]) -> str | None:
    parts = [f"{status['voltage']:.2f} V"] if status.get("voltage") is not None else []
    if throttling := report.get("throttling"):
        before = [f"{event} before" for event in throttling["sinceBoot"]]
        parts += throttling["now"] or before or ["OK"]
    return ", ".join(parts) or None


def _format_clock(status: Mapping[str, Any], report: Mapping[str, Any]) -> str | None:
    if not status:
        return None
    if status["clockFrom"] is None:
        return "no source"
    ahead = report.get("clockAhead")
    return f"by {status['clockFrom']}" + ("" if not ahead else f", {ahead:+d} s")


def _format_signal(status: Mapping[str, Any], report: Mapping[str, Any]) -> str | None:
    """Return the signal bars of the last 24 hours for each channel that has reported them. If no
    channel has, return the last signal of each modem.
    """
    hours = report.get("signals", {})
    if any(bars is not None for hour_bars in hours.values() for bars in hour_bars):
        return " ".join(f"{name} {_format_bars(hour_bars)}" for name, hour_bars in hours.items())
    signal_by_name = {name: link["signal"] for name, link in status.get("links", {}).items()}
    return (
        ", ".join(f"{name} {bars}" for name, bars in signal_by_name.items() if bars is not None)
        or None
    )


def _format_bars(hours: Sequence[int | None]) -> str:
    return "".join("·" if bars is None else BARS[bars] for bars in hours)


def _format_credits(kit: Mapping[str, Any], status: Mapping[str, Any]) -> str | None:
    if status.get("creditsLeft") is not None:
        return f"{status['creditsLeft']} left"
    account = kit["credits"]
    return account and f"{account['perDay'] - account['spent']} left at the hub"
