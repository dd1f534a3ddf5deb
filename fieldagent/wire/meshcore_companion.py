"""MeshCore's companion protocol, between a radio with MeshCore firmware and its host, over a serial
line or TCP.

Each frame is one byte, a length of two bytes, and a content that begins with its kind. The host
sends `<` frames, the radio `>` frames. The host sends one command at a time, and the radio answers.
Frames of kind 80 or more are unsolicited. Integers are little-endian, texts UTF-8. Between frames a
radio may print log lines.

- An author is identified by six bytes of a public key. A radio receives only from keys that it
  knows.
- A text on a channel has no authenticated author. The name before the text comes from the sender's
  radio.
- An acknowledgement (82) comes from the receiver's radio, not from a person.

Source: MeshCore, docs/companion_protocol.md and the wiki's Companion Radio Protocol.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from hashlib import sha256

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.length_frames import LengthDeframer

TCP_PORT = 5000
BAUD = 115_200
TO_RADIO, FROM_RADIO = b"<", b">"
"""First byte of a frame, for each direction."""
FRAME_BYTES = 300
"""Maximum bytes of a frame's content. A longer content is not a frame."""
KEY_BYTES, PREFIX_BYTES = 32, 6
TEXT_BYTES = 133
"""Maximum bytes of a text that every firmware accepts."""
UNSOLICITED_MIN = 0x80
"""Lowest kind of an unsolicited frame."""
APP_VERSION = 3
"""Version of the host's protocol. With this version, a radio reports the signal of each message."""
CHANNEL_KEY_BYTES = 16
PUBLIC_KEY = bytes.fromhex("8b3387e9c5cdea6ac9e5edbaa115cd72")
"""Key of the public channel, which each radio has."""
KNOWN_PATH_LENGTH = 0xFF
"""Value of the path length for a message that arrived by a known path, whose length the radio does
not report."""
HOPS_MASK = 0x3F
"""Bits of the hop count in a path length. The upper two bits are the length of each
station's hash."""


class CompanionCommand(IntEnum):
    APP_START = 1
    SEND_TEXT = 2
    SEND_CHANNEL_TEXT = 3
    GET_CONTACTS = 4
    GET_TIME = 5
    SET_TIME = 6
    SEND_ADVERT = 7
    SET_NAME = 8
    PUT_CONTACT = 9
    NEXT_MESSAGE = 10
    RESET_PATH = 13
    SET_POSITION = 14
    REMOVE_CONTACT = 15
    GET_BATTERY = 20
    QUERY_DEVICE = 22
    GET_CONTACT = 30
    GET_CHANNEL = 31
    SET_CHANNEL = 32
    ASK_TELEMETRY = 39


class CompanionMessage(IntEnum):
    OK = 0
    ERROR = 1
    CONTACTS_BEGIN = 2
    CONTACT = 3
    CONTACTS_END = 4
    SELF_INFO = 5
    SENT = 6
    OLD_TEXT = 7
    """A message for a host older than APP_VERSION, without its signal."""
    OLD_CHANNEL_TEXT = 8
    TIME = 9
    NO_MESSAGE = 10
    BATTERY = 12
    DEVICE_INFO = 13
    TEXT = 16
    CHANNEL_TEXT = 17
    CHANNEL = 18
    CHANNEL_DATA = 27
    ADVERT = 0x80
    """Advert of a contact that the radio has; the key follows."""
    PATH_UPDATED = 0x81
    ACK = 0x82
    MESSAGE_WAITS = 0x83
    NEW_ADVERT = 0x8A
    """Advert of a station that the radio has not added; the whole contact follows."""
    TELEMETRY = 0x8B
    CONTACT_DELETED = 0x8F
    CONTACTS_FULL = 0x90


class CompanionError(IntEnum):
    UNSUPPORTED = 1
    NOT_FOUND = 2
    TABLE_FULL = 3
    BAD_STATE = 4
    FILE_ERROR = 5
    ILLEGAL = 6


ERRORS = {
    CompanionError.UNSUPPORTED: "it does not know that",
    CompanionError.NOT_FOUND: "it does not know them",
    CompanionError.TABLE_FULL: "its queue or table is full",
    CompanionError.BAD_STATE: "it is not ready for that",
    CompanionError.FILE_ERROR: "its memory cannot be written",
    CompanionError.ILLEGAL: "a value is out of its range",
}
"""Texts of errors, as the end of a sentence about a radio."""


class ContactType(IntEnum):
    CHAT = 1
    """Radio of a person."""
    REPEATER = 2
    ROOM = 3
    SENSOR = 4


class TextType(IntEnum):
    PLAIN = 0
    COMMAND = 1
    SIGNED = 2
    """Text of a room, with four bytes for its author."""


class CompanionSelf(NamedTuple):
    """A radio's description of itself."""

    key: bytes
    name: str
    type: int = ContactType.CHAT
    latitude: int = 0
    """Latitude in 1e-6 degree. If longitude and latitude are 0, the position is not set."""
    longitude: int = 0
    is_adding_by_hand: bool = False
    """True if the radio only reports new stations, and does not add them."""
    frequency: int = 0
    """Frequency in kHz."""
    bandwidth: int = 0
    """Bandwidth in Hz."""
    spreading: int = 0
    coding: int = 0
    power: int = 0
    """Transmit power in dBm."""


class CompanionDevice(NamedTuple):
    protocol: int
    contacts_max: int
    channels_max: int
    firmware: str
    model: str


class CompanionContact(NamedTuple):
    """A station that the radio has in its list of contacts."""

    key: bytes
    type: int
    name: str
    advertised: int = 0
    """Unix time of the contact's last advert, by the contact's clock."""
    latitude: int = 0
    """Latitude in 1e-6 degree. If longitude and latitude are 0, the position is unknown."""
    longitude: int = 0
    changed: int = 0
    """Unix time of the last change of this entry, by the radio's clock."""
    flags: int = 0
    path_length: int = -1
    """Length of the path, or -1 if no path is known."""
    path: bytes = b""


class CompanionText(NamedTuple):
    """A received text that the radio stored for its host."""

    sender: bytes
    """First six bytes of the sender's key. Empty for a text on a channel."""
    channel: int | None
    """Index of the channel. None for a direct message."""
    time: int
    """Unix time by the sender's clock."""
    text: str
    type: int = TextType.PLAIN
    hops: int | None = None
    """Number of stations that repeated the text. None if it arrived by a known path."""
    snr: float | None = None
    """Signal-to-noise ratio in dB."""


class CompanionSent(NamedTuple):
    flooded: bool
    """True if the text was sent to all stations, because no path is known."""
    ack: bytes
    """Four bytes that identify the acknowledgement of the text."""
    wait_s: float
    """Seconds until the acknowledgement, as estimated by the radio."""


class CompanionChannel(NamedTuple):
    place: int
    """Index of the channel."""
    name: str
    key: bytes


_SELF = struct.Struct("<BBB32siiBBBBIIBB")
_DEVICE = struct.Struct("<BBI12s40s20s")
_CONTACT = struct.Struct("<32sBBb64s32sIiiI")
_TEXT = struct.Struct("<6sBBI")
_CHANNEL_TEXT = struct.Struct("<BBBI")
_SIGNAL = struct.Struct("<bBB")
_SENT_FORM = struct.Struct("<B4sI")
_CHANNEL = struct.Struct("<B32s16s")
_SEND_TEXT = struct.Struct("<BBI6s")
_SEND_CHANNEL_TEXT = struct.Struct("<BBI")
_NUMBER, _SHORT = struct.Struct("<I"), struct.Struct("<H")
_POSITION = struct.Struct("<iii")


def make_frame(content: bytes, start_byte: bytes = TO_RADIO) -> bytes:
    """Return a frame with the content. Raises LocalProtocolError if it is too long."""
    if len(content) > FRAME_BYTES:
        raise LocalProtocolError(f"a frame holds {FRAME_BYTES} bytes, not {len(content)}")
    return start_byte + _SHORT.pack(len(content)) + content


class CompanionDeframer(LengthDeframer):
    """Splits a stream into the contents of its frames, which are never empty."""

    def __init__(self, start_byte: bytes = FROM_RADIO) -> None:
        super().__init__(start_byte, "little", FRAME_BYTES, 1)


def make_app_start(name: str) -> bytes:
    """Return the first command of a session; the radio answers with SELF_INFO."""
    return bytes([CompanionCommand.APP_START]) + bytes(7) + name.encode()


def query_device() -> bytes:
    """Return the query for firmware and limits; the radio answers with DEVICE_INFO."""
    return bytes([CompanionCommand.QUERY_DEVICE, APP_VERSION])


def make_command(command: CompanionCommand, content: bytes = b"") -> bytes:
    """Return a command with its argument, which is empty, a key, or an index."""
    return bytes([command]) + content


def set_time(now: int) -> bytes:
    """Return the command that sets the radio's clock to a Unix time. The radio refuses an earlier
    time.
    """
    return make_command(CompanionCommand.SET_TIME, _NUMBER.pack(now))


def send_text(recipient: bytes, text: str, time: int, attempt: int = 0) -> bytes:
    """Return the command that sends a direct message. `recipient` is a key, or its first six bytes.
    A text with the same time is the same message in every attempt.
    """
    head = _SEND_TEXT.pack(TextType.PLAIN, attempt & 3, time, recipient[:PREFIX_BYTES])
    return make_command(CompanionCommand.SEND_TEXT, head + text.encode())


def send_channel_text(index: int, text: str, time: int) -> bytes:
    """Return the command that sends a text to a channel, by its index. `time` is Unix time."""
    head = _SEND_CHANNEL_TEXT.pack(TextType.PLAIN, index, time)
    return make_command(CompanionCommand.SEND_CHANNEL_TEXT, head + text.encode())


def put_contact(contact: CompanionContact) -> bytes:
    """Return the command that adds or changes a contact, by its key."""
    return make_command(CompanionCommand.PUT_CONTACT, encode_contact(contact))


def ask_telemetry(key: bytes) -> bytes:
    """Return the query for a contact's telemetry. A contact answers only radios that its user
    allows.
    """
    return make_command(CompanionCommand.ASK_TELEMETRY, bytes(3) + key)


def decode_self(content: bytes) -> CompanionSelf:
    """Parse the radio's description of itself. Raises RemoteProtocolError for malformed data."""
    body = _read_body(content, CompanionMessage.SELF_INFO, _SELF.size)
    fields = _SELF.unpack_from(body)
    kind, power, _, key, latitude, longitude, _, _, _, by_hand = fields[:10]
    frequency, bandwidth, spreading, coding = fields[10:]
    return CompanionSelf(
        *(key, _read_text(body[_SELF.size :]), kind, latitude, longitude, bool(by_hand)),
        *(frequency, bandwidth, spreading, coding, power),
    )


def encode_self(device: CompanionSelf) -> bytes:
    """Encode a radio's description of itself, in the form for `decode_self`. The maximum power is
    written equal to the power.
    """
    head = _SELF.pack(
        device.type,
        device.power,
        device.power,
        device.key,
        device.latitude,
        device.longitude,
        *(0, 1, 0, device.is_adding_by_hand),
        *(device.frequency, device.bandwidth, device.spreading, device.coding),
    )
    return bytes([CompanionMessage.SELF_INFO]) + head + device.name.encode()


def decode_device(content: bytes) -> CompanionDevice:
    """Parse the description of the device. For firmware before version 3, the numbers in the result
    are 0. Raises RemoteProtocolError for malformed data.
    """
    body = _read_body(content, CompanionMessage.DEVICE_INFO, 1)
    if len(body) <= _DEVICE.size:
        return CompanionDevice(body[0], 0, 0, "", "")
    half, channels, _, _, model, firmware = _DEVICE.unpack_from(body, 1)
    return CompanionDevice(body[0], half * 2, channels, _read_text(firmware), _read_text(model))


def encode_device(device: CompanionDevice) -> bytes:
    """Encode the description of a device. The model is cut to 40 bytes, and the firmware to 20
    bytes.
    """
    body = _DEVICE.pack(
        device.contacts_max // 2,
        device.channels_max,
        0,
        b"",
        device.model.encode()[:40],
        device.firmware.encode()[:20],
    )
    return bytes([CompanionMessage.DEVICE_INFO, device.protocol]) + body


def decode_contact(content: bytes) -> CompanionContact:
    """Parse a contact from the list, or an unsolicited contact. Raises RemoteProtocolError for
    malformed data.
    """
    kind = CompanionMessage.CONTACT
    if content[:1] == bytes([CompanionMessage.NEW_ADVERT]):
        kind = CompanionMessage.NEW_ADVERT
    return decode_bare_contact(_read_body(content, kind, _CONTACT.size))


def decode_bare_contact(body: bytes) -> CompanionContact:
    """Parse a contact without the first byte, which is the kind. Raises RemoteProtocolError for
    malformed data.
    """
    if len(body) < _CONTACT.size:
        raise RemoteProtocolError(f"a contact has {_CONTACT.size} bytes, not {len(body)}")
    key, kind, flags, length, path, name, advertised, latitude, longitude, changed = (
        _CONTACT.unpack_from(body)
    )
    return CompanionContact(
        *(key, kind, _read_text(name), advertised, latitude, longitude, changed, flags, length),
        path.rstrip(b"\0"),
    )


def encode_contact(contact: CompanionContact) -> bytes:
    """Encode a contact without the first byte, which is the kind."""
    return _CONTACT.pack(
        contact.key,
        contact.type,
        contact.flags,
        contact.path_length,
        contact.path,
        contact.name.encode()[:32],
        contact.advertised,
        contact.latitude,
        contact.longitude,
        contact.changed,
    )


def decode_text(content: bytes) -> CompanionText:
    """Parse the answer to `NEXT_MESSAGE`, except data of a channel. Raises RemoteProtocolError for
    malformed data.
    """
    kind = content[0] if content else -1
    body, snr = content[1:], None
    if kind in (CompanionMessage.TEXT, CompanionMessage.CHANNEL_TEXT):
        body = _read_body(content, kind, _SIGNAL.size)
        snr, body = _SIGNAL.unpack_from(body)[0] / 4, body[_SIGNAL.size :]
    if kind in (CompanionMessage.TEXT, CompanionMessage.OLD_TEXT):
        return _read_direct(body, snr)
    if kind in (CompanionMessage.CHANNEL_TEXT, CompanionMessage.OLD_CHANNEL_TEXT):
        _require_length(body, _CHANNEL_TEXT.size)
        index, path, text_kind, time = _CHANNEL_TEXT.unpack_from(body)
        text = _read_text(body[_CHANNEL_TEXT.size :])
        return CompanionText(b"", index, time, text, text_kind, _read_hops(path), snr)
    raise RemoteProtocolError(f"a message is of kind {kind}")


def _read_direct(body: bytes, snr: float | None) -> CompanionText:
    _require_length(body, _TEXT.size)
    sender, path, text_kind, time = _TEXT.unpack_from(body)
    rest = body[_TEXT.size :]
    if text_kind == TextType.SIGNED:
        rest = rest[4:]
    return CompanionText(sender, None, time, _read_text(rest), text_kind, _read_hops(path), snr)


def encode_text(message: CompanionText) -> bytes:
    """Encode a text in the form for a host that wants its signal."""
    path = KNOWN_PATH_LENGTH if message.hops is None else message.hops
    signal = _SIGNAL.pack(round((message.snr or 0) * 4), 0, 0)
    text = message.text.encode()
    if message.channel is None:
        head = _TEXT.pack(message.sender, path, message.type, message.time)
        return bytes([CompanionMessage.TEXT]) + signal + head + text
    head = _CHANNEL_TEXT.pack(message.channel, path, message.type, message.time)
    return bytes([CompanionMessage.CHANNEL_TEXT]) + signal + head + text


def _read_hops(path: int) -> int | None:
    return None if path == KNOWN_PATH_LENGTH else path & HOPS_MASK


def decode_sent(content: bytes) -> CompanionSent:
    """Parse the answer to a sent message. Raises RemoteProtocolError for malformed data."""
    route, ack, wait = _SENT_FORM.unpack_from(
        _read_body(content, CompanionMessage.SENT, _SENT_FORM.size)
    )
    return CompanionSent(bool(route), ack, wait / 1000)


def encode_sent(answer: CompanionSent) -> bytes:
    """Encode the answer to a sent text, in the form for `decode_sent`."""
    body = _SENT_FORM.pack(answer.flooded, answer.ack, round(answer.wait_s * 1000))
    return bytes([CompanionMessage.SENT]) + body


def decode_ack(content: bytes) -> bytes:
    """Return the four bytes that identify the acknowledged message. Raises RemoteProtocolError for
    malformed data.
    """
    return _read_body(content, CompanionMessage.ACK, 4)[:4]


def decode_advert(content: bytes) -> bytes:
    """Return the key of the heard contact. Raises RemoteProtocolError for malformed data."""
    return _read_body(content, CompanionMessage.ADVERT, KEY_BYTES)[:KEY_BYTES]


def decode_time(content: bytes) -> int:
    """Return the radio's clock as Unix time. Raises RemoteProtocolError for malformed data."""
    return int(_NUMBER.unpack_from(_read_body(content, CompanionMessage.TIME, _NUMBER.size))[0])


def decode_channel(content: bytes) -> CompanionChannel:
    """Parse a channel. Raises RemoteProtocolError for malformed data."""
    body = _read_body(content, CompanionMessage.CHANNEL, _CHANNEL.size)
    index, name, key = _CHANNEL.unpack_from(body)
    return CompanionChannel(index, _read_text(name), key)


def encode_channel(channel: CompanionChannel) -> bytes:
    """Encode a channel without the first byte, for an answer or for SET_CHANNEL."""
    return _CHANNEL.pack(channel.place, channel.name.encode()[:32], channel.key)


def is_private(channel: CompanionChannel) -> bool:
    """Return True if a group has chosen the channel's key: the key is not public, not empty, and
    not derived from the channel's name.
    """
    of_its_name = sha256(channel.name.encode()).digest()[:CHANNEL_KEY_BYTES]
    return any(channel.key) and channel.key not in (PUBLIC_KEY, of_its_name)


def describe_error(content: bytes) -> str:
    """Return the reason of a refusal, as the end of a sentence about a radio."""
    code = content[1] if len(content) > 1 else 0
    is_known = code in set(CompanionError)
    return ERRORS[CompanionError(code)] if is_known else f"it reports error {code}"


LPP_SIZES = {0x65: 2, 0x66: 1, 0x67: 2, 0x68: 1, 0x73: 2, 0x74: 2, 0x75: 2, 0x78: 1, 0x88: 9}
"""Sizes of values in Cayenne's low-power payload in bytes, by type, for the types that
radios send."""
LPP_VOLTAGE = 0x74
"""Type of a voltage, in hundredths of a volt, big-endian."""


def decode_telemetry(content: bytes) -> tuple[bytes, float | None]:
    """Return the first six bytes of the sender's key, and its battery voltage in volts, or None if
    the voltage is unknown. Raises RemoteProtocolError for malformed data.
    """
    body = _read_body(content, CompanionMessage.TELEMETRY, 1 + PREFIX_BYTES)
    sender, values = body[1 : 1 + PREFIX_BYTES], body[1 + PREFIX_BYTES :]
    while len(values) > 2 and (size := LPP_SIZES.get(values[1])) is not None:
        value, values, kind = values[2 : 2 + size], values[2 + size :], values[1]
        if kind == LPP_VOLTAGE and len(value) == size:
            return sender, int.from_bytes(value, "big") / 100
    return sender, None


def encode_telemetry(sender: bytes, volts: float) -> bytes:
    """Encode a radio's telemetry that contains only its battery voltage, in hundredths of a volt.
    `sender` is the radio's key, or its beginning.
    """
    value = round(volts * 100).to_bytes(2, "big")
    head = bytes([CompanionMessage.TELEMETRY, 0]) + sender[:PREFIX_BYTES]
    return head + bytes([1, LPP_VOLTAGE]) + value


def decode_position(body: bytes) -> tuple[int, int]:
    """Parse the argument of SET_POSITION, in 1e-6 degree. Raises RemoteProtocolError for malformed
    data.
    """
    _require_length(body, 8)
    latitude, longitude, _ = _POSITION.unpack(body[:12].ljust(12, b"\0"))
    return latitude, longitude


def decode_send_text(body: bytes) -> tuple[bytes, str, int, int]:
    """Parse the argument of SEND_TEXT: addressee, text, time and attempt. Raises
    RemoteProtocolError for malformed data.
    """
    _require_length(body, _SEND_TEXT.size)
    _, attempt, time, recipient = _SEND_TEXT.unpack_from(body)
    return recipient, _read_text(body[_SEND_TEXT.size :]), time, attempt


def decode_send_channel_text(body: bytes) -> tuple[int, str, int]:
    """Parse the argument of SEND_CHANNEL_TEXT: index, text, time. Raises RemoteProtocolError for
    malformed data.
    """
    _require_length(body, _SEND_CHANNEL_TEXT.size)
    _, index, time = _SEND_CHANNEL_TEXT.unpack_from(body)
    return index, _read_text(body[_SEND_CHANNEL_TEXT.size :]), time


def decode_battery(content: bytes) -> int | None:
    """Return the voltage of the radio's own battery in mV, or None if unknown."""
    if content[:1] != bytes([CompanionMessage.BATTERY]) or len(content) < 1 + _SHORT.size:
        return None
    return int(_SHORT.unpack_from(content, 1)[0])


def decode_number(body: bytes) -> int:
    """Parse a number of four bytes, little-endian. Raises RemoteProtocolError if there are
    fewer.
    """
    _require_length(body, _NUMBER.size)
    return int(_NUMBER.unpack_from(body)[0])


def encode_number(kind: int, number: int) -> bytes:
    """Encode the content of a frame of `kind` with a number of 4 bytes, such as a Unix time."""
    return bytes([kind]) + _NUMBER.pack(number)


def _read_body(content: bytes, kind: int, size: int) -> bytes:
    """Return the content after the first byte. Raises RemoteProtocolError if it has another kind or
    is too short.
    """
    if content[:1] != bytes([kind]):
        raise RemoteProtocolError(f"a frame begins with {content[:1].hex()}, not {kind:02x}")
    _require_length(content[1:], size)
    return content[1:]


def _require_length(body: bytes, size: int) -> None:
    if len(body) < size:
        raise RemoteProtocolError(f"a frame has {len(body)} bytes, and needs {size}")


def _read_text(data: bytes) -> str:
    """Return the text before the first null byte."""
    return data.partition(b"\0")[0].decode("utf-8", "replace")
