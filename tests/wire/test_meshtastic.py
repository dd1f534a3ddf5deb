"""Meshtastic's client API, compared with the protobufs that are made from its project's
definitions.
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshtastic.protobuf import channel_pb2, config_pb2, mesh_pb2, portnums_pb2, telemetry_pb2

from fieldagent.wire import meshtastic as wire
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.meshtastic import MeshData, MeshPacket, Port, Routing, ToRadio
from fieldagent.wire.protobuf import ProtobufSchema, Scalar

NAMES = {"source": "from", "port": "portnum", "transport": "transport_mechanism"}
"""Our names that differ there. More are below."""
THEIRS: dict[str, tuple[ProtobufSchema[Any], Any, dict[str, str]]] = {
    "MeshData": (wire.DATA, mesh_pb2.Data, {"source": "source"}),
    "MeshPacket": (wire.MESH_PACKET, mesh_pb2.MeshPacket, {}),
    "User": (wire.USER, mesh_pb2.User, {}),
    "MeshPosition": (
        wire.POSITION,
        mesh_pb2.Position,
        {"latitude": "latitude_i", "longitude": "longitude_i"},
    ),
    "MeshWaypoint": (
        wire.WAYPOINT,
        mesh_pb2.Waypoint,
        {"latitude": "latitude_i", "longitude": "longitude_i"},
    ),
    "Routing": (wire.ROUTING, mesh_pb2.Routing, {"error": "error_reason"}),
    "QueueStatus": (
        wire.QUEUE_STATUS,
        mesh_pb2.QueueStatus,
        {"result": "res", "maximum": "maxlen", "packet_id": "mesh_packet_id"},
    ),
    "Telemetry": (wire.TELEMETRY, telemetry_pb2.Telemetry, {"device": "device_metrics"}),
    "DeviceMetrics": (
        wire.DEVICE_METRICS,
        telemetry_pb2.DeviceMetrics,
        {"battery": "battery_level"},
    ),
    "MyInfo": (wire.MY_INFO, mesh_pb2.MyNodeInfo, {"number": "my_node_num"}),
    "NodeInfo": (
        wire.NODE_INFO,
        mesh_pb2.NodeInfo,
        {"number": "num", "metrics": "device_metrics"},
    ),
    "ChannelSettings": (
        wire.CHANNEL_SETTINGS,
        channel_pb2.ChannelSettings,
        {"key": "psk", "uplink": "uplink_enabled"},
    ),
    "MeshChannel": (wire.MESH_CHANNEL, channel_pb2.Channel, {"place": "index"}),
    "LoraConfig": (
        wire.LORA_CONFIG,
        config_pb2.Config.LoRaConfig,
        {
            "spreading": "spread_factor",
            "coding": "coding_rate",
            "transmits": "tx_enabled",
            "power": "tx_power",
            "overrides_duty_cycle": "override_duty_cycle",
        },
    ),
    "Config": (wire.CONFIG, config_pb2.Config, {}),
    "Metadata": (wire.METADATA, mesh_pb2.DeviceMetadata, {"firmware": "firmware_version"}),
    "Notification": (wire.NOTIFICATION, mesh_pb2.ClientNotification, {}),
    "Heartbeat": (wire.HEARTBEAT, mesh_pb2.Heartbeat, {}),
    "ToRadio": (wire.TO_RADIO, mesh_pb2.ToRadio, {"want_config": "want_config_id"}),
    "FromRadio": (
        wire.FROM_RADIO,
        mesh_pb2.FromRadio,
        {
            "number": "id",
            "config_complete": "config_complete_id",
            "queue_status": "queueStatus",
            "notification": "clientNotification",
        },
    ),
}
"""Our schema, their message, and its names that differ from ours."""


def theirs_of(name: str, message: Any) -> Any:
    """Return the official protobuf with the same content as our message."""
    schema, kind, names = THEIRS[name]
    made = kind()
    for ours, (_, how) in schema._members.items():
        value = getattr(message, ours)
        if value == type(message)._field_defaults[ours]:
            continue
        theirs = names.get(ours, NAMES.get(ours, ours))
        if isinstance(how, ProtobufSchema):
            getattr(made, theirs).CopyFrom(theirs_of(type(value).__name__, value))
        else:
            setattr(made, theirs, value)
    return made


ENUMS = {
    "port": [*Port],
    "error": [*wire.RoutingError],
    "role": [*wire.Role],
    "modem_preset": [*wire.PRESETS],
    "region": range(30),
    "priority": [0, 10, 64, 70, 110],
    "transport": [0, 1, 5, 7],
    "level": [10, 20, 30, 40],
    "hw_model": [0, 43, 44],
}
SCALARS: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.UNSIGNED: st.integers(0, 2**32 - 1),
    Scalar.SIGNED: st.integers(-(2**31), 2**31 - 1),
    Scalar.BOOL: st.booleans(),
    Scalar.FIXED: st.integers(0, 2**32 - 1),
    Scalar.SIGNED_FIXED: st.integers(-(2**31), 2**31 - 1),
    Scalar.FLOAT: st.floats(allow_nan=False, allow_infinity=False, width=32),
    Scalar.BYTES: st.binary(max_size=40),
    Scalar.TEXT: st.text(max_size=20),
}


def messages(name: str) -> st.SearchStrategy[Any]:
    schema, _, _ = THEIRS[name]
    made: dict[str, st.SearchStrategy[Any]] = {}
    defaults = schema._message._field_defaults
    for member, (_, kind) in schema._members.items():
        if isinstance(kind, ProtobufSchema):
            value = st.none() | messages(kind._message.__name__)
        else:
            value = st.sampled_from(ENUMS[member]) if member in ENUMS else SCALARS[kind]
        made[member] = st.just(defaults[member]) | value
    return st.fixed_dictionaries(made).map(lambda members: schema._message(**members))


ONE_OF = {"MeshPacket": {"decoded", "encrypted"}, "ToRadio": set(), "FromRadio": {"number"}}


def has_one(name: str, message: Any) -> bool:
    """Return True if at most one member of the oneof is set. The official encoder keeps only the
    last one.
    """
    if name == "MeshPacket":
        return message.decoded is None or message.encrypted is None
    defaults = type(message)._field_defaults
    chosen = [
        member
        for member in message._fields
        if member not in ONE_OF.get(name, set()) and getattr(message, member) != defaults[member]
    ]
    return name not in ONE_OF or len(chosen) <= 1


def is_sound(message: Any) -> bool:
    name = type(message).__name__
    within = [each for each in message if hasattr(each, "_fields")]
    return has_one(name, message) and all(map(is_sound, within))


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in THEIRS if name not in ("ToRadio", "FromRadio")])
@given(data=st.data())
def test_encoded_message_equals_that_of_the_official_protobufs(
    name: str, data: st.DataObject
) -> None:
    schema, kind, _ = THEIRS[name]
    message = data.draw(messages(name).filter(is_sound))
    encoded = schema.encode(message)
    assert encoded == theirs_of(name, message).SerializeToString(deterministic=True)
    assert schema.decode(kind.FromString(encoded).SerializeToString()) == message


@pytest.mark.full
@pytest.mark.parametrize("name", ["ToRadio", "FromRadio"])
@given(data=st.data())
def test_radio_and_host_messages_contain_one_variant(name: str, data: st.DataObject) -> None:
    schema, _, _ = THEIRS[name]
    whole = data.draw(messages(name))
    chosen = data.draw(st.sampled_from([each for each in whole._fields if each != "number"]))
    message = type(whole)(**{chosen: getattr(whole, chosen)})
    if is_sound(message):
        encoded = schema.encode(message)
        assert encoded == theirs_of(name, message).SerializeToString(deterministic=True)
        assert schema.decode(encoded) == message


def test_ports_errors_and_regions_match_the_official_definitions() -> None:
    theirs = {number: name for name, number in portnums_pb2.PortNum.items()}
    said = {
        Port.TEXT: "TEXT_MESSAGE_APP",
        Port.NODE_INFO: "NODEINFO_APP",
        Port.STORE_FORWARD: "STORE_FORWARD_APP",
        Port.PRIVATE: "PRIVATE_APP",
    }
    for port in Port:
        assert theirs[port] == said.get(port, f"{port.name}_APP")
    errors = dict(mesh_pb2.Routing.Error.items())
    assert {each.name: each.value for each in wire.RoutingError}.items() <= errors.items()
    lora = config_pb2.Config.LoRaConfig
    names = {number: name for name, number in lora.RegionCode.items()}
    limited = {"EU_433", "EU_868", "TH", "UA_433", "EU_866", "EU_N_868"}
    assert {names[number] for number in wire.DUTY_CYCLES} == limited
    assert {*wire.PRESETS} < {*lora.ModemPreset.values()}


def test_reaction_has_the_recorded_bytes() -> None:
    encoded = wire.DATA.encode(wire.make_reaction(0x12345678, "✅"))
    assert encoded.hex() == "08011203e29c853d785634124501000000"


def test_routing_error_none_is_encoded_explicitly() -> None:
    """Without the member, the message would not be an answer."""
    assert wire.ROUTING.encode(Routing(0)).hex() == "1800"
    assert wire.ROUTING.decode(b"") == Routing(None)


def test_unknown_members_are_skipped() -> None:
    later = mesh_pb2.NodeInfo(num=5, is_favorite=True, channel=3)
    later.user.long_name = "Ada"
    later.user.role = 2
    read = wire.NODE_INFO.decode(later.SerializeToString())
    assert (read.number, read.user) == (5, wire.User(long_name="Ada"))
    # A group of proto2, and members of eight bytes.
    assert wire.MY_INFO.decode(bytes.fromhex("7901020304050607080807")).number == 7


@pytest.mark.parametrize("snr", [nan, inf, -inf])
def test_non_finite_snr_is_read_as_not_measured(snr: float) -> None:
    data = mesh_pb2.MeshPacket(id=7, rx_rssi=-90, rx_snr=snr).SerializeToString()
    assert wire.MESH_PACKET.decode(data) == MeshPacket(id=7, rx_rssi=-90)


def test_member_with_another_wire_type_is_skipped() -> None:
    """Every protobuf decoder skips such a member."""
    assert wire.MY_INFO.decode(bytes.fromhex("0a020102")).number == 0


@pytest.mark.parametrize(
    ("encoded", "why"),
    [
        ("0a05", "member 1 is cut off"),
        ("08", "a number is cut off"),
        ("0880808080808080808080ff", "more than ten bytes"),
        ("0b", "has the wire type 3"),
        ("0000", "has the number 0"),
        ("0d0102", "member 1 is cut off"),
        ("0affffffff0f", "member 1 is cut off"),
    ],
)
def test_malformed_protobuf_raises_with_the_reason(encoded: str, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        wire.USER.decode(bytes.fromhex(encoded))


def test_out_of_range_value_and_overlong_frame_raise() -> None:
    with pytest.raises(LocalProtocolError, match="no fixed32"):
        wire.MESH_PACKET.encode(MeshPacket(id=2**32))
    with pytest.raises(LocalProtocolError, match="a frame holds 512 bytes, not 513"):
        wire.make_frame(bytes(513))


class TestFrames:
    HELLO = wire.encode_to_radio(ToRadio(want_config=5))

    def test_bytes_between_frames_are_skipped(self) -> None:
        deframer = wire.Deframer()
        stream = (
            wire.WAKE_BYTES + b"INFO | booting\r\n\x94" + self.HELLO + b"\x94\x00junk" + self.HELLO
        )
        frames = [m for byte in stream for m in deframer.receive_data(bytes([byte]))]
        assert frames == [b"\x18\x05"] * 2

    def test_payload_may_contain_the_frame_header(self) -> None:
        inner = wire.make_frame(wire.MAGIC + b"\x00\x01a")
        assert [*wire.Deframer().receive_data(inner + self.HELLO)] == [inner[4:], b"\x18\x05"]

    def test_impossible_length_loses_only_its_own_frame(self) -> None:
        deframer = wire.Deframer()
        assert [*deframer.receive_data(b"\x94\xc3\xff\xff" + self.HELLO)] == [b"\x18\x05"]
        assert deframer.damaged == 1

    def test_incomplete_frame_can_be_discarded(self) -> None:
        deframer = wire.Deframer()
        assert not [*deframer.receive_data(self.HELLO[:5])]
        assert deframer.is_within
        deframer.discard_incomplete()
        assert [*deframer.receive_data(self.HELLO)] == [b"\x18\x05"]
        assert (deframer.damaged, deframer.is_within) == (1, False)

    @given(st.lists(st.binary(max_size=512), max_size=5), st.integers(1, 50))
    def test_frames_survive_any_segmentation(self, messages: list[bytes], size: int) -> None:
        stream = b"".join(map(wire.make_frame, messages))
        deframer = wire.Deframer()
        frames: list[bytes] = []
        for start in range(0, len(stream), size):
            frames += deframer.receive_data(stream[start : start + size])
        assert frames == messages


@pytest.mark.parametrize(
    ("key", "private"),
    [
        (b"", False),
        (b"\0", False),
        (b"\1", False),
        (b"\7", False),
        (wire.DEFAULT_KEY, False),
        (bytes(32), False),
        (bytes(range(15)), False),
        (bytes(range(16)), True),
        (bytes(range(32)), True),
    ],
)
def test_well_known_channel_key_is_not_private(key: bytes, private: bool) -> None:
    assert wire.is_private(wire.ChannelSettings(key)) is private


def test_only_a_routing_packet_is_an_answer() -> None:
    routing = MeshData(Port.ROUTING, b"\x18\x05", request_id=7)
    assert wire.decode_answer(MeshPacket(decoded=routing)) == (7, 5)
    assert wire.decode_answer(MeshPacket(decoded=routing._replace(port=Port.TEXT))) is None
    assert wire.decode_answer(MeshPacket(decoded=routing._replace(payload=b"\x0f"))) is None
    assert wire.decode_answer(MeshPacket(encrypted=b"x")) is None
