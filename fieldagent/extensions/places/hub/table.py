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
tracker [Programs]: manage third-party trackers of people without a kit
tracker add -> tracker_command:add: add a tracker of a user
  name: name for people
  --id! ID: id that the tracker sends: an IMEI, USER/DEVICE, …
  --user! USER: user who carries it
  --every 1m wait=60: shortest time between two positions in the conversation (1m); the map shows
      all
tracker list -> tracker_command:listing @table: list trackers
tracker source: manage addresses to which third-party trackers report
tracker source add -> tracker_command:source_add: add an address; it is shown once
  name: name for people, such as the owner of the trackers
tracker source list -> fieldagent.cli.hub.credentials:listing(what=source) @table: list sources
tracker source revoke -> fieldagent.cli.hub.credentials:revoke(what=source): revoke a source
  id number: number in the list
""",
    "fieldagent.extensions.places.hub",
)
