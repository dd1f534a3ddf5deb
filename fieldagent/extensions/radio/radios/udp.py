"""A simulated radio over UDP: kits on one machine or in one network receive each other without real
radios. It is meant for trials with a team (`fieldagent demo --team 3`), and is the example in
docs/how-to/add-a-radio.md.

A packet is a datagram to an address that all kits hear: the broadcast address of the loopback
interface, or a multicast group (RFC 1112). `udp-bitrate` sets its time on air.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, ip_address
from urllib.parse import urlsplit

import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import RadioLost, ReceivedPacket, TransmitResult
from fieldagent.extensions.radio.contract import Radio, RadioPlace
from fieldagent.system import waits
from fieldagent.system.finding import Finding
from fieldagent.system.properties import Key, WrongProperty, make_integer_reader
from fieldagent.system.wording import describe_reason

LOOPBACK = IPv4Address("127.255.255.255")
"""Address that reaches every socket on the port of this machine, but no other machine."""
DATAGRAM_MAX_BYTES = 2048
"""Size of the receive buffer in bytes. It is larger than any packet."""


class UdpModem:
    """Radio over UDP that implements `channels.radio_modem.RadioModem`."""

    def __init__(
        self,
        send_socket: trio.socket.SocketType,
        receive_socket: trio.socket.SocketType,
        place: RadioPlace,
    ) -> None:
        self._mouth, self._ear = send_socket, receive_socket
        self._group = read_group(place.port)
        self._seconds_a_byte = 8 / place.own_settings["udp-bitrate"]
        self._loss = place.own_settings["udp-loss"] / 100

    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        try:
            await self._mouth.sendto(packet, self._group)
        except OSError as error:
            reason = describe_reason(error)
            raise RadioLost(f"the network does not accept packets: {reason}") from None
        await waits.sleep(len(packet) * self._seconds_a_byte)
        # It is unknown which kits received the datagram. The kits confirm the reception themselves.
        return TransmitResult.TRANSMITTED

    async def receive(self) -> ReceivedPacket:
        while True:
            try:
                packet, sender = await self._ear.recvfrom(DATAGRAM_MAX_BYTES)
            except OSError as error:
                raise RadioLost(
                    f"the network delivers no packets: {describe_reason(error)}"
                ) from None
            is_own = sender == self._mouth.getsockname()
            if not is_own and random.random() >= self._loss:
                return ReceivedPacket(packet)


@asynccontextmanager
async def open_udp(place: RadioPlace, link: ChannelLink) -> AsyncIterator[UdpModem]:
    """Receive at the address of `place.port`, and send to it. Raises RadioLost."""
    group, number = read_group(place.port)
    interface = place.own_settings["udp-interface"]
    link.facts["group"] = f"{group}:{number}"
    with _open_socket() as receive_socket, _open_socket() as send_socket:
        try:
            receive_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            await receive_socket.bind((group, number))
            if ip_address(group).is_multicast:
                own = socket.inet_aton(interface)
                joined = struct.pack("4s4s", socket.inet_aton(group), own)
                receive_socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
                send_socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
            else:
                send_socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            await send_socket.bind((interface, 0))
        except OSError as error:
            raise RadioLost(f"{place.port} cannot be used: {describe_reason(error)}") from None
        yield UdpModem(send_socket, receive_socket, place)


def _open_socket() -> trio.socket.SocketType:
    return trio.socket.socket(type=socket.SOCK_DGRAM)


def read_group(port: str) -> tuple[str, int]:
    """Return the address and the port in `udp://ADDRESS:PORT`. Raises RadioLost."""
    try:
        parts = urlsplit(port)
        address, number = IPv4Address(parts.hostname or ""), parts.port
    except ValueError:
        address, number = IPv4Address(0), None
    if parts.scheme != "udp" or not (address == LOOPBACK or address.is_multicast) or not number:
        raise RadioLost(
            f"radio-port must be udp://{LOOPBACK}:PORT, for kits on this machine, or a multicast"
            f" group such as udp://239.192.0.1:9753, not {port!r}"
        )
    return str(address), number


def check_udp(place: RadioPlace) -> Finding:
    """Check whether `radio-port` is an address at which all kits can receive. Return the result as
    a Finding.
    """
    try:
        address, number = read_group(place.port)
    except RadioLost as wrong:
        return Finding(False, str(wrong))
    return Finding(True, f"kits at {address}, port {number}, hear each other")


def _read_interface(value: str) -> str:
    try:
        return str(IPv4Address(value))
    except ValueError:
        raise WrongProperty(f"must be an IPv4 address of this machine, not {value!r}") from None


RADIO = Radio(
    "udp",
    "no radio: kits on one machine (udp://127.255.255.255:PORT) or in one network (a multicast"
    " group), for trying a team",
    open_udp,
    check_udp,
    keys=(
        Key(
            "udp-interface",
            _read_interface,
            "127.0.0.1",
            "IPv4 address of this machine in the network that the kits share (127.0.0.1)",
        ),
        Key(
            "udp-bitrate",
            make_integer_reader(50, 1_000_000, "bits a second"),
            9600,
            "bit rate in bits per second, for computing a packet's time on air (9600)",
        ),
        Key(
            "udp-loss",
            make_integer_reader(0, 99, "per cent"),
            0,
            "percentage of packets that are not received (0)",
        ),
    ),
    facts={"group": "address and port at which the kits hear each other"},
)
