"""The hub's own TAK server for phones: it admits phones and ends their connections.

1. A phone is admitted if it has a valid certificate of this hub's authority. If the certificate is
   revoked, the phone's connection ends within seconds.
2. If a phone connects again, the new connection replaces its earlier connection, which may be dead.
3. The bridge uses this server in the same way as a team's server, but without a network in between.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

import trio

from fieldagent.extensions.tak.bridge.site import TakSite
from fieldagent.extensions.tak.cot import CotEvent
from fieldagent.extensions.tak.events import TakUnit
from fieldagent.extensions.tak.server import authority, certificates, phone
from fieldagent.extensions.tak.server.authority import Authority
from fieldagent.extensions.tak.server.certificates import PhoneHolder
from fieldagent.extensions.tak.server.enrolment import Enrolment
from fieldagent.extensions.tak.server.exchange import Exchange, TakGuest
from fieldagent.extensions.tak.server.phone import PhoneHost
from fieldagent.http.certificate import Certificate
from fieldagent.http.guard import check_host
from fieldagent.http.limits import CpuPace, UnauthenticatedLimit
from fieldagent.http.listeners import ListenFailed, open_listeners
from fieldagent.http.peer import enable_keepalive
from fieldagent.http.problem import Problem
from fieldagent.http.routes import make_router
from fieldagent.http.server import Limits, serve
from fieldagent.hub.bridge.contract import BridgeHost
from fieldagent.hub.store.contract import ANY_WRITE_TOPIC, Store
from fieldagent.hub.store.persist import skip_if_unavailable
from fieldagent.hub.unavailable import make_patient
from fieldagent.store.group import StoreUnavailable
from fieldagent.system import waits
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import EventRate
from fieldagent.system.wording import describe_reason

log = logging.getLogger(__name__)

T = TypeVar("T")

PHONES_MAX = 300
"""Largest number of simultaneous connections, including TLS handshakes."""
UNANSWERED_PROBES_MAX = 3
"""Number of unanswered keep-alive probes of the kernel after which a phone is considered
disconnected."""
HANDSHAKES_MAX = 50
"""Largest number of connections in a TLS handshake. A further connection ends the oldest connection
of the source with the most connections, so that unknown callers cannot block other callers."""
HANDSHAKE_MAX = 20.0
CHECK_INTERVAL_S = 5.0
"""Longest time in seconds between two checks of the certificates. A write to the store starts a
check earlier."""
CHECK_INTERVAL_MIN_S = 1.0
"""Shortest time in seconds between two checks."""
RETRY_AFTER_S = 10.0
"""Seconds until a port in use is tried again."""
ENROLL = Limits(connections=100, per_source=20)
RENEW_AFTER_S = 30 * 86_400.0
"""Seconds after which the server gets a new certificate. So the certificate of a running process
never expires."""
TITLE = "the TAK server for phones"


class PhoneServer(NamedTuple):
    """Addresses on which the server listens for phones, and the certificate for enrolment."""

    listen: tuple[str, int]
    name: str
    """Host name or address that phones use."""
    enroll_listen: tuple[str, int] | None = None
    enroll_certificate: Path | None = None
    """Certificate that phones trust already. None: the server uses a certificate of the hub's own
    authority."""
    enroll_key: Path | None = None


@asynccontextmanager
async def open_own_server(
    host: BridgeHost, server: PhoneServer, workspace: int
) -> AsyncIterator[TakSite]:
    """Serve phones at the hub's own server within the context. Yield the server as a `TakSite`,
    which the bridge uses.
    """
    exchange = Exchange(host.note_events)
    phones = _Phones(host.store, PhoneHost(host.store, exchange, workspace, host.clock), server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(phones.end_invalid)
        nursery.start_soon(_listen, host, phones, server)
        if server.enroll_listen is not None:
            nursery.start_soon(_enroll, host, phones, server, workspace)
        connect = partial(_open_user_session, exchange, host.clock)
        yield TakSite(TITLE, connect, certificates.find_person, exchange.has)
        nursery.cancel_scope.cancel()


async def _listen(host: BridgeHost, phones: _Phones, server: PhoneServer) -> None:
    await phones.prepare()
    listeners = await _open_sockets("tak-listen", server.listen)
    log.info("phones can connect to %s:%d, as %s", *server.listen, server.name)
    served = [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in listeners]
    host.note_link(True)
    with phones.unproved.pace.measure_work():
        await trio.serve_listeners(phones.enter, served)


async def _enroll(host: BridgeHost, phones: _Phones, server: PhoneServer, workspace: int) -> None:
    """Serve the enrolment endpoints over TLS for invited phones. The certificate is the configured
    certificate or a certificate of the hub's authority.
    """
    issuer, now = await phones.prepare(), host.clock()
    enrolment = Enrolment(host.store, workspace, issuer, host.clock)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    async with trio.open_nursery() as nursery:
        if server.enroll_certificate is None or server.enroll_key is None:
            prove = partial(authority.load_new_certificate, context, issuer, server.name)
            await trio.to_thread.run_sync(prove, now)
            nursery.start_soon(_renew_certificate, prove, host.clock)
        else:
            files = partial(Certificate, server.enroll_certificate, server.enroll_key)
            own = await _retry_begin("tak-enroll-certificate and tak-enroll-key", files)
            context = own.context
            nursery.start_soon(own.watch)
        assert server.enroll_listen is not None
        listeners = await _open_sockets("tak-enroll-listen", server.enroll_listen)
        log.info("invited phones can connect to %s:%d", *server.enroll_listen)
        await serve(
            make_patient(make_router(enrolment.make_routes())),
            listeners,
            stop_event=trio.Event(),
            guard=check_host,
            limits=replace(ENROLL, pace=CpuPace(cookie="")),
            tls=context,
        )


async def _renew_certificate(
    prove: Callable[[float], None], clock: Callable[[], float]
) -> NoReturn:
    while True:
        await trio.sleep(RENEW_AFTER_S)
        await trio.to_thread.run_sync(prove, clock())


async def _retry_begin(settings: str, begin: Callable[[], T]) -> T:
    """Call `begin` until it succeeds, and return its result. Another hub process may be about to
    release the port, or a file may be about to be written.
    """
    last_trouble = ""
    while True:
        try:
            return begin()
        except (ListenFailed, OSError) as failed:
            if (reason := describe_reason(failed)) != last_trouble:
                log.error("%s: %s", settings, reason)
            last_trouble = reason
            await trio.sleep(RETRY_AFTER_S)


async def _open_sockets(setting: str, listen: tuple[str, int]) -> list[socket.socket]:
    address, port = listen
    return await _retry_begin(setting, lambda: open_listeners(port, [address], allow_remote=True))


class _Phones:
    """Connected phones by the serial numbers of their certificates."""

    def __init__(self, store: Store, host: PhoneHost, server: PhoneServer) -> None:
        self._store = store
        self._host = host
        self._server = server
        self._authority: Authority | None = None
        self._context: ssl.SSLContext | None = None
        self._context_made_at = 0.0
        self._inside = 0
        self.unproved = UnauthenticatedLimit(HANDSHAKES_MAX, HANDSHAKE_MAX)
        self._scopes: dict[str, trio.CancelScope] = {}
        self._refusal_rate = EventRate(host.clock)

    async def prepare(self) -> Authority:
        """Load the certificate authority, and create this server's certificate."""
        self._authority = await self._store.commit(authority.open_authority)
        make_known = partial(
            certificates.list_phones, workspace=self._host.workspace, now=self._host.clock()
        )
        self._host.exchange.remember_phones(await self._store.read(make_known))
        await self._get_current_context()
        return self._authority

    async def _get_current_context(self) -> ssl.SSLContext:
        now = self._host.clock()
        if self._context is None or abs(now - self._context_made_at) > RENEW_AFTER_S:
            assert self._authority is not None, "it is made before anybody comes"
            make_context = partial(authority.make_context, self._authority, self._server.name, now)
            self._context = await trio.to_thread.run_sync(make_context)
            self._context_made_at = now
        return self._context

    async def end_invalid(self) -> NoReturn:
        """End the connections of phones whose certificate is no longer valid."""
        while True:
            any_write = self._store.get_event(ANY_WRITE_TOPIC)
            with skip_if_unavailable():
                phones_here, now = [*self._scopes], self._host.clock()
                look = partial(certificates.find_valid, serials=phones_here, now=now)
                valid = await self._store.read(partial(look, workspace=self._host.workspace))
                for serial in [each for each in phones_here if each not in valid]:
                    if (scope := self._scopes.get(serial)) is not None:
                        scope.cancel()
            await trio.sleep(CHECK_INTERVAL_MIN_S)
            with waits.move_on_after(CHECK_INTERVAL_S):
                await any_write.wait()

    async def enter(self, plain: trio.SocketStream) -> None:
        if self._inside >= PHONES_MAX:
            self._note_refused("there are too many connections")
            await trio.aclose_forcefully(plain)
            return
        with suppress(OSError):
            # A phone can be silent for a long time, or disconnect without notice.
            enable_keepalive(plain.setsockopt, unanswered_probes=UNANSWERED_PROBES_MAX)
        self._inside += 1
        try:
            await self._serve(plain)
        finally:
            self._inside -= 1
            await trio.aclose_forcefully(plain)

    async def _serve(self, plain: trio.SocketStream) -> None:
        stream = holder = None
        try:
            address = str(plain.socket.getpeername()[0])
            async with self.unproved.admit(address) as visit:
                if (stream := await self._shake_hands(plain)) is not None:
                    holder = await self._find_holder(_format_serial(stream))
                if stream is not None and holder is not None:
                    visit.record_authentication(_format_serial(stream))
        except OSError:  # The phone has left.
            return
        except Problem:
            self._note_refused("their address uses too much processor time")
            return
        if stream is None or holder is None:
            return
        serial = _format_serial(stream)
        if (before := self._scopes.get(serial)) is not None:
            before.cancel()
        with trio.CancelScope() as scope:
            self._scopes[serial] = scope
            log.info("the phone of %s is connected", holder.name)
            end_reason = "the hub ends its connection"
            try:
                end_reason = await phone.serve(self._host, stream, holder, serial)
            finally:
                if self._scopes.get(serial) is scope:
                    del self._scopes[serial]
                log.info("the phone of %s is disconnected: %s", holder.name, end_reason)

    async def _find_holder(self, serial: str) -> PhoneHolder | None:
        """Return the user of a valid certificate. Otherwise log the reason and return None."""
        workspace, now = self._host.workspace, self._host.clock()
        try:
            holder = await self._store.read(
                lambda db: certificates.find_holder(db, workspace, serial, now)
            )
        except StoreUnavailable:
            self._note_refused("the database cannot be queried for the certificates")
            return None
        if holder is None:
            self._note_refused(f"certificate {serial} is not valid")
        return holder

    async def _shake_hands(
        self, plain: trio.SocketStream
    ) -> trio.SSLStream[trio.SocketStream] | None:
        stream = trio.SSLStream(
            plain, await self._get_current_context(), server_side=True, https_compatible=True
        )
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as error:
            reason = getattr(error.__cause__, "reason", None) or "it broke off"
            self._note_refused(f"the handshake failed: {reason.replace('_', ' ').lower()}")
            return None
        return stream

    def _note_refused(self, reason: str) -> None:
        if count := self._refusal_rate.count_event():
            log.warning("%d connections refused at tak-listen, the last: %s", count, reason)


def _format_serial(stream: trio.SSLStream[trio.SocketStream]) -> str:
    """Return the serial number of a phone's certificate in the format of
    `authority.IssuedCertificate`.
    """
    proven = stream.getpeercert()
    return f"{int(proven['serialNumber'], 16):x}"


@asynccontextmanager
async def _open_user_session(
    exchange: Exchange, clock: Callable[[], float], unit: TakUnit
) -> AsyncIterator[_UserSession]:
    yield _UserSession(exchange, clock, unit)


class _UserSession:
    """Session of a user of the hub at the server. Implements `TakSession`."""

    def __init__(self, exchange: Exchange, clock: Callable[[], float], unit: TakUnit) -> None:
        self._exchange = exchange
        self._clock = clock
        self._unit = unit
        self._take: Callable[[str, bytes], None] | None = None
        member = int(unit.uid.rpartition("-")[2])
        self._guest = TakGuest(member, self._send)

    def _send(self, kind: str, raw: bytes, unit: str) -> bool:
        if self._take is not None:
            self._take(kind, raw)
        return True

    async def run(self, handle_event: Callable[[str, bytes], None]) -> NoReturn:
        self._take = handle_event
        self._exchange.enter(self._guest, self._unit, self._clock())
        try:
            await trio.sleep_forever()
        finally:
            self._exchange.remove_phone(self._guest)

    async def send_events(self, events: Iterable[CotEvent]) -> None:
        await trio.lowlevel.checkpoint()
        for event in events:
            self._exchange.send_events(self._guest, event, self._clock())
