"""The body of a cloud push: JSON in, every fault at once out.

Field names are those of the interface document, "Cloud push request". Beside them `priority`,
`collapseKey` and `timeToLive` mean what they mean on the local API.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fieldagent.hub.contract import NUMBER_MAX, number_of
from fieldagent.package.package import SOS_PRIORITY, Item, Location, Message
from fieldagent.package.reading import (
    ITEMS,
    Fault,
    Field,
    InvalidPackage,
    Items,
    WrongValue,
    read_int32,
    read_one_of,
    read_seconds,
    read_text,
    read_timestamp,
)
from fieldagent.package.strict_json import load_document
from fieldagent.package.writing import kind_of


@dataclass(frozen=True, slots=True)
class Push:
    item: Item
    source: int
    workspace: int
    target: int | None
    """The user that a message is for; the other kinds go to the whole workspace."""
    priority: int
    timestamp: datetime | None = None
    """Of a message; positions carry their own."""
    collapse_key: int | None = None
    time_to_live: int | None = None
    contact: str = ""
    """JSON of the phone and e-mail that a message names; kept, and not sent on air."""

    @property
    def kind(self) -> str:
        return kind_of(self.item)

    @property
    def sos(self) -> bool:
        return self.priority >= SOS_PRIORITY and isinstance(self.item, Message | Location)


@dataclass(frozen=True, slots=True)
class _PushedMessage:
    content: str
    phone: str | None = None
    email: str | None = None
    timestamp: datetime | None = None


def _id(value: Any) -> int:
    if isinstance(value, str):
        value = number_of(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= NUMBER_MAX:
        raise WrongValue('must be the number of a user or workspace, such as "12"')
    return value


ITEM_KINDS: Items = {
    **ITEMS,
    "message": (
        _PushedMessage,
        ITEMS["message"][1],
        {
            **ITEMS["message"][2],
            "phone": Field(read_text, "phone"),
            "email": Field(read_text, "email"),
            "timestamp": Field(read_timestamp, "timestamp"),
        },
    ),
}

ROUTING: Mapping[str, Field] = {
    "sourceUserId": Field(_id, "source", required=True),
    "workspaceId": Field(_id, "workspace", required=True),
    "targetUserId": Field(_id, "target"),
    "priority": Field(read_int32, "priority"),
    "collapseKey": Field(read_int32, "collapse_key"),
    "timeToLive": Field(read_seconds, "time_to_live"),
}


def parse_push(body: bytes) -> Push:
    """Raises NotJson, or InvalidPackage with every fault in it."""
    document = load_document(body)
    item, priority, routing = read_one_of(document, ITEM_KINDS, ROUTING)
    push = {"priority": priority, "target": None, **routing}
    message = isinstance(item, _PushedMessage)
    if message != (push["target"] is not None):
        detail = "is required for a message" if message else "belongs to a message only"
        raise InvalidPackage([Fault(detail, "/targetUserId")])
    if isinstance(item, _PushedMessage):
        contact = {"phone": item.phone, "email": item.email}
        text = {name: value for name, value in contact.items() if value is not None}
        push |= {"timestamp": item.timestamp, "contact": json.dumps(text) if text else ""}
        item = Message(item.content)
    return Push(item=item, **push)
