"""The hub's end of the link on real sockets with TLS, and a wire to it that can fail."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf

import trio
import trustme

from fieldagent.http.limits import Limits
from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.http.routes import make_router
from fieldagent.http.server import serve
from fieldagent.hub.field.ip_link import Links
from tests.hub.memory_mailbox import MemoryHub

CA = trustme.CA()
STRANGER = trustme.CA()
"""A certificate authority that the clients do not trust."""


def server_tls(authority: trustme.CA = CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*(names or ("127.0.0.1",))).configure_cert(context)
    return context


TLS = server_tls()


@asynccontextmanager
async def hub_end(
    hub: MemoryHub, *, port: int = 0, tls: ssl.SSLContext | None = TLS
) -> AsyncIterator[int]:
    """Serve `GET /link` until the block ends, and yield the port."""
    links = Links(hub.authenticate, lambda device, version: hub.mailbox, hub.connected)
    listeners = open_listeners(port, ["127.0.0.1"])
    stopping = trio.Event()
    run = partial(
        serve,
        make_router([links.route()]),
        listeners,
        stop_event=stopping,
        tls=tls,
        limits=Limits(linger_s=0.1),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(run)
        yield get_port(listeners)
        stopping.set()


@dataclass
class Wire:
    """A TCP relay between an agent and a hub, which a test can disturb. Its settings apply to open
    and to later connections.
    """

    to: int
    cut_up: float = inf
    """Number of bytes towards the hub after which the connection ends."""
    cut_down: float = inf
    next_cuts: Callable[[], tuple[float, float]] = lambda: (inf, inf)
    """Returns the limits, up and down, of the connection after a cut."""
    held: bool = False
    """True if bytes are lost in both directions without an error, as on a half-open connection."""
    idle_max: float = inf
    """Seconds of silence after which the connection ends, as at a proxy."""
    deaf: bool = False
    """True if bytes from the hub are lost, and bytes towards the hub arrive."""
    connections: int = 0
    up: int = 0
    down: int = 0
    port: int = 0
    _open: list[trio.CancelScope] = field(default_factory=list)

    def cut(self) -> None:
        """End all connections immediately."""
        for scope in self._open:
            scope.cancel()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            self.port = listeners[0].socket.getsockname()[1]
            nursery.start_soon(partial(trio.serve_listeners, self._relay, listeners))
            task_status.started()

    async def _relay(self, agent: trio.SocketStream) -> None:
        self.connections += 1
        with trio.CancelScope(deadline=trio.current_time() + self.idle_max) as scope:
            self._open.append(scope)
            with suppress(OSError):
                async with (
                    await trio.open_tcp_stream("127.0.0.1", self.to) as hub,
                    trio.open_nursery() as nursery,
                ):
                    nursery.start_soon(self._carry, agent, hub, True, scope)
                    nursery.start_soon(self._carry, hub, agent, False, scope)
        self._open.remove(scope)
        await trio.aclose_forcefully(agent)

    async def _carry(
        self, source: trio.SocketStream, to: trio.SocketStream, up: bool, scope: trio.CancelScope
    ) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await source.receive_some():
                scope.deadline = trio.current_time() + self.idle_max
                data = self._count(bytes(data), up)
                if data and not self.held and (up or not self.deaf):
                    await to.send_all(data)
                if (self.cut_up if up else self.cut_down) <= 0:
                    self.cut_up, self.cut_down = self.next_cuts()
                    break
        if self.held:
            await trio.sleep_forever()
        await trio.aclose_forcefully(source)
        await trio.aclose_forcefully(to)

    def _count(self, data: bytes, up: bool) -> bytes:
        """Return the bytes that pass before the cut."""
        if up:
            data = data[: None if self.cut_up == inf else int(self.cut_up)]
            self.up += len(data)
            self.cut_up -= len(data)
        else:
            data = data[: None if self.cut_down == inf else int(self.cut_down)]
            self.down += len(data)
            self.cut_down -= len(data)
        return data


@asynccontextmanager
async def wired(hub: MemoryHub, tls: ssl.SSLContext | None = TLS) -> AsyncIterator[Wire]:
    """Yield a wire to a hub's end."""
    async with hub_end(hub, tls=tls) as port, trio.open_nursery() as nursery:
        wire = Wire(port)
        await nursery.start(wire.run)
        yield wire
        nursery.cancel_scope.cancel()
