"""Exchanges TAK multicast on the kit's network: shows items to phones, and receives their messages.

1. Multicast has no acknowledgement, so the kit does not know whether a phone received an event. An
   item that was sent by multicast is therefore not handed over. Positions and alerts are repeated.
2. Messages for the kit's units arrive by multicast, or over TCP on the port that ATAK expects. ATAK
   sends one event per connection. Other programs send several.
3. After a network failure, the service tries again. The pauses between attempts become longer.
"""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

import trio

from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.journal import changes
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.listing import list_newest_positions
from fieldagent.agent.outbound.day_budget import DayBudget
from fieldagent.agent.part_service import PartBase, PartHost, PartPlan, PartService
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak import map_events as tak_map
from fieldagent.extensions.tak.cot import EVENT_BYTES_MAX, CotEvent, EventSplitter, encode
from fieldagent.extensions.tak.events import GeoChat
from fieldagent.extensions.tak.lan import outward
from fieldagent.extensions.tak.lan.door import LanAdmission
from fieldagent.extensions.tak.lan.outward import LanAlert
from fieldagent.extensions.tak.lan.settings import TakLanSettings
from fieldagent.extensions.tak.map_events import SentPosition
from fieldagent.http.limits import UnauthenticatedLimit
from fieldagent.http.problem import Problem
from fieldagent.system import waits
from fieldagent.system.error_groups import get_all_errors
from fieldagent.system.supervisor import Note
from fieldagent.system.wording import describe_reason

log = logging.getLogger(__name__)

GROUP, GROUP_PORT = "239.2.3.1", 6969
"""Multicast group of phones with ATAK and similar apps."""
TTL = 1
"""Hop limit of multicast packets, which keeps them in the kit's network."""
RETRY_WAITS_S = (1.0, 5.0, 30.0, 60.0)
"""Seconds between two attempts after a network failure. The last value applies to all later
attempts."""
POLL_INTERVAL_S, IDLE_POLL_EXTRA_S = 1.0, 9.0
"""Shortest time in seconds between two checks for news, and additional seconds if there is no news.
Together they are the time between two alerts of one SOS."""
POSITION_REPEAT_S = 30.0
"""Seconds after which a unit's position is sent again, because phones that join later have no other
source."""
CANCELS = 3
"""Number of times that the end of an alert is sent."""
LOOKED_AT = 500
DATAGRAM_MAX = 65_507
"""Largest number of bytes in a UDP datagram over IPv4."""
CONNECTIONS = 16
"""Largest number of phones that may be connected at the same time."""
EVENT_WITHIN_S = 10.0
"""Seconds within which a phone must send its events."""


PAYER = "TAK"
"""Name under which the journal records the cost of messages from phones."""


def plan(settings: TakLanSettings, base: PartBase) -> PartPlan:
    """Return the plan of the part that serves phones on the network in the settings."""

    def make_service(host: PartHost) -> TakLan:
        budget = DayBudget(host.journal, PAYER, settings.credits_per_day)
        admission = LanAdmission(
            settings,
            host.journal,
            host.intake,
            host.outboxes,
            budget,
            bearer_bytes=host.bearer_bytes,
        )
        return TakLan(settings, host.journal, admission, host.incidents)

    return PartPlan(make_service)


class TakLan(PartService):
    """Service for TAK phones on the kit's network. Call `run` under a supervisor. The API calls
    `get_status`. `incidents` returns the content of the response to `GET /api/sos`.
    """

    def __init__(
        self,
        settings: TakLanSettings,
        journal: Journal,
        admission: LanAdmission,
        incidents: Callable[[], dict[str, Any]],
    ) -> None:
        assert settings.address is not None, "nobody makes one without it"
        self._address = settings.address
        self._own_unit = outward.make_own_unit(settings.name)
        self._journal = journal
        self._admission = admission
        self._incidents = incidents
        self._sent_positions: dict[str, SentPosition] = {}
        self._alerts: dict[str, LanAlert] = {}
        """Active alerts by the uid of their unit."""
        self._ended_alerts: dict[str, tuple[LanAlert, int]] = {}
        """Ended alerts, with the number of times that the end of each alert was sent."""
        self._place = changes.get_newest(journal)
        self._last = 0
        """Number of the last payload that was sent."""
        self._unsaid: list[CotEvent] = []
        """Events of received items that are not sent yet, because the network may have failed. Each
        event is sent once."""
        self.link = ChannelLink()

    async def run(
        self, agent_status: Callable[[], Mapping[str, Any]], note_fault: Note
    ) -> NoReturn:
        """Show received items to phones and receive messages from phones. After a network failure,
        try again. Raises the journal's errors.
        """
        tries = 0
        while True:
            try:
                await self._work_until_failure()
            except* OSError as errors:
                error = get_all_errors(errors)[0]
                assert isinstance(error, OSError)
                self._note_lost(describe_reason(error))
            await waits.sleep(RETRY_WAITS_S[min(tries, len(RETRY_WAITS_S) - 1)])
            tries = 0 if self.link.state is LinkState.READY else tries + 1

    def _note_lost(self, loss_reason: str) -> None:
        reason = f"tak-lan {self._address}: {loss_reason}"
        if (self.link.state, self.link.reason) != (LinkState.NO_SERVICE, reason):
            log.warning("TAK: %s", reason)
        self.link.state, self.link.reason = LinkState.NO_SERVICE, reason

    async def _work_until_failure(self) -> None:
        """Send to phones and receive from phones until the network fails. Raises OSError."""
        with _open_sender(self._address) as speaking, _open_listener(self._address) as hearing:
            direct = await _open_tcp_listener(self._address)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._receive_events, hearing, speaking)
                nursery.start_soon(self._serve, direct, speaking)
                self.link.state, self.link.reason = LinkState.READY, ""
                log.info("TAK: phones see received items at %s", self._address)
                await self._send_regularly(speaking)

    async def _send_regularly(self, send_socket: trio.socket.SocketType) -> NoReturn:
        while True:
            now = self._journal.clock.date(self._journal.clock.now())
            self._unsaid += self._list_arrived(now)
            own, others = await list_newest_positions(self._journal, LOOKED_AT)
            users = outward.list_users(self._own_unit, own, others)
            again = self._list_rings(users, now) + self._list_positions(users, now)
            while self._unsaid:
                await self._send_events(send_socket, self._unsaid[0])
                del self._unsaid[0]
            for event in again:
                await self._send_events(send_socket, event)
            await trio.sleep(POLL_INTERVAL_S)
            if changes.get_newest(self._journal) == self._place:
                with trio.move_on_after(IDLE_POLL_EXTRA_S):
                    await self._journal.wait_for_commit()

    async def _send_events(self, send_socket: trio.socket.SocketType, event: CotEvent) -> None:
        event_bytes = encode(event)
        if len(event_bytes) > DATAGRAM_MAX:
            log.warning(
                "TAK: %s is not shown: its %d bytes fit no datagram", event.uid, len(event_bytes)
            )
            return
        await send_socket.sendto(event_bytes, (GROUP, GROUP_PORT))

    def _list_arrived(self, now: float) -> list[CotEvent]:
        if not changes.is_known(self._journal, self._place):
            self._place = changes.get_newest(self._journal)
        news, self._place = changes.list_since(self._journal, self._place, ("inbound",))
        events = []
        for change in news:
            # A payload also changes when a hook accepts it or a person reads it.
            if change.subject <= self._last:
                continue
            self._last = change.subject
            body = changes.read_payload(self._journal, change.subject)
            if body is not None and (event := outward.make_event(body, now)) is not None:
                events.append(event)
        return events

    def _list_positions(self, users: list[outward.LanUser], now: float) -> list[CotEvent]:
        events: list[CotEvent] = []
        for user in users:
            previous = self._sent_positions.get(user.unit.uid)
            moved = previous is not None and previous.user != user
            if (
                previous is None
                or moved
                or now >= previous.at + POSITION_REPEAT_S
                or now < previous.at
            ):
                events += outward.make_position_events(user, self._address, previous, now)
                old = tak_map.is_old(user, now)
                self._sent_positions[user.unit.uid] = SentPosition(user, now, old)
        return events

    def _list_rings(self, users: list[outward.LanUser], now: float) -> list[CotEvent]:
        ringing = {
            each.unit.uid: each for each in outward.list_alerts(self._own_unit, self._incidents())
        }
        for uid, alert in self._alerts.items():
            if uid not in ringing:
                self._ended_alerts[uid] = (alert, 0)
        self._alerts = ringing
        events = [outward.make_alert(each, users, now, is_over=False) for each in ringing.values()]
        for uid, (alert, times) in [*self._ended_alerts.items()]:
            if uid in ringing or times == CANCELS:
                del self._ended_alerts[uid]
            else:
                events.append(outward.make_alert(alert, users, now, is_over=True))
                self._ended_alerts[uid] = (alert, times + 1)
        return events

    async def _receive_events(
        self, receive_socket: trio.socket.SocketType, send_socket: trio.socket.SocketType
    ) -> NoReturn:
        while True:
            data, _ = await receive_socket.recvfrom(EVENT_BYTES_MAX)
            await self._receive_bytes(data, send_socket)

    async def _serve(
        self, listener: trio.SocketListener, send_socket: trio.socket.SocketType
    ) -> None:
        unproved = UnauthenticatedLimit(CONNECTIONS, EVENT_WITHIN_S)

        async def serve_phone(stream: trio.SocketStream) -> None:
            raw = b""
            async with stream:
                with suppress(Problem, OSError):
                    address = str(stream.socket.getpeername()[0])
                    async with unproved.admit(address) as visit:
                        raw = await _receive_all(stream)
                if raw:
                    # Charge the source for this work too, but do not let another phone end its
                    # connection.
                    visit.begin()
                    try:
                        for each in EventSplitter().receive_data(raw) or [raw]:
                            await self._receive_bytes(each, send_socket)
                    finally:
                        visit.end()

        with unproved.pace.measure_work():
            await trio.serve_listeners(serve_phone, [listener])

    async def _receive_bytes(self, raw: bytes, send_socket: trio.socket.SocketType) -> None:
        outcome = await self._admission.receive_event(raw)
        now = self._journal.clock.now()
        if outcome.to is None or not outcome.why:
            return
        is_question = outcome.result == "asked"
        if not is_question:
            log.warning("TAK: of %s: %s", outcome.to.callsign, outcome.why)
        if is_question or self._admission.admit_reply(outcome.to.uid, now):
            reply = GeoChat(self._own_unit, outcome.to, str(uuid.uuid4()), f"[kit] {outcome.why}")
            await self._send_events(
                send_socket, tak.make_chat(reply, tak_map.make_date(self._journal.clock.date(now)))
            )

    def get_status(self) -> dict[str, Any]:
        """Return the state of the network and the numbers of messages from phones."""
        return {
            "state": self.link.state.value,
            "reason": self.link.reason,
            "came": dict(self._admission.counts),
            "creditsToday": self._admission.budget.compute_spent(),
        }


def _open_sender(address: str) -> trio.socket.SocketType:
    sender = trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, TTL)
    except BaseException:
        sender.close()
        raise
    return sender


def _open_listener(address: str) -> trio.socket.SocketType:
    """Return a socket that receives only this group on this network, even if other programs on this
    machine use the group.
    """
    plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        plain.bind((GROUP, GROUP_PORT))
        membership = socket.inet_aton(GROUP) + socket.inet_aton(address)
        plain.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        # Without this option, the socket would also receive groups that other programs have joined.
        plain.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
        return trio.socket.from_stdlib_socket(plain)
    except BaseException:
        plain.close()
        raise


IP_MULTICAST_ALL = 49
"""Socket option from linux/in.h, for which Python has no name."""


async def _open_tcp_listener(address: str) -> trio.SocketListener:
    (listener,) = await trio.open_tcp_listeners(outward.PORT, host=address)
    return listener


async def _receive_all(stream: trio.SocketStream) -> bytes:
    """Return the bytes that a phone sends until it closes the connection. Return empty bytes if
    there are more than EVENT_BYTES_MAX, or if the connection breaks off.
    """
    raw = b""
    try:
        async for data in stream:
            raw += data
            if len(raw) > EVENT_BYTES_MAX:
                return b""
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return b""
    return raw
