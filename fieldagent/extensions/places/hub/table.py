"""The table of the hub's commands of this extension."""

from __future__ import annotations

from fieldagent.cli.hub.table import hub_table

COMMANDS = hub_table(
    """
report [Kits] -> report_command:write: write a report of a kit's week: track, messages, SOS, cost
  --kit! NAME: name, number or IMEI of the kit
  --week 2026-W47: week in UTC, from Monday (this week)
  --format (csv|gpx|kml|html)=html: csv: a table; gpx: the track; html: a page to print or save as
      PDF
""",
    "fieldagent.extensions.places.hub",
)
