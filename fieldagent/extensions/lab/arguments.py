"""Command-line arguments of the demo, the simulators and the drills."""

from __future__ import annotations

import argparse
from pathlib import Path

from fieldagent.cli.hub.action import add_listing
from fieldagent.cli.subcommand import Subparsers, command, count, port, positive, seconds, whole


def add_demo(commands: Subparsers) -> None:
    """Add `fieldagent demo`."""
    demo = command(
        commands,
        "demo",
        ("extensions.lab.demo", "demo"),
        "run a simulated modem, the agent and a hook that prints incoming messages",
        group="Try",
        row=("demo, simulate, drill", "simulate a kit, its hardware, or a team's week"),
    )
    demo.add_argument("--port", type=port, default=9091, help="port of the agent (9091)")
    demo.add_argument("--hub", action="store_true", help="run a hub with a console, too")
    demo.add_argument(
        "--team", type=_team, metavar="N", help="run 2 to 8 kits that hear each other instead"
    )
    demo.add_argument(
        "--loss", type=whole(0, 99), default=10, help="with --team: lost packets, per cent (10)"
    )
    demo.add_argument("--hub-port", type=port, default=9443, help="port of the hub (9443)")
    demo.add_argument(
        "--latency", type=seconds, default=2.0, help="seconds that a session takes (2)"
    )
    demo.add_argument("-v", "--verbose", action="store_true", help="log every step")


def _team(text: str) -> int:
    if text not in map(str, range(2, 9)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a team size; use 2 to 8")
    return int(text)


def add_to_device(device: Subparsers) -> None:
    """Add the verb `make` to `fieldagent hub device`."""
    summary = "add test kits for `fieldagent simulate fleet` in a new workspace"
    make = command(device, "make", ("extensions.lab.test_kits", "device_make"), summary)
    make.add_argument("kits", type=count, metavar="N", help="number of kits")
    make.add_argument(
        "--workspace", required=True, metavar="NAME", help="name of the new workspace"
    )
    make.add_argument(
        "--tokens", required=True, type=Path, metavar="FILE", help="file for their tokens"
    )
    add_listing(make)


def add_simulate(commands: Subparsers) -> None:
    """Add `fieldagent simulate`, with each kind of hardware and a fleet of kits below it."""
    simulate = command(commands, "simulate", None, "simulate hardware")
    kinds = simulate.add_subparsers(metavar="WHAT", title="what")
    satellite = command(
        kinds,
        "satellite",
        ("extensions.lab.simulate", "satellite"),
        "simulate an Iridium modem on a pty, with the operator's gateway",
    )
    satellite.add_argument(
        "--kind",
        choices=("sbd", "imt"),
        default="sbd",
        help="9602 or 9704, as satellite-modem (sbd)",
    )
    satellite.add_argument(
        "--link", type=Path, metavar="PATH", help="make the port reachable under this name too"
    )
    satellite.add_argument("--imei", default="300234010000001", help="15 digits")
    satellite.add_argument(
        "--latency", type=seconds, default=2.0, help="seconds a session takes (2)"
    )
    satellite.add_argument("--key", help="the kit's satellite-key")
    satellite.add_argument(
        "--hub", metavar="HOST:PORT", help="deliver MO messages to a hub's directip-listen"
    )
    satellite.add_argument(
        "--mt-port", type=port, default=0, help="port to which the hub posts MT messages (any)"
    )
    gsm = command(
        kinds,
        "gsm",
        ("extensions.lab.simulate_gsm", "gsm"),
        "a GSM modem for text messages on a pty",
    )
    gsm.add_argument(
        "--link", type=Path, metavar="PATH", help="make the port reachable under this name too"
    )
    _add_simulated_radios(kinds)
    _add_fleet(kinds)


def _add_simulated_radios(kinds: Subparsers) -> None:
    node = command(
        kinds,
        "node",
        ("extensions.lab.simulate_node", "node"),
        "simulate radio nodes on ptys, with losses between them",
    )
    node.add_argument(
        "--kind",
        choices=("node", "meshcore-kiss", "rnode", "meshtastic", "meshcore"),
        default="node",
        help="kind of the radios, as in radio-protocol or mesh-protocol (node)",
    )
    node.add_argument("--nodes", type=whole(1, 100), default=2, help="number of nodes (2)")
    node.add_argument(
        "--link", type=Path, metavar="FOLDER", help="make the ports reachable as FOLDER/node-1 …"
    )
    node.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        help="file with one radio link per line: `1 2`, `2 3 0.3` (30 % lost), `3 > 4` (one way)",
    )
    node.add_argument(
        "--tcp-port",
        type=port,
        metavar="PORT",
        help="first TCP port at 127.0.0.1 of the nodes after node 1, for apps (0: any)",
    )
    node.add_argument(
        "--crowd",
        type=whole(0, 10_000),
        default=0,
        metavar="N",
        help="meshtastic and meshcore: number of further nodes that each knows (0)",
    )
    for name, what in (
        ("loss", "that a packet is not heard"),
        ("duplicates", "that it is heard twice"),
        ("bit-errors", "that a bit is flipped; the radio drops such packets"),
    ):
        node.add_argument(
            f"--{name}", type=_chance, default=0.0, help=f"chance from 0 to 1 {what} (0)"
        )
    node.add_argument(
        "--delay", type=seconds, default=0.0, help="longest delay of a packet in seconds (0)"
    )
    node.add_argument("--bitrate", type=positive, default=9600.0, help="bits per second (9600)")
    node.add_argument(
        "--packet-bytes", type=whole(1, 255), default=255, help="most bytes of a packet (255)"
    )
    node.add_argument("--seed", type=int, help="seed of the random losses")


def _add_fleet(kinds: Subparsers) -> None:
    summary = "emulate thousands of kits on IP links to your hub, and report"
    fleet = command(kinds, "fleet", ("extensions.lab.simulate_fleet", "fleet"), summary)
    fleet.add_argument(
        "--hub", required=True, metavar="URL", help="address of your hub, as in hub-address"
    )
    fleet.add_argument(
        "--tokens",
        required=True,
        type=Path,
        metavar="FILE",
        help="file with the tokens of test kits of that hub, from `fieldagent hub device make`",
    )
    fleet.add_argument("--kits", type=count, metavar="N", help="number of kits (all of the file)")
    fleet.add_argument(
        "--first", type=count, default=1, metavar="N", help="number of the first token to use (1)"
    )
    fleet.add_argument(
        "--every",
        type=_pace,
        default=60.0,
        metavar="SECONDS",
        help="seconds between two positions of each kit (60)",
    )
    fleet.add_argument(
        "--minutes",
        type=positive,
        default=5.0,
        metavar="M",
        help="minutes to run (5); Ctrl-C ends it",
    )
    fleet.add_argument(
        "--connect-rate",
        type=positive,
        default=100.0,
        metavar="R",
        help="kits per second that connect for the first time (100)",
    )
    fleet.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="local address to connect from; several take turns",
    )
    fleet.add_argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="certificate authority of the hub, as in hub-ca-file",
    )
    fleet.add_argument("--json", action="store_true", help="print the report as JSON")


def add_drill(commands: Subparsers) -> None:
    """Add `fieldagent drill`, which `drill_command` runs."""
    summary = "simulate a team's week in minutes with real agents and a real hub"
    drill = command(commands, "drill", ("extensions.lab.drill_command", "drill"), summary)
    drill.add_argument(
        "plan", type=Path, nargs="+", metavar="FILE", help="kits, people and what fails (TOML)"
    )
    drill.add_argument("--seed", type=int, default=1, help="seed of the week's chances (1)")
    drill.add_argument(
        "--days", type=positive, metavar="D", help="days to simulate, instead of the plan's"
    )
    drill.add_argument(
        "--against",
        metavar="KEY=VALUE",
        help="compare with another value of a setting, such as kits.credits-per-day=20",
    )
    drill.add_argument(
        "--budget", action="store_true", help="print the credits a day that a kit needs"
    )
    drill.add_argument(
        "--weeks",
        type=count,
        default=4,
        metavar="N",
        help="number of drills for --budget, with a seed each (4)",
    )
    drill.add_argument("--json", action="store_true", help="print the report as JSON")
    drill.add_argument("--out", type=Path, metavar="FILE", help="write the report there")


def _pace(value: str) -> float:
    every = positive(value)
    if every < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is too short: use 1 second or more")
    return every


def _chance(value: str) -> float:
    if not 0 <= float(value) <= 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a chance from 0 to 1")
    return float(value)
