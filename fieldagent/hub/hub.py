"""The hub: the nursery that ties store, push API, links, operator and webhooks together."""

from __future__ import annotations

import logging
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import trio

from fieldagent.http.address import LOOPBACK_NETWORKS
from fieldagent.http.guard import host_guard
from fieldagent.http.introduction import Introductions
from fieldagent.http.limits import Limits
from fieldagent.http.listeners import open_listeners, port_of
from fieldagent.http.message import Judge
from fieldagent.http.routes import Route, router
from fieldagent.http.server import serve
from fieldagent.hub import (
    access,
    attempts,
    audit,
    dead_letters,
    directory,
    idle,
    kept_letters,
    kit_watch,
    lease,
    ledger,
    listening,
    mobile_terminated,
    operator_calls,
    reading,
    ring_alerts,
    sessions,
    slices,
    webhooks,
)
from fieldagent.hub.access import AccessLog
from fieldagent.hub.administration import api as administration
from fieldagent.hub.administration.acts import Acts
from fieldagent.hub.api import HubApi
from fieldagent.hub.authentication import Authentication
from fieldagent.hub.certificate import Certificate
from fieldagent.hub.console import Console
from fieldagent.hub.contract import Device, Estimate
from fieldagent.hub.event_stream import EventStreams
from fieldagent.hub.figures import Figures
from fieldagent.hub.health import Health
from fieldagent.hub.ip_link import Links
from fieldagent.hub.mailbox import IpMailbox
from fieldagent.hub.mobile_originated import MobileOriginated
from fieldagent.hub.not_now import patient
from fieldagent.hub.operator import rockblock
from fieldagent.hub.operator.contract import Operator
from fieldagent.hub.operator.directip import DirectIp, serve_directip
from fieldagent.hub.operator.rockblock import RockBlock
from fieldagent.hub.reach import open_public
from fieldagent.hub.read_api import ReadApi
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.sos_api import SosApi
from fieldagent.hub.store.contract import ANYTHING, Db, Store
from fieldagent.hub.store.persist import told_once
from fieldagent.store.group import StoreFailed, StoreFull, StoreUnavailable
from fieldagent.system import waits
from fieldagent.system.signals import Asks
from fieldagent.system.supervisor import Supervisor
from fieldagent.system.systemd_notify import notify, watchdog_interval
from fieldagent.wire.jwt import PublicKey, read_public_key
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.rockblock import PUBLIC_KEY

log = logging.getLogger(__name__)

CONNECTIONS = 20_000
"""Links and calls at one moment, in one process."""
CONNECTIONS_OF_ONE = 256
"""Calls of one address, or /64 of IPv6, at one moment."""
BODIES = 67_108_864
"""Bytes of bodies at one moment."""

HOUSEKEEPING = 300.0
"""Seconds between two looks at what may be forgotten, while something is written."""
AT_REST = 3600.0
"""The same while nothing is."""


class Hub:
    """One process of the hub."""

    def __init__(
        self, settings: HubSettings, store: Store, emit: Callable[[str], None] = print
    ) -> None:
        self.settings = settings
        self.store = store
        self.leases = lease.Leases(store, uuid.uuid4().hex[:12], clock=time.time)
        self.stopping = trio.Event()
        """Set when no new work is to come here: probes are told so, and links turned away."""
        self.closing = trio.Event()
        """Set when links are ended and nobody is let in any more."""
        self.failed: StoreFailed | None = None
        """Why it stops by itself."""
        self.supervisor = Supervisor(
            fatal=(StoreFailed,), outside=(StoreFull, StoreUnavailable), clock=time.time
        )
        self.mobile_originated = MobileOriginated(
            store,
            clock=time.time,
            keys=self._keys,
            grace=settings.satellite_grace,
            time_to_live=settings.item_time_to_live,
        )
        authentication = Authentication(
            store, clock=time.time, trusted_proxies=settings.trusted_proxies
        )
        self.api = HubApi(
            store,
            authentication,
            clock=time.time,
            grace=settings.satellite_grace,
            time_to_live=settings.item_time_to_live,
        )
        figures = Figures()
        self.access = AccessLog(
            _lines_of(settings, emit), figures, trusted=settings.trusted_proxies
        )
        self.health = Health(
            store,
            clock=time.time,
            supervisor=self.supervisor,
            counters=self._counters,
            figures=figures,
            stopping=self.stopping,
        )
        self.routes = self._routes(authentication)

    def _routes(self, authentication: Authentication) -> list[Route]:
        """All but the probes and the operators'."""
        links = Links(
            self._authenticate,
            self._mailbox,
            self.leases.held,
            self.stopping,
            authentication.wrong_link_token,
            self.access.note_link,
            partial(self._note_bytes, "ip"),
        )
        store = self.store
        return [
            *self.api.routes(),
            *ReadApi(store, authentication, clock=time.time).routes(),
            *SosApi(store, authentication, clock=time.time).routes(),
            *administration.routes(
                Acts(store, authentication, clock=time.time),
                self.mobile_originated,
                open_public(self.settings.webhook_allow),
            ),
            EventStreams(store, authentication, clock=time.time).route(),
            *Console(store, authentication, self.settings, clock=time.time).routes(),
            links.route(),
        ]

    async def _authenticate(self, token: str) -> Device:
        return await self.store.read(lambda db: directory.device_of_token(db, token))

    async def _keys(self, device: Device) -> Sequence[bytes]:
        return await self.store.read(lambda db: directory.mo_keys_of(db, device.id))

    def _note_bytes(self, bearer: str, direction: str, size: int) -> None:
        self.access.figures.count("carried_bytes", size, bearer=bearer, direction=direction)

    def note_call(self, operator: str, result: str, size: int) -> None:
        """Of the satellite operator."""
        self.access.figures.count("operator_calls", operator=operator, result=result)
        if result == Outcome.SENT.value:
            self._note_bytes("satellite", "sent", size)

    async def take_in_from(self, imei: str, body: bytes, estimate: Estimate | None = None) -> None:
        """What an operator's gateway brings: implements `operator.TakeIn`."""
        await self.mobile_originated.take_in_from(imei, body, estimate)
        self._note_bytes("satellite", "received", len(body))

    def _counters(self) -> dict[str, float]:
        return {
            "pushes_accepted": self.api.counts.accepted,
            "pushes_refused": self.api.counts.refused,
            "links": self.leases.links,
            "confirmations_refused": self.mobile_originated.mismatches,
        }

    def _mailbox(self, device: Device, version: str) -> IpMailbox:
        return IpMailbox(
            self.store, device, self.mobile_originated, clock=time.time, version=version
        )

    def operators(self) -> dict[str, Operator]:
        settings = self.settings
        found: dict[str, Operator] = {}
        if settings.directip_gateway is not None:
            found["directip"] = DirectIp(*settings.directip_gateway)
        name, password = settings.rockblock_username, settings.rockblock_password
        if name is not None and password is not None:
            found["rockblock"] = RockBlock(settings.rockblock_address, name, password)
        return found

    def judge(self) -> Judge:
        probes = self.health.routes(figures=self.settings.admin_listen is None)
        routes = [*self.routes, *probes]
        if self.settings.rockblock_username is not None:
            key = rockblock_key(self.settings)
            routes.append(rockblock.mo_route(self.take_in_from, key, clock=time.time))
        return self.access.watch(patient(router(routes)))


async def run(
    settings: HubSettings,
    store: Store,
    emit: Callable[[str], None],
    asks: Asks,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run until `asks` tell it to end, or until cancelled; started with the port of the hub. `emit`
    takes the lines of the access log, where they are JSON.

    Raises ListenFailed, OSError (a certificate that cannot be read), StoreFailed.
    """
    hub = Hub(settings, store, emit)
    certificate = certificate_of(settings)
    listeners = listening.listeners(settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_run_store, hub)
        with _mo_listeners(settings) as brought:
            async with trio.open_nursery() as parts:
                parts.start_soon(_obey, asks, hub, certificate)
                parts.start_soon(_drain, hub)
                keep = hub.supervisor.keep
                if certificate is not None:
                    parts.start_soon(keep, "the certificate", certificate.watch)
                if brought:
                    parts.start_soon(keep, "DirectIP", partial(_take_mo, hub, brought))
                for name, part in PARTS.items():
                    parts.start_soon(keep, name, partial(part, hub))
                await _serve(hub, listeners, certificate, task_status)
                parts.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
    if hub.failed is not None:
        raise hub.failed


async def _obey(asks: Asks, hub: Hub, certificate: Certificate | None) -> None:
    """SIGTERM and SIGINT stop it, the second at once; SIGHUP reads the certificate again."""
    async for number in asks:
        if number != signal.SIGHUP:
            (hub.closing if hub.stopping.is_set() else hub.stopping).set()
        elif certificate is not None:
            certificate.read_again()
        else:
            log.info("there is no certificate to read again; settings are read at the start")


async def _drain(hub: Hub) -> None:
    """From the moment at which nothing new is to come here, to the one at which nothing does."""
    await hub.stopping.wait()
    notify("STOPPING=1")
    log.info("stopping: what waits is kept and goes on at the next start")
    with waits.move_on_after(hub.settings.drain_seconds):
        await hub.closing.wait()
    hub.closing.set()


async def _serve(
    hub: Hub,
    listeners: listening.Listeners,
    certificate: Certificate | None,
    task_status: trio.TaskStatus[int],
) -> None:
    """Returns once `closing` is set and everyone who waited has an answer."""
    limits = Limits(
        connections=CONNECTIONS,
        per_source=CONNECTIONS_OF_ONE,
        proxies=hub.settings.trusted_proxies,
        bodies=BODIES,
    )
    port = port_of(listeners.direct)
    serving = partial(
        serve,
        hub.judge(),
        stopping=hub.closing,
        guard=host_guard,
        limits=limits,
        note_fault=hub.supervisor.notes("HTTP"),
    )
    tls = None if certificate is None else certificate.context
    introduce = Introductions(hub.settings.trusted_proxies).client_of
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serving, listeners.direct, tls=tls))
        if listeners.by_socket:
            await nursery.start(partial(serving, listeners.by_socket))
            log.info("a proxy may come by %s", hub.settings.socket_listen)
        if listeners.by_proxy:
            by_proxy = partial(serving, listeners.by_proxy, tls=tls, introduce=introduce)
            await nursery.start(by_proxy)
            log.info("proxies may come to port %d, and say for whom", port_of(listeners.by_proxy))
        if hub.settings.admin_listen is not None:
            await nursery.start(_serve_admin, hub, *hub.settings.admin_listen)
        scheme = "http" if certificate is None else "https"
        log.info("the hub answers at %s://%s:%d", scheme, hub.settings.listen[0], port)
        notify("READY=1")
        task_status.started(port)
        await hub.closing.wait()


async def _serve_admin(
    hub: Hub, host: str, port: int, *, task_status: trio.TaskStatus[None]
) -> None:
    """Health and figures, for those who look after the hub."""
    listeners = open_listeners(port, [host], allow_remote=True)
    log.info("health and metrics are at http://%s:%d", host, port_of(listeners))
    await serve(
        router(hub.health.routes()),
        listeners,
        stopping=hub.closing,
        guard=host_guard,
        note_fault=hub.supervisor.notes("HTTP"),
        task_status=task_status,
    )


@contextmanager
def _mo_listeners(settings: HubSettings) -> Iterator[list[socket.socket]]:
    """Where the operator's gateway brings MO messages; none unless the settings name it."""
    if settings.directip_listen is None:
        yield []
        return
    host, port = settings.directip_listen
    listeners = open_listeners(port, [host], allow_remote=True)
    log.info("the operator's gateway may bring MO messages to %s:%d", host, port_of(listeners))
    try:
        yield listeners
    finally:
        for listener in listeners:
            listener.close()


async def _take_mo(hub: Hub, listeners: Sequence[socket.socket]) -> None:
    # It closes what it is given, and may have to be started again.
    own = [listener.dup() for listener in listeners]
    await serve_directip(
        own,
        hub.take_in_from,
        partial(ring_alerts.note_session_of, hub.store, clock=time.time),
        allowed=hub.settings.directip_allow or LOOPBACK_NETWORKS,
        note_fault=hub.supervisor.notes("DirectIP"),
    )


async def _call_operators(hub: Hub) -> None:
    note_fault = hub.supervisor.notes("operator calls")
    operators = hub.operators()
    await operator_calls.run(
        hub.store, operators, clock=time.time, note_fault=note_fault, note_call=hub.note_call
    )


async def _post_webhooks(hub: Hub) -> None:
    await webhooks.run(
        hub.store,
        clock=time.time,
        open_stream=open_public(hub.settings.webhook_allow),
        note_fault=hub.supervisor.notes("webhooks"),
        sos_confirmed_by=hub.settings.sos_confirmed_by,
        note_post=hub.access.note_post,
    )


def rockblock_key(settings: HubSettings) -> PublicKey:
    """What checks their tokens: the published key, unless the settings name another."""
    if settings.rockblock_public_key is None:
        return PUBLIC_KEY
    return read_public_key(settings.rockblock_public_key.read_text())


def _lines_of(settings: HubSettings, emit: Callable[[str], None]) -> access.Write:
    ways = {"log": access.to_log, "json": access.as_json(emit, time.time)}
    return ways.get(settings.access_log, lambda line: None)


def certificate_of(settings: HubSettings) -> Certificate | None:
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return Certificate(settings.tls_certificate, settings.tls_key)


async def _run_store(hub: Hub) -> None:
    """A store that failed stops the hub in good order: everyone still gets an answer."""
    hub.failed = await hub.store.run()
    log.critical("%s; nothing more is accepted", hub.failed)
    hub.stopping.set()
    hub.closing.set()


async def _patiently(hub: Hub, operation: Callable[[Db], Any]) -> None:
    """A database that cannot be reached now is asked again at the next turn."""
    with told_once():
        await hub.store.commit(operation)


async def _in_slices(hub: Hub, some: Callable[[Db], int]) -> None:
    """Until nothing is left to do: pushes and links go on between."""
    with told_once():
        while await hub.store.commit(some):
            pass


async def _expire(hub: Hub) -> None:
    while True:
        written = hub.store.heard(ANYTHING)
        soonest = 0.0
        with told_once():
            soonest = await hub.store.read(ledger.next_expiry)
        if soonest <= time.time():
            await _in_slices(hub, lambda db: ledger.expire(db, time.time()))
        await idle.until_due(written, soonest - time.time())


async def _watch_kits(hub: Hub) -> None:
    await kit_watch.run(hub.store, clock=time.time)


def _claim_dead_letters(hub: Hub, db: Db) -> None:
    """Those that came at the very moment at which somebody was given their IMEI."""
    kept_letters.take_in(db, hub.mobile_originated, dead_letters.claimable(db))


async def _keep_house(hub: Hub) -> None:
    while True:
        written = hub.store.heard(ANYTHING)
        await _patiently(hub, partial(_claim_dead_letters, hub))
        await _forget(hub)
        await _patiently(hub, lambda db: sessions.forget(db, time.time()))
        await _patiently(hub, lambda db: mobile_terminated.ask_for_fragments(db, time.time()))
        asks = True
        with told_once():
            asks = await hub.store.read(slices.may_lack)
        again = HOUSEKEEPING if asks else AT_REST
        await idle.until_due(written, again, beat=HOUSEKEEPING, net=again)


async def _forget(hub: Hub) -> None:
    now = time.time()
    items, lines = (
        now - days * 86_400 for days in (hub.settings.keep_days, hub.settings.keep_audit_days)
    )
    for some in (
        partial(ledger.forget, before=items),
        partial(ledger.forget_remembered, before=items),
        partial(audit.forget, before=lines),
        partial(attempts.forget, now=now),
        reading.note_kinds,
    ):
        await _in_slices(hub, some)


async def _show_life(hub: Hub) -> None:
    """Feed systemd's watchdog while the store takes transactions."""
    interval = watchdog_interval()
    while interval is not None:
        await _patiently(hub, lambda db: None)
        notify("WATCHDOG=1")
        await waits.sleep(interval / 3)


async def _keep_leases(hub: Hub) -> None:
    await hub.leases.run()


PARTS = {
    "the leases of links": _keep_leases,
    "housekeeping": _keep_house,
    "the expiry of items": _expire,
    "check-ins and updates": _watch_kits,
    "the watchdog": _show_life,
    "operator calls": _call_operators,
    "webhooks": _post_webhooks,
}
"""What runs beside the push API and the links, by the names that people are told."""
