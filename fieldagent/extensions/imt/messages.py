"""Messages of Iridium Messaging Transport (IMT), as a 9704 exchanges them over JSPR. No I/O.

On the serial line, a message is transferred in segments, which the modem requests or delivers. The
last two bytes of a message are a CRC-16/XMODEM of the rest. The network removes and adds them. The
modem identifies a message by its topic and an 8-bit number. The numbers start again at each
power-up. So, unlike the MOMSN of SBD, a number cannot show later whether a message was sent.

Rules for a driver:

| rule | reason |
|---|---|
| answer a request for a segment within 300 ms | otherwise it ends as `segment_not_supplied` |
| abandon a message only by `cancel`, and wait for its status | the modem continues by itself |
| before the modem has the last segment, nothing is sent | the modem sends whole messages |
| store each message from the modem at once | it keeps no copy, and needs no acknowledgement |
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

from fieldagent.extensions.imt import jspr
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.modem_kind import ModemKind
from fieldagent.wire.sbd import MoStatus, SessionVerdict

BAUD = 230_400
PAYLOAD_BYTES = 100_000
"""Largest number of bytes of a message in each direction, without its CRC."""
CRC_BYTES = 2
SEGMENT_BYTES = 1446
"""Largest number of bytes of a segment, before base64."""
TOPIC_MIN, TOPIC_MAX = 64, 65_535
RAW = "RAW"
"""Cloudloop's topic for any bytes. The number of this topic is usually 244."""
ACCEPTED = "message_accepted"
COMPLETE = "complete"
ACTIVE, INACTIVE = "active", "inactive"


def compute_crc(body: bytes) -> bytes:
    """Return the CRC-16/XMODEM of a message, the higher byte first."""
    return binascii.crc_hqx(body, 0).to_bytes(CRC_BYTES)


MODEM = ModemKind(
    PAYLOAD_BYTES,
    by_bytes=True,
    keeps_copies=False,
    guard=lambda body: binascii.crc_hqx(body, 0),
)
"""Properties of the modem that the hub uses."""


class MessageKey(NamedTuple):
    """Key by which the modem identifies a message."""

    topic: int
    id: int
    """Number that the modem has given, 0 to 255. The numbers start again at each power-up."""

    def pack(self) -> int:
        """Return topic and number as one integer, for storage."""
        return self.topic << 8 | self.id


UNNAMED_KEY = 0
"""Value that is stored instead of `MessageKey.pack` until the modem has given the message a
number."""


def unpack_key(packed_key: int) -> MessageKey | None:
    """Return the key in a number from `MessageKey.pack`, or None for `UNNAMED_KEY`."""
    return None if packed_key == UNNAMED_KEY else MessageKey(packed_key >> 8, packed_key & 0xFF)


class SegmentWanted(NamedTuple):
    """Request from the modem for a part of an MO message."""

    key: MessageKey
    start: int
    length: int


class MoEnded(NamedTuple):
    """End of an MO message in the modem."""

    key: MessageKey
    status: str
    """One of `FINAL`, or a value that this module does not know."""


class MtSegment(NamedTuple):
    """Bytes of an MT message from the position `start` on, which the modem delivers to its host."""

    key: MessageKey
    start: int
    data: bytes


class MtEnded(NamedTuple):
    """End of an MT message, which is complete or was aborted."""

    key: MessageKey
    status: str


class ModemStarted(NamedTuple):
    """The modem was powered on or reset."""

    firmware: str


class Constellation(NamedTuple):
    """Visibility of the satellites, as the modem reports it."""

    visible: bool
    bars: int


class SimStatus(NamedTuple):
    present: bool
    connected: bool
    iccid: str


class OperationalState(NamedTuple):
    state: str
    reason: int


class Activity(NamedTuple):
    """Activity of the modem: True if it sends or receives a message, or is about to do so."""

    active: bool


Event = (
    SegmentWanted
    | MoEnded
    | MtSegment
    | MtEnded
    | ModemStarted
    | Constellation
    | SimStatus
    | OperationalState
    | Activity
)


def parse_event(line: jspr.JsprLine) -> Event | None:
    """Return the event in an unsolicited line, or in the answer to a GET of the same target. Return
    None for a line that the agent does not use. Raises RemoteProtocolError if a member is missing
    or wrong.
    """
    reader = _READERS.get(line.target)
    return None if reader is None else reader(line)


def _read_key(line: jspr.JsprLine) -> MessageKey:
    topic = jspr.read_integer(line, "topic_id", TOPIC_MIN, TOPIC_MAX)
    return MessageKey(topic, jspr.read_integer(line, "message_id", 0, 255))


def _read_wanted_segment(line: jspr.JsprLine) -> SegmentWanted:
    length = jspr.read_integer(line, "segment_length", 1, SEGMENT_BYTES)
    start = jspr.read_integer(line, "segment_start", 0, PAYLOAD_BYTES + CRC_BYTES - 1)
    return SegmentWanted(_read_key(line), start, length)


def _read_mt_segment(line: jspr.JsprLine) -> MtSegment:
    start = jspr.read_integer(line, "segment_start", 0, PAYLOAD_BYTES + CRC_BYTES - 1)
    try:
        data = base64.b64decode(jspr.read_text(line, "data"), validate=True)
    except ValueError:
        raise RemoteProtocolError(f"{line.target} has data that is not base64") from None
    return MtSegment(_read_key(line), start, data)


def _read_boot(line: jspr.JsprLine) -> ModemStarted:
    return ModemStarted(_format_version(line.body.get("version")))


def _read_constellation(line: jspr.JsprLine) -> Constellation:
    visible = line.body.get("constellation_visible") is True
    # The number of bars is missing while the constellation is not visible.
    bars = line.body.get("signal_bars", 0)
    return Constellation(visible, bars if type(bars) is int and 0 <= bars <= 5 and visible else 0)


def _read_sim_status(line: jspr.JsprLine) -> SimStatus:
    present, connected = line.body.get("card_present"), line.body.get("sim_connected")
    return SimStatus(present is True, connected is True, str(line.body.get("iccid", ""))[:22])


def _read_state(line: jspr.JsprLine) -> OperationalState:
    reason = line.body.get("reason", 0)
    return OperationalState(jspr.read_text(line, "state"), reason if type(reason) is int else 0)


def _read_activity(line: jspr.JsprLine) -> Activity | None:
    # The value has no meaning until the report is enabled, for example after each power-up.
    active = line.body.get("active")
    if line.body.get("enabled") is not True or not isinstance(active, bool):
        return None
    return Activity(active)


_READERS: Mapping[str, Any] = {
    "messageOriginateSegment": _read_wanted_segment,
    "messageOriginateStatus": lambda line: MoEnded(
        _read_key(line), jspr.read_text(line, "final_mo_status")
    ),
    "messageTerminateSegment": _read_mt_segment,
    "messageTerminateStatus": lambda line: MtEnded(
        _read_key(line), jspr.read_text(line, "final_mt_status")
    ),
    "bootInfo": _read_boot,
    "constellationState": _read_constellation,
    "simStatus": _read_sim_status,
    "operationalState": _read_state,
    "messageActivityStatus": _read_activity,
}

STATE_REASONS: Mapping[int, str] = {
    1: "its self-test failed",
    2: "it is too hot or too cold",
    3: "it protects its radio's power stage",
    4: "its parts cannot communicate (VAM handshake)",
    5: "its hardware is not valid",
    6: "its supply voltage is too low",
    7: "it is in a manufacturing test",
}
"""Reasons why a modem is not active (operationalState, reason)."""


def find_newest_version(line: jspr.JsprLine) -> dict[str, int]:
    """Return the newest version of the API that the modem supports. The order of the versions
    depends on the firmware. Raises RemoteProtocolError if the answer lists no version.
    """
    versions = line.body.get("supported_versions")
    parsed_versions = (
        [_read_three_numbers(each) for each in versions] if isinstance(versions, list) else []
    )
    if not parsed_versions or None in parsed_versions:
        raise RemoteProtocolError(f"apiVersion has no readable supported_versions: {versions!r}")
    major, minor, patch = max(each for each in parsed_versions if each is not None)
    return {"major": major, "minor": minor, "patch": patch}


def _read_three_numbers(version: object) -> tuple[int, int, int] | None:
    if not isinstance(version, dict):
        return None
    numbers = [version.get(name) for name in ("major", "minor", "patch")]
    return (numbers[0], numbers[1], numbers[2]) if _is_whole(numbers) else None  # type: ignore[return-value]


def _is_whole(numbers: Iterable[object]) -> bool:
    return all(type(each) is int for each in numbers)


def _format_version(version: object) -> str:
    three = _read_three_numbers(version)
    return "" if three is None else ".".join(map(str, three))


class Topic(NamedTuple):
    id: int
    name: str
    priority: str


def list_provisioned(line: jspr.JsprLine) -> list[Topic]:
    """Return the topics that the modem may use. If the SIM is new or the plan was changed, the list
    is empty until the modem has seen the open sky for 10 to 30 minutes.
    """
    topic_list = line.body.get("provisioning")
    topics = []
    for each in topic_list if isinstance(topic_list, list) else ():
        id_ = each.get("topic_id") if isinstance(each, dict) else None
        if type(id_) is int and TOPIC_MIN <= id_ <= TOPIC_MAX:
            topics.append(Topic(id_, str(each.get("topic_name")), str(each.get("priority"))))
    return topics


def find_topic(topics: Iterable[Topic], name: str) -> Topic | None:
    """Return the topic whose name or number equals the text `name`, or None if the modem has no
    such topic.
    """
    for each in topics:
        if name in (each.name, str(each.id)):
            return each
    return None


class MoMessage:
    """A message that the modem requests in segments. Each segment is built when it is requested."""

    def __init__(self, body: bytes) -> None:
        if not 1 <= len(body) <= PAYLOAD_BYTES:
            raise LocalProtocolError(
                f"an IMT message has 1 to {PAYLOAD_BYTES} bytes, this one {len(body)}"
            )
        self._body_with_crc = memoryview(body + compute_crc(body))
        self.last_handed_over = False
        """True if the modem has the last segment. The message may then have been sent."""

    def __len__(self) -> int:
        """Return the number of bytes on the serial line, including the CRC."""
        return len(self._body_with_crc)

    def make_segment(self, request: SegmentWanted) -> bytes:
        """Return the line that contains a segment. Raises RemoteProtocolError if the message does
        not have the requested bytes.
        """
        end = request.start + request.length
        if end > len(self._body_with_crc):
            raise RemoteProtocolError(
                f"the modem asks for bytes {request.start} to {end} of {len(self._body_with_crc)}"
            )
        self.last_handed_over = self.last_handed_over or end == len(self._body_with_crc)
        data = base64.b64encode(self._body_with_crc[request.start : end]).decode("ascii")
        return jspr.encode_put(
            "messageOriginateSegment",
            topic_id=request.key.topic,
            message_id=request.key.id,
            segment_length=request.length,
            segment_start=request.start,
            data=data,
        )


_S = SessionVerdict
FINAL: Mapping[str, MoStatus] = {
    "mo_ack_received": MoStatus(_S.SENT, "sent"),
    "message_cancelled_pre_transit": MoStatus(_S.NOT_SENT, "withdrawn before it left"),
    "segment_not_supplied": MoStatus(_S.NOT_SENT, "the modem did not get a segment in time"),
    "segment_incorrect": MoStatus(_S.NOT_SENT, "the modem got a segment that does not fit"),
    "message_dropped_local_crc_error": MoStatus(_S.NOT_SENT, "it was garbled on the serial line"),
    "user_supplied_crc_error": MoStatus(_S.NOT_SENT, "it was garbled on the serial line"),
    "message_discarded_on_overflow": MoStatus(_S.NOT_SENT, "the modem's queue is full", 60.0),
    "subscription_invalid": MoStatus(
        _S.FAULT, "the account does not allow this topic: see the plan of this SIM"
    ),
    "message_expired": MoStatus(_S.DOUBTFUL, "the modem's own time for the message ended"),
    "message_transfer_timeout": MoStatus(_S.DOUBTFUL, "the network did not answer in time"),
    "network_error": MoStatus(_S.DOUBTFUL, "the network failed"),
    "protocol_error": MoStatus(_S.DOUBTFUL, "modem and network did not understand each other"),
    "crc_error_in_transfer": MoStatus(_S.DOUBTFUL, "it was garbled in the air"),
    "message_cancelled_in_transit": MoStatus(_S.DOUBTFUL, "withdrawn, although it may have left"),
}
"""Meanings by `final_mo_status`, or by the `message_response` of a refused message."""


def find_mo_status(status: str) -> MoStatus:
    """Return the meaning of a status. An unknown status means that the result is in doubt."""
    return FINAL.get(status) or MoStatus(_S.DOUBTFUL, f"the modem reports {status[:60]!r}")


def find_refusal_status(word: str) -> MoStatus:
    """Return the meaning of a refusal. A refused message was certainly not sent."""
    status = FINAL.get(word)
    if status is not None and status.verdict in (_S.NOT_SENT, _S.FAULT):
        return status
    return MoStatus(_S.NOT_SENT, f"the modem does not accept it: {word[:60]}")


class MtMessage(NamedTuple):
    topic: int
    body: bytes
    damage: str
    """Reason why the bytes are not reliable; empty if the message is complete."""
    guard: int | None = None
    """CRC of a damaged message; None if bytes are missing."""


MESSAGES_MAX = 8
"""Largest number of MT messages that are assembled at the same time. If there are more, the oldest
is dropped."""


class MtAssembly:
    """Assembles MT messages from their segments."""

    def __init__(self) -> None:
        self._segments: dict[MessageKey, dict[int, bytes]] = {}

    def add(self, segment: MtSegment) -> None:
        """Store a segment. The same segment may arrive again."""
        if segment.key not in self._segments and len(self._segments) >= MESSAGES_MAX:
            del self._segments[next(iter(self._segments))]
        self._segments.setdefault(segment.key, {})[segment.start] = segment.data

    def finish_message(self, event: MtEnded) -> MtMessage | None:
        """Return the message that has ended, or None if the message was aborted or has no segments.
        If bytes are missing or the CRC is wrong, the message describes this damage.
        """
        segments = self._segments.pop(event.key, {})
        if event.status != COMPLETE or not segments:
            return None
        message_body, gap = bytearray(), 0
        for start in sorted(segments):
            gap += max(0, start - len(message_body))
            del message_body[start:]
            message_body += bytes(start - len(message_body)) + segments[start]
        if gap:
            body = bytes(message_body[:-CRC_BYTES])
            return MtMessage(event.key.topic, body, f"{gap} bytes of it did not arrive")
        body, guard = bytes(message_body[:-CRC_BYTES]), bytes(message_body[-CRC_BYTES:])
        if compute_crc(body) != guard:
            checksum = int.from_bytes(guard)
            return MtMessage(event.key.topic, body, "its CRC is wrong", checksum)
        return MtMessage(event.key.topic, body, "")
