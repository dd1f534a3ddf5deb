"""A Meshtastic radio between kits: refusals, the meaning of its frames, and two kits that
use it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import RadioLost, TransmitResult
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.agent.radios.meshtastic_host import HEARD_MAX, HostReception, MeshtasticHost
from fieldagent.extensions.lab.simulator.lora import LoraAir
from fieldagent.extensions.lab.simulator.meshtastic import GROUP, SimulatedMeshtastic, introduce_all
from fieldagent.extensions.lab.simulator.nodes import Nodes
from fieldagent.extensions.radio.contract import RadioPlace
from fieldagent.extensions.radio.radios import meshtastic
from fieldagent.system.error_groups import get_first_error
from fieldagent.wire.meshtastic import (
    BROADCAST,
    FROM_RADIO,
    ChannelSettings,
    Deframer,
    FromRadio,
    MeshData,
    MeshPacket,
    NodeInfo,
    Port,
    ToRadio,
    encode_from_radio,
    encode_to_radio,
)
from tests.extensions.lab.simulator.test_simulate_node import kit, nodes
from tests.processes import PATIENCE

OWN = {key.name: key.default for key in meshtastic.RADIO.keys}


@asynccontextmanager
async def radios(home: Path, count: int = 2) -> AsyncIterator[tuple[Nodes, list[RadioPlace]]]:
    """Yield radios, the first one on its serial line, the others on TCP."""
    air = LoraAir(Random(1))
    air.turnaround = 0.0
    links: list[Path | int] = [home / "mesh-1", *[0] * (count - 1)]
    simulated = Nodes(air, links, lambda line: None, SimulatedMeshtastic)
    async with trio.open_nursery() as nursery:
        await nursery.start(simulated.run)
        ports = [each.link for each in simulated.sockets]
        places = [
            RadioPlace(
                f"tcp://127.0.0.1:{port}" if isinstance(port, int) else str(port), own_settings=OWN
            )
            for port in ports
        ]
        yield simulated, places
        nursery.cancel_scope.cancel()


def radio_of(simulated: Nodes, number: int = 1) -> SimulatedMeshtastic:
    node = simulated.sockets[number - 1].node
    assert isinstance(node, SimulatedMeshtastic)
    return node


async def refusal(place: RadioPlace) -> str:
    with trio.fail_after(PATIENCE), pytest.raises(BaseExceptionGroup) as raised:
        async with meshtastic.open_meshtastic(place, ChannelLink()):
            raise AssertionError("the radio is accepted")
    lost = get_first_error(raised.value)
    assert isinstance(lost, RadioLost)
    return str(lost)


CHANNELS = {
    "none": ([], "the radio has no channel 'Kits' (none with a name)"),
    "other": ([ChannelSettings(GROUP.key, "Team")], "no channel 'Kits' (Team)"),
    "open": ([ChannelSettings(b"", "Kits")], "'Kits' has no key, or a public key"),
    "public": ([ChannelSettings(b"\1", "Kits")], "'Kits' has no key, or a public key"),
    "zero": ([ChannelSettings(bytes(32), "Kits")], "'Kits' has no key, or a public key"),
    "uplink": ([GROUP._replace(uplink=True)], "passes its channel 'Kits' on by MQTT"),
}


def test_simulated_radio_reports_free_queue_after_full_queue() -> None:
    """The official client waits for that frame, and the firmware sends it (`MeshService::loop`)."""
    radio = SimulatedMeshtastic(1, LoraAir(Random(1)), Random(1))
    radio.busy = True
    deframer = Deframer()

    def room() -> list[int]:
        messages = [FROM_RADIO.decode(each) for each in deframer.receive_data(radio.data_to_send())]
        return [each.queue_status.free for each in messages if each.queue_status is not None]

    for number in range(1, 17):
        packet = MeshPacket(0, BROADCAST, 0, MeshData(Port.PRIVATE, b"a"), id=number)
        radio.receive_data(encode_to_radio(ToRadio(packet=packet)), 0.0)
    assert room() == [*range(15, -1, -1)]
    radio.tick(1.0)
    assert room() == []
    radio.busy = False
    while not (free := room()):
        radio.tick(radio.deadline)
    assert free == [1]


@pytest.mark.parametrize("which", CHANNELS)
async def test_missing_or_public_meshtastic_channel_is_refused(tmp_path: Path, which: str) -> None:
    channels, why = CHANNELS[which]
    async with radios(tmp_path) as (simulated, (place, _)):
        radio_of(simulated).keyring.channels[1:] = channels
        assert why in await refusal(place)


async def test_primary_meshtastic_channel_is_refused(tmp_path: Path) -> None:
    async with radios(tmp_path) as (simulated, (place, _)):
        radio_of(simulated).keyring.channels[:] = [GROUP]
        assert "'Kits' is the radio's primary channel" in await refusal(place)


async def test_meshtastic_radio_without_region_is_refused(tmp_path: Path) -> None:
    async with radios(tmp_path) as (simulated, (place, _)):
        radio_of(simulated).set_region(0)
        assert (await refusal(place)).startswith("no region is set on the radio")
        radio_of(simulated).set_region(3)
        with pytest.raises(BaseExceptionGroup) as raised:
            async with meshtastic.open_meshtastic(place, ChannelLink()) as modem:
                radio_of(simulated).set_region(0)
                await modem.transmit(b"hello", urgent=False)
        lost = get_first_error(raised.value)
        assert "no region is set on the radio, or its transmitter is off" in str(lost)


async def test_meshtastic_radio_with_two_hundred_nodes_is_opened(tmp_path: Path) -> None:
    async with radios(tmp_path) as (simulated, (place, other)):
        introduce_all([radio_of(simulated)], 200)
        link = ChannelLink()
        with trio.fail_after(PATIENCE):
            async with (
                meshtastic.open_meshtastic(place, link) as one,
                meshtastic.open_meshtastic(other, ChannelLink()) as two,
            ):
                assert await one.transmit(b"hello", urgent=False) is TransmitResult.TRANSMITTED
                heard = await two.receive()
        assert (heard.body, heard.rssi, heard.snr) == (b"hello", -80, 6)
        assert link.facts["node"] == "!fa9e0001"
        assert link.facts["lora"] == "500 kHz, SF7, 4/5"


async def test_restarted_meshtastic_radio_is_opened_again(tmp_path: Path) -> None:
    async with radios(tmp_path) as (simulated, (place, other)):
        with trio.fail_after(PATIENCE):
            async with (
                meshtastic.open_meshtastic(place, ChannelLink()) as one,
                meshtastic.open_meshtastic(other, ChannelLink()) as two,
            ):
                simulated.reboot(simulated.sockets[0])
                await one.transmit(b"one", urgent=False)
                assert (await two.receive()).body == b"one"
                await two.transmit(b"two", urgent=False)
                assert (await one.receive()).body == b"two"


async def test_meshtastic_air_time_is_limited_except_for_sos(tmp_path: Path) -> None:
    async with radios(tmp_path) as (_, (place, _)):
        little = place._replace(own_settings={**OWN, "meshtastic-share": 0.002})
        async with meshtastic.open_meshtastic(little, ChannelLink()) as modem:
            assert await modem.transmit(bytes(100), urgent=False) is TransmitResult.TRANSMITTED
            assert await modem.transmit(bytes(100), urgent=False) is TransmitResult.SPENT
            assert await modem.transmit(bytes(100), urgent=True) is TransmitResult.TRANSMITTED


async def test_packets_of_people_and_other_networks_are_ignored(tmp_path: Path) -> None:
    async with (
        radios(tmp_path) as (simulated, (place, other)),
        meshtastic.open_meshtastic(place, ChannelLink()) as one,
        meshtastic.open_meshtastic(other, ChannelLink()) as two,
    ):
        for data, channel, by_internet in (
            (MeshData(Port.TEXT, b"hi"), 1, False),
            (MeshData(Port.PRIVATE, b"no kit"), 0, False),
            (MeshData(Port.PRIVATE, b"far away"), 1, True),
        ):
            packet = MeshPacket(5, 0xFFFFFFFF, channel, data, id=9, via_mqtt=by_internet)
            radio_of(simulated).host.send_packet(packet)
        simulated.sockets[0].poke()
        await two.transmit(b"a kit", urgent=False)
        with trio.fail_after(PATIENCE):
            assert (await one.receive()).body == b"a kit"


@pytest.mark.full
def test_two_kits_reach_each_other_over_meshtastic(tmp_path: Path) -> None:
    radio = {"radio-protocol": "meshtastic"}
    with (
        nodes(tmp_path, "--kind", "meshtastic", "--seed", "7"),
        kit(tmp_path, 1, {}, **radio) as ada,
        kit(tmp_path, 2, {}, **radio) as ben,
    ):
        assert ada.post("Camp reached").body["channels"] == {"Radio": {"status": "Delivered"}}
        assert "Camp reached" in ben.expect("hook: ")


def test_meshtastic_address_without_host_is_reported() -> None:
    for place in ("tcp://", "tcp://[::1"):
        assert meshtastic.check_meshtastic(RadioPlace(place)) == (False, meshtastic.NO_HOST)


class CutOff:
    """A line that breaks directly after the radio's last frame."""

    def __init__(self, *packets: MeshPacket) -> None:
        self._said = b"".join(encode_from_radio(FromRadio(packet=each)) for each in packets)

    async def read(self) -> bytes:
        said, self._said = self._said, b""
        if not said:
            raise PortLost("unplugged")
        return said

    async def write(self, data: bytes) -> None:
        raise PortLost("unplugged")


async def test_frames_before_loss_of_line_are_received() -> None:
    """The radio sends each frame once. The host must read them quickly and completely."""
    line = CutOff(*(MeshPacket(5, id=number) for number in (1, 2, 3)))
    host = MeshtasticHost(line, wants_nodes=False)
    taken = []

    async def take() -> None:
        while True:
            heard = await host.receive()
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            assert heard.packet is not None
            taken.append(heard.packet.id)

    with pytest.raises(BaseExceptionGroup):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            nursery.start_soon(host.listen)
    assert taken == [1, 2, 3]


async def test_texts_survive_flood_of_other_frames() -> None:
    """The radio reports all known nodes when the host opens it, and may repeat that."""
    nodes = [FromRadio(node_info=NodeInfo(number)) for number in range(1, 401)]
    texts = [
        FromRadio(packet=MeshPacket(5, id=number, decoded=MeshData(Port.TEXT, b"SOS")))
        for number in range(1, 301)
    ]
    others = [
        FromRadio(packet=MeshPacket(5, id=number, decoded=MeshData(Port.TELEMETRY, b"")))
        for number in range(1, 2 * HEARD_MAX)
    ]
    line = CutOff()
    line._said = b"".join(map(encode_from_radio, [*nodes, *others, *texts, *nodes, *nodes]))
    host = MeshtasticHost(line, wants_nodes=True)
    with pytest.raises(PortLost):
        await host.listen()
    heard = []
    with trio.move_on_after(0):
        while True:
            heard.append(await host.receive())
    said = [each.packet.id for each in heard if each.packet and _port(each) == Port.TEXT]
    assert said == [*range(1, 301)]
    assert len([each for each in heard if each.packet and _port(each) != Port.TEXT]) == HEARD_MAX
    assert len([each for each in heard if each.node]) == 400


def _port(heard: HostReception) -> int:
    assert heard.packet is not None and heard.packet.decoded is not None
    return heard.packet.decoded.port
