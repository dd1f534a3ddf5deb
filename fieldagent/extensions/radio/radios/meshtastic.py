"""A Meshtastic radio for the Radio channel. Our packets use a port and a channel of their own.

    port 256 (private), broadcast, hop limit 0: kits repeat items themselves, and a mesh that also
        repeated them would fill the air with copies
    a secondary channel with a key that the team has chosen; anything else is refused
    the radio only reports that a packet waits for the air; TRANSMITTED is derived from that and
        from the configured region, and other kits show if they heard it

Texts, positions and names of people are ignored here, because `mesh-port` handles them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import trio

from fieldagent.agent.channels.air_time import AirLimit
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import (
    UNSENT_REASONS,
    RadioLost,
    ReceivedPacket,
    ReceiveQueue,
    TransmitResult,
)
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.agent.channels.serial_check import check_serial_port
from fieldagent.agent.radios.meshtastic_host import MeshtasticHost, PacketOutcome, open_host
from fieldagent.agent.radios.radio_line import TCP
from fieldagent.extensions.radio.contract import Radio, RadioPlace
from fieldagent.extensions.radio.radios.lora import read_air_share
from fieldagent.system import waits
from fieldagent.system.finding import Finding
from fieldagent.system.properties import Key, WrongProperty
from fieldagent.wire import meshtastic as wire
from fieldagent.wire.lora import compute_air_time
from fieldagent.wire.meshtastic import MeshData, MeshPacket, Port, QueueError, Role, RoutingError

log = logging.getLogger(__name__)

NAME = "meshtastic"
HEADER_BYTES = 24
"""Bytes on the air in addition to our packet: the mesh's header and the port number."""
NO_HOST = "tcp:// needs the radio's name or address behind it"


class MeshtasticModem:
    """Meshtastic radio that implements `channels.radio_modem.RadioModem`."""

    def __init__(self, host: MeshtasticHost, place: RadioPlace, link: ChannelLink) -> None:
        self._host = host
        self._link = link
        self._ear = ReceiveQueue()
        self._sending = trio.Lock()
        self._channel = _find_channel(host, place.own_settings[f"{NAME}-channel"])
        self._lora = wire.PRESETS.get(host.facts.lora.modem_preset, wire.PRESETS[wire.LONG_FAST])
        law = wire.DUTY_CYCLES.get(host.facts.lora.region, 100.0)
        link.air_time.narrow(AirLimit(min(place.own_settings[f"{NAME}-share"], law)))
        self._air = link.air_time
        if fault := host.facts.describe_trouble():
            raise RadioLost(fault)
        link.facts["firmware"] = host.facts.firmware
        link.facts["node"] = wire.format_node_id(host.facts.number)
        link.facts["lora"] = self._lora.format_settings().partition(", ")[2]

    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        seconds = compute_air_time(self._lora, len(packet) + HEADER_BYTES)
        async with self._sending:
            if not self._air.can_send(seconds, urgent=urgent):
                return TransmitResult.SPENT
            self._air.record_use(seconds)
            said = MeshPacket(
                to=wire.BROADCAST,
                channel=self._channel,
                decoded=MeshData(Port.PRIVATE, packet),
                id=self._host.make_number(),
            )
            fate = await self._host.send_packet(said, urgent=urgent)
            result = _make_result(fate)
            if result in UNSENT_REASONS:
                self._air.record_use(-seconds)
            else:
                # The radio does not report the end of a transmission, so wait for the packet's
                # air-time before the next packet.
                await waits.sleep(seconds)
        return result

    async def receive(self) -> ReceivedPacket:
        return await self._ear.receive()

    async def listen(self) -> NoReturn:
        """Receive packets of our port and channel, forever. Packets that arrived over MQTT are
        ignored.
        """
        while True:
            packet = (await self._host.receive()).packet
            if packet is None or packet.decoded is None or packet.via_mqtt:
                continue
            if packet.decoded.port == Port.PRIVATE and packet.channel == self._channel:
                signal = packet.rx_rssi or None, round(packet.rx_snr) if packet.rx_rssi else None
                self._ear.add_packet(ReceivedPacket(packet.decoded.payload, *signal))


def _make_result(outcome: PacketOutcome) -> TransmitResult:
    """Return the result that follows from a packet's outcome. Raises RadioLost if the radio cannot
    transmit at all.
    """
    if outcome.queued in (QueueError.OFF, QueueError.NO_CHIP):
        raise RadioLost(outcome.describe_fate())
    if outcome.queued == RoutingError.DUTY_CYCLE_LIMIT:
        return TransmitResult.SPENT
    if outcome.queued is None:
        return TransmitResult.UNKNOWN
    return TransmitResult.DROPPED if outcome.queued else TransmitResult.TRANSMITTED


def _find_channel(host: MeshtasticHost, name: str) -> int:
    """Return the index of the channel `name`. Raises RadioLost if the channel does not exist, is
    the primary channel, has no key of its own, or is passed on by MQTT.
    """
    known_channels = {
        each.settings.name: each
        for each in host.facts.channels.values()
        if each.settings is not None and each.role != Role.OFF and each.settings.name
    }
    channel = known_channels.get(name)
    if channel is None or channel.settings is None:
        names = ", ".join(known_channels) or "none with a name"
        raise RadioLost(
            f"the radio has no channel {name!r} ({names}): add one with a key to each radio of"
            f" the team, or name another as {NAME}-channel"
        )
    if channel.role != Role.SECONDARY:
        raise RadioLost(
            f"{name!r} is the radio's primary channel, which people use: add a secondary"
            f" one for the kits, and name that as {NAME}-channel"
        )
    if not wire.is_private(channel.settings):
        raise RadioLost(
            f"the radio's channel {name!r} has no key, or a public key: set the same key of 32"
            " random bytes on each radio of the team"
        )
    if channel.settings.uplink:
        raise RadioLost(
            f"the radio passes its channel {name!r} on by MQTT: turn the channel's uplink off"
        )
    return channel.place


def check_meshtastic(place: RadioPlace) -> Finding:
    """Check whether the serial port exists, without opening it. For an address that begins with
    `tcp://`, check only whether it contains a host. Return the result as a Finding.
    """
    if place.port.startswith(TCP):
        try:
            is_network_address = bool(urlsplit(place.port).hostname)
        except ValueError:  # The address has only one bracket of a pair.
            is_network_address = False
        return Finding(
            is_network_address,
            f"{place.port} is reached once the agent runs" if is_network_address else NO_HOST,
        )
    return check_serial_port(Path(place.port))


@asynccontextmanager
async def open_meshtastic(place: RadioPlace, link: ChannelLink) -> AsyncIterator[MeshtasticModem]:
    """Open a Meshtastic radio and receive from it. Raises RadioLost and PortLost, in exception
    groups.
    """
    async with open_host(place.port, place.baud, wants_nodes=False) as host:
        modem = MeshtasticModem(host, place, link)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(modem.listen)
            yield modem
            nursery.cancel_scope.cancel()


def _read_name(value: str) -> str:
    if not 1 <= len(value.encode()) <= 11:
        raise WrongProperty(f"must be the name of a channel, 1 to 11 bytes, not {value!r}")
    return value


def _make_recognition() -> Recognition:
    from fieldagent.agent.radios.meshtastic_recognition import RECOGNITION

    return RECOGNITION


RADIO = Radio(
    NAME,
    "radios with Meshtastic firmware, by serial line or tcp://host: docs/how-to/radio.md",
    open_meshtastic,
    check_meshtastic,
    keys=(
        Key(
            f"{NAME}-channel",
            _read_name,
            "Kits",
            "the radio's secondary channel for kits, which has its own key (Kits)",
        ),
        Key(
            f"{NAME}-share",
            read_air_share,
            10.0,
            "maximum airtime of the kit in per cent of any hour, within the limit of "
            "the region; 1 if other radios share the preset (10)",
        ),
    ),
    is_counting_air_time=True,
    facts={
        "lora": "the radio's settings",
        "node": "the radio's own number in its mesh",
        "firmware": "firmware version of the radio",
    },
    recognition=_make_recognition,
)
