"""What Cloudloop (Ground Control) says and takes: Lingo, and the answers of its Data API. No I/O.

Sources: knowledge.cloudloop.com, lingo/mo, api/send-message, api/get-message. One envelope, Lingo,
serves SBD and IMT modems.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import RemoteProtocolError

IMT, SBD = "imt", "sbd"
"""How this hub calls the two kinds of modem."""
SHOWN = 80
"""Characters of what is wrong."""


class Lingo(NamedTuple):
    """One MO message."""

    id: str
    """Cloudloop's; the same whenever it brings the message again."""
    imei: str
    thing: str
    """What an MT message is addressed to."""
    kind: str
    """IMT or SBD; empty of another network."""
    body: bytes
    topic: str
    location: tuple[float, float, int] | None
    """Latitude, longitude, and the radius in kilometres."""
    fault: str
    """Why the body must not be decoded."""


def read_lingo(document: object) -> Lingo:
    """Return the message of a Lingo. Raises RemoteProtocolError where it cannot be told whose it
    is or what is in it: then the document is to be kept as it came."""
    if not isinstance(document, dict):
        raise RemoteProtocolError("the body is no Lingo: it must be a JSON object")
    identity = _object(document, "identity")
    hardware = _object(identity, "hardware")
    kind = IMT if "imt" in document else SBD if "sbd" in document else ""
    network = _object(document, kind) if kind else {}
    imei = str(hardware.get("imei") or network.get("imei") or "")
    if not re.fullmatch(r"[0-9]{15}", imei):
        raise RemoteProtocolError(f"identity.hardware.imei is {imei[:SHOWN]!r}, which is no IMEI")
    if not kind:
        raise RemoteProtocolError("it is of neither an SBD nor an IMT modem")
    body = from_base64(document.get("message") or "")
    return Lingo(
        _name(document.get("id")),
        imei,
        _name(identity.get("thingId")),
        kind,
        body,
        _name(network.get("topic")).removeprefix("IMT_TOPIC_"),
        _location(network),
        _fault(network, body),
    )


def _name(value: object) -> str:
    """Return what they call something, as any database can hold it."""
    name = str(value or "")[:SHOWN].replace("\0", "?")
    return name.encode("utf-8", "replace").decode()


def _object(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def from_base64(text: object) -> bytes:
    """Return what base64 with or without its padding holds. Raises RemoteProtocolError."""
    if not isinstance(text, str):
        raise RemoteProtocolError("message is no text")
    try:
        return base64.b64decode(
            text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True
        )
    except ValueError:
        raise RemoteProtocolError("message is no base64") from None


def _location(network: Mapping[str, Any]) -> tuple[float, float, int] | None:
    location = _object(network, "location")
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


def _fault(network: Mapping[str, Any], body: bytes) -> str:
    if network.get("crcError") is True:
        return "the network found its CRC wrong"
    size = network.get("size")
    # Whether the CRC counts is not documented.
    if type(size) is int and body and size not in (len(body), len(body) + 2):
        return f"it has {len(body)} bytes, and says that it has {size}"
    return ""


class Record(NamedTuple):
    """A message in Cloudloop's history."""

    id: str
    thing: str
    kind: str
    outgoing: bool
    """It was for the modem (MT)."""
    at: float
    """Unix time."""
    size: int
    start: bytes
    """The first bytes of it: all of a short one."""

    @property
    def whole(self) -> bool:
        """Return whether `start` is all of the message."""
        return len(self.start) == self.size


def read_records(document: object) -> list[Record]:
    """Return the messages of a GetMessageRecords answer that can be read, oldest first.

    Raises RemoteProtocolError.
    """
    listed = document.get("messageRecords") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise RemoteProtocolError("the answer has no messageRecords")
    records = []
    for each in listed:
        try:
            records.append(_record(each))
        except (ValueError, TypeError, KeyError, OverflowError):
            continue
    return sorted(records, key=lambda record: record.at)


def _record(each: Mapping[str, Any]) -> Record:
    moment = datetime.fromisoformat(each["at"])
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return Record(
        _name(each["id"]),
        _name(each["thing"]),
        str(each.get("type", "")).lower(),
        each.get("direction") == "MT",
        moment.timestamp(),
        int(each["size"]),
        bytes.fromhex(each.get("snippet") or ""),
    )


def read_balance(document: object) -> dict[str, float]:
    """Return by its plan what is left, of a GetPoolSummary answer: `summary`, a list of objects
    with `plan`, `remaining`, `allocated` (docs.cloudloop.com/reference, as bindings of 2021 have
    it).

    Raises RemoteProtocolError.
    """
    listed = document.get("summary") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise RemoteProtocolError("the answer has no summary")
    balances = {}
    for each in listed:
        left = each.get("remaining") if isinstance(each, dict) else None
        if isinstance(left, int | float) and not isinstance(left, bool) and isfinite(left):
            balances[str(each.get("plan") or "a plan without a name")[:SHOWN]] = float(left)
    return balances


def moment(unix: float) -> str:
    """Return a Unix time as the API takes it: UTC, in seconds."""
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def mt_request(
    thing: str, kind: str, body: bytes, topic: str, urgent: bool
) -> tuple[str, dict[str, str]]:
    """Return the call of the Data API that hands over an MT message, and the members of its body
    beside the token."""
    if kind == SBD:
        return "DoSendSbdMessage", {"thing": thing, "message": body.hex()}
    return "DoSendImtMessage", {
        "thing": thing,
        "message": base64.b64encode(body).decode("ascii"),
        "topic": f"IMT_TOPIC_{topic}",
        "ringStyle": "RING_STYLE_URGENT" if urgent else "RING_STYLE_NORMAL",
    }
