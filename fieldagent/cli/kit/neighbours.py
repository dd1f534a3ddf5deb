"""`fieldagent neighbours`: shows the stations that were heard by radio."""

from __future__ import annotations

import argparse
from typing import Any

from fieldagent.cli.kit.answer import make_calling, show
from fieldagent.kit.local_http import call
from fieldagent.system.exit_codes import OK
from fieldagent.system.terminal import escape_line, format_local_time


@make_calling
def print_neighbours(arguments: argparse.Namespace) -> int:
    """Print the stations that were heard, with their signal and time, and the stations that are
    reached over other stations.
    """
    answer = call(arguments.port, "GET", "/api/neighbours").body
    show(arguments, answer, "\n".join(_format_lines(answer)))
    return OK


def _format_lines(answer: dict[str, Any]) -> list[str]:
    if answer["station"] is None:
        return ["no radio is configured: set radio-port and radio-station, and restart"]
    neighbour_lines = [_format_line(each) for each in answer["neighbours"]]
    nobody = "no kit was heard since the agent started; `fieldagent status` shows the radio"
    beyond = [
        escape_line(f"{each['station']:>10}  {each['name'] or '(no name yet)':<20}  over others,")
        + f" {_format_away(each['hops'])}"
        for each in answer["remoteStations"]
    ]
    return [f"this is station {answer['station']}", *(neighbour_lines or [nobody]), *beyond]


def _format_line(row: dict[str, Any]) -> str:
    parts = [
        f"{row['station']:>10}  {row['name'] or '(no name yet)':<20}",
        row["callsign"] or "",
        f"version {row['version']}" if row["version"] else "",
        f"heard {format_local_time(row['lastHeard'])}",
        "" if row["inRange"] else "not for an hour",
        "" if row["hops"] is None else _format_away(row["hops"]),
        "" if row["rssi"] is None else f"{row['rssi']} dBm",
        "" if row["snr"] is None else f"SNR {row['snr']} dB",
        _format_route(row["hopsToHub"], row["routeBatteryLow"]),
        f"missing: {', '.join(map(str, row['missing']))}" if row["missing"] else "",
        f"sends with the {row['radioKey']} radio-key" if row["radioKey"] else "",
    ]
    return escape_line("  ".join(part for part in parts if part))


def _format_away(hops: int) -> str:
    return f"{hops} {'transmission' if hops == 1 else 'transmissions'} away"


def _format_route(others: int | None, low: bool | None) -> str:
    if others is None:
        return ""
    others_text = f" over {others} {'other' if others == 1 else 'others'}" if others else ""
    return f"reaches the hub{others_text}{', a battery there is low' if low else ''}"
