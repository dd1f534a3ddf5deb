"""The other end of a connection: bytes from there and to there, each in the time of its phase."""

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
    """What a connection is doing, in the order in which room is made for new ones."""

    HEAD = 0
    BODY = 1
    CLOSING = 2
    IDLE = 3
    WRITING = 4
    STREAMING = 5
    HANDLING = 6
    """Never evicted: somebody's Package is on its way."""
    UPGRADED = 7
    """Never evicted: whoever came later would take its place, and it theirs when it comes back."""


UNANSWERED = 6
"""Questions of the kernel's, after which whoever does not answer is gone."""


def keep_alive(set_option: Callable[[int, int, int], None], *, unanswered: int) -> None:
    """Have the kernel ask the other end of a TCP connection that is silent for 30 s, each 10 s, and
    break it after so many questions without an answer (tcp(7)). Who reads on answers; of who has
    left, the other kernel answers with a reset. `set_option` is the socket's `setsockopt`."""
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, unanswered),
    ):
        set_option(level, option, value)


_INCOMPLETE = {Phase.HEAD, Phase.BODY, Phase.CLOSING}


class Peer:
    """`deadlines` are in seconds; a phase without one lasts as long as it does."""

    def __init__(self, accepted: socket.socket, deadlines: Mapping[Phase, float]) -> None:
        self.socket: socket.socket | SecureSocket = accepted
        self._accepted = accepted
        self.phase = Phase.HANDLING
        self.scope = trio.CancelScope()
        """Cancelled where its place is another's."""
        self._since = trio.current_time()
        self._deadlines = deadlines

    def worth(self) -> tuple[int, float]:
        """Return what is compared to choose whom to evict: the lower, the sooner; the incomplete
        first, then the longest so."""
        return (0 if self.phase in _INCOMPLETE else self.phase), self._since

    def end_if_idle(self) -> None:
        """Cancel it, as the server stops, unless a request or an answer is under way that ends."""
        if self.phase in (Phase.IDLE, Phase.STREAMING, Phase.UPGRADED):
            self.scope.cancel()

    def bounded(self, phase: Phase) -> trio.CancelScope:
        """Begin a phase and return the scope to wait in, until the phase's deadline or an
        eviction."""
        self._since = trio.current_time()
        return self.within(phase, trio.CancelScope(deadline=self._since + self._deadlines[phase]))

    def within(self, phase: Phase, scope: trio.CancelScope) -> trio.CancelScope:
        """Begin a phase that lasts as long as that scope does, and return the scope."""
        self.phase, self.scope = phase, scope
        return scope

    def move_on(self, phase: Phase) -> None:
        """Begin the next phase in the scope that is open."""
        if phase is not self.phase:
            self.phase = phase
            self._since = trio.current_time()
            self.scope.deadline = self._since + self._deadlines[phase]

    def look_for(self) -> None:
        """Look for a caller who has gone, and do not wait for an answer that nobody is there to
        read. One who has closed their own direction alone may still read, as `nc` does, and that
        cannot be seen from here: the next look tells."""
        if self.phase is not Phase.HANDLING:
            return
        look = select.poll()
        look.register(self._accepted, 0)
        if look.poll(0):  # POLLHUP or POLLERR: it was reset, or both directions are closed
            self.scope.cancel()
        elif self._accepted.family != socket.AF_UNIX:
            keep_alive(self._accepted.setsockopt, unanswered=UNANSWERED)

    async def read(self) -> bytes:
        """Wait for some bytes and return them; empty at their end. Raises OSError."""
        while True:
            await wait_readable(self.socket)
            try:
                return self.socket.recv(_READ_SIZE)
            except BlockingIOError:
                continue

    async def write(self, data: bytes) -> None:
        """Write all of it, mostly in one system call and without a wait: only a slow peer is waited
        for."""
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            await self._write_slowly(memoryview(data)[sent:])

    async def _write_slowly(self, data: memoryview) -> None:
        phase, scope = self.phase, self.scope
        with self.bounded(Phase.WRITING):
            while data:
                await wait_writable(self.socket)
                with suppress(BlockingIOError):  # TLS has sent the rest of a record, and no more
                    data = data[self.socket.send(data) :]
        if data:
            raise TimeoutError("the peer did not read its answer in time")
        self.within(phase, scope)

    async def linger(self) -> None:
        """Let the peer read the answer: closing with bytes unread would reset the connection."""
        self.socket.shutdown(socket.SHUT_WR)
        with self.bounded(Phase.CLOSING):
            while await self.read():
                pass
            return
        # Cut short: what has come by now must not reset the connection either.
        with suppress(OSError):
            self.socket.recv(_READ_SIZE)
