"""What a kind of contact says of itself, so that nothing else in the hub has to know it.

A kind is one module with a `ContactKind`, named in `known.CONTACTS`: how an address of it looks,
what of it may be shown, and how it is told. Each passes `tests/hub/escalation/test_contract.py`.
The whole way is in docs/adding-an-operator.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from fieldagent.http.client import Opener
from fieldagent.hub.escalation.notice import Notice
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Store
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.webhook.delivery import HandoverResult

Send = Callable[[str, Notice], Awaitable[HandoverResult]]
"""Hands a notice over to the address of a contact. It raises nothing for what may happen: the
outcome says it, with the reason and what to do."""


class ContactHost(NamedTuple):
    """What the hub lends to a kind of contact."""

    store: Store
    settings: HubSettings
    open_stream: Opener
    """Reaches what a hub may reach for others."""
    clock: Callable[[], float]
    """Unix time."""


@dataclass(frozen=True, slots=True)
class ContactKind:
    """Describes one kind of contact: all that directory, desk, command line and API ask."""

    name: str
    """What the database and lists call it."""
    by: str
    """How somebody is told, for people: `by e-mail`."""
    service: str
    """Who takes the message, for people: `the mail relay`."""
    sender: Callable[[ContactHost], Send]
    shown: Callable[[str], str]
    """Returns of an address what anybody of the workspace may see: no secret."""
    form: str = ""
    """How people call an address that they type: `an e-mail address`; empty where none is typed."""
    is_one: Callable[[str], bool] = lambda address: False
    """Whether what somebody typed is an address of this kind."""
    fault_of: Callable[[str], str] = lambda address: ""
    """Returns why such an address cannot be used at this hub, and what to do, or nothing."""
    at_the_machine: str = ""
    """Why such a contact is added at the hub's machine alone; empty where the API adds it, too."""
    signs_in: bool = False
    """Who is told opens the desk, where they are signed in: they need no link that answers."""
