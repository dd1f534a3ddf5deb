"""Parses the JSON body of a push, and reports all its errors together.

The field names are those of the interface document, "Cloud push request". The fields `priority`,
`collapseKey` and `timeToLive` are additional. They have the same meaning as in the local API of the
agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from fieldagent.hub.contract import NUMBER_MAX, parse_id
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
from fieldagent.system.wording import sentence


@dataclass(frozen=True, slots=True)
class Push:
    item: Item
    source: int
    workspace: int
    target: int | None
    """The addressed user, or None for the whole workspace. A message needs a user or a group."""
    priority: int
    timestamp: datetime | None = None
    """Time of a message. Positions contain their own time."""
    collapse_key: int | None = None
    time_to_live: int | None = None
    group: int | str | None = None
    """Id or name of the addressed group. A push may have a group and a `target`."""
    wants_receipt: bool = False
    """True if the sender wants a read receipt."""
    contact: str = ""
    """JSON with the telephone number and email address in a message. They become part of the event
    that the addressee gets."""

    @property
    def kind(self) -> str:
        """Return the kind of item: message, location, waypoint or data."""
        return get_kind(self.item)

    @property
    def sos(self) -> bool:
        """Return True if the push is an SOS, that is, a message or a location with the priority of
        an SOS.
        """
        return self.priority >= SOS_PRIORITY and isinstance(self.item, Message | Location)


@dataclass(frozen=True, slots=True)
class _PushedMessage:
    content: str
    phone: str | None = None
    email: str | None = None
    timestamp: datetime | None = None


def _read_id(value: Any) -> int:
    if isinstance(value, str):
        value = parse_id(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= NUMBER_MAX:
        raise WrongValue('must be the number of a user or workspace, such as "12"')
    return value


def _read_group(value: Any) -> int | str:
    """Return the id or name of a group."""
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
"""Largest numbers of bytes of a telephone number and of an email address (RFC 5321). Both are sent
with the message."""


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
    """Parse the body of a push. Raises NotJson, or InvalidPackage with all errors."""
    return parse_push_document(load_document(body))


def parse_push_document(document: Any) -> Push:
    """Return the push in a JSON document. Raises InvalidPackage with all errors."""
    item, priority, routing = read_one_of(document, ITEM_KINDS, ROUTING)
    push = {"priority": priority, "target": None, **routing}
    target, group = push["target"], push.get("group")
    if isinstance(item, _PushedMessage) and target is None and group is None:
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
