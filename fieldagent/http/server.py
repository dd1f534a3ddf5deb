"""HTTP server: sockets, deadlines and connections around `protocol`.

Each connection is one task. All waiting for the peer happens in one cancel scope, whose deadline
depends on the phase. Handlers run outside of this scope. There are no other timers. An eviction
cancels the scope.

The request bodies that a server holds at the same time have a common budget of bytes. The size of a
body is reserved before the body is read, and released with the response. If there are too many
large bodies, the server refuses them instead of storing them.
"""

from __future__ import annotations

import errno
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Self, TypeVar

import trio
from trio.lowlevel import checkpoint, wait_readable, wait_writable

from fieldagent.http.address import find_source, is_in
from fieldagent.http.headers import format_date
from fieldagent.http.limits import Limits, Visit
from fieldagent.http.message import Guard, Judge, Request, Response
from fieldagent.http.peer import Peer, Phase
from fieldagent.http.problem import Problem
from fieldagent.http.protocol import MissingPart, ServerProtocol
from fieldagent.http.secure import RECORD_MAX_BYTES, SecureSocket
from fieldagent.system import waits
from fieldagent.system.supervisor import Note, log_fault


class UpgradedStream(trio.abc.Stream):
    """The server's socket as a trio Stream. The server closes it after its user returns."""

    def __init__(self, peer: socket.socket | SecureSocket, early_bytes: bytes) -> None:
        """Create the stream. `early_bytes` contains the bytes that arrived before the switch. These
        bytes are received first.
        """
        self._socket = peer
        self._already = early_bytes

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive at most one TLS record. `max_bytes` is ignored, and all received bytes are
        returned.
        """
        already, self._already = self._already, b""
        if already:
            await checkpoint()
            return already
        while True:
            await wait_readable(self._socket)
            try:
                return self._socket.recv(RECORD_MAX_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all bytes. Raises trio.BrokenResourceError if the connection broke. If cancelled, a
        part may have been sent.
        """
        rest = memoryview(data)
        await checkpoint()
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await wait_writable(self._socket)
            except OSError as error:
                raise trio.BrokenResourceError from error

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket has space."""
        await wait_writable(self._socket)

    async def aclose(self) -> None:
        """Do nothing, because the server closes the connection after the `upgrade` function
        returns.
        """
        await checkpoint()


class ReservedBytes:
    """Bytes that are reserved for a body until the end of the `with` block."""

    def __init__(self, budget: BodyBudget, size: int) -> None:
        self._budget = budget
        self._size = 0
        self.resize(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.resize(0)

    def resize(self, size: int) -> None:
        """Change the reserved size, without a check of the budget."""
        self._budget.held += size - self._size
        self._size = size


class BodyBudget:
    def __init__(self, maximum: int) -> None:
        self.held = 0
        self._maximum = maximum

    def reserve(self, size: int) -> ReservedBytes:
        """Reserve space for a body of `size` bytes. Raises Problem 503 if the budget has too little
        space left.
        """
        if size and self.held + size > self._maximum:
            again = (("Retry-After", "1"),)
            raise Problem(503, "too many large bodies are under way; try again", headers=again)
        return ReservedBytes(self, size)


__all__ = ["Limits", "serve"]

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[], Awaitable[None]]
Introduce = Callable[[socket.socket, str], Awaitable[str | None]]
"""Function that is called with a new connection and its address. It returns the client's address,
or None to refuse the connection. It raises no error."""

_RESOURCE_ERRNOS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


CONNECTIONS_ORDINARY = 8
"""Number of connections up to which all sources are treated alike when a connection must be
evicted."""
CHECK_INTERVAL_S = 60.0
"""Seconds between two checks for callers that have left."""

_PHASES = {MissingPart.IDLE: Phase.IDLE, MissingPart.HEAD: Phase.HEAD}


async def serve(
    judge: Judge,
    listeners: Sequence[socket.socket],
    *,
    stop_event: trio.Event,
    guard: Guard | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    tls: ssl.SSLContext | None = None,
    introduce: Introduce | None = None,
    note_fault: Note = log_fault,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve requests until `stop_event` is set and active requests have their responses.

    This function owns `listeners` and closes them. If `tls` is not None, only HTTPS is accepted. If
    `judge` or a handler raises an error other than Problem, the error is passed to `note_fault`,
    and the response is 500. If `introduce` is not None, each connection comes from a proxy, and
    `introduce` returns the client's address.
    """
    server = _Server(judge, guard, limits, stop_event, tls, introduce, note_fault)
    try:
        with nullcontext() if limits.pace is None else limits.pace.measure_work():
            await _serve(server, listeners, task_status)
    finally:
        for listener in listeners:
            listener.close()


async def _serve(
    server: _Server, listeners: Sequence[socket.socket], task_status: trio.TaskStatus[None]
) -> None:
    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            for listener in listeners:
                accepting.start_soon(server.accept_from, listener, connections)
            accepting.start_soon(server.cancel_abandoned_requests_forever)
            task_status.started()
            await server.stopping.wait()
            accepting.cancel_scope.cancel()
        for listener in listeners:
            listener.close()
        connections.cancel_scope.deadline = trio.current_time() + server.limits.grace
        server.end_idle()


class _Server:
    def __init__(
        self,
        judge: Judge,
        guard: Guard | None,
        limits: Limits,
        stop_event: trio.Event,
        tls: ssl.SSLContext | None,
        introduce: Introduce | None,
        note_fault: Note,
    ) -> None:
        self.note_fault = note_fault
        self.introduce = introduce
        self.judge = judge
        self.guard = guard
        self.limits = limits
        self.stopping = stop_event
        self.tls = tls
        self.bodies = BodyBudget(limits.bodies)
        self._all: dict[_Connection, None] = {}
        self._by_source: dict[str, dict[_Connection, None]] = {}
        self._leaving: dict[_Connection, None] = {}

    async def accept_from(self, listener: socket.socket, nursery: trio.Nursery) -> None:
        while True:
            await wait_readable(listener)
            try:
                peer, address = listener.accept()
            except OSError as error:
                await self._handle_accept_error(error)
                continue
            try:
                nursery.start_soon(self._accept_connection(peer, address))
            except Exception as error:
                # A failure of one connection must not stop the server from accepting others.
                peer.close()
                if not isinstance(error, OSError):
                    self.note_fault(error, "a connection that came")

    async def cancel_abandoned_requests_forever(self) -> None:
        """Cancel the requests whose callers have left, every CHECK_INTERVAL_S seconds. A request
        may take hours, and a caller that repeats it must not occupy one place per attempt.
        """
        while True:
            await trio.sleep_until(waits.compute_nearest_beat(CHECK_INTERVAL_S))
            for connection in self._all:
                connection.peer.cancel_if_abandoned()

    def _accept_connection(self, peer: socket.socket, address: tuple[object, ...]) -> Work:
        """Return the function that serves a new connection. Raises OSError if the peer has already
        left, or if too many connections from its address wait for a turn.
        """
        peer.setblocking(False)
        if peer.family == socket.AF_UNIX:
            return self._make_connection(peer, "").run
        pace = self.limits.pace
        if pace is not None and pace.is_crowded(str(address[0])):
            raise ConnectionAbortedError("other connections from there are already waiting")
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.introduce is not None:
            return partial(self._read_introduction, peer, str(address[0]), self.introduce)
        return self._make_connection(peer, str(address[0])).run

    async def _read_introduction(
        self, peer: socket.socket, address: str, introduce: Introduce
    ) -> None:
        client = None
        try:
            with waits.move_on_after(self.limits.head_deadline):
                client = await introduce(peer, address)
        finally:
            if client is None:
                peer.close()
        if client is not None:
            await self._make_connection(peer, client).run()

    def _make_connection(self, peer: socket.socket, address: str) -> _Connection:
        connection = _Connection(self, peer, address)
        if self._make_room(connection):
            self._add_connection(connection)
        else:
            connection.crowded_out = True
            self._detach_connection(connection)
        return connection

    def _add_connection(self, connection: _Connection) -> None:
        self._all[connection] = None
        self._by_source.setdefault(connection.source, {})[connection] = None

    def remove_connection(self, connection: _Connection) -> None:
        self._all.pop(connection, None)
        self._leaving.pop(connection, None)
        self.remove_from_source(connection)

    def _detach_connection(self, connection: _Connection) -> None:
        """Keep an evicted or refused connection open until its peer has got the reason, without
        counting it in `Limits.connections`. If there are more than `Limits.leaving_max` such
        connections, cut the oldest.
        """
        self._leaving[connection] = None
        while len(self._leaving) > self.limits.leaving_max:
            self._cut_first_leaving()

    def _cut_first_leaving(self) -> None:
        first = next(iter(self._leaving))
        del self._leaving[first]
        first.peer.scope.cancel()

    def remove_from_source(self, connection: _Connection) -> None:
        """Remove the connection from the list of its source, by which `Limits.per_source` is
        checked.
        """
        of_source = self._by_source.get(connection.source, {})
        of_source.pop(connection, None)
        if not of_source:
            self._by_source.pop(connection.source, None)

    async def _handle_accept_error(self, error: OSError) -> None:
        """Handle a failed accept. A peer that left early is ignored. If there are too many open
        files, end a connection and wait a moment.
        """
        if error.errno in _RESOURCE_ERRNOS:
            log.error("No connection can be accepted now: %s. Still trying.", error.strerror)
            if self._leaving:
                self._cut_first_leaving()
            else:
                self._evict(self._all)
            await trio.sleep(1)

    def _make_room(self, new_connection: _Connection) -> bool:
        limits = self.limits
        bounds = [(self._all, limits.connections)]
        by_proxy = not new_connection.address or is_in(new_connection.address, limits.proxies)
        if limits.per_source is not None and not by_proxy:
            bounds.append((self._by_source.get(new_connection.source, {}), limits.per_source))
        for connections, count_max in bounds:
            while len(connections) >= count_max:
                if not self._evict(connections):
                    return False
        return True

    def _evict(self, among: Iterable[_Connection]) -> bool:
        """End the first connection in the order of eviction. Return False if none can be ended,
        because all have a running handler or are upgraded.
        """
        victim = min(among, key=self._get_eviction_order, default=None)
        if victim is None or victim.peer.phase >= Phase.HANDLING:
            return False
        self.remove_connection(victim)
        victim.crowded_out = True
        victim.peer.scope.cancel()
        self._detach_connection(victim)
        return True

    def _get_eviction_order(self, connection: _Connection) -> tuple[bool, int, tuple[int, float]]:
        """Return the key for the order of eviction, lower ones first. Connections of the source
        with the most connections come first, and then `Peer.get_eviction_order` decides. Sources
        with few connections are treated alike, because a browser opens several.
        """
        running = connection.peer.phase >= Phase.HANDLING
        by_proxy = not connection.address or is_in(connection.address, self.limits.proxies)
        source_count = 0 if by_proxy else len(self._by_source.get(connection.source, ()))
        return (
            running,
            -source_count if source_count > CONNECTIONS_ORDINARY else 0,
            connection.peer.get_eviction_order(),
        )

    def end_idle(self) -> None:
        for connection in self._all:
            connection.peer.end_if_idle()


class _Connection:
    def __init__(self, server: _Server, accepted_socket: socket.socket, address: str) -> None:
        self.crowded_out = False
        """True if the connection was evicted. A request on the connection then gets the response
        503."""
        self.peer = Peer(accepted_socket, _compute_deadlines(server.limits))
        self.address = address
        self.source = find_source(address)
        self._server = server
        self._visit = _visit(server.limits, address)
        self._protocol = ServerProtocol(server.limits, server.guard, address)

    async def run(self) -> None:
        self._visit.begin()
        try:
            await self._converse()
        except* OSError as broken:
            log.debug("A connection broke: %s", broken.exceptions[0])
        except* Exception as errors:
            self._server.note_fault(errors, "a connection")
        finally:
            self._visit.end()
            self._server.remove_connection(self)
            self.peer.socket.close()

    async def _converse(self) -> None:
        try:
            await self._wait_for_turn()
            if self._server.tls is not None:
                await self._secure(self._server.tls)
            if self.crowded_out:
                raise _make_crowded()
            while (head := await self._wait_for_head()) is not None:
                response = await self._answer_request(head)
                if response.upgrade is not None:
                    return await self._hand_over(head, response)
                if not await self._send(response, head_only=head.method == "HEAD"):
                    return await self.peer.wait_until_read()
        except Problem as problem:
            await self._refuse(problem)

    async def _wait_for_turn(self) -> None:
        """Wait if the caller has used more than its share of the CPU. While it waits, the
        connection is among the first to be evicted. Raises Problem if no turn comes in time.
        """
        if self._visit.can_continue() or self.crowded_out:
            return
        with self.peer.begin_bounded_phase(Phase.HEAD):
            await self._visit.wait_for_turn()
            self.peer.phase = Phase.HANDLING
            return
        raise self._make_too_late("turn")

    async def _secure(self, context: ssl.SSLContext) -> None:
        """Run the TLS handshake. Raises OSError if the handshake fails or takes too long, or if the
        connection is evicted.
        """
        assert isinstance(self.peer.socket, socket.socket)
        self.peer.socket = secured = SecureSocket(self.peer.socket, context)
        with self.peer.begin_bounded_phase(Phase.HEAD):
            return await secured.handshake()
        if self.crowded_out:
            with self.peer.begin_bounded_phase(Phase.CLOSING):
                return await secured.handshake()
        raise TimeoutError("the TLS handshake took too long")

    async def _wait_for_head(self) -> Request | None:
        """Return the head of the next request, or None if there is none. Raises Problem if the head
        is invalid or does not arrive in time.

        A request that is complete when its time ends still gets a response, because the deadline's
        scope ends with this method.
        """
        if self._server.stopping.is_set():
            return None
        with self.peer.begin_bounded_phase(Phase.IDLE):
            return await self._read_head()
        if self.peer.phase is not Phase.IDLE:
            raise self._make_too_late("head")
        if self.crowded_out:
            await self._wait_for_last_request()
        return None

    async def _wait_for_last_request(self) -> None:
        """Wait for a request after an early eviction, to answer a request that the peer has already
        sent. Raises Problem 503 when bytes arrive.
        """
        with self.peer.begin_bounded_phase(Phase.CLOSING):
            if await self.peer.read():
                raise _make_crowded()

    def _make_too_late(self, part: str) -> Problem:
        if self.crowded_out:
            return _make_crowded()
        return Problem(408, f"the request's {part} took too long to arrive")

    async def _read_head(self) -> Request | None:
        protocol = self._protocol
        buffered = True
        while True:
            outcome = protocol.next_head()
            if isinstance(outcome, Request):
                self.peer.phase = Phase.HANDLING
                # Let other tasks run, so that many pipelined requests do not block other
                # connections.
                if buffered:
                    await checkpoint()
                return outcome
            if outcome is MissingPart.NOTHING:
                return None
            self.peer.move_on(_PHASES[outcome])
            protocol.receive(await self.peer.read())
            buffered = False

    async def _answer_request(self, head: Request) -> Response:
        """Admit a request by its head, read its body, and return the response. Raises Problem if
        the body is not accepted or does not arrive.
        """
        self._visit.record_request(head)
        await self._wait_for_turn()
        admission = await self._attempt(self._server.judge, head, "a request's head")
        if isinstance(admission, Response):
            self._visit.record_refusal(head, admission.status)
            self._protocol.drop_body()
            return admission
        self._visit.record_admission(head, admission.caller)
        self._protocol.admit(admission)
        with self._server.bodies.reserve(self._protocol.announced) as share:
            request = await self._wait_for_request()
            share.resize(len(request.body))
            with self.peer.begin_phase_within(Phase.HANDLING, trio.CancelScope()):
                place = f"{head.method} {admission.place}"
                return await self._attempt(admission.handler, request, place)
            raise BrokenPipeError("the caller has left before the answer")

    async def _attempt(
        self, step: Callable[[Request], Awaitable[T]], request: Request, place: str
    ) -> T | Response:
        try:
            return await step(request)
        except Problem as problem:
            return problem.make_response()
        except Exception as error:
            # Log the route. An error in the check of a request's head has the route in its first
            # note (`add_note`), because `place` does not contain the route yet.
            self._server.note_fault(error, next(iter(getattr(error, "__notes__", [])), place))
            return Problem(500, "the server failed; see its log").make_response()

    async def _wait_for_request(self) -> Request:
        request = self._protocol.next_body()
        if isinstance(request, Request):
            return request
        with self.peer.begin_bounded_phase(Phase.BODY):
            if interim := self._protocol.make_interim():
                await self.peer.write(interim)
            while not isinstance(request, Request):
                self._protocol.receive(await self.peer.read())
                request = self._protocol.next_body()
            self.peer.phase = Phase.HANDLING
            return request
        raise self._make_too_late("body")

    async def _send(self, response: Response, *, head_only: bool) -> bool:
        """Send a response. Return False if the connection cannot be used for another request."""
        protocol = self._protocol
        close = self.crowded_out or self._server.stopping.is_set()
        date = format_date(int(time.time()))
        await self.peer.write(
            protocol.respond(response, date=date, close=close, head_only=head_only)
        )
        if response.stream is not None and not head_only:
            await self._send_stream(response.stream())
        return protocol.start_next_cycle()

    async def _hand_over(self, head: Request, response: Response) -> None:
        """Switch protocols. From now on the response's `upgrade` owns the connection until it
        returns.
        """
        assert response.upgrade is not None
        self._visit.record_admission(head, response.upgrade)
        self._visit.end()
        switch_bytes, already = self._protocol.switch(response, date=format_date(int(time.time())))
        await self.peer.write(switch_bytes)
        scope = self.peer.begin_phase_within(Phase.UPGRADED, trio.CancelScope())
        self._server.remove_from_source(self)
        if self._server.stopping.is_set():
            return
        with scope:
            await response.upgrade(UpgradedStream(self.peer.socket, already))

    async def _send_stream(self, pieces: AsyncIterator[bytes]) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self.peer.begin_phase_within(Phase.STREAMING, nursery.cancel_scope)
                nursery.start_soon(self._cancel_when_peer_leaves, nursery.cancel_scope)
                async for piece in pieces:
                    await self.peer.write(self._protocol.make_piece(piece))
                    if self._server.stopping.is_set():
                        break
                nursery.cancel_scope.cancel()
        finally:
            if (close := getattr(pieces, "aclose", None)) is not None:
                await close()
        # Send the final chunk only in this phase. Otherwise, a chunk may be incomplete.
        if self.peer.phase is Phase.STREAMING:
            await self.peer.write(self._protocol.end())

    async def _cancel_when_peer_leaves(self, scope: trio.CancelScope) -> None:
        """Cancel the scope when the peer leaves. Other bytes of the peer are ignored, because the
        connection is closed after the response.
        """
        with suppress(OSError):
            while await self.peer.read():
                pass
        scope.cancel()

    async def _refuse(self, problem: Problem) -> None:
        date = format_date(int(time.time()))
        answer = problem.make_response()
        await self.peer.write(
            self._protocol.respond(answer, date=date, close=True, head_only=False)
        )
        await self.peer.wait_until_read()


def _visit(limits: Limits, address: str) -> Visit:
    return Visit() if limits.pace is None else limits.pace.visit(address)


def _compute_deadlines(limits: Limits) -> dict[Phase, float]:
    return {
        Phase.HEAD: limits.head_deadline,
        Phase.BODY: limits.body_deadline,
        Phase.CLOSING: limits.linger_s,
        Phase.IDLE: limits.idle_deadline,
        Phase.WRITING: limits.write_deadline,
    }


def _make_crowded() -> Problem:
    again = (("Retry-After", "1"),)
    return Problem(503, "every connection is waiting for its answer; try again", headers=again)
