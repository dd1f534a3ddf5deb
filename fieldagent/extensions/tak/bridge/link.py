"""Connection to a TAK server for one user. A server delivers private messages to a user only on the
connection on which the user has reported a position.

1. The server has accepted an event when it has answered a ping that was sent after the event,
   because a server reads in order. A ping that the server returns is also an answer. An answer does
   not show whether a phone has received the event.
2. If a server sends nothing for SILENCE_S seconds, the connection is considered lost, whatever TCP
   reports.
3. After a lost connection, the pauses between attempts become longer.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NoReturn

import trio

from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.bridge import records
from fieldagent.extensions.tak.bridge.site import TakSite
from fieldagent.extensions.tak.cot import CotEvent, EventSplitter, encode, find_type, find_uid
from fieldagent.extensions.tak.events import TakUnit
from fieldagent.http import tls
from fieldagent.hub.bridge.connecting import ConnectionLost, open_stream
from fieldagent.system.error_groups import get_first_error
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import describe_reason

RETRY_WAITS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Seconds between two connection attempts, plus up to half as many at random. The last value
applies to all later attempts."""
STABLE_AFTER_S = 60.0
"""Seconds that a connection must last before the first pause applies again."""
CONNECT_MAX = 20.0
SEND_TIMEOUT_S = 15.0
"""Seconds within which a server must accept sent data."""
ANSWER_TIMEOUT_S = 20.0
"""Seconds within which a server must answer a ping. This is also the interval between two pings."""
NOT_ANSWERED = f"the server has not answered a ping within {ANSWER_TIMEOUT_S:g} s"
SILENCE_S = 50.0
RECEIVE_MAX = 65_536


class TakServer(NamedTuple):
    host: str
    port: int
    secure: bool
    certificate: Path | None = None
    key: Path | None = None
    ca_file: Path | None = None
    """File with certificate authorities that are trusted instead of the system's."""
    name: str | None = None
    """Name in the server's certificate, if it is not the host."""


def make_context(server: TakServer) -> ssl.SSLContext | None:
    """Return the TLS context for the server, or None if the connection does not use TLS. Raises
    ConnectionLost if a certificate file cannot be used.
    """
    if not server.secure:
        return None
    try:
        context = tls.trust(server.ca_file)
    except tls.UnusableTrust as unusable:
        raise ConnectionLost(f"tak-ca-file {unusable}") from unusable
    # The certificates of TAK's own tools do not satisfy RFC 5280, which Python 3.13 enforces by
    # default.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    assert server.certificate is not None, "it is for tls:// only"
    try:
        context.load_cert_chain(server.certificate, server.key, password=_refuse_password)
    except OSError as error:
        reason = "is not a PEM certificate with its key and without a password"
        if not isinstance(error, ssl.SSLError):
            reason = f"cannot be read: {describe_reason(error)}"
        raise ConnectionLost(f"tak-certificate {server.certificate} {reason}") from error
    return context


def _refuse_password() -> str:
    return ""


def wait_before(tries: int) -> float:
    """Return the seconds before the next attempt, after `tries` failed attempts."""
    return RETRY_WAITS_S[min(tries, len(RETRY_WAITS_S) - 1)] * random.uniform(1, 1.5)


@asynccontextmanager
async def open_team_server(server: TakServer, workspace: int) -> AsyncIterator[TakSite]:
    """Return a team's server in the form that the bridge needs. At this server, people are
    identified only by a callsign.
    """
    title = f"the TAK server at {server.host}"
    yield TakSite(title, partial(_open_session, server), records.record_person)


@asynccontextmanager
async def _open_session(server: TakServer, unit: TakUnit) -> AsyncIterator[StreamSession]:
    """Open a user's session. Raises ConnectionLost if the server cannot be reached."""
    context = await trio.to_thread.run_sync(make_context, server)
    async with connect(server, context) as stream:
        yield StreamSession(stream, unit.uid)


@asynccontextmanager
async def connect(
    server: TakServer, context: ssl.SSLContext | None
) -> AsyncIterator[trio.abc.Stream]:
    """Connect to the server. Raises ConnectionLost if the server cannot be reached, or its
    certificate cannot be verified.
    """
    stream: trio.abc.Stream | None = None
    with trio.move_on_after(CONNECT_MAX):
        name = server.name or ""
        stream = await open_stream(server.host, server.port, context, "tak-ca-file", name)
    if stream is None:
        raise ConnectionLost(
            f"{server.host}:{server.port} does not answer within {CONNECT_MAX:g} s"
        )
    try:
        yield stream
    finally:
        await trio.aclose_forcefully(stream)


class StreamSession:
    """Sends and receives events on a connection. The caller must run `run` at the same time as the
    other methods. All methods raise ConnectionLost when the connection is lost. `uid` is the uid of
    the user.
    """

    def __init__(self, stream: trio.abc.Stream, uid: str) -> None:
        self._stream = stream
        self._uid = uid
        self._sending = trio.Lock()
        self._pings = 0
        self._pongs = 0
        self._pinged_back = trio.Event()
        self._is_lost = False

    async def run(self, handle_event: Callable[[str, bytes], None]) -> NoReturn:
        """Pass each event with its type to `handle_event`, except the answers to pings. Raises
        ConnectionLost when the connection ends.
        """
        end_error: BaseException = ConnectionLost("the hub disconnects")
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_pings)
                await self._receive_events(handle_event)
        except* ConnectionLost as lost:
            end_error = get_first_error(lost)
        finally:
            self._is_lost = True
            self._pinged_back.set()
        raise end_error

    async def _receive_events(self, handle_event: Callable[[str, bytes], None]) -> NoReturn:
        splitter = EventSplitter()
        while True:
            data = b""
            with trio.move_on_after(SILENCE_S) as silence:
                data = await self._receive()
            if silence.cancelled_caught:
                raise ConnectionLost(f"the server has sent nothing for {SILENCE_S:g} s")
            if not data:
                raise ConnectionLost(
                    "the server closed the connection; if it refuses the hub, see its log"
                )
            await self._process_events(splitter.receive_data(data), handle_event)

    async def _process_events(
        self, events: Iterable[bytes], handle_event: Callable[[str, bytes], None]
    ) -> None:
        for raw in events:
            kind = find_type(raw)
            # OpenTAKServer returns the ping itself instead of the answer to a ping.
            is_echo = kind == tak.PING and find_uid(raw) == tak.make_ping_uid(self._uid)
            if kind == tak.PONG or is_echo:
                self._pongs += 1
                self._pinged_back.set()
                self._pinged_back = trio.Event()
            elif kind == tak.PING:
                await self._send(encode(tak.make_pong(datetime.now(UTC))))
            else:
                handle_event(kind, raw)

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(RECEIVE_MAX))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            fault = tls.describe_fault(error.__cause__)
            reason = "the server refuses this hub's certificate, or its TLS" if fault else ""
            raise ConnectionLost(reason or "the connection broke off") from error

    async def _send_pings(self) -> NoReturn:
        await trio.sleep(ANSWER_TIMEOUT_S)
        while True:
            pongs_before = self._pongs
            await self._send(self._make_next_ping())
            await trio.sleep(ANSWER_TIMEOUT_S)
            if self._pongs == pongs_before:
                raise ConnectionLost(NOT_ANSWERED)

    def _make_next_ping(self) -> bytes:
        self._pings += 1
        return encode(tak.make_ping(self._uid, datetime.now(UTC)))

    async def send_events(self, events: Iterable[CotEvent]) -> None:
        """Send events. Return when the server has accepted them. Raises ConnectionLost, also if the
        server does not accept them within ANSWER_TIMEOUT_S.
        """
        event_bytes = b"".join(map(encode, events))
        async with self._sending:
            ping = self._make_next_ping()
            number = self._pings
            await self._write(event_bytes + ping)
        with trio.move_on_after(ANSWER_TIMEOUT_S):
            while self._pongs < number and not self._is_lost:
                await self._pinged_back.wait()
            if self._is_lost:
                raise ConnectionLost("the connection broke off")
            return
        raise ConnectionLost(NOT_ANSWERED)

    async def _send(self, data: bytes) -> None:
        async with self._sending:
            await self._write(data)

    async def _write(self, data: bytes) -> None:
        """Write data. If a timeout occurs, close the connection, because a partial event would
        corrupt the next event. Raises ConnectionLost.
        """
        try:
            with trio.move_on_after(SEND_TIMEOUT_S):
                await self._stream.send_all(data)
                return
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionLost("the connection broke off") from error
        await trio.aclose_forcefully(self._stream)
        raise ConnectionLost(f"the server accepted nothing within {SEND_TIMEOUT_S:g} s")
