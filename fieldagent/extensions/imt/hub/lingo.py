"""Messages of Cloudloop (Ground Control): the format Lingo, and the responses of its Data API. No
I/O.

Sources: knowledge.cloudloop.com, lingo/mo, api/send-message, api/get-message. The format Lingo is
the same for SBD and IMT modems.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import RemoteProtocolError

IMT, SBD = "imt", "sbd"
"""Names of the two kinds of modem at this hub."""
LEFT_MAX = 1e15
"""Largest number of credits that a balance can have. A larger number is an error."""
ERROR_CHARACTERS_MAX = 80
"""Largest number of characters of an error text."""


class Lingo(NamedTuple):
    """One MO message, as Cloudloop delivers it."""

    id: str
    """Cloudloop's id of the message. The id stays the same if Cloudloop delivers the message
    again."""
    imei: str
    thing: str
    """Address of the modem, which MT messages need."""
    kind: str
    """IMT or SBD; empty for a modem of another network."""
    body: bytes
    topic: str
    location: tuple[float, float, int] | None
    """Latitude, longitude, and the radius in kilometres."""
    fault: str
    """Reason why the hub must not decode the body, or an empty string."""


def parse_lingo(document: object) -> Lingo:
    """Return the message in a Lingo document. Raises RemoteProtocolError if the sender or the
    content is unknown. In this case, the caller must store the document unchanged.
    """
    if not isinstance(document, dict):
        raise RemoteProtocolError("the body must be a JSON object (Lingo)")
    identity = _read_object(document, "identity")
    hardware = _read_object(identity, "hardware")
    kind = IMT if "imt" in document else SBD if "sbd" in document else ""
    network = _read_object(document, kind) if kind else {}
    imei = str(hardware.get("imei") or network.get("imei") or "")
    if not re.fullmatch(r"[0-9]{15}", imei):
        raise RemoteProtocolError(
            f"identity.hardware.imei is {imei[:ERROR_CHARACTERS_MAX]!r}, which is not an IMEI"
        )
    if not kind:
        raise RemoteProtocolError("the message is of neither an SBD nor an IMT modem")
    body = decode_base64(document.get("message") or "")
    return Lingo(
        _read_name(document.get("id")),
        imei,
        _read_name(identity.get("thingId")),
        kind,
        body,
        _read_name(network.get("topic")).removeprefix("IMT_TOPIC_"),
        _read_location(network),
        _describe_fault(network, body),
    )


def _read_name(value: object) -> str:
    """Return an id from Cloudloop as a text that every database can store."""
    name = str(value or "")[:ERROR_CHARACTERS_MAX].replace("\0", "?")
    return name.encode("utf-8", "replace").decode()


def _read_object(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def decode_base64(text: object) -> bytes:
    """Decode base64 with or without padding. Raises RemoteProtocolError for malformed data."""
    if not isinstance(text, str):
        raise RemoteProtocolError("message is not a text")
    try:
        return base64.b64decode(
            text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True
        )
    except ValueError:
        raise RemoteProtocolError("message is not base64") from None


def _read_location(network: Mapping[str, Any]) -> tuple[float, float, int] | None:
    location = _read_object(network, "location")
    numbers = [location.get(name) for name in ("latitude", "longitude", "cep")]
    if not all(type(each) in (int, float) for each in numbers):
        return None
    try:
        latitude, longitude, radius = map(float, numbers)  # type: ignore[arg-type]
    except OverflowError:
        return None
    if not (abs(latitude) <= 90 and abs(longitude) <= 180 and 0 <= radius < 100_000):
        return None
    return latitude, longitude, round(radius)


def _describe_fault(network: Mapping[str, Any], body: bytes) -> str:
    if network.get("crcError") is True:
        return "the CRC is wrong, as the network reports"
    size = network.get("size")
    # The documentation does not say whether the size includes the CRC.
    if type(size) is int and body and size not in (len(body), len(body) + 2):
        return f"the message has {len(body)} bytes, but its size is {size}"
    return ""


class Record(NamedTuple):
    """One MO or MT message in Cloudloop's history."""

    id: str
    thing: str
    kind: str
    outgoing: bool
    """True if the message was sent to the modem (MT)."""
    at: float
    """Unix time of the message."""
    size: int
    start: bytes
    """First bytes of the message. If the message is short, these are all its bytes."""

    @property
    def whole(self) -> bool:
        """Return True if `start` is the complete message."""
        return len(self.start) == self.size


def parse_records(document: object) -> list[Record]:
    """Return the messages in a GetMessageRecords response that can be decoded, oldest first. Raises
    RemoteProtocolError for malformed data.
    """
    message_records = document.get("messageRecords") if isinstance(document, dict) else None
    if not isinstance(message_records, list):
        raise RemoteProtocolError("the answer has no messageRecords")
    records = []
    for each in message_records:
        try:
            records.append(_read_record(each))
        except (ValueError, TypeError, KeyError, OverflowError):
            continue
    return sorted(records, key=lambda record: record.at)


def _read_record(document: Mapping[str, Any]) -> Record:
    moment = datetime.fromisoformat(document["at"])
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return Record(
        _read_name(document["id"]),
        _read_name(document["thing"]),
        str(document.get("type", "")).lower(),
        document.get("direction") == "MT",
        moment.timestamp(),
        int(document["size"]),
        bytes.fromhex(document.get("snippet") or ""),
    )


def parse_balance(document: object) -> dict[str, float]:
    """Return the remaining amount of each plan from a GetPoolSummary response. The member `summary`
    is a list of objects with `plan`, `remaining`, `allocated` (docs.cloudloop.com/reference, and
    the bindings of 2021).

    Raises RemoteProtocolError for malformed data.
    """
    summary = document.get("summary") if isinstance(document, dict) else None
    if not isinstance(summary, list):
        raise RemoteProtocolError("the answer has no summary")
    balances = {}
    for each in summary:
        remaining = each.get("remaining") if isinstance(each, dict) else None
        if (
            isinstance(remaining, int | float)
            and not isinstance(remaining, bool)
            and abs(remaining) < LEFT_MAX
        ):
            balances[str(each.get("plan") or "a plan without a name")[:ERROR_CHARACTERS_MAX]] = (
                float(remaining)
            )
    return balances


def format_moment(unix: float) -> str:
    """Return a Unix time in the form that the API uses: UTC, in whole seconds."""
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def make_mt_request(
    thing: str, kind: str, body: bytes, topic: str, urgent: bool
) -> tuple[str, dict[str, str]]:
    """Return the name of the Data API's call that sends an MT message, and the members of its body
    without the token.
    """
    if kind == SBD:
        return "DoSendSbdMessage", {"thing": thing, "message": body.hex()}
    return "DoSendImtMessage", {
        "thing": thing,
        "message": base64.b64encode(body).decode("ascii"),
        "topic": f"IMT_TOPIC_{topic}",
        "ringStyle": "RING_STYLE_URGENT" if urgent else "RING_STYLE_NORMAL",
    }
