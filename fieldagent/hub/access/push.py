"""Reads the body of a cloud push from JSON, and reports all faults at once.

Field names are those of the interface document, "Cloud push request". In addition, `priority`,
`collapseKey` and `timeToLive` have the same meaning as in the local API.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from fieldagent.hub.contract import NUMBER_MAX, number_of
from fieldagent.package.package import SOS_PRIORITY, Item, Location, Message
from fieldagent.package.reading import (
    ITEM_BYTES_MAX,
    ITEMS,
    Fault,
    Field,
    InvalidPackage,
    ItemKind,
    Items,
    WrongValue,
    read_int32,
    read_one_of,
    read_receipt,
    read_seconds,
    read_text,
    read_timestamp,
)
from fieldagent.package.strict_json import load_document
from fieldagent.package.writing import get_kind
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.sentence import sentence


@dataclass(frozen=True, slots=True)
class Push:
    item: Item
    source: int
    workspace: int
    target: int | None
    """The addressed user. None is the whole workspace, and is not possible for a message."""
    priority: int
    timestamp: datetime | None = None
    """Time of a message. Positions contain their own time."""
    collapse_key: int | None = None
    time_to_live: int | None = None
    group: int | str | None = None
    """Id or name of the addressed group, in addition to a `target` if one is set."""
    wants_receipt: bool = False
    """True if the sender wants a read receipt."""
    contact: str = ""
    """JSON of the phone and e-mail in a message; they are part of the addressee's event."""

    @property
    def kind(self) -> str:
        """Return the kind: message, location, waypoint or data."""
        return get_kind(self.item)

    @property
    def sos(self) -> bool:
        """Return True if the push is an SOS: a message or a location with an SOS priority."""
        return self.priority >= SOS_PRIORITY and isinstance(self.item, Message | Location)


@dataclass(frozen=True, slots=True)
class _PushedMessage:
    content: str
    phone: str | None = None
    email: str | None = None
    timestamp: datetime | None = None


def _read_id(value: Any) -> int:
    if isinstance(value, str):
        value = number_of(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= NUMBER_MAX:
        raise WrongValue('must be the number of a user or workspace, such as "12"')
    return value


def _read_group(value: Any) -> int | str:
    """Return a group's id or name."""
    if not isinstance(value, str):
        return _read_id(value)
    if not 1 <= len(value) <= GROUP_MAX:
        raise WrongValue(
            sentence(
                "must have 1 to {most} characters, has {value}",
                most=GROUP_MAX,
                value=len(value),
            )
        )
    return read_text(value)


GROUP_MAX = 80
PHONE_MAX, EMAIL_MAX = 100, 254
"""Largest numbers of bytes of a telephone number and an e-mail address (RFC 5321). Both are
transmitted with the message."""


def _make_text_reader(size: int) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        text = read_text(value)
        if len(text.encode()) > size:
            raise WrongValue(
                sentence(
                    "must be at most {size} bytes of UTF-8, is {text}",
                    size=size,
                    text=len(text.encode()),
                )
            )
        return text

    return read


ITEM_KINDS: Items = {
    **ITEMS,
    "message": ItemKind(
        _PushedMessage,
        ITEMS["message"].priority,
        {
            **ITEMS["message"].members,
            "phone": Field(_make_text_reader(PHONE_MAX), "phone"),
            "email": Field(_make_text_reader(EMAIL_MAX), "email"),
            "timestamp": Field(read_timestamp, "timestamp"),
        },
    ),
}

ROUTING: Mapping[str, Field] = {
    "sourceUserId": Field(_read_id, "source", required=True),
    "workspaceId": Field(_read_id, "workspace", required=True),
    "targetUserId": Field(_read_id, "target"),
    "targetGroup": Field(_read_group, "group"),
    "receipt": Field(read_receipt, "wants_receipt"),
    "priority": Field(read_int32, "priority"),
    "collapseKey": Field(read_int32, "collapse_key"),
    "timeToLive": Field(read_seconds, "time_to_live"),
}


def parse_push(body: bytes) -> Push:
    """Read the body of a push. Raises NotJson, or InvalidPackage with all faults."""
    return read_push(load_document(body))


def read_push(document: Any) -> Push:
    """Read the JSON of a push. Raises InvalidPackage with all faults."""
    item, priority, routing = read_one_of(document, ITEM_KINDS, ROUTING)
    push = {"priority": priority, "target": None, **routing}
    one, group = push["target"], push.get("group")
    if isinstance(item, _PushedMessage) and one is None and group is None:
        detail = "is required for a message, or targetGroup"
        raise InvalidPackage([Fault(detail, "/targetUserId")])
    if isinstance(item, _PushedMessage):
        contact = {"phone": item.phone, "email": item.email}
        text = {name: value for name, value in contact.items() if value}
        if sum(len(each.encode()) for each in (item.content, *text.values())) > ITEM_BYTES_MAX:
            detail = sentence(
                "content, phone and email can have {most} bytes at most together",
                most=ITEM_BYTES_MAX,
            )
            raise InvalidPackage([Fault(detail, "/message/content")])
        push |= {"timestamp": item.timestamp, "contact": json.dumps(text) if text else ""}
        item = Message(item.content)
    return Push(item=item, **push)
