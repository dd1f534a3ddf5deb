"""LoRa boards that are turned off while a packet waits."""

from __future__ import annotations

from math import inf
from random import Random

from fieldagent.extensions.lab.simulator.base_camp import BaseCamp
from fieldagent.extensions.lab.simulator.companion import SimulatedCompanion
from fieldagent.extensions.lab.simulator.gateway import SimulatedGateway
from fieldagent.extensions.lab.simulator.imt_modem import SimulatedImtModem
from fieldagent.extensions.lab.simulator.lora import LoraAir
from fieldagent.extensions.lab.simulator.meshtastic import EU_868, SimulatedMeshtastic
from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.extensions.lab.simulator.rnode import SimulatedRnode
from fieldagent.wire import meshcore_companion as companion
from fieldagent.wire import meshtastic, rnode
from fieldagent.wire.meshcore_companion import CompanionCommand
from fieldagent.wire.rnode import RnodeCommand, RnodeError

SET = (
    (RnodeCommand.FREQUENCY, (869_525_000).to_bytes(4, "big")),
    (RnodeCommand.BANDWIDTH, (125_000).to_bytes(4, "big")),
    (RnodeCommand.SPREADING, b"\x09"),
    (RnodeCommand.CODING, b"\x05"),
    (RnodeCommand.STATE, rnode.STATE_ON),
)


def test_board_turned_off_drops_its_waiting_packet() -> None:
    """The agent turns a board off at its end, even with a waiting packet."""
    air = LoraAir(Random(1))
    board = SimulatedRnode(1, air, air.random)
    for command, content in SET:
        board.receive_data(rnode.make_command_frame(command, content), 0.0)
    for packet in (b"begun", b"waits"):
        board.receive_data(rnode.make_command_frame(RnodeCommand.DATA, packet), 0.0)
    board.tick(board.deadline)
    board.receive_data(rnode.make_command_frame(RnodeCommand.LEAVE, b"\xff"), 0.1)
    board.data_to_send()
    board.tick(board.deadline)
    failed = rnode.make_command_frame(RnodeCommand.ERROR, bytes([RnodeError.TRANSMIT_FAILED]))
    assert board.data_to_send() == failed * 2
    assert board.deadline == inf
    assert [each.packet[1:] for each in air.flights] == [b"begun"]


def test_radio_transmits_again_once_its_region_is_set() -> None:
    air = LoraAir(Random(1))
    radio = SimulatedMeshtastic(1, air, air.random)
    who = meshtastic.encode_to_radio(meshtastic.ToRadio(heartbeat=meshtastic.Heartbeat(1)))
    radio.set_region(0)
    radio.receive_data(who, 0.0)
    radio.tick(radio.deadline)
    assert air.flights == []
    radio.set_region(EU_868)
    radio.receive_data(who, 1.0)
    radio.tick(radio.deadline)
    assert len(air.flights) == 1


def test_overlong_name_is_truncated_as_by_the_firmware() -> None:
    air = LoraAir(Random(1))
    radio = SimulatedCompanion(1, air, air.random)
    long = "Grüße vom Gipfel " * 20
    for command, body in (
        (CompanionCommand.SET_NAME, long.encode()),
        (CompanionCommand.APP_START, bytes(7)),
    ):
        frame = companion.make_frame(bytes([command]) + body[:290], companion.TO_RADIO)
        radio.receive_data(frame, 0.0)
    assert radio.data_to_send().endswith("Grüße vom Gipfel Grüße vom ".encode())


def test_imt_request_without_a_member_is_answered_with_407() -> None:
    gateway = SimulatedGateway(lambda line: None, MtQueue(), BaseCamp(print, MtQueue()))
    modem = SimulatedImtModem(gateway)
    for body in ("{}", "[]", '{"active_version": 1}'):
        modem.receive_data(f"PUT apiVersion {body}\r".encode())
    assert modem.data_to_send().count(b"407 apiVersion") == 2
