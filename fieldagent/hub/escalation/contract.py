"""What a kind of contact says of itself, so that nothing else in the hub has to know it.

A kind is one module with a `ContactKind`, named in `known.CONTACTS`: which settings it has, how an
address of it looks, what of it may be shown, how it is told, and by which way it answers. Each
passes `tests/hub/escalation/test_contract.py`. The whole way is in docs/adding-an-operator.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Protocol, TypeAlias

from fieldagent.http.client import Opener
from fieldagent.http.routes import Route
from fieldagent.hub.store.contract import Store
from fieldagent.page.language import ENGLISH
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import Key
from fieldagent.system.supervisor import Note
from fieldagent.webhook.delivery import HandoverResult


@dataclass(frozen=True, slots=True)
class Notice:
    """What a contact is told, in words that fit a mail, a pager and a lock screen."""

    message_id: str
    """Like no other's: who gets it twice can tell."""
    subject: str
    text: str
    sos: int = 0
    """Its number; 0 of a test."""
    device: str = ""
    said: str = ""
    desk: str = ""
    """Its address at the console; empty where none is set, as of `link`."""
    link: str = ""
    """What acknowledges it, once."""
    code: str = ""
    """Six digits that acknowledge it in an answer, once; empty of a test and of a reply."""
    place: str = ""
    """A short address of the map where the kit was last; empty where that is not known."""
    answers: bool = False
    """It is from a kit's user: an answer is for them."""
    whole: bool = False
    """It is for a program: nothing of it may be cut off."""
    language: str = ENGLISH
    """What it is said in."""


Send = Callable[[str, Notice], Awaitable[HandoverResult]]
"""Hands a notice over to the address of a contact. It raises nothing for what may happen: the
outcome says it, with the reason and what to do."""

Own: TypeAlias = "Mapping[str, Any]"
"""Settings that the kinds bring, by name, each as its `Key` reads it."""


class ContactHost(NamedTuple):
    """What the hub lends to a kind of contact."""

    store: Store
    own: Own
    desk: str
    """The address of the console, as people reach it; empty where none is set."""
    open_stream: Opener
    """Reaches what a hub may reach for others."""
    clock: Callable[[], float]
    """Unix time."""


class ContactAnswer(NamedTuple):
    """What somebody wrote back."""

    kind: str
    id: str
    """As the service calls it: what comes again under one `id` is taken in once."""
    sender: str
    """The address it came from, as contacts have it. Anybody can write that on an SMS or a mail."""
    text: str
    answers: str = ""
    """The `message_id` that it answers, where only who was told can know that; otherwise the code
    in the text has to prove it."""


class AnswerInbox(Protocol):
    """The hub, as a kind of contact brings it what came back."""

    async def take(self, answer: ContactAnswer) -> None:
        """Take in what somebody wrote. It is on disk on return, and once however often it comes."""

    async def report(self, message_id: str, reached: bool, reason: str = "") -> None:
        """Note what the service says of a message that it took: that it reached the handset, or
        why it will not."""


class Inward(NamedTuple):
    """What the hub lends to a kind by which contacts answer."""

    host: ContactHost
    inbox: AnswerInbox
    note_fault: Note
    """Logs and counts a fault of ours; what it was about, second."""


@dataclass(frozen=True, slots=True)
class ContactKind:
    """Describes one kind of contact: all that settings, directory, desk, command line and API
    ask."""

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
    keys: tuple[Key, ...] = ()
    """Its settings."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Values for a first settings file, of settings without a default; none of a secret."""
    together: tuple[tuple[str, str], ...] = ()
    """Settings that mean nothing without each other."""
    faults: Callable[[Own], list[str]] = lambda own: []
    """What else is wrong with the settings, each in a sentence with what to do."""
    missing: Callable[[Own], str] = lambda own: ""
    """Returns why nobody can be told with these settings, and what to set, or nothing."""
    is_answered: Callable[[ContactHost], bool] = lambda host: False
    """Returns whether what somebody writes back reaches this hub."""
    routes: Callable[[Inward], list[Route]] = lambda inward: []
    """Where its service brings answers and reports."""
    listen: Callable[[Inward], Callable[[], Awaitable[None]] | None] = lambda inward: None
    """Returns what asks for answers until it is cancelled; None where nothing is to be asked."""
