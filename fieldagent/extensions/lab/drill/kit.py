"""One kit of a drill: the real agent on simulated serial lines, with simulated users."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import InitVar, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import trio

from fieldagent.agent import agent as shipped
from fieldagent.agent import drivers
from fieldagent.agent.settings import Settings, parse
from fieldagent.extensions.lab.drill.lines import Wire
from fieldagent.extensions.lab.drill.outage import DAY_S, START, OutageCondition
from fieldagent.extensions.lab.drill.plan import HOUR_S, KitPlan
from fieldagent.extensions.lab.drill.sky import OperatorBill
from fieldagent.extensions.lab.drill.steady import SteadyJournal
from fieldagent.extensions.lab.simulator.pty_port import PtyPort
from fieldagent.extensions.lab.simulator.sbd_modem import SimulatedModem
from fieldagent.package.package import SOS_PRIORITY, Channel
from fieldagent.package.reading import read_package
from fieldagent.system import waits
from fieldagent.system.elapsed_time import Reading
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.supervisor import Supervisor

log = logging.getLogger(__name__)

KEEPERS = (
    "the resume of waiting items",
    "housekeeping",
    "the search for fragments",
    "the repeats of an SOS",
    "the receipts to senders",
)
"""Parts of the agent that handle messages."""
FIRST_NUMBER = 1_900_000_000
"""First message number in a drill. A real journal begins with a random number."""
STARTING_S = 30.0
"""Seconds from power-on until the agent starts."""
COLLAPSE_KEY = 7
"""Collapse key of positions. A new position replaces an earlier position that has not been sent."""


@dataclass(slots=True)
class PostedPackage:
    """A Package that the users asked the kit to send."""

    at: float
    """Time on trio's clock when the Package was posted."""
    body: dict[str, Any]
    sos: bool


@dataclass(slots=True)
class KitRecord:
    """Record of what happened at one kit: posted Packages, log lines and failures."""

    posted: dict[int, PostedPackage] = field(default_factory=dict)
    """Packages that the kit accepted, by their numbers."""
    unposted: int = 0
    """Number of Packages that could not be posted because the kit had no power."""
    log: list[tuple[float, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Failures in parts of the agent. Each failure is a bug in the program."""

    def add_line(self, what: str) -> None:
        """Add a line to the log, with trio's current time."""
        self.log.append((trio.current_time(), what))


@dataclass(eq=False)
class Kit:
    number: int
    """Number of the kit's user, of its device and of its station."""
    plan: KitPlan
    home: Path
    random: Random
    account: OperatorBill
    session: InitVar[float]
    """Seconds that a satellite session takes."""
    token: str = ""
    wire: Wire | None = None
    agent: shipped.Agent | None = None
    record: KitRecord = field(default_factory=KitRecord)

    def __post_init__(self, session: float) -> None:
        modem = SimulatedModem(self.account, imei=self.account.imei)
        self.port = PtyPort(modem, self.home / "modem", latency=session)
        outages = {
            "sky": ("no satellite in sight", self.plan.sky),
            "network": ("no cellular network", self.plan.network),
            "earshot": ("out of range", self.plan.earshot),
            "power": ("without power", self.plan.power),
        }
        self.conditions = {
            name: OutageCondition(cause, plan, Random(self.random.getrandbits(32)))
            for name, (cause, plan) in outages.items()
        }
        self._power = trio.CancelScope()

    @property
    def hub_name(self) -> str:
        """Return the host name that this kit uses for the hub. The drill recognises the kit by this
        name.
        """
        return f"hub-of-{self.number}.invalid"

    @property
    def key(self) -> bytes:
        """Return the key that authenticates the kit's satellite messages."""
        return sha256(self.plan.name.encode()).digest()

    def read_clocks(self) -> Reading:
        """Return the simulated clocks. They are always trusted, and the boot is the same during the
        whole drill.
        """
        now = trio.current_time()
        return Reading("drill", now, START + now, "network")

    def is_away(self, name: str) -> bool:
        """Return True if there is an outage of `name` now: `sky`, `network`, `earshot` or
        `power`.
        """
        return self.conditions[name].away

    async def run_sky_outages(self) -> NoReturn:
        """Remove and restore the modem's satellite network according to the plan."""

        def log(away: bool) -> None:
            self.port.modem.set_service(not away)
            self.port.poke()

        await self.conditions["sky"].run_plan(log)

    async def run_network_outages(self) -> NoReturn:
        """Cut the link to the hub when a network outage begins, according to the plan."""
        await self.conditions["network"].run_plan(lambda away: self.cut_link() if away else None)

    async def run_power_outages(self) -> NoReturn:
        """Cut and restore the power of the kit and its modem according to the plan."""

        def log(away: bool) -> None:
            if away:
                self.cut_link()
                self.port.modem.start_brown_out()
                self._power.cancel()

        await self.conditions["power"].run_plan(log)

    def cut_link(self) -> None:
        """Cut the link to the hub for both sides, if there is a link."""
        if self.wire is not None:
            self.wire.cut_connection()

    def read_settings(self) -> Settings:
        """Return the settings that follow from the plan. Raises InvalidSettings if the plan
        contains a wrong setting.
        """
        return parse("\n".join(self._list_settings()), self.home / "agent.properties")

    def _list_settings(self) -> Iterator[str]:
        plan, home = self.plan, self.home
        yield f"state-directory={home}"
        if "keep-ended-days" not in plan.settings:
            # Delete nothing, because the report could not distinguish a deleted journal entry from
            # a lost message.
            yield "keep-ended-days=3650"
        if Channel.SATELLITE in plan.bearers:
            yield f"satellite-port={home}/modem"
            yield f"satellite-credits-per-day={plan.credits_per_day}"
            yield f"satellite-sos-reserve={plan.sos_reserve}"
            yield f"satellite-key={self.key.hex()}"
        if Channel.CELLULAR in plan.bearers:
            yield f"hub-address=https://{self.hub_name}"
            yield f"hub-token={self.token}"
        if Channel.RADIO in plan.bearers:
            yield f"radio-port={home}/node"
            yield f"radio-station={self.number}"
            yield f"radio-name={plan.name}"
            bearer_names = [each.lower() for each in plan.bearers if each is not Channel.RADIO]
            if bearer_names and "radio-relay" not in plan.settings:
                yield f"radio-relay={', '.join(sorted(bearer_names))}"
        for name, value in plan.settings.items():
            yield f"{name}={value}"

    async def run_agent(self) -> NoReturn:
        """Run the agent whenever there is power."""
        settings, first = self.read_settings(), True
        while True:
            if not self.is_away("power"):
                await self._run_one_life(settings, first=first)
                first = False
            await trio.sleep(STARTING_S)

    async def _run_one_life(self, settings: Settings, *, first: bool) -> None:
        self.record.add_line("the kit starts")
        journal = SteadyJournal(self.home / "journal.sqlite3", self.read_clocks)
        try:
            async with trio.open_nursery() as last:
                last.start_soon(journal.run)
                if first:
                    await journal.commit(partial(_begin_at, FIRST_NUMBER + 10_000 * self.number))
                with trio.CancelScope() as self._power:
                    await self._run(shipped.assemble_agent(settings, journal, lambda line: None))
                last.cancel_scope.cancel()
        finally:
            self.agent = None
            journal.close()
            self.record.add_line("the kit has no power")

    async def _run(self, agent: shipped.Agent) -> None:
        keep = agent.supervisor.keep_running
        async with trio.open_nursery() as nursery:
            for name in KEEPERS:
                nursery.start_soon(keep, name, partial(shipped.BACKGROUND_TASKS[name], agent))
            for channel, outbox in agent.parts.outboxes.items():
                nursery.start_soon(keep, f"{channel} queue", outbox.run)
                driver = drivers.DRIVERS[channel](agent.settings, agent.parts, agent.progress)
                nursery.start_soon(partial(keep, channel, driver, mend=outbox.requeue_lost))
            if agent.parts.station is not None:
                nursery.start_soon(keep, "the rounds", agent.parts.station.run)
            self.agent = agent
            try:
                await trio.sleep_forever()
            finally:
                self.record.faults += list_faults(agent.supervisor)

    async def act_until(self, until: float) -> None:
        """Let the users write, send positions and raise SOS calls until the time `until` on trio's
        clock.
        """
        async with trio.open_nursery() as nursery:
            if self.plan.messages_per_day:
                nursery.start_soon(
                    self._repeat_randomly, self._write, self._compute_writing_interval(), until
                )
            if self.plan.sos_per_week:
                mean_interval = 7 * DAY_S / self.plan.sos_per_week
                nursery.start_soon(self._repeat_randomly, self._call_for_help, mean_interval, until)
            if self.plan.position_every:
                nursery.start_soon(self._send_positions, until)

    def _compute_writing_interval(self) -> float:
        """Return the mean number of seconds between two attempts to write. Attempts during sleep
        are skipped.
        """
        share = sum(self._is_awake(hour + 0.5) for hour in range(24)) / 24
        return DAY_S * max(share, 1 / 24) / self.plan.messages_per_day

    def _is_awake(self, hour: float) -> bool:
        return any(hours.has(hour) for hours in self.plan.awake)

    async def _repeat_randomly(
        self, operation: Callable[[], Any], interval_s: float, until: float
    ) -> None:
        while (at := trio.current_time() + self.random.expovariate(1 / interval_s)) < until:
            await trio.sleep_until(at)
            await operation()

    async def _write(self) -> None:
        if self._is_awake(trio.current_time() % DAY_S / HOUR_S):
            text = f"{self.plan.name} {len(self.record.posted)}: ".ljust(
                self.plan.message_length, "x"
            )
            await self._post({"message": {"content": text[: self.plan.message_length]}})

    async def _call_for_help(self) -> None:
        text = f"{self.plan.name}: we need help"
        # Wait until the kit has power, because only a running kit can accept the SOS.
        while self.agent is None:
            await trio.sleep(60)
        await self._post({"message": {"content": text}, "priority": SOS_PRIORITY})

    async def _send_positions(self, until: float) -> None:
        await waits.sleep(self.random.uniform(0, self.plan.position_every))
        while trio.current_time() < until:
            drift = self.random.gauss(0, 0.01)
            position = {"latitude": 46.5 + drift, "longitude": 8.0 - drift}
            await self._post({"location": position, "collapseKey": COLLAPSE_KEY})
            await waits.sleep(self.plan.position_every)

    async def _post(self, body: dict[str, Any]) -> None:
        if self.agent is None:
            self.record.unposted += 1
            return
        if self.plan.by and "priority" not in body:
            body = {**body, "by": int(self.plan.by)}
        at = trio.current_time()
        # If the power fails during this call, the user gets no confirmation. So the Package is not
        # recorded as posted.
        package_state = await self.agent.parts.intake.accept(read_package(body))
        self.record.posted[package_state.sequence] = PostedPackage(at, body, "priority" in body)
        self.record.add_line(f"posted {package_state.sequence}: {json.dumps(body)[:100]}")


def list_faults(supervisor: Supervisor) -> list[str]:
    """Return one line for each part that has failed, with its error."""
    return [f"{each.part}: {each.error}" for each in supervisor.get_faults() if each.times]


def _begin_at(number: int, db: sqlite3.Connection) -> None:
    db.execute("UPDATE beginning SET number = ?", (number,))
    db.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'package'", (number,))
