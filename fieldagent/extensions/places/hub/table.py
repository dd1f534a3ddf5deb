"""Table of the hub's commands that this extension adds."""

from __future__ import annotations

from fieldagent.cli.hub.table import make_hub_table

COMMANDS = make_hub_table(
    """
fence [Alarms]: manage fences: an alarm if a kit enters or leaves an area
fence add -> fence_command:add: add a fence
  name: name, such as 'North face'
  |! --circle LAT,LON,METRES: circle, such as 45.91,7.61,500
  |! --polygon FILE.geojson path: a GeoJSON Polygon of at most 500 points
  --alarm-on (both|enter|leave)=both: crossing that raises an alarm (both)
  --kit* NAME =[]: only for this kit; can be repeated (all kits)
  --group GROUP =: only for kits of this group's users
fence list -> fence_command:show_fences @table: list fences
fence remove -> fence_command:remove: remove a fence
  id number: number in the list
route [Alarms]: manage routes: an alarm if a kit is not at a place in time
route add -> route_command:add: expect a kit at a place by a time
  --kit! NAME: name, number or IMEI of the kit
  --to! LAT,LON,METRES: place, such as 45.91,7.61,300
  --by! TIME: 18:00 (UTC), or 2026-11-26T18:00+01:00
  --margin 30m wait=1800: time after that until the kit is overdue (30m)
  --name NAME =: name of the place, for people
route list -> route_command:show_routes @table: list routes, newest first
route end -> route_command:end: end a route
  id number: number in the list
  why WHY: how the route ended
  --by! USER: user who ends it
report [Kits] -> report_command:write: write a report of a kit's week: track, messages, SOS, cost
  --kit! NAME: name, number or IMEI of the kit
  --week 2026-W47: week in UTC, from Monday (this week)
  --format (csv|gpx|kml|html)=html: csv: a table; gpx: the track; html: a page to print or save as
      PDF
tracker [Programs]: manage third-party trackers of people without a kit
tracker add -> tracker_command:add: add a tracker of a user
  name: name for people
  --id! ID: id that the tracker sends: an IMEI, USER/DEVICE, …
  --user! USER: user who carries the tracker
  --every 1m wait=60: shortest time between two positions in the conversation (1m); the map shows
      all
tracker list -> tracker_command:show_trackers @table: list trackers
tracker source: manage addresses to which third-party trackers report
tracker source add -> tracker_command:add_source: add an address; it is shown once
  name: name for people, such as the owner of the trackers
tracker source list -> fieldagent.cli.hub.credentials:list_credentials(what=source) @table: list
      sources
tracker source revoke -> fieldagent.cli.hub.credentials:revoke(what=source): revoke a source
  id number: number in the list
""",
    "fieldagent.extensions.places.hub",
)
