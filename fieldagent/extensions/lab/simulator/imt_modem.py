"""An Iridium Certus 9704, as its host sees it on the serial line: the modem's side of JSPR. No I/O.

As far as known, the simulated modem behaves like the real modem in all points that can cause
trouble for a driver. A reset clears its API version and its state, and restarts the message
numbers. The modem continues with a message that the host has abandoned. It keeps no copy of
messages that it passed on. Commands cause failures that happen in the field.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol

from fieldagent.system.lazy_dataclass import dataclass

VERSIONS = ((1, 7, 0), (1, 6, 1), (1, 6, 0))
TOPICS = ((244, "RAW"), (313, "PURPLE"), (314, "PINK"))
PAYLOAD_BYTES = 100_000
"""Largest number of bytes of a message in each direction, without its CRC."""
MO_SEGMENT = 1446
"""Largest number of bytes of a segment that the modem requests from the host."""
FINALS = (
    *("mo_ack_received", "message_cancelled_pre_transit", "segment_not_supplied"),
    *("segment_incorrect", "message_dropped_local_crc_error", "user_supplied_crc_error"),
    *("message_discarded_on_overflow", "subscription_invalid", "message_expired"),
    *("message_transfer_timeout", "network_error", "protocol_error", "crc_error_in_transfer"),
    "message_cancelled_in_transit",
)
"""Possible values of `final_mo_status`."""
MT_SEGMENT = 1080
"""Segment size in bytes. The manufacturer's library 1.1.2 reads only 1083 bytes of a segment,
although it accepts longer segments."""
_REQUEST = re.compile(r"(GET|PUT) ([A-Za-z]{1,29}) (\{.*\})")


class ImtGateway(Protocol):
    """The operator's gateway, to which the modem connects."""

    def receive_mobile_originated(self, imei: str, number: int, body: bytes) -> None:
        """Process an MO message from the modem with this IMEI."""

    def get_mobile_terminated(self) -> bytes | None:
        """Return the first waiting MT message, or None if there is none. The message remains until
        `remove_mobile_terminated` is called.
        """

    def remove_mobile_terminated(self) -> None:
        """Remove the first waiting MT message."""


STEPS: Mapping[str, str] = {
    "offered": "before it answers that it accepts the message",
    "accepted": "once it has accepted the message, before it asks for a segment",
    "told": "once the network has the message, before it reports that",
}
"""Steps at which a modem can lose power, in addition to the segments (`reset_after`)."""


@dataclass
class ImtFaults:
    """Planned failures. A number is the number of times that the failure will still happen."""

    deaf: bool = False
    """True if the modem reads and sends nothing on the line. Its messages continue."""
    finals: deque[tuple[str, bool]] = field(default_factory=deque)
    """Final status of each of the next messages, with True if the network receives the message."""
    lose_finals: int = 0
    """Number of final statuses that are not sent."""
    malformed: int = 0
    """Number of requests that are answered with 405."""
    lose_answers: int = 0
    """Number of answers to `messageOriginate` that are lost. The message is sent anyway."""
    refusals: deque[str] = field(default_factory=deque)
    """Reasons for which the next messages are refused (`message_response`)."""
    interleave: int = 0
    """Number of messages from the network that arrive between a request and its answer."""
    pause_after: int | None = None
    """Number of segments of the next message after which the modem requests no more segments."""
    reset_after: int | None = None
    """Number of segments of the next message after which the modem loses power."""
    reset_at: str = ""
    """Step of the next message at which the modem loses power: one of `STEPS`."""
    no_topics: bool = False
    """True if the SIM is new and has no topics."""
    no_sim: bool = False
    no_activity: bool = False
    """True if the firmware does not support `messageActivityStatus`, which was added in API
    1.6.0."""
    wrong_crcs: int = 0
    """Number of messages from the network with a wrong CRC."""


@dataclass
class _MoMessage:
    topic: int
    id: int
    size: int
    body: bytearray = field(default_factory=bytearray)
    segments: int = 0
    is_complete: bool = False
    cancelled: bool = False


@dataclass
class VolatileState:
    """Values that a reset clears, in addition to the state and the message."""

    next_mo: int = 0
    next_mt: int = 0
    reports_activity: bool = False
    requested_segment: tuple[int, int] | None = None
    """Message, and start of the segment, that the modem requests from the host."""


class SimulatedImtModem:
    """A simulated modem. `receive_data` accepts the host's bytes, and `data_to_send` returns the
    modem's bytes.

    After the modem has a complete message, `has_transit` is True until the owner calls
    `finish_transit`.
    """

    def __init__(self, gateway: ImtGateway, *, imei: str = "300258060000001") -> None:
        self.imei = imei
        self.faults = ImtFaults()
        self.visible, self.bars = True, 4
        self.boots = 0
        self.number = 0
        """Number of messages that were sent since the modem was created."""
        self._gateway = gateway
        self._output = bytearray()
        self._start_up()
        self._output.clear()

    def _start_up(self) -> None:
        self.boots += 1
        self.version: tuple[int, int, int] | None = None
        self.interface, self.state = "none", "inactive"
        self.volatile_state = VolatileState()
        self._input = bytearray()
        self._mo: _MoMessage | None = None
        version = {"major": 1, "minor": 5, "patch": 5, "build_info": "simulated"}
        self._output += b"\0\0\0\x11"
        self._send_report(
            "bootInfo",
            {"image_type": "production", "boot_source": "primary", "version": version},
        )

    def receive_data(self, data: bytes) -> None:
        """Add bytes from the host, and process each complete line."""
        if self.faults.deaf:
            return
        self._input += data
        while (end := self._input.find(b"\r")) >= 0:
            line = self._input[:end].decode("ascii", "replace")
            del self._input[: end + 1]
            if line.strip("\n"):
                self._obey(line.strip("\n"))

    def data_to_send(self) -> bytes:
        """Return the bytes for the host, and remove them."""
        data = bytes(self._output)
        self._output.clear()
        return b"" if self.faults.deaf else data

    def _send_to_host(self, code: int, target: str, body: Mapping[str, object]) -> None:
        text = json.dumps(body, separators=(",", ":"))
        self._output += f"{code} {target} {text}\r".encode("ascii")

    def _send_report(self, target: str, body: Mapping[str, object]) -> None:
        self._send_to_host(299, target, body)

    def _obey(self, line: str) -> None:
        match = _REQUEST.fullmatch(line)
        if self.faults.malformed or match is None:
            self.faults.malformed = max(0, self.faults.malformed - 1)
            self._send_to_host(405, "MALFORMED", {})
            return
        verb, target, text = match.groups()
        if re.search(r",(?! )", re.sub(r'"data": ?"[^"]*"', "", text)):
            # Like real modems, refuse JSON that contains no spaces.
            self._send_to_host(407, target, {})
            return
        try:
            body = json.loads(text)
        except ValueError:
            self._send_to_host(407, target, {})
            return
        if self.faults.interleave and self.state == "active":
            self.faults.interleave -= 1
            self.push_mail()
        if self.version is None and target != "apiVersion":
            self._send_to_host(400, target, {})
            return
        if target == "messageActivityStatus" and self.faults.no_activity:
            self._send_to_host(404, target, {})
        elif verb == "GET" and target in _GET_ANSWERS:
            self._send_to_host(200, target, _GET_ANSWERS[target](self))
        elif verb == "PUT" and target in _SET:
            try:
                _SET[target](self, body)
            except (KeyError, TypeError, ValueError):
                # A member is missing or has a wrong type, which the real modem also answers with
                # 407.
                self._send_to_host(407, target, {})
        else:
            self._send_to_host(404, target, {})

    def _set_version(self, body: Mapping[str, Any]) -> None:
        wanted_version = body["active_version"]
        self.version = (wanted_version["major"], wanted_version["minor"], wanted_version["patch"])
        self._send_to_host(200, "apiVersion", _make_version_report(self))

    def _set_sim(self, body: Mapping[str, Any]) -> None:
        self.interface = body["interface"]
        self._send_to_host(200, "simConfig", {"interface": self.interface})
        self._send_report("simStatus", _make_sim_report(self))

    def _set_state(self, body: Mapping[str, Any]) -> None:
        if self.interface == "none":
            self._send_to_host(410, "operationalState", {})
            return
        self.state = body["state"]
        self._send_to_host(200, "operationalState", {"state": self.state, "reason": 0})
        self._send_report("operationalState", {"state": self.state, "reason": 0})
        if self.state == "active":
            self._send_report("constellationState", _make_sky_report(self))
            self.push_mail()

    def _set_activity(self, body: Mapping[str, Any]) -> None:
        self.volatile_state.reports_activity = body["enabled"] is True
        self._send_to_host(200, "messageActivityStatus", _make_activity_report(self))

    def _send_activity(self) -> None:
        if self.volatile_state.reports_activity:
            self._send_report("messageActivityStatus", _make_activity_report(self))

    def _begin_message(self, body: Mapping[str, Any]) -> None:
        topic, size = body["topic_id"], body["message_length"]
        if self.state != "active" or topic not in {id_ for id_, _ in TOPICS}:
            self._send_to_host(418, "messageOriginate", {})
            return
        if self._is_power_lost("offered"):
            return
        members = {"topic_id": topic, "request_reference": body["request_reference"]}
        refusal = self.faults.refusals.popleft() if self.faults.refusals else None
        if self._mo is not None:
            refusal = "message_discarded_on_overflow"
        if refusal is not None:
            self._send_to_host(200, "messageOriginate", {**members, "message_response": refusal})
            return
        self._mo = _MoMessage(topic, self.volatile_state.next_mo, size)
        self.volatile_state.next_mo = (self.volatile_state.next_mo + 1) % 256
        message_members = {
            **members,
            "message_id": self._mo.id,
            "message_response": "message_accepted",
        }
        if self.faults.lose_answers:
            self.faults.lose_answers -= 1
        else:
            self._send_to_host(200, "messageOriginate", message_members)
        if not self._is_power_lost("accepted"):
            self._send_activity()
            self._request_segment(self._mo)

    def _request_segment(self, mo: _MoMessage) -> None:
        if self.faults.pause_after == mo.segments:
            self.faults.pause_after = None
            return
        length = min(MO_SEGMENT, mo.size - len(mo.body))
        self.volatile_state.requested_segment = (mo.id, len(mo.body))
        segment_request = {"segment_length": length, "segment_start": len(mo.body)}
        self._send_report("messageOriginateSegment", {**_make_key_members(mo), **segment_request})

    def _process_segment(self, body: Mapping[str, Any]) -> None:
        mo = self._mo
        if mo is None or body["message_id"] != mo.id or body["segment_start"] != len(mo.body):
            self._send_to_host(406, "messageOriginateSegment", {})
            return
        self.volatile_state.requested_segment = None
        data = base64.b64decode(body["data"])
        if len(data) != body["segment_length"]:
            self._finish_message(mo, "segment_incorrect")
            return
        mo.body += data
        mo.segments += 1
        self._send_to_host(200, "messageOriginateSegment", _make_key_members(mo))
        if self.faults.reset_after == mo.segments:
            self.faults.reset_after = None
            self.reset()
        elif len(mo.body) < mo.size:
            self._request_segment(mo)
        elif _compute_crc(bytes(mo.body[:-2])) != bytes(mo.body[-2:]):
            self._finish_message(mo, "message_dropped_local_crc_error")
        else:
            mo.is_complete = True

    def _cancel(self, body: Mapping[str, Any]) -> None:
        mo = self._mo
        if mo is None or body["message_id"] != mo.id:
            self._send_to_host(406, "messageOriginateStatus", {})
        elif body.get("action") != "cancel":
            self._send_to_host(413, "messageOriginateStatus", {})
        else:
            self._send_to_host(200, "messageOriginateStatus", _make_key_members(mo))
            if mo.is_complete and self.visible:
                mo.cancelled = True  # It is too late for a cancel. The modem reports the result.
            else:
                self._finish_message(mo, "message_cancelled_pre_transit")

    def _finish_message(self, mo: _MoMessage, status: str) -> None:
        self._mo = self.volatile_state.requested_segment = None
        if self.faults.lose_finals:
            self.faults.lose_finals -= 1
        else:
            self._send_report(
                "messageOriginateStatus", {**_make_key_members(mo), "final_mo_status": status}
            )
        self._send_activity()

    @property
    def has_transit(self) -> bool:
        """Return True if a message is on its way to the network."""
        return self._mo is not None and self._mo.is_complete and self.visible

    def miss_segment(self) -> None:
        """End the message if the host has not sent the requested segment in time."""
        if self._mo is not None and self.volatile_state.requested_segment is not None:
            self._finish_message(self._mo, "segment_not_supplied")

    def finish_transit(self) -> None:
        """If a message is on its way, complete it with the network's answer."""
        mo = self._mo
        if mo is None or not mo.is_complete:
            return
        outcome, arrives = "mo_ack_received", True
        if self.faults.finals:
            outcome, arrives = self.faults.finals.popleft()
        if arrives:
            self.number += 1
            self._gateway.receive_mobile_originated(self.imei, self.number, bytes(mo.body[:-2]))
        if self._is_power_lost("told"):
            return
        self._finish_message(mo, outcome)
        self.push_mail()

    def push_mail(self) -> None:
        """If the modem is on the network, push the messages that wait at the gateway to the
        host.
        """
        if self.state != "active" or not self.visible:
            return
        while (body := self._gateway.get_mobile_terminated()) is not None:
            self._gateway.remove_mobile_terminated()
            self._push(body)

    def _push(self, body: bytes) -> None:
        guard = _compute_crc(body)
        if self.faults.wrong_crcs:
            self.faults.wrong_crcs -= 1
            guard = bytes([guard[0] ^ 1, guard[1]])
        body_with_guard = body + guard
        message_members = {"topic_id": TOPICS[0][0], "message_id": self.volatile_state.next_mt}
        self.volatile_state.next_mt = (self.volatile_state.next_mt + 1) % 256
        self._send_report(
            "messageTerminate", {**message_members, "message_length_max": len(body_with_guard)}
        )
        for start in range(0, len(body_with_guard), MT_SEGMENT):
            piece = body_with_guard[start : start + MT_SEGMENT]
            segment = {"segment_length": len(piece), "segment_start": start}
            data = {"data": base64.b64encode(piece).decode("ascii")}
            self._send_report("messageTerminateSegment", {**message_members, **segment, **data})
        self._send_report(
            "messageTerminateStatus", {**message_members, "final_mt_status": "complete"}
        )

    def set_sky(self, *, visible: bool, bars: int) -> None:
        """Set the visibility of the network and the signal bars."""
        self.visible, self.bars = visible, bars
        if self.state == "active":
            self._send_report("constellationState", _make_sky_report(self))
        self.push_mail()

    def reset(self) -> None:
        """Simulate a short power failure, in which all volatile state and the current message are
        lost.
        """
        self._output.clear()
        self._start_up()

    def _is_power_lost(self, step: str) -> bool:
        if self.faults.reset_at != step:
            return False
        self.faults.reset_at = ""
        # Bytes that were written before the reset have already reached the host.
        output = bytes(self._output)
        self._start_up()
        self._output[:0] = output
        return True


def _make_version_report(modem: SimulatedImtModem) -> dict[str, object]:
    answer: dict[str, object] = {
        "supported_versions": [_make_version_members(each) for each in VERSIONS]
    }
    if modem.version is not None:
        answer["active_version"] = _make_version_members(modem.version)
    return answer


def _make_hardware_report(modem: SimulatedImtModem) -> dict[str, object]:
    answer = {"hw_version": "0x0601", "serial_number": "1a07ty", "imei": modem.imei}
    return {**answer, "board_temp": 19}


def _make_sim_report(modem: SimulatedImtModem) -> dict[str, object]:
    has_sim = modem.interface != "none" and not modem.faults.no_sim
    number = "8988169771000000001" if has_sim else ""
    return {"card_present": has_sim, "sim_connected": has_sim, "iccid": number}


def _make_sky_report(modem: SimulatedImtModem) -> dict[str, object]:
    if not modem.visible:
        return {"constellation_visible": False}
    level = {"signal_bars": modem.bars, "signal_level": -115 + modem.bars}
    return {"constellation_visible": True, **level}


def _make_topics_report(modem: SimulatedImtModem) -> dict[str, object]:
    limits = {"priority": "High", "discard_time_seconds": 604_800, "max_queue_depth": 99}
    topics = () if modem.faults.no_topics else TOPICS
    return {
        "provisioning": [{"topic_id": id_, "topic_name": name, **limits} for id_, name in topics]
    }


def _make_activity_report(modem: SimulatedImtModem) -> dict[str, object]:
    return {"enabled": modem.volatile_state.reports_activity, "active": modem._mo is not None}


_GET_ANSWERS: Mapping[str, Callable[[SimulatedImtModem], dict[str, object]]] = {
    "apiVersion": _make_version_report,
    "hwInfo": _make_hardware_report,
    "simConfig": lambda modem: {"interface": modem.interface},
    "simStatus": _make_sim_report,
    "operationalState": lambda modem: {"state": modem.state, "reason": 0},
    "constellationState": _make_sky_report,
    "messageProvisioning": _make_topics_report,
    "messageActivityStatus": _make_activity_report,
}
"""Functions that answer GET requests."""
_SET: Mapping[str, Callable[[SimulatedImtModem, Mapping[str, Any]], None]] = {
    "apiVersion": SimulatedImtModem._set_version,
    "simConfig": SimulatedImtModem._set_sim,
    "operationalState": SimulatedImtModem._set_state,
    "messageActivityStatus": SimulatedImtModem._set_activity,
    "messageOriginate": SimulatedImtModem._begin_message,
    "messageOriginateSegment": SimulatedImtModem._process_segment,
    "messageOriginateStatus": SimulatedImtModem._cancel,
}
"""Functions that carry out PUT requests."""


def _compute_crc(body: bytes) -> bytes:
    """Return the CRC-16/XMODEM of a message."""
    return binascii.crc_hqx(body, 0).to_bytes(2)


def _make_key_members(mo: _MoMessage) -> dict[str, object]:
    return {"topic_id": mo.topic, "message_id": mo.id}


def _make_version_members(numbers: tuple[int, int, int]) -> dict[str, object]:
    return dict(zip(("major", "minor", "patch"), numbers, strict=True))
