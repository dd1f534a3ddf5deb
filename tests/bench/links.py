"""Measures ten thousand idle kits that are linked over TLS to one hub on PostgreSQL. An
idle link is the cheap case, so all links also return after a kill, while pushes arrive.

Run it as `python -m tests.bench.links [HOW MANY]`. The kits' ends are in other processes, at
addresses of this machine (127.0.0.0/8), and reconnect like agents. It prints the seconds until all
are linked, the idle cost of each at the hub, the seconds until all are linked again after a kill,
and the time of a push meanwhile.
"""

from __future__ import annotations

import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple

import trio
import trustme

from fieldagent.agent.channels.hub_connection import HubAddress
from fieldagent.extensions.lab.simulator.fleet import Fleet, Plan
from tests.bench.process import processor, resident
from tests.bench.pushes import admitted
from tests.bench.silent_links import devices_of, sources_of
from tests.bench.table import row
from tests.postgres import new_database, server
from tests.processes import Hub, hub, started

LINKS = 10_000
CLIENTS = 2
"""Number of processes."""
REST = 30.0
PATIENCE = 600.0


class Kits:
    """A client process with some of the links. A thread of this process reads its reports."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.linked = 0
        self._process = process
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.linked = int(line)


class Come(NamedTuple):
    seconds: float
    pushes: list[float]
    """Seconds of each push while the kits reconnected."""


async def _hold(address: str, ca_file: str, first: int, tokens: list[str]) -> None:
    """Run the kits' ends of some links. They report changes of the number of open links every tenth
    of a second.
    """
    hub = HubAddress(address, "", Path(ca_file))
    fleet = Fleet(hub, tokens, Plan(sources=sources_of(len(tokens), first)))
    last = -1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fleet.run)
        while True:
            if fleet.figures.open != last:
                last = fleet.figures.open
                print(last, flush=True)
            await trio.sleep(0.1)


@contextmanager
def kits(running: Hub, ca_file: Path, tokens: list[str], folder: Path) -> Iterator[list[Kits]]:
    share = -(-len(tokens) // CLIENTS)
    with ExitStack() as stack:
        clients = []
        for client in range(CLIENTS):
            some = tokens[client * share : (client + 1) * share]
            named = folder / f"tokens-{client}"
            named.write_text("\n".join(some))
            command = [sys.executable, "-m", "tests.bench.links", running.address, str(ca_file)]
            arguments = [str(client * share), str(named)]
            process = stack.enter_context(
                started([*command, *arguments], stdout=subprocess.PIPE, text=True)
            )
            clients.append(Kits(process))
        yield clients


def all_linked(clients: list[Kits], links: int, push: Any) -> Come:
    began = time.perf_counter()
    pushes = []
    while sum(each.linked for each in clients) < links:
        if time.perf_counter() - began > PATIENCE:
            raise SystemExit(f"only {sum(each.linked for each in clients)} of {links} are linked")
        pushes.append(push())
        time.sleep(0.5)
    return Come(time.perf_counter() - began, pushes)


def pusher(running: Hub, proof: Any, ca_file: Path) -> Any:
    """Push to a kit without a link, each time over a new connection, and return the seconds."""
    context = ssl.create_default_context(cafile=str(ca_file))
    body = b'{"sourceUserId":"1","workspaceId":"1","targetUserId":"1","message":{"content":"ping"}}'
    headers = {
        "x-api-key": proof.key,
        "Authorization": f"Bearer {proof.token}",
        "Content-Type": "application/json",
    }

    def push() -> float:
        began = time.perf_counter()
        connection = HTTPSConnection("127.0.0.1", running.port, context=context, timeout=60)
        connection.request("POST", "/api/package", body, headers)
        status = connection.getresponse().status
        connection.close()
        assert status == 200, status
        return time.perf_counter() - began

    return push


def main(links: int = LINKS) -> None:
    with server(durable=True) as postgres, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = new_database(postgres.address)
        proof = admitted(database)
        tokens = devices_of(database, links)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(folder / "hub.pem")
        settings = {
            "database": database,
            "tls-certificate": str(folder / "hub.pem"),
            "tls-key": str(folder / "hub.pem"),
            "access-log": "none",
        }
        with ExitStack() as stack:
            with hub(folder, settings) as running:
                alone = resident(running.process.pid)
                clients = stack.enter_context(kits(running, folder / "ca.pem", tokens, folder))
                came = all_linked(clients, links, pusher(running, proof, folder / "ca.pem"))
                _tell(f"{links} links over TLS: all linked", came, "<= 90")
                time.sleep(REST)
                used = (resident(running.process.pid) - alone) / links / 1024
                row("  memory of the hub for each", used, "<= 60", "KiB")
                spent = processor(running.process.pid)
                time.sleep(REST)
                share = (processor(running.process.pid) - spent) / REST
                row("  at rest, of a core", share, "<= 0.15")
                running.process.kill()
                port = running.port
            while any(each.linked for each in clients):
                time.sleep(0.1)
            with hub(folder, {**settings, "port": str(port)}) as again:
                came = all_linked(clients, links, pusher(again, proof, folder / "ca.pem"))
                _tell("  the hub was killed: all linked again", came, "<= 120")


def _tell(what: str, came: Come, goal: str) -> None:
    row(what, came.seconds, goal, "s")
    row("  a push meanwhile, median", statistics.median(came.pushes), "", "s")
    row("  the longest", max(came.pushes), "", "s")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        address, ca_file, first, named = sys.argv[1:]
        trio.run(_hold, address, ca_file, int(first), Path(named).read_text().split())
    else:
        main(*map(int, sys.argv[1:]))
