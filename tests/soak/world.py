"""The processes of a soak: a PostgreSQL server, two hubs, kits with modems and nodes, and hooks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fieldagent.extensions.lab.simulator.pty_port import PtyPort
from fieldagent.extensions.lab.simulator.sbd_modem import SimulatedModem
from tests.agent.channels.test_satellite_soak import AGAIN_SOON
from tests.breaking import Put, environment
from tests.hub.test_cluster import Balancer, balancer
from tests.hub.test_journey import folder, receiver
from tests.postgres import Server, new_database
from tests.processes import MODULE, PATIENCE, Agent, Hub, Running, administer
from tests.soak.ledger import Above, Post

LATENCY = 0.02
"""Seconds of a satellite session. A real one takes half a minute."""
LOSS = 0.1
"""Share of radio packets that are lost, except behind a hill."""
FORGETS_SOON = Put("fieldagent.agent.agent:HOUSEKEEPING_INTERVAL_S", 10.0)
"""Otherwise a journal would not reach its final size within the hour."""


class Kit:
    """An agent that may be killed and restarted, with its modem and its hook."""

    def __init__(self, home: Path, name: str, hook: Post, settings: dict[str, Any]) -> None:
        self.name = name
        self.home = home
        self.hook = hook
        self.above = Above()
        self.modem = SimulatedModem(self.above.gateway, imei=f"30023401{name[4:]:>07}")
        self.port = PtyPort(self.modem, home / "modem", latency=LATENCY)
        self._settings = {
            **settings,
            "webhook-address": hook.receiver.url,
            "keep-ended-count": "2000",
        }
        self.agent = self._start()
        self.up = threading.Event()
        self.up.set()

    def _start(self) -> Agent:
        changes = environment(self.home, *AGAIN_SOON, FORGETS_SOON)
        return Agent(self.home, self._settings, MODULE, **changes)

    def kill(self) -> None:
        # From here on its port may belong to another process.
        self.up.clear()
        self.agent.kill()
        self.hook.note_kill()

    def start(self) -> None:
        self.agent = self._start()
        self.up.set()


@dataclass
class World:
    server: Server
    database: str
    first: dict[str, Any]
    proof: dict[str, str]
    front: Balancer
    hubs: list[Hub]
    """The last one may be killed."""
    hub_home: Path
    hub_settings: dict[str, str]
    hooked: Post
    """The workspace's webhook."""
    air: Running
    kits: list[Kit] = field(default_factory=list)
    """The last one may be killed. The first two are in range of each other."""
    members: list[int] = field(default_factory=list)

    def kill_hub(self) -> None:
        # From here on its port may belong to another process.
        self.front.ports = [self.hubs[0].port]
        self.hubs[-1].kill()
        self.hooked.note_kill()

    def start_hub(self) -> None:
        """Repeat the start, like systemd, because the database may be starting too."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.hubs[-1] = Hub(self.hub_home, self.hub_settings)
                break
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)
        self.front.ports = [each.port for each in self.hubs]

    def running(self) -> dict[str, tuple[Running, Path | None]]:
        """Return the processes that live from start to end, with the folder of their journal."""
        programs: dict[str, tuple[Running, Path | None]] = {"hub": (self.hubs[0], None)}
        for kit in self.kits[:-1]:
            programs[kit.name] = (kit.agent, kit.home / "state")
        return programs

    def restart_database(self) -> None:
        with self.hooked.note_outage():
            self.server.restart()


@contextmanager
def world(home: Path, server: Server, kits: int) -> Iterator[World]:
    database = new_database(server.address)
    first = administer(database, "init", "Alps")
    key = administer(database, "key", "add", "soak", "--per-minute", "60000", "--burst", "9999")
    proof = {"x-api-key": key["apiKey"], "Authorization": f"Bearer {first['token']}"}
    settings = {"database": database, "webhook-allow": "127.0.0.0/8"}
    homes = [folder(home / name) for name in ("hub-a", "hub-b")]
    with ExitStack() as stack:
        hooked = Post("the workspace's webhook", stack.enter_context(receiver()))
        hubs = [Hub(each, settings) for each in homes]
        front = stack.enter_context(balancer([each.port for each in hubs]))
        administer(database, "webhook", "add", hooked.receiver.url, "--untried")
        nodes = [*MODULE, "simulate", "node", "--link", str(home), "--loss", str(LOSS)]
        air = stack.enter_context(Running([*nodes, "--bitrate", "100000"], "type `help`"))
        there = World(server, database, first, proof, front, hubs, homes[-1], settings, hooked, air)
        try:
            for number in range(kits):
                _add_kit(there, home, number, stack)
            yield there
        finally:
            for process in (*(kit.agent for kit in there.kits), *there.hubs):
                process.kill()


def _add_kit(there: World, home: Path, number: int, stack: ExitStack) -> None:
    name = f"kit {number}"
    member = administer(there.database, "user", "add", name)["id"]
    device = administer(there.database, "device", "add", name, "--user", str(member))
    settings = {
        "hub-address": f"http://127.0.0.1:{there.front.port}",
        "hub-token": device["hub-token"],
    }
    if number < 2:
        station = str(device["id"])
        settings |= {"radio-port": str(home / f"node-{number + 1}"), "radio-station": station}
    hook = Post(f"the hook of {name}", stack.enter_context(receiver()))
    there.kits.append(Kit(folder(home / name.replace(" ", "-")), name, hook, settings))
    there.members.append(member)
