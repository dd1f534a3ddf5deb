"""Two radios of each kind that hear each other, each with a simulated node, a TNC or nothing at the
other end of its line.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeAlias

import trio

from fieldagent.extensions.lab.simulator.air import SharedAir
from fieldagent.extensions.lab.simulator.lora import LoraAir
from fieldagent.extensions.lab.simulator.meshcore import SimulatedMeshcore
from fieldagent.extensions.lab.simulator.meshtastic import SimulatedMeshtastic
from fieldagent.extensions.lab.simulator.nodes import Nodes, RadioKind
from fieldagent.extensions.lab.simulator.pty_port import open_pty
from fieldagent.extensions.lab.simulator.rnode import SimulatedRnode
from fieldagent.extensions.radio.contract import RadioPlace
from fieldagent.extensions.radio.radios import meshcore_kiss, meshtastic, rnode, udp
from fieldagent.system.properties import Key
from fieldagent.wire import kiss
from tests.processes import free_port


@dataclass
class Pair:
    one: RadioPlace
    other: RadioPlace
    unplug: Callable[[], None] | None
    """Removes the first radio, like a pulled cable. None if the radio is not a device."""


MakePair: TypeAlias = "Callable[[Path], AbstractAsyncContextManager[Pair]]"


@asynccontextmanager
async def nodes(home: Path) -> AsyncIterator[Pair]:
    air = SharedAir(Random(1))
    ports = [home / "node-1", home / "node-2"]
    simulated = Nodes(air, ports, lambda line: None)
    async with trio.open_nursery() as nursery:
        await nursery.start(simulated.run)
        one, other = (RadioPlace(str(port)) for port in ports)
        yield Pair(one, other, partial(simulated.unplug, simulated.sockets[0]))
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def tncs(home: Path) -> AsyncIterator[Pair]:
    """Yield two TNCs on serial lines that pass frames to each other."""
    async with trio.open_nursery() as nursery, AsyncExitStack() as lines:
        first = AsyncExitStack()
        ours = await first.enter_async_context(open_pty(home / "tnc-1"))
        lines.push_async_exit(first)
        theirs = await lines.enter_async_context(open_pty(home / "tnc-2"))
        nursery.start_soon(_pass_on, ours, theirs)
        nursery.start_soon(_pass_on, theirs, ours)
        one = RadioPlace(str(home / "tnc-1"), 9600, "N0CALL-1")
        other = RadioPlace(str(home / "tnc-2"), 9600, "N0CALL-2")
        yield Pair(one, other, lambda: nursery.start_soon(first.aclose))
        nursery.cancel_scope.cancel()


async def _pass_on(ear: trio.lowlevel.FdStream, mouth: trio.lowlevel.FdStream) -> None:
    deframer = kiss.KissDeframer()
    try:
        while data := await ear.receive_some(4096):
            for command, content in deframer.receive_data(bytes(data)):
                if command == kiss.DATA:
                    await mouth.send_all(kiss.encode(content))
                elif content == kiss.QUERY:
                    await ear.send_all(kiss.encode(b"TXBUF:0", kiss.SET_HARDWARE))
    except (trio.ClosedResourceError, trio.BrokenResourceError):
        return


@asynccontextmanager
async def group(home: Path) -> AsyncIterator[Pair]:
    own = {key.name: key.default for key in udp.RADIO.keys}
    place = RadioPlace(f"udp://127.255.255.255:{free_port()}", own_settings=own)
    yield Pair(place, place, None)


def lora_boards(name: str, keys: tuple[Key, ...], kind: RadioKind) -> MakePair:
    @asynccontextmanager
    async def boards(home: Path) -> AsyncIterator[Pair]:
        ports = [home / "board-1", home / "board-2"]
        simulated = Nodes(LoraAir(Random(1)), ports, lambda line: None, kind)
        own = {key.name: key.default for key in keys}
        own |= {f"{name}-frequency": 869_525_000, f"{name}-share": 100.0, f"{name}-spreading": 7}
        async with trio.open_nursery() as nursery:
            await nursery.start(simulated.run)
            one, other = (RadioPlace(str(port), own_settings=own) for port in ports)
            yield Pair(one, other, partial(simulated.unplug, simulated.sockets[0]))
            nursery.cancel_scope.cancel()

    return boards


@asynccontextmanager
async def meshtastics(home: Path) -> AsyncIterator[Pair]:
    ports: list[Path | int] = [home / "mesh-1", home / "mesh-2"]
    air = LoraAir(Random(1))
    air.turnaround = 0.0
    simulated = Nodes(air, ports, lambda line: None, SimulatedMeshtastic)
    own = {key.name: key.default for key in meshtastic.RADIO.keys}
    async with trio.open_nursery() as nursery:
        await nursery.start(simulated.run)
        one, other = (RadioPlace(str(port), own_settings=own) for port in ports)
        yield Pair(one, other, partial(simulated.unplug, simulated.sockets[0]))
        nursery.cancel_scope.cancel()


PAIRS: dict[str, MakePair] = {
    "node": nodes,
    "kiss": tncs,
    "meshcore-kiss": lora_boards("meshcore-kiss", meshcore_kiss.RADIO.keys, SimulatedMeshcore),
    "rnode": lora_boards("rnode", rnode.RADIO.keys, SimulatedRnode),
    "meshtastic": meshtastics,
    "udp": group,
}
"""Pairs by their name in `registry.RADIOS`. A radio without a pair here fails its tests."""
