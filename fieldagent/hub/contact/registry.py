"""Finds the available kinds of contact, which extensions add with `Extension.contact_kinds`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TypeAlias

from fieldagent.extensions import list_places
from fieldagent.hub.contact.contract import ContactHost, ContactKind, Notice, Send
from fieldagent.system.extension import import_named_object
from fieldagent.system.properties import WrongProperty
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult

Kinds: TypeAlias = "Mapping[str, ContactKind]"
"""Kinds by their names in the database."""


def get_contact_kinds(places: Iterable[str] = ()) -> Kinds:
    """Return the kinds of all extensions, and of third parties. `places` are the third-party kinds
    in the form `package.module:NAME`.

    Raises WrongProperty with a text that follows the word `contacts`.
    """
    return _load_kinds((*list_places("contact_kinds").values(), *places))


@cache
def _load_kinds(places: tuple[str, ...]) -> Kinds:
    kinds = [import_named_object(kind_place, ContactKind) for kind_place in places]
    by_name = {kind.name: kind for kind in kinds}
    if len(by_name) < len(kinds):
        raise WrongProperty("names one that already exists")
    return by_name


class ContactSenders:
    """Sends notices to contacts of the kinds that this hub has."""

    def __init__(self, host: ContactHost, kinds: Kinds) -> None:
        self.kinds = kinds
        self.own = host.own
        self.host = host
        self._senders: dict[str, Send] = {name: kind.sender(host) for name, kind in kinds.items()}

    def is_answered(self, kind: ContactKind) -> bool:
        """Return True if answers through this kind reach the hub."""
        return kind.is_answered(self.host)

    async def send_notice(self, kind: str, address: str, notice: Notice) -> HandoverResult:
        """Send a notice to `address` through the service for contacts of `kind`. Return the result
        of the attempt.
        """
        send = self._senders.get(kind)
        if send is None:
            return HandoverResult(HandoverOutcome.FAILED, describe_missing_kind(kind))
        return await send(address, notice)


def describe_missing_kind(kind: str) -> str:
    """Return a text about a contact whose kind is not available at this hub."""
    return f"this hub has no contacts of kind {kind}: name it in its settings, under contacts"
