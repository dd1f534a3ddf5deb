"""Hub: starts and supervises the store, push API, links, operators and webhooks."""

from __future__ import annotations

import logging
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import trio

from fieldagent.http.certificate import Certificate
from fieldagent.http.guard import check_host
from fieldagent.http.introduction import Introductions
from fieldagent.http.limits import CpuPace, Limits
from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.http.message import Judge
from fieldagent.http.routes import Route, make_router
from fieldagent.http.server import serve
from fieldagent.hub import idle, refusals
from fieldagent.hub.access import attempts, device_keys, directory, sessions
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.known_devices import KnownDevices
from fieldagent.hub.administration import api as administration
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.api.event_stream import EventStreams
from fieldagent.hub.api.push_api import HubApi
from fieldagent.hub.api.read_api import ReadApi
from fieldagent.hub.api.sos_api import SosApi
from fieldagent.hub.bridge.contract import BridgeHost
from fieldagent.hub.bridge.registry import get_bridges
from fieldagent.hub.console import Console
from fieldagent.hub.console.guest_link import Guest, GuestLink
from fieldagent.hub.contact.contract import AnswerServices, ContactHost
from fieldagent.hub.contact.registry import ContactSenders, get_contact_kinds
from fieldagent.hub.contract import Device, Estimate, ItemResult
from fieldagent.hub.field import kit_sms, kit_watch, mobile_terminated, operator_calls
from fieldagent.hub.field.ip_link import Links
from fieldagent.hub.field.mailbox import IpMailbox
from fieldagent.hub.field.mobile_originated import MobileOriginatedReceiver
from fieldagent.hub.field.position_feed import PositionFeeds
from fieldagent.hub.field.rebuilding import KeepingTimes
from fieldagent.hub.fleet.view import FleetApi
from fieldagent.hub.operator.contract import MoListener, Operator, OperatorHost
from fieldagent.hub.operator.registry import get_operators
from fieldagent.hub.part import PartHost, list_hub_parts
from fieldagent.hub.records import (
    audit,
    claims,
    commands,
    forgetting,
    fragments,
    lease,
    ring_alerts,
    sos,
    usage,
)
from fieldagent.hub.records.operator_book import OperatorBook
from fieldagent.hub.service import access_log, incident_log, listening
from fieldagent.hub.service.access_log import AccessLog
from fieldagent.hub.service.figures import Figures
from fieldagent.hub.service.health import Health
from fieldagent.hub.service.synthetic_item import URL, SyntheticItems
from fieldagent.hub.settings import HubSettings, find_price
from fieldagent.hub.store.contract import ANY_WRITE_TOPIC, Db, Store
from fieldagent.hub.store.persist import skip_if_unavailable
from fieldagent.hub.unavailable import make_patient
from fieldagent.hub.webhook import webhooks
from fieldagent.hub.webhook.deliveries import WebhookPost
from fieldagent.hub.webhook.reach import open_public
from fieldagent.page.refusals import translate_problems
from fieldagent.store.group import StoreFailed, StoreFull, StoreUnavailable
from fieldagent.system import waits
from fieldagent.system.signals import StopRequests
from fieldagent.system.supervisor import Note, Supervisor, log_fault
from fieldagent.system.systemd_notify import get_watchdog_interval, notify
from fieldagent.webhook.delivery import HandoverResult
from fieldagent.wire.outcome import Outcome

log = logging.getLogger(__name__)

CONNECTIONS = 20_000
"""Largest number of simultaneous connections (links and HTTP calls) in one process."""
CONNECTIONS_OF_ONE = 256
"""Largest number of simultaneous connections from one IPv4 address or one IPv6 /64 network."""
BODIES = 67_108_864
"""Largest total size of the request bodies that are processed at the same time, in bytes."""

HOUSEKEEPING_INTERVAL_S = 300.0
"""Seconds between two rounds of housekeeping while clients write to the store."""
IDLE_HOUSEKEEPING_INTERVAL_S = 3600.0
"""Seconds between two rounds of housekeeping while no client writes to the store."""

SYNTHETIC_PART = "synthetic items"
"""Name of the part that sends synthetic items, as shown to people."""


class Hub:
    """One process of the hub: creates its parts, and contains the state that they share."""

    def __init__(
        self,
        settings: HubSettings,
        store: Store,
        emit: Callable[[str], None] = print,
        guest: Guest | None = None,
    ) -> None:
        """Create the hub. `guest` may sign in once with a link, without a password."""
        self.settings = settings
        self.store = store
        self.kinds = get_operators(settings.operators)
        self.leases = lease.Leases(store, uuid.uuid4().hex[:12], clock=time.time)
        self.feeds = PositionFeeds(store, clock=time.time)
        self.stopping = trio.Event()
        """Set when the hub accepts no new work. From then on, health probes report this state and
        new links are refused."""
        self.closing = trio.Event()
        """Set when the hub ends its links and accepts no more calls."""
        self.failed: StoreFailed | None = None
        """The failure that makes the hub stop."""
        self.supervisor = Supervisor(
            fatal=(StoreFailed,), outside_errors=(StoreFull, StoreUnavailable), clock=time.time
        )
        self.mobile_originated = MobileOriginatedReceiver(
            store,
            clock=time.time,
            keys=self._get_keys,
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
            _make_log_writer(settings, emit), figures, trusted_networks=settings.trusted_proxies
        )
        # If the part never runs, `status` must not list it, so use no reporter of the supervisor.
        note = self.supervisor.make_reporter(SYNTHETIC_PART) if self.sends_synthetic else log_fault
        self.synthetic = SyntheticItems(
            store, time.time, settings.item_time_to_live, note, self.synthetic_address
        )
        contact_host = ContactHost(
            store,
            settings.contact_own,
            settings.console_address or "",
            open_public(settings.webhook_allow),
            time.time,
        )
        self.reach = ContactSenders(contact_host, get_contact_kinds(settings.contacts))
        self.part_host = PartHost(
            store,
            authentication,
            time.time,
            partial(find_price, settings),
            self._note_event,
            self.reach,
        )
        self.health = Health(
            store,
            clock=time.time,
            supervisor=self.supervisor,
            counters=self._read_counters,
            figures=figures,
            stopping=self.stopping,
            rows=self._read_part_figures,
        )
        self.routes = self._make_routes(authentication)
        if guest is not None:
            self.routes.append(GuestLink(guest, store, time.time).make_route())

    def _make_routes(self, authentication: Authentication) -> list[Route]:
        """Return all routes except probes and operators."""
        links = Links(
            self._authenticate,
            self._make_mailbox,
            self.hold_link,
            self.stopping,
            authentication.count_wrong_link_token,
            self.access.log_link_end,
            partial(self._note_bytes, "ip"),
        )
        store = self.store
        return [
            *self.api.make_routes(),
            *ReadApi(store, authentication, clock=time.time).make_routes(),
            *SosApi(store, authentication, clock=time.time).make_routes(),
            *SosApi(store, authentication, clock=time.time, kind=sos.ALARM).make_routes(),
            *FleetApi(store, authentication, clock=time.time).make_routes(),
            *(route for part in list_hub_parts() for route in part.routes(self.part_host)),
            *administration.make_routes(
                AdministrationContext(store, authentication, clock=time.time),
                self.mobile_originated,
                open_public(self.settings.webhook_allow),
                tuple(self.kinds),
                self.part_host.prices,
                self.settings.satellite_grace,
            ),
            EventStreams(store, authentication, self.leases, clock=time.time).route(),
            *Console(store, authentication, self.settings, clock=time.time).make_routes(),
            links.route(),
        ]

    async def _authenticate(self, token: str) -> Device:
        return await self.store.read(lambda db: directory.find_device_of_token(db, token))

    async def _get_keys(self, device: Device) -> Sequence[bytes]:
        return await self.store.read(lambda db: device_keys.read_mo_keys(db, device.id))

    def _note_bytes(self, bearer: str, direction: str, size: int) -> None:
        self.access.figures.count("carried_bytes", size, bearer=bearer, direction=direction)

    def _note_event(self, name: str, result: ItemResult, by: int = 1) -> None:
        self.access.figures.count("bridge_events", by, bridge=name, became=result.value)

    def count_call(self, operator: str, result: str, size: int) -> None:
        """Count an HTTP call of the satellite operator."""
        self.access.figures.count("operator_calls", operator=operator, result=result)
        if result == Outcome.SENT.value:
            self._note_bytes("satellite", "sent", size)

    async def take_in_from(
        self, imei: str, body: bytes, estimate: Estimate | None, *, unusable: str = ""
    ) -> None:
        """Process and count an MO message of an operator. Implements `operator.MessageReceiver`."""
        await self.mobile_originated.take_in_from(imei, body, estimate, unusable=unusable)
        self._note_bytes("satellite", "received", len(body))

    def _read_counters(self) -> dict[str, float]:
        return {
            "pushes_accepted": self.api.counts.accepted,
            "pushes_refused": self.api.counts.refused,
            "links": self.leases.links,
            "confirmations_refused": self.mobile_originated.mismatches,
            "bridges_linked": len(self.access.figures.bridged),
            **(
                {"synthetic_item_seconds": self.synthetic.compute_age()}
                if self.sends_synthetic
                else {}
            ),
        }

    def _read_part_figures(self, db: Db) -> Mapping[str, float]:
        readers = [part.read_figures for part in list_hub_parts() if part.read_figures]
        return {name: value for each in readers for name, value in each(db, self.part_host).items()}

    @property
    def sends_synthetic(self) -> bool:
        """Return True if the hub sends synthetic items to itself as a test."""
        return self.settings.synthetic_item != "off"

    @property
    def synthetic_address(self) -> str:
        """Return the address to which synthetic items are pushed; empty for the loopback port."""
        item_path = self.settings.synthetic_item
        return "" if item_path in ("off", "on") else item_path

    @property
    def keeping(self) -> KeepingTimes:
        """Return for how many seconds ended items are stored, and undelivered items wait."""
        return KeepingTimes(self.settings.keep_days * 86_400.0, self.settings.item_time_to_live)

    def _make_mailbox(self, device: Device, version: str) -> IpMailbox:
        return IpMailbox(
            self.store,
            device,
            self.mobile_originated,
            clock=time.time,
            version=version,
            keeping_times=self.keeping,
            feeds=self.feeds,
        )

    @asynccontextmanager
    async def hold_link(self, device: Device) -> AsyncIterator[lease.Lease]:
        """Hold the lease of a device during its link, and run its workspace's position feed."""
        async with self.leases.hold_lease(device) as lease, self.feeds.join_feed(device.workspace):
            yield lease

    def make_operators(self) -> dict[str, Operator]:
        """Return the object that sends MT messages for each configured operator."""
        own = self.settings.operator_own
        by_name = {name: kind.caller(own) for name, kind in self.kinds.items()}
        return {name: caller for name, caller in by_name.items() if caller is not None}

    def make_operator_host(self, part_name: str, operator: str) -> OperatorHost:
        """Return the services that the hub offers to an operator. `part_name` names the operator's
        part in reports of failures.
        """
        return OperatorHost(
            self.take_in_from,
            partial(ring_alerts.record_session_of_imei, self.store, clock=time.time),
            self.supervisor.make_reporter(part_name),
            time.time,
            OperatorBook(self.store, operator, time.time),
            partial(usage.count_session, self.store, clock=time.time),
        )

    def make_bridge_host(self, name: str) -> BridgeHost:
        """Return the services that the hub offers to a bridge."""

        def note_link(up: bool) -> None:
            bridged = self.access.figures.bridged
            (bridged.add if up else bridged.discard)(name)

        return BridgeHost(
            self.store,
            self.settings.bridge_own,
            time.time,
            partial(self._note_event, name),
            note_link,
        )

    def make_answer_services(self, part_name: str) -> AnswerServices:
        """Return the services that the hub offers for replies of contacts. `part_name` names the
        part in reports of failures.
        """
        makers = [part.make_inbox for part in list_hub_parts() if part.make_inbox]
        people = makers[0](self.part_host) if makers else None
        inbox = kit_sms.KitSmsInbox(self.store, self.mobile_originated, people, clock=time.time)
        return AnswerServices(
            self.reach.host, inbox, partial(self._report_inward_failure, part_name)
        )

    def _report_inward_failure(self, part_name: str, error: BaseException, about: str) -> None:
        """Report a failure of the part `part_name`. The reporter is created at the first failure,
        because each existing reporter appears in the health report.
        """
        self.supervisor.make_reporter(part_name)(error, about)

    def judge(self) -> Judge:
        """Return the function that admits and records all HTTP calls: those of the API, the
        console, operators and contacts.
        """
        probes = self.health.make_routes(figures=self.settings.admin_listen is None)
        routes = [*self.routes, *probes]
        own = self.settings.operator_own
        for name, kind in self.kinds.items():
            routes += kind.routes(own, self.make_operator_host("HTTP", name))
        inward = self.make_answer_services("HTTP")
        routes += [each for kind in self.reach.kinds.values() for each in kind.routes(inward)]
        return self.access.watch(
            translate_problems(make_patient(make_router(routes)), *_list_catalogues())
        )


def _list_catalogues() -> list[str]:
    """Return the names of the packages that contain the catalogues of error texts."""
    return [refusals.__name__, *(each.refusals for each in list_hub_parts() if each.refusals)]


async def run(
    settings: HubSettings,
    store: Store,
    emit: Callable[[str], None],
    stop_requests: StopRequests,
    *,
    guest: Guest | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the hub until a signal in `stop_requests` stops it, or until the task is cancelled. The
    task status reports the port of the hub. `emit` gets the lines of the access log if the log
    format is JSON. `guest` may sign in once with a link.

    Raises ListenFailed, StoreFailed, or OSError if the certificate cannot be read.
    """
    hub = Hub(settings, store, emit, guest)
    certificate = read_certificate(settings)
    listeners = listening.open_all_listeners(settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_run_store, hub)
        with _open_mo_listeners(hub) as receivers:
            async with trio.open_nursery() as parts:
                parts.start_soon(_handle_signals, stop_requests, hub, certificate)
                parts.start_soon(_drain, hub)
                keep = hub.supervisor.keep_running
                if certificate is not None:
                    parts.start_soon(keep, "the certificate", certificate.watch)
                for name, listener in receivers.items():
                    title = hub.kinds[name].title
                    parts.start_soon(keep, title, partial(_serve_mo_listener, hub, name, listener))
                for kind in hub.reach.kinds.values():
                    name = f"what contacts answer {kind.by}"
                    if (ask := kind.listen(hub.make_answer_services(name))) is not None:
                        parts.start_soon(keep, name, ask)
                for bridge in get_bridges().values():
                    if (work := bridge.work(hub.make_bridge_host(bridge.name))) is not None:
                        parts.start_soon(keep, bridge.title, work)
                for name, task in list_tasks(hub).items():
                    parts.start_soon(keep, name, task)
                if hub.sends_synthetic:
                    parts.start_soon(keep, SYNTHETIC_PART, hub.synthetic.run)
                await _serve(hub, listeners, certificate, task_status)
                parts.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
    if hub.failed is not None:
        raise hub.failed


async def _handle_signals(stops: StopRequests, hub: Hub, certificate: Certificate | None) -> None:
    """Handle signals. SIGTERM and SIGINT stop the hub; a second such signal stops it without
    `drain-seconds`. SIGHUP reads the certificate again.
    """
    async for number in stops:
        if number != signal.SIGHUP:
            (hub.closing if hub.stopping.is_set() else hub.stopping).set()
        elif certificate is not None:
            certificate.reload()
        else:
            log.info("no certificate to read again; settings are read only at the start")


async def _drain(hub: Hub) -> None:
    """After `stopping` is set, let links and calls finish (`drain-seconds`). Then set `closing`."""
    await hub.stopping.wait()
    notify("STOPPING=1")
    log.info("stopping: waiting items are kept and continue at the next start")
    with waits.move_on_after(hub.settings.drain_seconds):
        await hub.closing.wait()
    hub.closing.set()


async def _serve(
    hub: Hub,
    listeners: listening.Listeners,
    certificate: Certificate | None,
    task_status: trio.TaskStatus[int],
) -> None:
    """Serve until `closing` is set and every waiting caller has a response."""
    devices = KnownDevices(hub.store, time.time)
    limits = Limits(
        connections=CONNECTIONS,
        per_source=CONNECTIONS_OF_ONE,
        proxies=hub.settings.trusted_proxies,
        bodies=BODIES,
        pace=listening.make_pace(hub.settings, devices),
    )
    port = get_port(listeners.direct)
    serving = partial(
        serve,
        hub.judge(),
        stop_event=hub.closing,
        guard=check_host,
        limits=limits,
        note_fault=hub.supervisor.make_reporter("HTTP"),
    )
    tls = None if certificate is None else certificate.context
    introduce = Introductions(hub.settings.trusted_proxies).find_client
    async with trio.open_nursery() as nursery:
        nursery.start_soon(devices.load_soon)
        await nursery.start(partial(serving, listeners.direct, tls=tls))
        if listeners.by_socket:
            await nursery.start(partial(serving, listeners.by_socket))
            log.info("listening for a proxy on %s", hub.settings.socket_listen)
        if listeners.by_proxy:
            by_proxy = partial(serving, listeners.by_proxy, tls=tls, introduce=introduce)
            await nursery.start(by_proxy)
            log.info("port %d accepts proxies, which name the client", get_port(listeners.by_proxy))
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
    """Serve health and metrics on a separate port for the administrators of the hub."""
    listeners = open_listeners(port, [host], allow_remote=True)
    log.info("health and metrics are at http://%s:%d", host, get_port(listeners))
    await serve(
        make_router(hub.health.make_routes()),
        listeners,
        stop_event=hub.closing,
        guard=check_host,
        limits=Limits(pace=CpuPace(cookie="")),
        note_fault=hub.supervisor.make_reporter("HTTP"),
        task_status=task_status,
    )


@contextmanager
def _open_mo_listeners(hub: Hub) -> Iterator[dict[str, MoListener]]:
    """Open the configured listeners for MO messages of operators' gateways, by operator."""
    listeners: dict[str, MoListener] = {}
    try:
        for kind in hub.kinds.values():
            if (listener := kind.listen(hub.settings.operator_own)) is not None:
                listeners[kind.name] = listener
        yield listeners
    finally:
        for each in listeners.values():
            for listening_socket in each.sockets:
                listening_socket.close()


async def _serve_mo_listener(hub: Hub, name: str, listener: MoListener) -> None:
    # Duplicate the sockets: the server closes its copies, and the part may have to start again.
    own = [each.dup() for each in listener.sockets]
    await listener.serve(own, hub.make_operator_host(hub.kinds[name].title, name))


async def _call_operators(hub: Hub) -> None:
    note_fault = hub.supervisor.make_reporter("operator calls")
    get_operators = hub.make_operators()
    await operator_calls.run(
        hub.store, get_operators, clock=time.time, note_fault=note_fault, note_call=hub.count_call
    )


async def _log_incidents(hub: Hub) -> None:
    await incident_log.run(hub.store, clock=time.time)


async def _write_to_kits(hub: Hub) -> None:
    await kit_sms.run(
        hub.store,
        hub.reach,
        clock=time.time,
        per_day=hub.settings.kit_sms_per_day,
        note_fault=hub.supervisor.make_reporter("SMS to kits"),
    )


async def _post_webhooks(hub: Hub) -> None:
    def note_post(post: WebhookPost, result: HandoverResult, seconds: float) -> None:
        if post.webhook.url == URL:
            return
        outcome, id_ = result.outcome.value, post.delivery.request_id
        hub.access.log_webhook_post(
            post.webhook.id, id_, len(post.items), outcome, seconds, result.reason
        )

    await webhooks.run(
        hub.store,
        clock=time.time,
        open_stream=hub.synthetic.make_opener(open_public(hub.settings.webhook_allow)),
        note_fault=hub.supervisor.make_reporter("webhooks"),
        note_post=note_post,
        desk=hub.settings.console_address or "",
    )


def _make_log_writer(settings: HubSettings, emit: Callable[[str], None]) -> access_log.Write:
    writers = {"log": access_log.write_to_log, "json": access_log.make_json_writer(emit, time.time)}
    return writers.get(settings.access_log, lambda line: None)


def read_certificate(settings: HubSettings) -> Certificate | None:
    """Return the certificate with its key, or None if the hub does not serve TLS itself."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return Certificate(settings.tls_certificate, settings.tls_key)


async def _run_store(hub: Hub) -> None:
    """Run the store. If the store fails, stop the hub in an orderly way, so that every caller still
    gets a response.
    """
    hub.failed = await hub.store.run()
    log.critical("%s; nothing more is accepted", hub.failed)
    hub.stopping.set()
    hub.closing.set()


async def _commit_patiently(hub: Hub, operation: Callable[[Db], Any]) -> None:
    """Commit `operation` once. If the database is unavailable or full, log this and return."""
    with skip_if_unavailable():
        await hub.store.commit(operation)


async def _commit_in_batches(hub: Hub, operation: Callable[[Db], int]) -> None:
    """Commit `operation` until it returns 0 processed rows. Other commits can run in between."""
    with skip_if_unavailable():
        while await hub.store.commit(operation):
            pass


async def _expire(hub: Hub) -> None:
    while True:
        any_write = hub.store.get_event(ANY_WRITE_TOPIC)
        next_due = 0.0
        with skip_if_unavailable():
            next_due = await hub.store.read(forgetting.compute_next_expiry)
        if next_due <= time.time():
            await _commit_in_batches(hub, lambda db: forgetting.expire_deliveries(db, time.time()))
        await idle.wait_until_due(any_write, next_due - time.time())


async def _watch_kits(hub: Hub) -> None:
    await kit_watch.run(hub.store, clock=time.time)


async def _run_housekeeping(hub: Hub) -> None:
    while True:
        any_write = hub.store.get_event(ANY_WRITE_TOPIC)
        await _forget(hub)
        await _commit_patiently(hub, lambda db: sessions.delete_expired_sessions(db, time.time()))
        await _commit_patiently(
            hub, lambda db: mobile_terminated.ask_for_fragments(db, time.time())
        )
        asks_for_space = True
        with skip_if_unavailable():
            asks_for_space = await hub.store.read(fragments.can_have_missing)
        interval = HOUSEKEEPING_INTERVAL_S if asks_for_space else IDLE_HOUSEKEEPING_INTERVAL_S
        await idle.wait_until_due(any_write, interval, beat=HOUSEKEEPING_INTERVAL_S, net=interval)


async def _forget(hub: Hub) -> None:
    now = time.time()
    items, lines = (
        now - days * 86_400 for days in (hub.settings.keep_days, hub.settings.keep_audit_days)
    )
    for forgotten in (
        partial(forgetting.delete_old_items, before=items, now=now),
        partial(forgetting.forget_remembered, before=items),
        partial(audit.delete_old_lines, before=lines),
        partial(commands.delete_old_commands, before=lines),
        *(partial(each.forget, before=lines) for each in list_hub_parts() if each.forget),
        partial(attempts.delete_old_attempts, now=now),
    ):
        await _commit_in_batches(hub, forgotten)


async def _count_queues(hub: Hub) -> None:
    await hub.health.run()


async def _show_life(hub: Hub) -> None:
    """Notify systemd's watchdog regularly, unless a commit hangs. A failed commit is no reason."""
    interval = get_watchdog_interval()
    while interval is not None:
        await _commit_patiently(hub, lambda db: None)
        notify("WATCHDOG=1")
        await waits.sleep(interval / 3)


async def _run_feeds(hub: Hub) -> None:
    await hub.feeds.run()


async def _run_leases(hub: Hub) -> None:
    await hub.leases.run()


async def _release_claims(hub: Hub) -> None:
    await claims.run(hub.store)


PARTS = {
    "the leases of links": _run_leases,
    "positions for linked kits": _run_feeds,
    "the claims of hubs that died": _release_claims,
    "housekeeping": _run_housekeeping,
    "the expiry of items": _expire,
    "check-ins and updates": _watch_kits,
    "the watchdog": _show_life,
    "the figures of queues": _count_queues,
    "operator calls": _call_operators,
    "webhooks": _post_webhooks,
    "SMS to kits": _write_to_kits,
    "the log of incidents": _log_incidents,
}
"""Background tasks of the core, by the name that people see."""


def list_tasks(hub: Hub) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return the background tasks of the core and the extensions, by the name that people see."""
    tasks: dict[str, Callable[[], Awaitable[None]]] = {
        name: partial(part, hub) for name, part in PARTS.items()
    }
    for part in list_hub_parts():
        for name, task in part.tasks.items():
            tasks[name] = partial(_run_task, hub, name, task)
    return tasks


async def _run_task(hub: Hub, name: str, task: Callable[[PartHost, Note], Awaitable[None]]) -> None:
    await task(hub.part_host, hub.supervisor.make_reporter(name))
