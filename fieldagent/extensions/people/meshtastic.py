"""A Meshtastic radio as the kit's radio for handhelds. It supports texts, alerts, positions,
waypoints and names.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.agent.radios.meshtastic_host import MeshtasticHost, open_host
from fieldagent.extensions.people.contract import (
    PRECISE,
    HandheldBattery,
    HandheldMarker,
    HandheldName,
    HandheldPlace,
    HandheldPosition,
    HandheldReport,
    HandheldSignal,
    HandheldText,
    PeoplesRadio,
    TextOutcome,
    make_located,
)
from fieldagent.package.package import Location, convert_to_date
from fieldagent.system import waits
from fieldagent.wire import meshtastic as wire
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.meshtastic import MeshData, MeshPacket, NodeInfo, Port, RoutingError, User

TEXT_BYTES = 200
TEXT_INTERVAL_S = 2.1
"""Seconds between two texts or reactions. The radio refuses shorter intervals."""
NEVER_EXPIRES, DELETED_EXPIRY = {0, 2**31 - 1}, 1
"""Special values of a waypoint's expiry time."""
CHARGING = 101


class MeshtasticPeople:
    """Implements `contract.PeopleRadio`."""

    text_bytes = TEXT_BYTES
    has_signs = True

    def __init__(self, host: MeshtasticHost, clock: Callable[[], float]) -> None:
        self._host = host
        self._clock = clock
        self._next_text = -inf
        self._turn = trio.Lock()

    async def receive(self) -> HandheldReport:
        while True:
            received = await self._host.receive()
            message = None
            if received.packet is not None and received.packet.source != self._host.facts.number:
                message = self._read(received.packet)
            elif received.node is not None and received.node.number != self._host.facts.number:
                message = _make_known_before(received.node)
            if message is not None:
                return message

    def make_number(self) -> int:
        return self._host.make_number()

    async def send_text(self, handle: str, text: str, number: int, answers: int = 0) -> TextOutcome:
        return await self._send(
            handle, MeshData(Port.TEXT, text.encode(), reply_id=answers), number
        )

    async def refuse(self, report: HandheldReport, reason: str) -> None:
        if reason:
            await self.send_text(report.handle, reason, self.make_number(), report.number)

    async def react(self, handle: str, number: int, sign: str, words: str) -> TextOutcome:
        return await self._send(handle, wire.make_reaction(number, sign), self.make_number())

    async def _send(self, handle: str, data: MeshData, number: int) -> TextOutcome:
        if not is_handle(handle):
            return TextOutcome(False, "it is not a Meshtastic radio, as this kit's radio needs")
        hops = self._host.facts.lora.hop_limit or 3
        packet = MeshPacket(
            to=int(handle[1:], 16), decoded=data, id=number, hop_limit=hops, want_ack=True
        )
        async with self._turn:
            await waits.sleep(self._next_text - trio.current_time())
            self._next_text = trio.current_time() + TEXT_INTERVAL_S
        fate = await self._host.send_packet(packet)
        is_received = fate.is_received and fate.verdict.by == packet.to
        too_early = fate.queued == RoutingError.RATE_LIMIT_EXCEEDED
        return TextOutcome(is_received, "" if is_received else fate.describe_fate(), too_early)

    def _read(self, packet: MeshPacket) -> HandheldReport:
        hops = packet.hop_start - packet.hop_limit if packet.hop_start else None
        signal = HandheldSignal(
            packet.rx_rssi or None, packet.rx_snr if packet.rx_rssi else None, hops
        )
        by_internet = packet.via_mqtt or packet.transport == wire.MQTT_TRANSPORT
        content = None
        if packet.decoded is not None:
            try:
                content = self._read_content(packet, packet.decoded)
            except RemoteProtocolError:
                # A packet that cannot be decoded still shows that its sender is in range, so report
                # it without content.
                content = None
        return HandheldReport(
            wire.format_node_id(packet.source), packet.id, content, signal, by_internet
        )

    def _read_content(self, packet: MeshPacket, data: MeshData) -> Any:
        """Return the content of a packet, or None if the packet is not for the kit or contains
        nothing that the kit uses. Raises RemoteProtocolError for malformed data.
        """
        if data.port in (Port.TEXT, Port.ALERT):
            return self._read_text(packet, data)
        if data.port == Port.NODE_INFO:
            return _read_name(wire.USER.decode(data.payload))
        if data.port == Port.POSITION:
            return _read_located(wire.POSITION.decode(data.payload))
        if data.port == Port.WAYPOINT:
            return _read_marked(wire.WAYPOINT.decode(data.payload), self._clock())
        if data.port == Port.TELEMETRY:
            return _read_powered(wire.TELEMETRY.decode(data.payload).device)
        return None

    def _read_text(self, packet: MeshPacket, data: MeshData) -> HandheldText:
        channel = self._host.facts.channels.get(packet.channel)
        settings = None if channel is None else channel.settings
        return HandheldText(
            data.payload.decode("utf-8", "replace"),
            packet.to == self._host.facts.number,
            "" if settings is None else settings.name,
            data.port == Port.ALERT,
            packet.public_key if packet.pki_encrypted else b"",
            data.reply_id or None,
            bool(data.emoji),
        )


def _make_known_before(node: NodeInfo) -> HandheldReport | None:
    """Return a report with what the radio knew about a node before the kit connected."""
    if node.user is None:
        return None
    return HandheldReport(
        wire.format_node_id(node.number), 0, _read_name(node.user), over_internet=node.via_mqtt
    )


def _read_name(user: User) -> HandheldName:
    return HandheldName(" ".join(user.long_name.split())[:40], user.public_key)


def _read_located(position: wire.MeshPosition) -> HandheldPosition | None:
    if position.latitude is None or position.longitude is None:
        return None
    latitude, longitude = position.latitude / 1e7, position.longitude / 1e7
    if abs(latitude) > 90 or abs(longitude) > 180:
        return None
    moment = convert_to_date(position.time) if position.time else None
    altitude = None if position.altitude is None else float(position.altitude)
    return make_located(
        Location(latitude, longitude, moment, altitude), position.precision_bits or PRECISE
    )


def _read_marked(waypoint: wire.MeshWaypoint, now: float) -> HandheldMarker | None:
    if waypoint.latitude is None or waypoint.longitude is None or waypoint.expire == DELETED_EXPIRY:
        return None
    lasts = None if waypoint.expire in NEVER_EXPIRES else int(waypoint.expire - now)
    latitude, longitude = waypoint.latitude / 1e7, waypoint.longitude / 1e7
    if abs(latitude) > 90 or abs(longitude) > 180 or (lasts is not None and lasts <= 0):
        return None
    name = waypoint.name.strip() or "Waypoint"
    return HandheldMarker(waypoint.id, latitude, longitude, name, waypoint.description, lasts)


def _read_powered(metrics: wire.DeviceMetrics | None) -> HandheldBattery | None:
    if metrics is None or not metrics.battery:
        return None
    return HandheldBattery(min(metrics.battery, CHARGING - 1))


def is_handle(handle: str) -> bool:
    """Return True if the handle belongs to a Meshtastic node: `!a1b2c3d4`."""
    return re.fullmatch(r"![0-9a-f]{8}", handle) is not None


@asynccontextmanager
async def open_meshtastic(
    place: HandheldPlace, link: ChannelLink, clock: Callable[[], float]
) -> AsyncIterator[MeshtasticPeople]:
    """Open the Meshtastic radio for handhelds. `clock` returns Unix time. Raises RadioLost and
    PortLost, in exception groups.
    """
    async with open_host(place.port, wire.BAUD) as host:
        link.facts["node"] = wire.format_node_id(host.facts.number)
        link.facts["firmware"] = host.facts.firmware
        link.reason = host.facts.describe_trouble()
        yield MeshtasticPeople(host, clock)


def _make_recognition() -> Recognition:
    from fieldagent.agent.radios.meshtastic_recognition import RECOGNITION

    return RECOGNITION


RADIO = PeoplesRadio(
    "meshtastic",
    "radios with Meshtastic firmware, by serial line or tcp://host: docs/how-to/handhelds.md",
    open_meshtastic,
    is_handle,
    _make_recognition,
)
