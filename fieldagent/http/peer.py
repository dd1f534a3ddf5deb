"""The other end of a connection. All reads and writes must end before the deadline of their
phase.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum

import trio
from trio.lowlevel import wait_readable, wait_writable

from fieldagent.http.secure import SecureSocket

_READ_SIZE = 65_536


class Phase(IntEnum):
    """State of a connection. Connections in a lower state are evicted first to make space for new
    ones.
    """

    HEAD = 0
    BODY = 1
    CLOSING = 2
    IDLE = 3
    WRITING = 4
    STREAMING = 5
    HANDLING = 6
    """Never evicted, because the handler may be storing a Package."""
    UPGRADED = 7
    """Never evicted, because the peer would reconnect and evict the connection that replaced it."""


UNANSWERED_PROBES_MAX = 6
"""Number of unanswered keepalive probes after which the kernel breaks the connection."""


def enable_keepalive(
    set_option: Callable[[int, int, int], None], *, unanswered_probes: int
) -> None:
    """Turn on TCP keepalive (tcp(7)). After 30 s of silence the kernel sends a probe every 10 s.
    After `unanswered_probes` probes without an answer it breaks the connection. The kernel of a
    peer that still reads answers each probe, and the kernel of a peer that has left sends a reset.
    `set_option` is the socket's `setsockopt`.
    """
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, unanswered_probes),
    ):
        set_option(level, option, value)


_INCOMPLETE = {Phase.HEAD, Phase.BODY, Phase.CLOSING}


class Peer:
    """The peer of a connection. `deadlines` contains the seconds of each phase. A phase that is
    missing has no limit.
    """

    def __init__(self, accepted_socket: socket.socket, deadlines: Mapping[Phase, float]) -> None:
        self.socket: socket.socket | SecureSocket = accepted_socket
        self._accepted = accepted_socket
        self.phase = Phase.HANDLING
        self.scope = trio.CancelScope()
        """Scope that is cancelled when the connection is evicted."""
        self._since = trio.current_time()
        self._deadlines = deadlines

    def get_eviction_order(self) -> tuple[int, float]:
        """Return the key for the order of eviction: the peer with the lowest key is evicted first.
        Incomplete requests have the lowest keys, the oldest first.
        """
        return (0 if self.phase in _INCOMPLETE else self.phase), self._since

    def end_if_idle(self) -> None:
        """Cancel the connection when the server stops, unless it has an active request, or a
        response that will end.
        """
        if self.phase in (Phase.IDLE, Phase.STREAMING, Phase.UPGRADED):
            self.scope.cancel()

    def begin_bounded_phase(self, phase: Phase) -> trio.CancelScope:
        """Begin a phase, and return a scope that ends at the phase's deadline or by an eviction."""
        self._since = trio.current_time()
        return self.begin_phase_within(
            phase, trio.CancelScope(deadline=self._since + self._deadlines[phase])
        )

    def begin_phase_within(self, phase: Phase, scope: trio.CancelScope) -> trio.CancelScope:
        """Begin a phase that lasts as long as the scope, and return the scope."""
        self.phase, self.scope = phase, scope
        return scope

    def move_on(self, phase: Phase) -> None:
        """Begin the next phase within the open scope, whose deadline becomes that of the new phase.
        Do nothing if the phase is the same.
        """
        if phase is not self.phase:
            self.phase = phase
            self._since = trio.current_time()
            self.scope.deadline = self._since + self._deadlines[phase]

    def cancel_if_abandoned(self) -> None:
        """Cancel the handler if its caller has left, because no one will read the response. A
        caller that has only closed its own direction, as `nc` does, may still read. The socket does
        not show the difference, so turn on keepalive, and let the next check decide.
        """
        if self.phase is not Phase.HANDLING:
            return
        look = select.poll()
        look.register(self._accepted, 0)
        if look.poll(0):  # POLLHUP or POLLERR: reset, or closed in both directions
            self.scope.cancel()
        elif self._accepted.family != socket.AF_UNIX:
            enable_keepalive(self._accepted.setsockopt, unanswered_probes=UNANSWERED_PROBES_MAX)

    async def read(self) -> bytes:
        """Wait for bytes and return them, or b'' at the end of the connection. Raises OSError if
        the connection broke.
        """
        while True:
            await wait_readable(self.socket)
            try:
                return self.socket.recv(_READ_SIZE)
            except BlockingIOError:
                continue

    async def write(self, data: bytes) -> None:
        """Write all bytes, usually in one system call and without waiting. Wait only for a slow
        peer. Raises TimeoutError if the peer reads too slowly, and OSError if the connection broke.
        """
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            await self._write_slowly(memoryview(data)[sent:])

    async def _write_slowly(self, data: memoryview) -> None:
        phase, scope = self.phase, self.scope
        with self.begin_bounded_phase(Phase.WRITING):
            while data:
                await wait_writable(self.socket)
                # TLS has sent only the rest of an earlier record, but no byte of `data`.
                with suppress(BlockingIOError):
                    data = data[self.socket.send(data) :]
        if data:
            raise TimeoutError("the peer did not read its answer in time")
        self.begin_phase_within(phase, scope)

    async def wait_until_read(self) -> None:
        """Wait until the peer has read the response, because closing with unread bytes would reset
        the connection.
        """
        self.socket.shutdown(socket.SHUT_WR)
        with self.begin_bounded_phase(Phase.CLOSING):
            while await self.read():
                pass
            return
        # The wait ended early. Read the bytes that have arrived, because closing with unread bytes
        # would reset the connection.
        with suppress(OSError):
            self.socket.recv(_READ_SIZE)
