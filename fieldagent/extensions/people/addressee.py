"""Selects inbound items for people with handhelds, and writes their texts.

The module provides a hook like any other hook. An item is handed over when its text for the person
is on disk. The hook selects these items:

    an item to a user whose handheld is known
    a message that begins with `@name `, from a sender who cannot address a person in another way
    an update about this kit's SOS, for all people in this SOS
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from fieldagent.agent.inbound.hooks import Hook
from fieldagent.agent.journal import handhelds
from fieldagent.extensions.people.directory import Handles
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult

NAME = "people's radio"


def make_people_hook(handles: Handles, lifetime_s: int) -> Hook:
    """Return the hook that queues texts for handhelds. `lifetime_s` is the number of seconds for
    which the kit tries to send a text.
    """
    return Hook(NAME, partial(_post_text, handles, lifetime_s))


async def _post_text(directory: Handles, lifetime_s: int, delivery: Delivery) -> HandoverResult:
    journal = directory.journal
    payload = json.loads(delivery.body)["payloads"][0]
    event, sender = payload["events"][0], payload["identity"]
    handles = _list_handles(directory, event)
    text = _find_text(event, sender.get("name") or sender["id"])
    now = journal.clock.now()
    for handle in handles if text else ():
        # If there is only one addressee, use the id of the item as the id of the text, so that its
        # sender gets the receipt.
        request = delivery.request_id
        if len(handles) > 1:
            request = f"{request} {handle}"
        await journal.persist(handhelds.store_text(handle, request, text, now, now + lifetime_s))
    return HandoverResult(HandoverOutcome.HANDED)


def _list_handles(handles: Handles, event: Mapping[str, Any]) -> list[str]:
    update = event.get("incident", {})
    if "state" in update and "device" not in update:
        return [each.handle for each in handhelds.list_in_sos(handles.journal, update["number"])]
    addressee = event.get("to", {})
    handle = None
    if addressee.get("type") == "User" and "id" in addressee:
        handle = handles.find_by_user(int(addressee["id"]))
    elif "name" in addressee and "id" not in addressee:
        handle = handles.find_by_name(addressee["name"])
    elif not addressee and (name := _find_addressed_name(event)):
        handle = handles.find_by_name(name)
    return [handle] if handle else []


def _find_addressed_name(event: Mapping[str, Any]) -> str:
    """Return the name at the beginning of a message such as `@Ada come back`, or an empty
    string.
    """
    first = event.get("content", "").partition(" ")[0]
    return first[1:].rstrip(":,") if first.startswith("@") else ""


def _find_text(event: Mapping[str, Any], sender: str) -> str:
    kind = event["type"]
    if "incident" in event and "state" in event["incident"]:
        return str(event["content"])
    if kind == "Message":
        content = str(event["content"])
        if _find_addressed_name(event):
            content = content.partition(" ")[2]
        return f"{sender}: {content}"
    if kind in ("Location", "Waypoint"):
        name = event.get("name") or "position"
        return f"{sender}: {name} {event['latitude']} {event['longitude']}"
    return ""
