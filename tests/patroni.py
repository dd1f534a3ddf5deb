"""PostgreSQL with Patroni on three nodes, with etcd and HAProxy, from the files of
`examples/patroni`.

Each node is a network namespace. Addresses and ports are those of the files, but folders differ.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests import leftovers
from tests.ethernet import Plug, ethernet
from tests.machine import tool
from tests.postgres import ACCOUNT, AS_ACCOUNT, binaries
from tests.processes import PATIENCE, until

EXAMPLES = Path(__file__).parents[1] / "examples/patroni"
NODES = {"node1": "10.0.0.11", "node2": "10.0.0.12", "node3": "10.0.0.13"}
ETCDS = {"etcd1": "10.0.0.21", "etcd2": "10.0.0.22", "etcd3": "10.0.0.23"}
HUBS = "10.0.0.10"
"""Address of the machine for the hubs and HAProxy."""
_STANDBYS = (
    "SELECT host(inet_server_addr()) UNION ALL SELECT application_name || '|' || sync_state"
    " FROM pg_stat_replication WHERE state = 'streaming'"
)
"""SQL that returns the primary's address, and then its standbys."""
PASSWORD = "change-me"


def _edited(text: str, places: dict[str, str]) -> str:
    """Replace the places in the text. Each of them must occur."""
    for here, there in places.items():
        assert here in text, here
        text = text.replace(here, there)
    return text


def _of(name: str, text: str, names: dict[str, str]) -> str:
    """Return the configuration of another node, made from that of the first node. Lines that name
    all nodes stay the same.
    """
    (first, address), *_, (last, _) = names.items()
    lines = [
        line if last in line else re.sub(rf"\b{first}\b", name, line).replace(address, names[name])
        for line in text.splitlines()
    ]
    return "\n".join(lines)


def _environment(**more: str) -> dict[str, str]:
    """Return the environment without the guard of `tests.offline`: it works only in Python, and
    their network has no exit.
    """
    mark = os.environ.get(leftovers.MARK, "")
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", leftovers.MARK: mark, **more}


class Program:
    """A program on a machine, run by PostgreSQL's account in its own folder."""

    def __init__(self, plug: Plug, home: Path) -> None:
        self.plug = plug
        self.home = home
        self.process: subprocess.Popen[bytes] | None = None
        home.mkdir()
        shutil.chown(home, ACCOUNT)

    def start(self, *command: str, **environment: str) -> None:
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.plug.inside, *AS_ACCOUNT, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                env=_environment(HOME=str(self.home), **environment),
            )

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE)
            self.process = None

    def said(self) -> str:
        """Return the last lines of the program's log."""
        log = self.home / "log"
        return f"{log}:\n{log.read_text()[-3_000:]}"


def start_etcd(name: str, etcd: Program) -> None:
    text = _edited((EXAMPLES / "etcd").read_text(), {"/var/lib/etcd": str(etcd.home)})
    lines = [line for line in _of(name, text, ETCDS).splitlines() if line[0] != "#"]
    values = dict(line.split("=", 1) for line in lines)
    etcd.start(tool("etcd", "etcd-server"), **values)


class Node:
    """A machine with Patroni, and the PostgreSQL that Patroni starts."""

    def __init__(self, name: str, plug: Plug, home: Path) -> None:
        self.name = name
        self.plug = plug
        self.patroni = Program(plug, home)
        self._home = home
        places = {
            "/var/lib/postgresql/15/fieldagent": str(home / "data"),
            "/usr/lib/postgresql/15/bin": str(binaries()),
            "/var/run/postgresql": str(home),
        }
        text = _edited((EXAMPLES / "patroni.yml").read_text(), places)
        self.settings = home / "patroni.yml"
        self.settings.write_text(_of(name, text, NODES))

    def start(self) -> None:
        self.patroni.start(tool("patroni", "patroni"), str(self.settings))

    def kill(self) -> None:
        """Kill Patroni and then PostgreSQL, as in a power cut."""
        self.patroni.end(signal.SIGKILL)
        self._kill_server()

    def stop(self) -> None:
        """Stop the node. Patroni ends its PostgreSQL, unless it is about to start it. Patroni 3.0
        sometimes does not end after its node was cut off, so it is killed then.
        """
        try:
            self.patroni.end()
        except subprocess.TimeoutExpired:
            self.patroni.end(signal.SIGKILL)
        self._kill_server()

    def _kill_server(self) -> None:
        with suppress(FileNotFoundError, ProcessLookupError):
            pid = int((self._home / "data/postmaster.pid").read_text().split()[0])
            os.kill(pid, signal.SIGKILL)


class Cluster:
    def __init__(self, nodes: list[Node], front: Plug, home: Path) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._front = front
        self._home = home
        self.socket = home / "front"
        """Folder of the socket on which HAProxy accepts connections for the primary."""

    def members(self) -> list[dict[str, Any]]:
        """Return the members that a reachable node knows, with `role`, `state`, `timeline` and
        `lag`.
        """
        for node in self.nodes.values():
            if answer := self._ask(node, "cluster"):
                listed: list[dict[str, Any]] = json.loads(answer)["members"]
                return listed
        return []

    def _ask(self, node: Node, what: str) -> str:
        command = [*self._front.inside, tool("curl", "curl"), "-s", "-m", "2"]
        url = f"http://{node.plug.address}:8008/{what}"
        return subprocess.run([*command, url], stdout=subprocess.PIPE, text=True).stdout

    def _in_role(self, *roles: str) -> list[Node]:
        return [self.nodes[each["name"]] for each in self.members() if each["role"] in roles]

    def primary(self) -> Node:
        (node,) = self._in_role("leader")
        return node

    def synchronous(self) -> Node:
        """Return the standby whose disk contains each commit."""
        (node,) = self._in_role("sync_standby")
        return node

    def is_whole(self) -> bool:
        """Return True if the primary has two standbys, and Patroni and PostgreSQL agree on the one
        that confirms commits. A node that has just returned may report an old state.
        """
        # Patroni starts PostgreSQL again only once the server before is gone.
        leftovers.reap("postgres")
        try:
            here, *standbys = self.query(_STANDBYS).split()
        except subprocess.CalledProcessError:
            return False
        members = {each["name"]: (each["role"], each["host"]) for each in self.members()}
        by_role = {role: (name, host) for name, (role, host) in members.items()}
        return (
            len(standbys) == 2
            and by_role.get("leader", ("", ""))[1] == here
            and f"{by_role.get('sync_standby', ('', ''))[0]}|sync" in standbys
        )

    def until_whole(self) -> None:
        try:
            until(self.is_whole)
        except AssertionError as error:
            said = [node.patroni.said() for node in self.nodes.values()]
            raise AssertionError("\n".join([str(error), str(self.members()), *said])) from None

    def switch_over(self) -> None:
        """Switch to the synchronous standby with Patroni's command."""
        before, to = self.primary(), self.synchronous()
        command = [*before.plug.inside, tool("patronictl", "patroni"), "-c", str(before.settings)]
        which = ["--master", before.name, "--candidate", to.name]
        subprocess.run(
            [*command, "switchover", *which, "--force"],
            check=True,
            env=_environment(),
            stdout=subprocess.DEVNULL,
        )

    def query(self, sql: str, database: str = ACCOUNT) -> str:
        """Run a query on the primary with psql, through HAProxy."""
        psql = ["psql", "-h", str(self.socket), "-U", ACCOUNT, "-d", database, "-Atc", sql]
        environment = _environment(PGPASSWORD=PASSWORD, PGCONNECT_TIMEOUT="2")
        return subprocess.run(
            psql, env=environment, capture_output=True, check=True, text=True, timeout=PATIENCE
        ).stdout

    @contextmanager
    def haproxy(self) -> Iterator[None]:
        self.socket.mkdir()
        place = f"unix@{self.socket}/.s.PGSQL.5432 mode 666"
        text = _edited((EXAMPLES / "haproxy.cfg").read_text(), {"127.0.0.1:5432\n": f"{place}\n"})
        settings = self._home / "haproxy.cfg"
        settings.write_text(text)
        command = [*self._front.inside, tool("haproxy", "haproxy"), "-db", "-f", str(settings)]
        with (self._home / "haproxy.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait(PATIENCE)


@contextmanager
def cluster(home: Path) -> Iterator[Cluster]:
    """Yield a cluster in `home`, which other users may enter."""
    for name, package in (("patroni", "patroni"), ("etcd", "etcd-server"), ("haproxy", "haproxy")):
        tool(name, package)
    with ExitStack() as stack:
        addresses = HUBS, *ETCDS.values(), *NODES.values()
        front, *plugs = stack.enter_context(ethernet(*addresses))
        for name, plug in zip(ETCDS, plugs, strict=False):
            etcd = Program(plug, home / name)
            stack.callback(etcd.end)
            start_etcd(name, etcd)
        nodes = [
            Node(n, plug, home / n) for n, plug in zip(NODES, plugs[len(ETCDS) :], strict=True)
        ]
        for node in nodes:
            stack.callback(node.stop)
            node.start()
        running = Cluster(nodes, front, home)
        stack.enter_context(running.haproxy())
        running.until_whole()
        yield running
