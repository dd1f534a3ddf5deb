"""Meshtastic's client API, between a radio with Meshtastic firmware and its host, over a serial
line or TCP.

Each frame is 94 C3, a length of two bytes, and one protobuf. The host sends `ToRadio`, the radio
`FromRadio`. Between frames a radio may print log lines. Only the members that we use are read;
other members are skipped. Sources: meshtastic/protobufs (mesh, portnums, channel, config,
telemetry, mesh.options), and StreamAPI, PhoneAPI, Router of the firmware for the meaning of the
members.
"""

from __future__ import annotations

from enum import IntEnum

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.length_frames import LengthDeframer
from fieldagent.wire.lora import LoraSettings
from fieldagent.wire.protobuf import ProtobufSchema, Scalar

TCP_PORT = 4403
BAUD = 115_200
MAGIC = b"\x94\xc3"
FRAME_BYTES = 512
"""Maximum bytes of a protobuf in a frame. A longer content is not a frame."""
WAKE_BYTES = b"\xc3" * 32
"""Bytes to send when a serial line is opened. The bytes wake a sleeping chip, and end a frame of
which the chip has read only a part. A radio never mistakes C3 for the beginning of a frame."""
PAYLOAD_BYTES = 233
"""Maximum bytes of `MeshData.payload` that a radio accepts from its host."""
CHANNEL_BYTES, DIRECT_BYTES = 231, 219
"""Maximum bytes of a payload on the air: on a channel, and to one node by its public key."""
BROADCAST = 0xFFFF_FFFF
WITHOUT_NODES_NONCE = 69420
"""Nonce of a request for everything except the other nodes that the radio knows. 69421 requests
only the other nodes."""
ONLY_NODES_NONCE = 69421
DEFAULT_KEY = bytes.fromhex("d4f1bb3a20290759f0bcffabcf4e6901")
"""Default key of a channel, which is public."""
MQTT_TRANSPORT = 5
"""Value of `MeshPacket.transport` for a packet that arrived over the Internet."""


class Port(IntEnum):
    """Type of the payload of a `MeshData`."""

    TEXT = 1
    POSITION = 3
    NODE_INFO = 4
    ROUTING = 5
    WAYPOINT = 8
    ALERT = 11
    STORE_FORWARD = 65
    TELEMETRY = 67
    PRIVATE = 256


class RoutingError(IntEnum):
    NONE = 0
    NO_ROUTE = 1
    GOT_NAK = 2
    TIMEOUT = 3
    NO_INTERFACE = 4
    MAX_RETRANSMIT = 5
    NO_CHANNEL = 6
    TOO_LARGE = 7
    NO_RESPONSE = 8
    DUTY_CYCLE_LIMIT = 9
    BAD_REQUEST = 32
    NOT_AUTHORIZED = 33
    PKI_FAILED = 34
    PKI_UNKNOWN_PUBKEY = 35
    RATE_LIMIT_EXCEEDED = 38
    PKI_SEND_FAIL_PUBLIC_KEY = 39


class QueueError(IntEnum):
    """Values of `QueueStatus.result` that are not a RoutingError but the firmware's own
    ErrorCode.
    """

    OK = 0
    FULL = 32
    NO_CHIP = 33
    OFF = 34
    """The transmitter is off, or no region is set, so that nothing is transmitted."""
    LOCALLY = 35


PRESETS = {
    0: LoraSettings(0, 250_000, 11, 5),
    1: LoraSettings(0, 125_000, 12, 8),
    3: LoraSettings(0, 250_000, 10, 5),
    4: LoraSettings(0, 250_000, 9, 5),
    5: LoraSettings(0, 250_000, 8, 5),
    6: LoraSettings(0, 250_000, 7, 5),
    7: LoraSettings(0, 125_000, 11, 8),
    8: LoraSettings(0, 500_000, 7, 5),
    9: LoraSettings(0, 500_000, 11, 8),
    10: LoraSettings(0, 125_000, 9, 5),
    12: LoraSettings(0, 62_500, 7, 6),
}
"""Settings by `LoraConfig.modem_preset`, from LONG_FAST (0) to NARROW_FAST (12). The frequency
depends on the region."""
LONG_FAST, SHORT_TURBO = 0, 8
DUTY_CYCLES = {2: 10.0, 3: 10.0, 12: 10.0, 14: 10.0, 29: 2.5, 32: 10.0}
"""Duty cycle limit in per cent of an hour, by `LoraConfig.region`. Other regions have no such
limit."""
REGIONS = {
    0: "no region",
    1: "US",
    2: "EU_433",
    3: "EU_868",
    4: "CN",
    5: "JP",
    6: "ANZ",
    7: "KR",
    8: "TW",
    9: "RU",
    10: "IN",
    11: "NZ_865",
    12: "TH",
    13: "LORA_24",
    14: "UA_433",
    15: "UA_868",
    16: "MY_433",
    17: "MY_919",
    18: "SG_923",
}
"""Names of `LoraConfig.region`."""


class Role(IntEnum):
    """Use of a channel. A place in the radio's list without a channel is OFF."""

    OFF = 0
    PRIMARY = 1
    SECONDARY = 2


class MeshData(NamedTuple):
    port: int = 0
    payload: bytes = b""
    want_response: bool = False
    dest: int = 0
    source: int = 0
    request_id: int = 0
    """Id of the packet that a ROUTING answers."""
    reply_id: int = 0
    """Id of the packet that a person answers with this text or reaction."""
    emoji: int = 0
    """If not 0, the payload is a reaction to `reply_id`."""


class MeshPacket(NamedTuple):
    source: int = 0
    """Field `from`, the sender's node; a radio sets this field itself."""
    to: int = 0
    channel: int = 0
    """Index of the channel, if the packet is decoded."""
    decoded: MeshData | None = None
    encrypted: bytes | None = None
    id: int = 0
    rx_time: int = 0
    rx_snr: float = 0.0
    hop_limit: int = 0
    want_ack: bool = False
    priority: int = 0
    rx_rssi: int = 0
    via_mqtt: bool = False
    hop_start: int = 0
    public_key: bytes = b""
    pki_encrypted: bool = False
    transport: int = 0


class User(NamedTuple):
    id: str = ""
    long_name: str = ""
    short_name: str = ""
    hw_model: int = 0
    public_key: bytes = b""


class MeshPosition(NamedTuple):
    latitude: int | None = None
    """Latitude in 1e-7 degree."""
    longitude: int | None = None
    altitude: int | None = None
    """Altitude in metres above the sea."""
    time: int = 0
    """Unix time of the position. 0 if the node does not know it."""
    ground_speed: int | None = None
    """Speed in km/h, as the firmware sends it."""
    ground_track: int | None = None
    """Course in 1e-5 degree, as the firmware sends it."""
    precision_bits: int = 0
    """Number of valid bits of the position. Fewer than 32 means reduced on purpose; 0 means that
    the firmware does not send the number."""


class MeshWaypoint(NamedTuple):
    id: int = 0
    latitude: int | None = None
    longitude: int | None = None
    expire: int = 0
    """Unix time of the end; 0 and 2^31 - 1 mean never, and 1 means deleted."""
    name: str = ""
    description: str = ""


class Routing(NamedTuple):
    error: int | None = None
    """A RoutingError. None if the message is not an answer but a request for a route."""


class QueueStatus(NamedTuple):
    result: int = 0
    """Value of `QueueError`, or a RoutingError."""
    free: int = 0
    maximum: int = 0
    packet_id: int = 0


class DeviceMetrics(NamedTuple):
    battery: int = 0
    """Charge in per cent; 101 means powered without a battery."""
    voltage: float = 0.0


class Telemetry(NamedTuple):
    time: int = 0
    device: DeviceMetrics | None = None


class MyInfo(NamedTuple):
    number: int = 0


class NodeInfo(NamedTuple):
    number: int = 0
    user: User | None = None
    position: MeshPosition | None = None
    snr: float = 0.0
    last_heard: int = 0
    metrics: DeviceMetrics | None = None
    via_mqtt: bool = False
    hops_away: int | None = None


class ChannelSettings(NamedTuple):
    key: bytes = b""
    """Key of 0, 16 or 32 bytes; one byte is the number of a public key."""
    name: str = ""
    uplink: bool = False
    """True if messages on the channel go to an MQTT server."""


class MeshChannel(NamedTuple):
    place: int = 0
    """Index of the channel. Packets contain this index."""
    settings: ChannelSettings | None = None
    role: int = 0


class LoraConfig(NamedTuple):
    use_preset: bool = False
    modem_preset: int = 0
    bandwidth: int = 0
    spreading: int = 0
    coding: int = 0
    region: int = 0
    """Number of the region; 0 means not set, so that nothing is transmitted."""
    hop_limit: int = 0
    transmits: bool = False
    power: int = 0
    """Power in dBm; 0 means the maximum that the region allows."""
    overrides_duty_cycle: bool = False


class Config(NamedTuple):
    lora: LoraConfig | None = None


class Metadata(NamedTuple):
    firmware: str = ""
    hw_model: int = 0


class Notification(NamedTuple):
    level: int = 0
    message: str = ""


class Heartbeat(NamedTuple):
    nonce: int = 0
    """Nonce. If it is 1, the radio broadcasts its user information."""


class ToRadio(NamedTuple):
    """A message to the radio, with exactly one member."""

    packet: MeshPacket | None = None
    want_config: int | None = None
    disconnect: bool | None = None
    heartbeat: Heartbeat | None = None


class FromRadio(NamedTuple):
    """A message from the radio, with a number and one other member. The other member is missing if
    we do not read it.
    """

    number: int = 0
    packet: MeshPacket | None = None
    my_info: MyInfo | None = None
    node_info: NodeInfo | None = None
    config: Config | None = None
    config_complete: int | None = None
    rebooted: bool | None = None
    channel: MeshChannel | None = None
    queue_status: QueueStatus | None = None
    metadata: Metadata | None = None
    notification: Notification | None = None


_UNSIGNED, _SIGNED, _BOOL = Scalar.UNSIGNED, Scalar.SIGNED, Scalar.BOOL
_FIXED_SCALARS, _SIGNED_FIXED, _FLOAT = Scalar.FIXED, Scalar.SIGNED_FIXED, Scalar.FLOAT
_BYTES, _TEXT = Scalar.BYTES, Scalar.TEXT

DATA = ProtobufSchema(
    MeshData,
    port=(1, _UNSIGNED),
    payload=(2, _BYTES),
    want_response=(3, _BOOL),
    dest=(4, _FIXED_SCALARS),
    source=(5, _FIXED_SCALARS),
    request_id=(6, _FIXED_SCALARS),
    reply_id=(7, _FIXED_SCALARS),
    emoji=(8, _FIXED_SCALARS),
)
MESH_PACKET = ProtobufSchema(
    MeshPacket,
    source=(1, _FIXED_SCALARS),
    to=(2, _FIXED_SCALARS),
    channel=(3, _UNSIGNED),
    decoded=(4, DATA),
    encrypted=(5, _BYTES),
    id=(6, _FIXED_SCALARS),
    rx_time=(7, _FIXED_SCALARS),
    rx_snr=(8, _FLOAT),
    hop_limit=(9, _UNSIGNED),
    want_ack=(10, _BOOL),
    priority=(11, _UNSIGNED),
    rx_rssi=(12, _SIGNED),
    via_mqtt=(14, _BOOL),
    hop_start=(15, _UNSIGNED),
    public_key=(16, _BYTES),
    pki_encrypted=(17, _BOOL),
    transport=(21, _UNSIGNED),
)
USER = ProtobufSchema(
    User,
    id=(1, _TEXT),
    long_name=(2, _TEXT),
    short_name=(3, _TEXT),
    hw_model=(5, _UNSIGNED),
    public_key=(8, _BYTES),
)
POSITION = ProtobufSchema(
    MeshPosition,
    latitude=(1, _SIGNED_FIXED),
    longitude=(2, _SIGNED_FIXED),
    altitude=(3, _SIGNED),
    time=(4, _FIXED_SCALARS),
    ground_speed=(15, _UNSIGNED),
    ground_track=(16, _UNSIGNED),
    precision_bits=(23, _UNSIGNED),
)
WAYPOINT = ProtobufSchema(
    MeshWaypoint,
    id=(1, _UNSIGNED),
    latitude=(2, _SIGNED_FIXED),
    longitude=(3, _SIGNED_FIXED),
    expire=(4, _UNSIGNED),
    name=(6, _TEXT),
    description=(7, _TEXT),
)
ROUTING = ProtobufSchema(Routing, error=(3, _UNSIGNED))
QUEUE_STATUS = ProtobufSchema(
    QueueStatus,
    result=(1, _SIGNED),
    free=(2, _UNSIGNED),
    maximum=(3, _UNSIGNED),
    packet_id=(4, _UNSIGNED),
)
DEVICE_METRICS = ProtobufSchema(DeviceMetrics, battery=(1, _UNSIGNED), voltage=(2, _FLOAT))
TELEMETRY = ProtobufSchema(Telemetry, time=(1, _FIXED_SCALARS), device=(2, DEVICE_METRICS))
MY_INFO = ProtobufSchema(MyInfo, number=(1, _UNSIGNED))
NODE_INFO = ProtobufSchema(
    NodeInfo,
    number=(1, _UNSIGNED),
    user=(2, USER),
    position=(3, POSITION),
    snr=(4, _FLOAT),
    last_heard=(5, _FIXED_SCALARS),
    metrics=(6, DEVICE_METRICS),
    via_mqtt=(8, _BOOL),
    hops_away=(9, _UNSIGNED),
)
CHANNEL_SETTINGS = ProtobufSchema(
    ChannelSettings, key=(2, _BYTES), name=(3, _TEXT), uplink=(5, _BOOL)
)
MESH_CHANNEL = ProtobufSchema(
    MeshChannel, place=(1, _SIGNED), settings=(2, CHANNEL_SETTINGS), role=(3, _UNSIGNED)
)
LORA_CONFIG = ProtobufSchema(
    LoraConfig,
    use_preset=(1, _BOOL),
    modem_preset=(2, _UNSIGNED),
    bandwidth=(3, _UNSIGNED),
    spreading=(4, _UNSIGNED),
    coding=(5, _UNSIGNED),
    region=(7, _UNSIGNED),
    hop_limit=(8, _UNSIGNED),
    transmits=(9, _BOOL),
    power=(10, _SIGNED),
    overrides_duty_cycle=(12, _BOOL),
)
CONFIG = ProtobufSchema(Config, lora=(6, LORA_CONFIG))
METADATA = ProtobufSchema(Metadata, firmware=(1, _TEXT), hw_model=(9, _UNSIGNED))
NOTIFICATION = ProtobufSchema(Notification, level=(3, _UNSIGNED), message=(4, _TEXT))
HEARTBEAT = ProtobufSchema(Heartbeat, nonce=(1, _UNSIGNED))
TO_RADIO = ProtobufSchema(
    ToRadio,
    packet=(1, MESH_PACKET),
    want_config=(3, _UNSIGNED),
    disconnect=(4, _BOOL),
    heartbeat=(7, HEARTBEAT),
)
FROM_RADIO = ProtobufSchema(
    FromRadio,
    number=(1, _UNSIGNED),
    packet=(2, MESH_PACKET),
    my_info=(3, MY_INFO),
    node_info=(4, NODE_INFO),
    config=(5, CONFIG),
    config_complete=(7, _UNSIGNED),
    rebooted=(8, _BOOL),
    channel=(10, MESH_CHANNEL),
    queue_status=(11, QUEUE_STATUS),
    metadata=(13, METADATA),
    notification=(16, NOTIFICATION),
)


def format_node_id(number: int) -> str:
    """Return a node's number in the form that apps show, such as `!a1b2c3d4`."""
    return f"!{number:08x}"


def make_frame(message: bytes) -> bytes:
    """Return a frame with the message. Raises LocalProtocolError if it is too long."""
    if len(message) > FRAME_BYTES:
        raise LocalProtocolError(f"a frame holds {FRAME_BYTES} bytes, not {len(message)}")
    return MAGIC + len(message).to_bytes(2, "big") + message


def encode_to_radio(message: ToRadio) -> bytes:
    """Return the frame of a host's message. Raises LocalProtocolError if the message is longer than
    FRAME_BYTES.
    """
    return make_frame(TO_RADIO.encode(message))


def encode_from_radio(message: FromRadio) -> bytes:
    """Return the frame of a radio's message, for simulators. Raises LocalProtocolError if the
    message is longer than FRAME_BYTES.
    """
    return make_frame(FROM_RADIO.encode(message))


class Deframer(LengthDeframer):
    """Splits a stream into the protobufs of its frames."""

    def __init__(self) -> None:
        super().__init__(MAGIC, "big", FRAME_BYTES)


def decode_from_radio(message: bytes) -> FromRadio:
    """Parse a message from the radio. Raises RemoteProtocolError for malformed data."""
    return FROM_RADIO.decode(message)


def expand_key(key: bytes) -> bytes:
    """Return the key that a channel's `psk` stands for. A `psk` of one byte means no key, or a
    public key.
    """
    if len(key) != 1:
        return key
    if key == b"\0":
        return b""
    return DEFAULT_KEY[:-1] + bytes([(DEFAULT_KEY[-1] + key[0] - 1) & 0xFF])


def is_private(settings: ChannelSettings) -> bool:
    """Return True if a group has chosen the channel's key: it has 16 or 32 bytes and is
    not public.
    """
    key = expand_key(settings.key)
    return len(key) in (16, 32) and key[:-1] != DEFAULT_KEY[:-1] and any(key)


def make_reaction(packet_id: int, sign: str) -> MeshData:
    """Return the data of a reaction to the message `packet_id`. `sign` is an emoji."""
    return MeshData(Port.TEXT, sign.encode(), reply_id=packet_id, emoji=1)


def decode_answer(packet: MeshPacket) -> tuple[int, int] | None:
    """Return the packet id that a ROUTING answers, and its RoutingError, or None for any other
    packet.

    NONE from the destination means that its radio has the packet. NONE from our own radio means
    that another radio repeats the packet.
    """
    data = packet.decoded
    if data is None or data.port != Port.ROUTING or not data.request_id:
        return None
    try:
        error = ROUTING.decode(data.payload).error
    except RemoteProtocolError:
        return None
    return data.request_id, error or 0
