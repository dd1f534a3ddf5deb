"""`fieldagent simulate node`: simulated radio nodes on ptys, which share a radio channel that loses
packets.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import TypeAlias

import trio

from fieldagent.extensions.lab.simulate import link_to, read_typed_lines, run_until_stopped
from fieldagent.extensions.lab.simulator import companion
from fieldagent.extensions.lab.simulator.air import (
    BadTopology,
    Impairments,
    SharedAir,
    read_topology,
)
from fieldagent.extensions.lab.simulator.commands import BadCommand, read_number
from fieldagent.extensions.lab.simulator.companion import SimulatedCompanion
from fieldagent.extensions.lab.simulator.lora import LoraAir
from fieldagent.extensions.lab.simulator.meshcore import SimulatedMeshcore
from fieldagent.extensions.lab.simulator.meshtastic import (
    EU_868,
    SimulatedMeshtastic,
    introduce_all,
)
from fieldagent.extensions.lab.simulator.node import SimulatedNode
from fieldagent.extensions.lab.simulator.nodes import Nodes, RadioKind, SimulatedRadio, Socket
from fieldagent.extensions.lab.simulator.rnode import SimulatedRnode
from fieldagent.system.exit_codes import USAGE
from fieldagent.system.terminal import escape_line

Kind: TypeAlias = "tuple[RadioKind, SharedAir]"


def print_line(line: str) -> None:
    """Print a line of the simulation immediately, with control characters escaped."""
    print(f"[air] {escape_line(line)}", flush=True)


def _choose_kind(random: Random, impairments: Impairments, arguments: argparse.Namespace) -> Kind:
    air = SharedAir(random, impairments, arguments.bitrate)
    air.packet_bytes = arguments.packet_bytes
    return SimulatedNode, air


def _make_meshcore(random: Random, impairments: Impairments, arguments: argparse.Namespace) -> Kind:
    return SimulatedMeshcore, LoraAir(random, impairments)


def _make_rnode(random: Random, impairments: Impairments, arguments: argparse.Namespace) -> Kind:
    return SimulatedRnode, LoraAir(random, impairments)


def _make_meshtastic(
    random: Random, impairments: Impairments, arguments: argparse.Namespace
) -> Kind:
    return SimulatedMeshtastic, _choose_air(LoraAir(random, impairments))


def _choose_air(air: SharedAir) -> SharedAir:
    # Chips listen for a preamble before they transmit, and a preamble lasts tens of symbols, so
    # transmissions do not collide. A packet is lost only because of `--loss`, or because the
    # receiver itself transmits.
    air.turnaround = 0.0
    return air


def _make_companion(
    random: Random, impairments: Impairments, arguments: argparse.Namespace
) -> Kind:
    return SimulatedCompanion, _choose_air(LoraAir(random, impairments))


KINDS = {
    "node": _choose_kind,
    "meshcore": _make_companion,
    "meshcore-kiss": _make_meshcore,
    "rnode": _make_rnode,
    "meshtastic": _make_meshtastic,
}
"""Functions that create the simulated radios, by the value of `radio-protocol` or `mesh-protocol`.
The bit rate of a LoRa radio depends on its settings."""


def simulate_nodes(arguments: argparse.Namespace) -> int:
    """Simulate the nodes until stopped. Print the seed, with which the random events can be
    reproduced.
    """
    seed = SystemRandom().getrandbits(32) if arguments.seed is None else arguments.seed
    impairments = Impairments(
        loss=arguments.loss,
        duplicates=arguments.duplicates,
        bit_errors=arguments.bit_errors,
        delay=arguments.delay,
    )
    kind, air = KINDS[arguments.kind](Random(seed), impairments, arguments)
    if arguments.topology is not None:
        try:
            air.losses = read_topology(arguments.topology.read_text(), arguments.nodes)
        except (BadTopology, OSError, UnicodeDecodeError) as error:
            print(f"fieldagent: {escape_line(f'{arguments.topology}: {error}')}", file=sys.stderr)
            return USAGE
    with link_to(arguments.link, "") as folder:
        nodes = Nodes(
            air, _list_links(folder, arguments.nodes, arguments.tcp_port), print_line, kind
        )
        _exchange_identities([socket.node for socket in nodes.sockets], arguments.crowd)
        print_line(f"seed {seed}")
        return run_until_stopped(partial(_run, nodes))


def _list_links(folder: Path, count: int, tcp_port: int | None) -> list[Path | int]:
    """Return the link of each node. The first link is for the kit's node and is always a serial
    line.
    """
    links: list[Path | int] = [folder / f"node-{number}" for number in range(1, count + 1)]
    if tcp_port is not None:
        links[1:] = [tcp_port and tcp_port + offset for offset in range(count - 1)]
    return links


def _exchange_identities(radios: Sequence[SimulatedRadio], crowd: int) -> None:
    """Make radios of the same kind know each other, as if each radio had heard the others."""
    introduce_all([each for each in radios if isinstance(each, SimulatedMeshtastic)], crowd)
    companions = [each for each in radios if isinstance(each, SimulatedCompanion)]
    companion.introduce_all(companions, crowd)


async def _run(nodes: Nodes) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(nodes.run)
        for socket in nodes.sockets:
            print_line(f"node {socket.node.number}: radio-port={_describe_place(socket)}")
        print_line("type `help` for what can go wrong")
        async for line in read_typed_lines():
            try:
                text = run_command(nodes, line)
            except BadCommand as bad:
                text = str(bad)
            for part in text.splitlines():
                print_line(part)
        # Standard input has ended, for example because the program runs in the background. The
        # simulation continues.
        await trio.sleep_forever()


def _describe_place(socket: Socket) -> str:
    tcp = isinstance(socket.link, int)
    return f"tcp://127.0.0.1:{socket.link}" if tcp else str(socket.link)


def run_command(nodes: Nodes, line: str) -> str:
    """Run one command and return its output. Raises BadCommand if the command is invalid."""
    command, *rest = line.split() or [""]
    if not command:
        return ""
    if command not in COMMANDS:
        raise BadCommand(f"{command!r} is not a command; `help` lists all")
    return COMMANDS[command][1](nodes, rest)


def _make_socket(nodes: Nodes, arguments: list[str]) -> Socket:
    numbers = [str(socket.node.number) for socket in nodes.sockets]
    if not arguments or arguments[0] not in numbers:
        raise BadCommand(f"name a node: {', '.join(numbers)}")
    return nodes.sockets[numbers.index(arguments[0])]


def _read_chance(arguments: list[str]) -> float:
    try:
        chance = float(arguments[0])
    except (IndexError, ValueError):
        chance = -1.0
    if not 0 <= chance <= 1:
        raise BadCommand("a chance is a number from 0 to 1")
    return chance


def _unplug(nodes: Nodes, arguments: list[str]) -> str:
    nodes.unplug(_make_socket(nodes, arguments))
    return f"node {arguments[0]} is gone"


def _plug(nodes: Nodes, arguments: list[str]) -> str:
    nodes.plug(_make_socket(nodes, arguments))
    return f"node {arguments[0]} is back"


def _reboot(nodes: Nodes, arguments: list[str]) -> str:
    nodes.reboot(_make_socket(nodes, arguments))
    return f"node {arguments[0]} restarts and has lost its memory"


def _set_loss(nodes: Nodes, arguments: list[str]) -> str:
    nodes.air.impairments.loss = _read_chance(arguments)
    return f"{nodes.air.impairments.loss:.0%} of the packets are lost"


def _set_busy(nodes: Nodes, arguments: list[str]) -> str:
    if not arguments or arguments[0] not in ("on", "off"):
        raise BadCommand("busy on, or busy off")
    for socket in nodes.sockets:
        socket.node.busy = arguments[0] == "on"
    return "the channel is never free" if arguments[0] == "on" else "the channel is free"


def _set_away(nodes: Nodes, arguments: list[str]) -> str:
    number = _make_socket(nodes, arguments).node.number
    nodes.air.away.add(number)
    return f"node {number} is out of range of all nodes"


def _set_near(nodes: Nodes, arguments: list[str]) -> str:
    number = _make_socket(nodes, arguments).node.number
    nodes.air.away.discard(number)
    return f"node {number} is in range again"


def _set_between(nodes: Nodes, arguments: list[str]) -> str:
    first, other = (
        _make_socket(nodes, arguments[index : index + 1]).node.number for index in (0, 1)
    )
    if first == other or len(arguments) != 3:
        raise BadCommand("between A B 0..1, or between A B off, of two nodes")
    if arguments[2] == "off":
        nodes.air.move(first, other, None)
        return f"nodes {first} and {other} do not hear each other"
    loss = _read_chance(arguments[2:])
    nodes.air.move(first, other, loss)
    return f"nodes {first} and {other} lose {loss:.0%} of the packets between them"


def _set_region(nodes: Nodes, arguments: list[str]) -> str:
    radio = _make_socket(nodes, arguments).node
    if not isinstance(radio, SimulatedMeshtastic):
        raise BadCommand("only a meshtastic radio has a region")
    if arguments[1:] not in (["on"], ["off"]):
        raise BadCommand("region N on, or region N off")
    radio.set_region(EU_868 if arguments[1] == "on" else 0)
    state = "transmits" if radio.region else "transmits nothing: no region is set"
    return f"node {arguments[0]} {state}"


def _set_provisioned(nodes: Nodes, arguments: list[str]) -> str:
    board = _make_socket(nodes, arguments).node
    if not isinstance(board, SimulatedRnode):
        raise BadCommand("only an rnode is provisioned, or is not")
    if arguments[1:] not in (["on"], ["off"]):
        raise BadCommand("provisioned N on, or provisioned N off")
    board.provisioned = arguments[1] == "on"
    return f"node {arguments[0]} is {'provisioned' if board.provisioned else 'not provisioned'}"


def _set_battery(nodes: Nodes, arguments: list[str]) -> str:
    board = (socket := _make_socket(nodes, arguments)).node
    if len(arguments) != 2:
        raise BadCommand("battery N and its per cent, or of a meshcore-kiss board its millivolts")
    if isinstance(board, SimulatedNode):
        percent = read_number(arguments[1], 0, 100, "per cent")
        nodes.drain(socket, percent)
        return f"the battery of node {arguments[0]} has {percent} %"
    if not isinstance(board, SimulatedMeshcore):
        raise BadCommand("only a node or a meshcore-kiss board has a battery that can be set")
    board.millivolts = read_number(arguments[1], 0, 0xFFFF, "millivolts")
    return f"the battery of node {arguments[0]} has {board.millivolts} mV"


def _set_mute(nodes: Nodes, arguments: list[str]) -> str:
    radio = _make_socket(nodes, arguments).node
    if not isinstance(radio, SimulatedCompanion):
        raise BadCommand("only a meshcore radio can be mute")
    if arguments[1:] not in (["on"], ["off"]):
        raise BadCommand("mute N on, or mute N off")
    radio.mute = arguments[1] == "on"
    return f"node {arguments[0]} {'says nothing to its host' if radio.mute else 'answers'}"


def _help(nodes: Nodes, arguments: list[str]) -> str:
    return "\n".join(text for text, _ in COMMANDS.values())


COMMANDS: dict[str, tuple[str, Callable[[Nodes, list[str]], str]]] = {
    "unplug": ("unplug N       take a node away", _unplug),
    "plug": ("plug N         put it back", _plug),
    "reboot": ("reboot N       let it start anew, as after a brown-out", _reboot),
    "away": ("away N         carry a node out of range of all nodes", _set_away),
    "near": ("near N         bring it back", _set_near),
    "between": (
        "between A B 0..1|off  move two nodes: so much is lost between them, or all",
        _set_between,
    ),
    "region": ("region N on|off  set the region of a meshtastic radio, or none", _set_region),
    "mute": ("mute N on|off  let a meshcore radio say nothing to its host", _set_mute),
    "provisioned": ("provisioned N on|off  provision an rnode, or undo that", _set_provisioned),
    "battery": (
        "battery N PERCENT  charge or drain a node; of a meshcore-kiss board MILLIVOLTS",
        _set_battery,
    ),
    "loss": ("loss 0..1      lose that share of the packets", _set_loss),
    "busy": ("busy on|off    no node finds the channel free", _set_busy),
    "help": ("help           this list", _help),
}
"""Name of each command, with its help line and its function."""
