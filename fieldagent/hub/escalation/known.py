"""Which kinds of contact there are. A new one is a module beside this one, and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from fieldagent.hub.access.directory import Refused
from fieldagent.hub.escalation.contract import ContactHost, ContactKind, Send
from fieldagent.hub.records.alarm import PUSH
from fieldagent.system.named_object import named_object

CONTACTS = {
    "email": "fieldagent.hub.escalation.mail:KIND",
    "apprise": "fieldagent.hub.escalation.services:KIND",
    PUSH: "fieldagent.hub.escalation.browser:KIND",
}
"""By what the database calls them."""


@cache
def contact_kinds() -> Mapping[str, ContactKind]:
    return {name: named_object(place, ContactKind) for name, place in CONTACTS.items()}


def kind_of(address: str) -> ContactKind:
    """Return the kind of an address as people write it. Raises Refused."""
    kinds = contact_kinds().values()
    found = next((kind for kind in kinds if kind.is_one(address)), None)
    if found is None:
        forms = " nor ".join(kind.form for kind in kinds if kind.form)
        raise Refused(f"{address!r} is neither {forms}")
    return found


def senders(host: ContactHost) -> dict[str, Send]:
    """Return how each kind is told, by its name."""
    return {name: kind.sender(host) for name, kind in contact_kinds().items()}
