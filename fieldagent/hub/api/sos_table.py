"""History of incidents as a CSV table (RFC 4180) for spreadsheets, with one row for each
incident."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from fieldagent.package.writing import format_clock_time

COLUMNS = (
    *("id", "kind", "state", "device", "number", "user", "raised", "seen", "seen by"),
    *("called off", "closed", "closed by", "reason", "said", "latitude", "longitude"),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters that make a spreadsheet program execute a cell. A cell may contain the text of
an unknown sender."""


def encode_table(incidents: Sequence[dict[str, Any]]) -> bytes:
    """Return the table as UTF-8 bytes with a byte order mark, from which spreadsheet programs
    detect the encoding.
    """
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(COLUMNS)
    for each in incidents:
        table.writerow([make_cell(value) for value in make_row(each)])
    return text.getvalue().encode("utf-8-sig", "replace")


def make_row(incident: dict[str, Any]) -> list[Any]:
    """Return the row of an incident, in the order of `COLUMNS`."""
    seen_by, place, item = incident["seen"], incident["position"], incident["item"]
    ends = [step for step in incident["timeline"] if step["event"] == "closed"]
    end = ends[-1] if ends and incident["closed"] is not None else None
    texts = [each["event"].get("content", "") for each in incident["items"]]
    return [
        *(
            incident["id"],
            incident["kind"],
            incident["state"],
            incident["device"]["name"],
            incident["number"],
        ),
        item and item["sender"]["name"],
        incident["raised"] and format_clock_time(incident["raised"]),
        seen_by and format_clock_time(seen_by["at"]),
        seen_by and seen_by["by"]["name"],
        incident["calledOff"] and format_clock_time(incident["calledOff"]),
        incident["closed"] and format_clock_time(incident["closed"]),
        end and end["by"] and end["by"]["name"],
        end and end["detail"],
        " | ".join(filter(None, texts)),
        place and place["latitude"],
        place and place["longitude"],
    ]


def make_cell(value: Any) -> Any:
    """Return a value in a form that spreadsheet programs do not execute."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value
