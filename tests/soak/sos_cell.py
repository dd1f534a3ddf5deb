"""One SOS in one state of its environment: Ada, whose kit raises it, Ben, whose kit is in range,
and with a hub the dispatcher Olga.

Kits and hub are real processes. The modem and the radio nodes are simulated on ptys.
"""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio

from fieldagent.extensions.lab.simulator.air import SharedAir
from fieldagent.extensions.lab.simulator.gateway import SimulatedGateway
from fieldagent.extensions.lab.simulator.hub_side import HubSide
from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.extensions.lab.simulator.nodes import Nodes
from fieldagent.extensions.lab.simulator.pty_port import PtyPort
from fieldagent.extensions.lab.simulator.sbd_modem import SimulatedModem
from tests.agent import test_wrong_clock as wrong_clock
from tests.hub.test_cluster import Balancer, balancer
from tests.hub.test_journey import IMEI, Receiver, behind_directip, folder, receiver
from tests.hub.test_restored import duplicate
from tests.machine import fill, small_disk
from tests.processes import MODULE, Agent, Hub, NeverReady, administer, free_port, until

WORDS = "leg broken"
ANSWER = "help is on its way"
LATENCY = 2.0
"""Seconds of a satellite session."""
LOOK_EVERY = 5.0
ANSWERED_AFTER = 30.0
"""Seconds that a person needs to answer a ringing SOS."""
DOWN_FOR, UP_FOR = 70.0, 50.0
"""Seconds of a flapping channel, from the press of the button."""
RESTORED_AFTER, BACK_AFTER = 300.0, 1500.0
"""Seconds until the hub's database is restored, and until absent people return."""
PAGER_AFTER = 5
"""Minutes after which the hub informs a contact."""
CHANNELS = ("Cellular", "Satellite", "Radio")


@dataclass(frozen=True)
class State:
    """`channels` are up, down, flapping, spent or absent, in the order of `CHANNELS`. `also` is a
    further fault.
    """

    channels: tuple[str, str, str]
    also: str = ""

    @property
    def has_hub(self) -> bool:
        return self.channels[0] != "absent"

    def of(self, channel: str) -> str:
        return self.channels[CHANNELS.index(channel)]


class Gateway:
    """The operator's gateway: it forwards messages to a hub, if there is one."""

    def __init__(self, hub: HubSide | None) -> None:
        self.hub = hub
        self.has_it = False

    def receive_message(self, imei: str, momsn: int, body: bytes) -> None:
        self.has_it = self.has_it or WORDS.encode() in body
        if self.hub is not None:
            self.hub.receive_message(imei, momsn, body)


@dataclass
class Desk:
    """A hub for this cell only, with its proxy, and Olga."""

    home: Path
    settings: dict[str, str]
    hub: Hub
    front: Balancer
    proof: dict[str, str]
    pager: Receiver
    device: dict[str, Any]
    signed_in: bool = True

    @property
    def database(self) -> str:
        return self.settings["database"]

    @property
    def copy(self) -> str:
        return f"{self.database}.copy"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        # A hub answers like an agent.
        return Agent.call(self.hub, method, path, body, **self.proof)  # type: ignore[arg-type]

    def incidents(self) -> list[dict[str, Any]]:
        """Return the incidents, or none while the hub is away."""
        if self.hub.process.poll() is not None:
            return []
        listing: list[dict[str, Any]] = self.call("GET", "/api/sos").body["sos"]
        return listing

    def end(self) -> None:
        self.front.ports = []
        self.front.cut()
        self.hub.kill()

    def begin(self) -> None:
        self.hub = _started(self.home, self.settings)
        self.front.ports = [self.hub.port]

    def restore(self) -> None:
        before = self.front.ports
        self.end()
        for each in Path(self.database).parent.glob("hub.sqlite3-*"):
            each.unlink()
        duplicate(self.copy, self.database)
        administer(self.database, "database", "restored")
        self.begin()
        if not before:
            # Its kit still cannot reach it over IP.
            self.front.ports = []
            self.front.cut()


def _started(home: Path, settings: dict[str, str]) -> Hub:
    """Start a hub. If another cell has taken its port meanwhile, try again."""
    while True:
        try:
            return Hub(home, settings)
        except NeverReady as error:
            if "is in use" not in str(error):
                raise
            time.sleep(1)


def _hub(home: Path, mo_port: int, mt_port: int, stack: ExitStack) -> Desk:
    settings = behind_directip(str(home / "hub.sqlite3"), mo_port, mt_port)
    del settings["satellite-grace"]
    database = settings["database"]
    administer(database, "init", "Alps")
    for name in ("Ada", "Olga"):
        administer(database, "user", "add", name)
    administer(database, "user", "role", "Olga", "dispatcher")
    key = administer(database, "key", "add", "desk", "--read", "--acknowledge")["apiKey"]
    token = administer(database, "user", "token", "add", "laptop", "--user", "Olga")["token"]
    of_ada = ("Ada's kit", "--user", "Ada", "--imei", IMEI)
    device = administer(database, "device", "add", *of_ada)
    pager = stack.enter_context(receiver())
    after = ("--untried", "--after", str(PAGER_AFTER))
    administer(database, "webhook", "add", pager.url, *after)
    hub = _started(folder(home / "hub"), settings)
    front = stack.enter_context(balancer([hub.port]))
    proof = {"x-api-key": key, "Authorization": f"Bearer {token}"}
    return Desk(home / "hub", settings, hub, front, proof, pager, device)


@dataclass
class Cell:
    state: State
    home: Path
    stack: ExitStack
    air: SharedAir
    nodes: Nodes
    modem: SimulatedModem
    port: PtyPort
    gateway: Gateway
    mt_port: int
    desk: Desk | None = None
    kits: dict[str, Agent] = field(default_factory=dict)
    raised: float = 0.0
    """Time on the monotonic clock."""

    @property
    def ada(self) -> Agent:
        return self.kits["Ada"]

    def switch(self, channel: str, *, on: bool) -> None:
        """Switch a channel, in trio's thread."""
        if channel == "Radio":
            self.air.impairments.loss = 0.0 if on else 1.0
        elif channel == "Satellite":
            self.modem.set_signal(4 if on else 0)
            self.port.poke()
        elif self.desk is not None:
            self.desk.front.ports = [self.desk.hub.port] if on else []
            self.desk.front.cut()

    def start_kits(self) -> None:
        """Start the kits, and wait until each has its channels and Ben's has heard Ada's."""
        for number, name in enumerate(("Ada", "Ben"), 1):
            home = folder(self.home / name)
            self.kits[name] = Agent(home, self._settings(name, number), MODULE, **self._clock(name))
        until(lambda: self._heard("Ben") or self._heard("Ada"))
        if self.desk is not None:
            for name in ("Ada", "Ben") if "link" in self.state.also else ("Ada",):
                self.kits[name].expect("linked to the hub")
        if self.state.of("Satellite") == "spent":
            # Half of twenty credits are reserved for an SOS. These use the others.
            for _ in range(2):
                data = {"payload": base64.b64encode(bytes(210)).decode()}
                channels = ["Satellite"]
                self.ada.call("POST", "/api/package", {"data": data, "channels": channels})

    def _heard(self, name: str) -> bool:
        return bool(self.kits[name].call("GET", "/api/neighbours").body["neighbours"])

    def _clock(self, name: str) -> dict[str, str]:
        wrong = {"its clock shows 1970": wrong_clock.IN_1970, "its clock is 10 years ahead": "+10y"}
        shows = wrong.get(self.state.also) if name == "Ada" else None
        return {} if shows is None else wrong_clock.environment(self.home / name, shows)

    def _settings(self, name: str, number: int) -> dict[str, str | None]:
        settings: dict[str, str | None] = {
            "satellite-port": None,
            "radio-port": str(self.home / f"node-{number}"),
            "radio-station": str(number),
            "radio-name": f"{name}'s kit",
            "radio-key": "07" * 32,
        }
        if name == "Ada":
            settings["satellite-port"] = str(self.port.link)
        if self.state.of("Satellite") == "spent":
            settings["satellite-credits-per-day"] = "20"
        if self.state.also == "its disk is full" and name == "Ada":
            settings["state-directory"] = str(self.home / "disk/state")
            self.stack.enter_context(small_disk(self.home / "disk"))
        if self.desk is not None and (name == "Ada" or "link" in self.state.also):
            settings |= self._link(name)
        return settings

    def _link(self, name: str) -> dict[str, str | None]:
        assert self.desk is not None
        added, more = self.desk.device, dict[str, str | None]()
        if name == "Ben":
            administer(self.desk.database, "user", "add", "Ben")
            words = ("Ben's kit", "--user", "Ben", "--relay")
            added = administer(self.desk.database, "device", "add", *words)
            more = {"radio-relay": "cellular"}
        port = self.desk.hub.port if name == "Ben" else self.desk.front.port
        return {
            "hub-address": f"http://127.0.0.1:{port}",
            "hub-token": added["hub-token"],
            "radio-station": str(added["id"]),
        } | more

    def trouble(self) -> None:
        """Apply the state except the channels."""
        if self.state.also == "its disk is full":
            fill(self.home / "disk")
        if self.desk is not None:
            duplicate(self.desk.database, self.desk.copy)
            self.desk.signed_in = self.state.also != "the dispatcher is signed out"
            if self.state.also == "the hub is down":
                self.desk.end()

    def press(self) -> None:
        """Let Ada raise it."""
        self.raised = time.monotonic()
        answer = self.ada.call("POST", "/api/sos", {"text": WORDS})
        assert answer.status == 201, answer

    def come_back(self) -> None:
        """Half an hour later, absent people return."""
        assert self.desk is not None
        self.desk.signed_in = True
        if self.state.also == "the hub is down":
            self.desk.begin()

    def end(self) -> None:
        for process in (*self.kits.values(), *([self.desk.hub] if self.desk else [])):
            process.kill()


@contextmanager
def cell(state: State, home: Path) -> Iterator[Cell]:
    """Set up everything except the kits, in this order: the owner runs the modem's port and the
    nodes.
    """
    mo_port, mt_port = free_port(), free_port()
    with ExitStack() as stack:
        desk = _hub(home, mo_port, mt_port, stack) if state.has_hub else None
        queue = MtQueue()
        side = HubSide("127.0.0.1", mo_port, IMEI, queue, _quiet) if desk is not None else None
        gateway = Gateway(side)
        modem = SimulatedModem(SimulatedGateway(_quiet, queue, gateway), imei=IMEI, clock=time.time)
        port = PtyPort(modem, home / "modem", latency=LATENCY)
        air = SharedAir(random.Random(1))
        nodes = Nodes(air, [home / "node-1", home / "node-2"], _quiet)
        made = Cell(state, home, stack, air, nodes, modem, port, gateway, mt_port, desk)
        try:
            yield made
        finally:
            made.end()


def _quiet(line: str) -> None:
    """Drop the log, which is not read."""


async def run_hardware(made: Cell, *, task_status: trio.TaskStatus[None]) -> None:
    """Run the modem, the nodes and the operator's side until cancelled."""

    def stage() -> None:
        made.modem.ring()
        made.port.poke()

    async with trio.open_nursery() as nursery:
        await nursery.start(made.port.run)
        await nursery.start(made.nodes.run)
        if made.gateway.hub is not None:
            await nursery.start(made.gateway.hub.serve, made.mt_port, stage)
            nursery.start_soon(made.gateway.hub.send_messages)
        task_status.started()
        await trio.sleep_forever()


class Answers:
    """Olga and Ben, who look every few seconds and answer a ringing SOS."""

    def __init__(self, made: Cell) -> None:
        self._cell = made
        self._rang: dict[object, float] = {}

    def look(self) -> None:
        """Look at the SOS once, and answer one that has rung long enough."""
        desk = self._cell.desk
        if desk is not None:
            if desk.signed_in:
                for each in desk.incidents():
                    if each["state"] == "open":
                        path = f"/api/sos/{each['id']}/acknowledge"
                        # A restored database assigns the numbers again.
                        rang = (desk.hub, each["id"])
                        self._after_a_while(rang, partial(self._acknowledge, path))
            return
        for each in self._cell.kits["Ben"].call("GET", "/api/sos").body["heard"]:
            if each["state"] == "open" and not each["steps"]:
                path = f"/api/sos/{each['station']}/{each['number']}/take"
                self._after_a_while(path, partial(self._take, path))

    def _after_a_while(self, what: object, act: Callable[[], None]) -> None:
        since = self._rang.setdefault(what, time.monotonic())
        if time.monotonic() - since >= ANSWERED_AFTER:
            act()

    def _acknowledge(self, path: str) -> None:
        assert self._cell.desk is not None
        self._cell.desk.call("POST", path, {"note": ANSWER})

    def _take(self, path: str) -> None:
        self._cell.kits["Ben"].call("POST", path, {"by": "Ben", "text": ANSWER})
