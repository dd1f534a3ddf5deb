"""Builds the world of a drill and runs it: kits, radio, satellite, networks, the hub and
dispatchers.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import trio
import trio.testing

from fieldagent.agent import agent as shipped
from fieldagent.agent.channels import cellular, sbd_modem, serial_port
from fieldagent.agent.channels.connecting import ServerPlace, Unreachable
from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.channels.hub_connection import HubAddress
from fieldagent.extensions.lab.drill.desk import DrillDesk
from fieldagent.extensions.lab.drill.kit import Kit, list_faults
from fieldagent.extensions.lab.drill.lines import SimulatedLines, Wire
from fieldagent.extensions.lab.drill.outage import DAY_S, START, OutageCondition
from fieldagent.extensions.lab.drill.plan import DrillPlan
from fieldagent.extensions.lab.drill.sky import OperatorBill, SimulatedOperator
from fieldagent.extensions.lab.drill.steady import (
    SteadyStore,
    replace_for_a_while,
    run_at_once,
    seed_trio,
)
from fieldagent.extensions.lab.simulator import nodes as simulated_nodes
from fieldagent.extensions.lab.simulator import pty_port
from fieldagent.extensions.lab.simulator.air import BurstLosses, Impairments, SharedAir
from fieldagent.extensions.lab.simulator.nodes import Nodes
from fieldagent.hub import hub as shipped_hub
from fieldagent.hub import settings as hub_settings
from fieldagent.hub.access import directory
from fieldagent.hub.contract import Device
from fieldagent.hub.field import operator_calls
from fieldagent.hub.field.ip_link import Links
from fieldagent.hub.field.mailbox import IpMailbox
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import Channel
from fieldagent.system.signals import run_breakable

HUB_PARTS = (
    "the leases of links",
    "positions for linked kits",
    "housekeeping",
    "the expiry of items",
    "check-ins and updates",
)
"""Parts of the hub that a drill runs. Calls to the operator are not among them, because the drill
makes these calls itself."""
REPORT_INTERVAL_S = 6 * 3600.0


class MeasuredAir(SharedAir):
    """Shared radio channel that measures the airtime of each station."""

    seconds: Counter[int]

    def transmit(self, now: float, station: int, packet: bytes) -> float:
        """Transmit a packet, and add its airtime to the total of its station."""
        self.seconds[station] += self.compute_air_time(packet)  # type: ignore[assignment]
        return super().transmit(now, station, packet)


class World:
    """One run of a plan with one seed."""

    def __init__(
        self,
        plan: DrillPlan,
        seed: int,
        home: Path,
        print_line: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.plan = plan
        self.home = home
        self.random = Random(seed)
        self._print_line = print_line
        self.sky = SimulatedOperator()
        self.lines = SimulatedLines()
        self.away = OutageCondition("the hub was away", plan.hub, self._make_chance())
        self.desk = DrillDesk(plan.dispatchers, self.time, self._make_chance())
        self.kits = [self._make_kit(number, each) for number, each in enumerate(plan.kits, 1)]
        self.air = self._make_air()
        self.hub: shipped_hub.Hub | None = None
        self.hub_nursery: trio.Nursery | None = None
        self.faults: list[str] = []
        """Failures in parts of the hub. Each failure is a bug in the program."""
        self._until = plan.days * DAY_S
        self.seconds = self._until + min(DAY_S, self._until)
        """Duration of the run in seconds. After the last day, users post nothing for some time, so
        that waiting messages can arrive."""

    @property
    def database(self) -> str:
        """Return the path of the hub's database."""
        return str(self.home / "hub.sqlite3")

    def _make_chance(self) -> Random:
        return Random(self.random.getrandbits(32))

    def _make_kit(self, number: int, plan: Any) -> Kit:
        home = self.home / plan.name
        home.mkdir()
        account = OperatorBill(f"3002340100{number:05}")
        kit = Kit(number, plan, home, self._make_chance(), account, self.plan.session)
        self.sky.accounts[account.imei] = account
        self.sky.ports[account.imei] = kit.port.modem, kit.port
        return kit

    def _make_air(self) -> MeasuredAir:
        plan, number = self.plan.air, {kit.plan.name: kit.number for kit in self.kits}
        losses = {}
        for first, other, loss in plan.pairs:
            losses[number[first], number[other]] = losses[number[other], number[first]] = loss
        air = MeasuredAir(
            self._make_chance(),
            Impairments(loss=plan.loss),
            bitrate=plan.bit_rate,
            losses=losses if plan.pairs else None,
        )
        air.seconds = Counter()
        if plan.fades.lost:
            air.fades = BurstLosses(plan.fades.lost, plan.fades.lasting, self._make_chance())
        return air

    def time(self) -> float:
        """Return the simulated Unix time. This method replaces `time.time`."""
        return START + trio.current_time()

    def Random(self) -> Random:  # noqa: N802
        """Return a new random generator with a seed. This method replaces `random.Random`."""
        return self._make_chance()

    def list_replacements(self) -> list[tuple[object, str, object]]:
        """Return the replacements in the agent and the hub: lines, links, the clock, random
        numbers, and calls that need no thread.
        """
        return [
            (random, "Random", self.Random),
            (shipped, "time", self),
            (shipped_hub, "time", self),
            (trio.to_thread, "run_sync", run_at_once),
            (sbd_modem, "open_serial", self.lines.open_serial),
            (serial_port, "open_serial", self.lines.open_serial),
            (pty_port, "open_pty", self.lines.open_pty),
            (simulated_nodes, "open_pty", self.lines.open_pty),
            (cellular, "open_stream", self._open_stream),
            (cellular, "open_web_socket", _return_same),
            # Both ends of a line are in memory, so the speed of the line does not matter.
            (pty_port, "is_understood", lambda line, baud: True),
        ]

    async def _open_stream(self, server: ServerPlace) -> Any:
        await trio.sleep(0.1)
        kit = next(each for each in self.kits if each.hub_name == server.host)
        if kit.is_away("network"):
            raise Unreachable(LinkState.NO_SERVICE, "no network")
        if self.hub is None or self.hub_nursery is None:
            raise Unreachable(LinkState.NO_SERVICE, "the hub does not answer")
        kit.wire = Wire()
        self.hub_nursery.start_soon(self._serve_link, self.hub, kit, kit.wire)
        return kit.wire.ends[0]

    async def _serve_link(self, hub: shipped_hub.Hub, kit: Kit, wire: Wire) -> None:
        async def find_device(token: str) -> Device:
            return await hub.store.read(lambda db: directory.find_device_of_token(db, token))

        def make_mailbox(device: Device, version: str) -> IpMailbox:
            return IpMailbox(
                hub.store,
                device,
                hub.mobile_originated,
                clock=self.time,
                version=version,
                feeds=hub.feeds,
            )

        links = Links(find_device, make_mailbox, hub.hold_link)
        device = await find_device(kit.token)
        await links.serve(device, kit.token, "", wire.ends[1])  # type: ignore[arg-type]

    async def _run_hub(self) -> NoReturn:
        while True:
            while self.away.away:
                await trio.sleep(60)
            await self._run_hub_once()

    async def _run_hub_once(self) -> None:
        store = SteadyStore(self.database)
        settings = hub_settings.parse_settings("", self.home / "hub.properties", self.database, {})
        hub = shipped_hub.Hub(settings, store)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.run)
                self.hub, self.hub_nursery = hub, nursery
                for name in HUB_PARTS:
                    part = partial(shipped_hub.PARTS[name], hub)
                    nursery.start_soon(hub.supervisor.keep_running, name, part)
                calls = partial(operator_calls.run, store, {"directip": self.sky}, clock=self.time)
                nursery.start_soon(hub.supervisor.keep_running, "operator calls", calls)
                for kit in self.kits:
                    nursery.start_soon(
                        kit.account.deliver_messages,
                        hub.make_operator_host("the drill", "directip"),
                    )
                nursery.start_soon(self.desk.answer_until_cancelled, store)
                while not self.away.away:
                    await trio.sleep(60)
                for kit in self.kits:
                    kit.cut_link()
                self.hub = self.hub_nursery = None
                nursery.cancel_scope.cancel()
        finally:
            self.faults += list_faults(hub.supervisor)
            store.close()

    def _settle_in(self, db: Db) -> None:
        workspace = directory.add_workspace(db, self.plan.name[:60], now=START)
        for kit in self.kits:
            member = directory.add_user(db, workspace, kit.plan.name, type_="Thing", now=START)
            has_satellite = Channel.SATELLITE in kit.plan.bearers
            new = directory.NewDevice(
                kit.plan.name,
                imei=kit.account.imei if has_satellite else None,
                air_key=kit.key if has_satellite else None,
                relay=True,
            )
            device, kit.token = directory.add_device(db, workspace, member, new, now=START)
            assert (member, device) == (kit.number, kit.number)
        self.desk.add_dispatchers(db, workspace, START)

    async def run(self) -> None:
        """Run the plan to its end, starting with an empty database. The run uses trio's clock, so
        the caller must install a virtual clock first.
        """
        store = SteadyStore(self.database)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.run)
            await store.commit(self._settle_in)
            nursery.cancel_scope.cancel()
        store.close()
        for kit in self.kits:
            kit.read_settings()
        async with trio.open_nursery() as nursery:
            await self._begin(nursery)
            async with trio.open_nursery() as people:
                people.start_soon(self._show)
                async with trio.open_nursery() as living:
                    for kit in self.kits:
                        living.start_soon(kit.act_until, self._until)
                    living.start_soon(self.desk.write, self._until, len(self.kits))
                await trio.sleep_until(self.seconds)
                people.cancel_scope.cancel()
            nursery.cancel_scope.cancel()

    async def _begin(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self.away.run_plan, lambda away: None)
        radios = [kit for kit in self.kits if Channel.RADIO in kit.plan.bearers]
        if radios:
            await nursery.start(self._make_nodes(radios).run)
        for kit in self.kits:
            if Channel.SATELLITE in kit.plan.bearers:
                await nursery.start(kit.port.run)
            nursery.start_soon(kit.run_sky_outages)
            nursery.start_soon(kit.run_network_outages)
            nursery.start_soon(kit.run_power_outages)
            nursery.start_soon(self._run_range_outages, kit)
            nursery.start_soon(kit.run_agent)
        nursery.start_soon(self._run_hub)

    def _make_nodes(self, kits: list[Kit]) -> Nodes:
        nodes = Nodes(self.air, [kit.home / "node" for kit in kits], lambda line: None)
        for socket, kit in zip(nodes.sockets, kits, strict=True):
            socket.node.number = kit.number
        self.air.stations[:] = [kit.number for kit in kits]
        return nodes

    async def _run_range_outages(self, kit: Kit) -> NoReturn:
        def log(away: bool) -> None:
            (self.air.away.add if away else self.air.away.discard)(kit.number)

        await kit.conditions["earshot"].run_plan(log)

    async def _show(self) -> NoReturn:
        while True:
            await trio.sleep(REPORT_INTERVAL_S)
            day, rest = divmod(trio.current_time(), DAY_S)
            posted = sum(len(kit.record.posted) for kit in self.kits)
            self._print_line(f"day {int(day) + 1}, {int(rest // 3600):02}:00  {posted} posted")


async def _return_same(hub: HubAddress, stream: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return stream


def run_drill(plan: DrillPlan, seed: int, home: Path, print_line: Callable[[str], None]) -> World:
    """Run a plan in an empty folder. `print_line` is called with lines about the progress. Two runs
    with the same seed are equal.
    """
    quiet, level = logging.getLogger("fieldagent"), logging.getLogger("fieldagent").level
    seed_trio(seed)
    world = World(plan, seed, home, print_line)
    with replace_for_a_while(world.list_replacements()):
        quiet.setLevel(logging.CRITICAL)
        try:
            clock = trio.testing.MockClock(autojump_threshold=0)
            run_breakable(world.run, clock=clock)
        finally:
            quiet.setLevel(level)
    return world
