"""Table of the commands that this extension adds."""

from __future__ import annotations

import argparse

from fieldagent.cli.argument_types import TYPES, read_positive
from fieldagent.cli.table import read_table


def read_pace(value: str) -> float:
    """Return the number of seconds between two positions, at least 1. Raises ArgumentTypeError for
    any other text.
    """
    seconds = read_positive(value)
    if seconds < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is too short: use 1 second or more")
    return seconds


def read_chance(value: str) -> float:
    """Return a number from 0 to 1. Raises ArgumentTypeError for any other text."""
    if not 0 <= float(value) <= 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a chance from 0 to 1")
    return float(value)


def read_team_size(text: str) -> int:
    """Return a number of kits from 2 to 8. Raises ArgumentTypeError for any other text."""
    if text not in map(str, range(2, 9)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a team size; use 2 to 8")
    return int(text)


COMMANDS = read_table(
    """
demo [Try] -> demo:run_demo: run a simulated modem, the agent and a hook that prints incoming
      messages
  = demo, simulate, drill: simulate a kit, its hardware, or a team's week
  --port port=9091: port of the agent (9091)
  | --hub: run a hub with a console, too
  | --team N team: run 2 to 8 kits that hear each other instead
  --loss 0..99=10: with --team: lost packets, per cent (10)
  --hub-port port=9443: port of the hub (9443)
  --latency seconds=2: seconds that a session takes (2)
  -v,--verbose: log every step
simulate: simulate hardware
simulate satellite -> simulate:simulate_satellite: simulate an Iridium modem on a pty, with the
      operator's gateway
  --kind (sbd|imt)=sbd: 9602 or 9704, as satellite-modem (sbd)
  --link PATH path: make the port reachable under this name too
  --imei IMEI =300234010000001: 15 digits
  --latency seconds=2: seconds a session takes (2)
  --key KEY: the kit's satellite-key
  --hub HOST:PORT: deliver MO messages to a hub's directip-listen
  --mt-port port=0: port to which the hub posts MT messages (any)
simulate gsm -> simulate_gsm:simulate_gsm: a GSM modem for text messages on a pty
  --link PATH path: make the port reachable under this name too
simulate node -> simulate_node:simulate_nodes: simulate radio nodes on ptys, with losses between
      them
  --kind (node|meshcore-kiss|rnode|meshtastic|meshcore)=node: kind of the radios, as in
      radio-protocol or mesh-protocol (node)
  --nodes 1..100=2: number of nodes (2)
  --link FOLDER path: make the ports reachable as FOLDER/node-1 …
  --topology FILE path: file with one radio link per line: `1 2`, `2 3 0.3` (30 % lost), `3 > 4`
      (one way)
  --tcp-port PORT port: first TCP port at 127.0.0.1 of the nodes after node 1, for apps (0: any)
  --crowd N 0..10000=0: meshtastic and meshcore: number of further nodes that each knows (0)
  --loss chance=0: chance from 0 to 1 that a packet is not heard (0)
  --duplicates chance=0: chance from 0 to 1 that a packet is heard twice (0)
  --bit-errors chance=0: chance from 0 to 1 that a bit is flipped; the radio drops such packets (0)
  --delay seconds=0: longest delay of a packet in seconds (0)
  --bitrate positive=9600: bits per second (9600)
  --packet-bytes 1..255=255: maximum bytes of a packet (255)
  --seed int: seed of the random losses
simulate fleet -> simulate_fleet:run_fleet: emulate thousands of kits on IP links to your hub, and
      report
  --hub! URL: address of your hub, as in hub-address
  --tokens! FILE path: file with the tokens of test kits of that hub, from `fieldagent hub device
      make`
  --kits N count: number of kits (all of the file)
  --first N count=1: number of the first token to use (1)
  --every SECONDS pace=60: seconds between two positions of each kit (60)
  --minutes M positive=5: minutes to run (5); Ctrl-C ends the run
  --connect-rate R positive=100: kits per second that connect for the first time (100)
  --source* ADDRESS =[]: local address to connect from; kits take turns with several addresses
  --ca-file FILE path: certificate authority of the hub, as in hub-ca-file
  --json: print the report as JSON
drill -> drill_command:run_drill: simulate a team's week in minutes with real agents and a real hub
  plan+ FILE path: plan of kits, people and faults (TOML)
  --seed int=1: seed of the week's chances (1)
  --days D positive: days to simulate, instead of the plan's
  --against KEY=VALUE: compare with another value of a setting, such as kits.credits-per-day=20
  --budget: print the credits a day that a kit needs
  --weeks N count=4: number of drills for --budget, with a seed each (4)
  --json: print the report as JSON
  --out FILE path: write the report to this file
""",
    "fieldagent.extensions.lab",
    types={**TYPES, "chance": read_chance, "pace": read_pace, "team": read_team_size},
)
