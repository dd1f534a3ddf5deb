"""Table of `fieldagent push`. A kit's program also contains it."""

from __future__ import annotations

from fieldagent.cli.items_table import ITEMS
from fieldagent.cli.table import read_table

COMMANDS = read_table(
    f"""
message -> push:push(kind=message) @pushing: send a text message
  @message
  |! --target TARGET: number of the receiving user
  |! --group GROUP: number or name of the receiving group
location -> push:push(kind=location) @pushing: send a position report
  @location
  @target
waypoint -> push:push(kind=waypoint) @pushing: send a point of interest
  @waypoint
  @target
data -> push:push(kind=data) @pushing: send raw bytes
  @data
  @target
picture -> push:push(kind=picture) @pushing: send a picture, as data
  @picture
  @target
@target
  | --target TARGET: number of the receiving user (the whole workspace)
  | --group GROUP: number or name of the receiving group
@pushing
  --hub! URL: such as https://hub.example
  --workspace! WORKSPACE $FIELDAGENT_WORKSPACE: number of the workspace; otherwise
      FIELDAGENT_WORKSPACE
  --source! SOURCE: number of the sending user
  --receipt =read: request a read receipt
  --priority int: higher values are sent first
  --collapse-key int: replace a waiting item with the same key
  --time-to-live SECONDS int: seconds until the hub gives up
  --username USERNAME: user for Basic; FIELDAGENT_TOKEN has the password
  --ca-file path: PEM file of a private authority
  --patience seconds: longest time for retries, in seconds (300; 30 if no hub answers)
  --json: print JSON
{ITEMS}
""",
    "fieldagent.cli.hub",
    above=("push",),
)
