"""The mobile network between a kit's simulated modem and a hub's SMS service, controlled
by tests.
"""

from __future__ import annotations

import re
import socket
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from tests.extensions.sms.managed import Managed
from tests.extensions.sms.test_services import ADAPTERS, Adapter, post
from tests.hub.alps import Alps
from tests.hub.push_service import PushService, push_service
from tests.hub.raising import BEHIND
from tests.processes import MODULE, Agent, Hub, Running, administer, agent, hub, until

HUB_NUMBER = "+41790000001"
REFERENCE = 77
"""Reference of each SMS in two parts: some senders have only one."""
LEFT = re.compile(r"SMS to (\S+): '(fa:\S+)'")
NOWHERE = "http://127.0.0.1:9"
"""Address that gives no IP link."""


class Modem(Protocol):
    """The simulated modem of the kit. It prints sent SMS, and accepts received SMS as input."""

    def output(self) -> list[str]: ...
    def type(self, line: str) -> None: ...


class Network:
    """Delivers SMS between the modem and the hub. A test can stop, lose or split them."""

    def __init__(self, home: Path, modem: Modem, service: PushService, adapter: Adapter) -> None:
        self.home, self.modem, self.service, self.adapter = home, modem, service, adapter
        self.hub: Hub | None = None
        self.up: list[str] = []
        """Texts of all SMS from the kit, in order."""
        self.brought = 0
        self.down = 0
        """Number of the service's SMS that the kit got."""
        self.loses_up = 0
        """Number of SMS to the hub that will be lost, beginning with the next."""
        self.loses_down = 0
        self.in_parts: tuple[int, ...] = ()
        """Parts of each SMS that the kit gets, in this order. Empty for whole SMS."""
        self._said: list[str] = []
        self._seen = self._expected = 0
        self._stopped = threading.Event()
        self._works = threading.Event()
        self._works.set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._stopped.set()
        self._thread.join()

    def stop_up(self) -> None:
        """Stop the delivery of SMS to the hub."""
        self._works.clear()

    def go_on(self) -> None:
        self._works.set()

    def expect(self, text: str) -> None:
        """Wait until the modem has printed a line with this text."""
        until(lambda: self._has_come(text))

    def _has_come(self, text: str) -> bool:
        for at in range(self._expected, len(self._said)):
            if text in self._said[at]:
                self._expected = at + 1
                return True
        return False

    def _run(self) -> None:
        while not self._stopped.wait(0.05):
            lines = self._said = self.modem.output()
            for line in lines[self._seen :]:
                if match := LEFT.search(line):
                    assert match[1] == HUB_NUMBER
                    self.up.append(match[2])
            self._seen = len(lines)
            while self._works.is_set() and self.hub is not None and self.brought < len(self.up):
                self.brought += 1
                self._bring_up(self.up[self.brought - 1], str(self.brought))
            while self.down < len(self.service.got):
                _, _, text = self.adapter.read(self.service.got[self.down])
                self.down += 1
                if self.loses_down:
                    self.loses_down -= 1
                else:
                    self._bring_down(text)

    def _bring_down(self, text: str) -> None:
        halves = text[:100], text[100:]
        for half in self.in_parts:
            self.modem.type(f"part {HUB_NUMBER} {REFERENCE} {half}/2 {halves[half - 1]}")
        if not self.in_parts:
            self.modem.type(f"sms {HUB_NUMBER} {text}")

    def _bring_up(self, text: str, id_: str) -> None:
        if self.loses_up:
            self.loses_up -= 1
            return
        assert self.hub is not None
        assert post(self.hub, self.adapter.came(id_, text)) in (200, 204)


@contextmanager
def gsm(home: Path) -> Iterator[Running]:
    link = home / "gsm"
    with Running([*MODULE, "simulate", "gsm", "--link", str(link)], "what can go wrong") as modem:
        yield modem


class Country(Network):
    """A kit and a hub that are connected only by SMS."""

    database: str
    alps: Alps
    port: str
    """Value of the kit's setting `sms-port`."""
    environment: Mapping[str, str] = MappingProxyType({})
    """Additional environment variables of the kit."""

    def kit_settings(self, **more: str) -> dict[str, str | None]:
        return {
            "satellite-port": None,
            "hub-address": NOWHERE,
            "hub-token": self.alps.token,
            "sms-port": self.port,
            "sms-hub-number": HUB_NUMBER,
            "sms-after": "1",
            "sms-answer-within": "10",
            **more,
        }

    def push(self, content: str) -> None:
        """Send a message from the hub to the kit."""
        assert self.hub is not None
        self.alps.push(self.hub.port, content)

    @contextmanager
    def kit(self, **more: str) -> Iterator[Agent]:
        settings = self.kit_settings(**more)
        with agent(self.home, settings, MODULE, **self.environment) as running:
            yield running


@contextmanager
def country(
    home: Path, name: str = "sms", *, managed: bool = False, **settings: str
) -> Iterator[Country]:
    """Yield kit and hub. With `managed`, ModemManager controls the kit's modem."""
    database, adapter = str(home / "hub.sqlite3"), ADAPTERS[name]
    alps = Alps(database)
    administer(database, "user", "add", "Olga")
    administer(database, "user", "role", "Olga", "dispatcher")
    of_kit = Managed(home / "modem") if managed else None
    with of_kit or gsm(home) as modem, push_service(None) as service:
        network = Country(home, modem, service, adapter)
        network.database, network.alps = database, alps
        network.port = "mmcli" if of_kit else str(home / "gsm")
        network.environment = of_kit.environment if of_kit else {}
        own = {"database": database, **BEHIND, **adapter.settings(service.address), **settings}
        (home / "hub").mkdir()
        with hub(home / "hub", own) as network.hub:
            network.begin()
            try:
                yield network
            finally:
                network.end()


@contextmanager
def forwarding(port: int, to: int) -> Iterator[None]:
    """Forward connections from one port of this machine to another."""
    lines: list[socket.socket] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", to)) as there:
                lines.extend([self.request, there])
                back = threading.Thread(target=_pump, args=(there, self.request), daemon=True)
                back.start()
                _pump(self.request, there)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            for line in lines:
                with suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)


def _pump(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65_536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


def facts(kit: Agent) -> dict[str, Any]:
    """Return the kit's report about its channel."""
    return dict(kit.call("GET", "/api/status").body["channels"]["Cellular"])


def reaches(kit: Agent, said: str) -> None:
    until(lambda: said in facts(kit)["sms"])
