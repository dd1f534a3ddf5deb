"""Interface of a kind of contact, so that no other part of the hub needs to know the kind.

A kind is a module with a `ContactKind`, named in `registry.CONTACTS` or by an extension. A kind
defines its settings, the form and the visible part of its addresses, how to send, and how answers
arrive. Each kind must pass `tests/hub/escalation/test_contract.py`. All steps are in
docs/how-to/add-an-operator.md.
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
    """Notification of a contact, with texts that fit a mail, a pager and a lock screen."""

    message_id: str
    """Unique id, by which a recipient can detect duplicates."""
    subject: str
    text: str
    sos: int = 0
    """Id of the incident; 0 for a test."""
    device: str = ""
    said: str = ""
    desk: str = ""
    """Address of the incident at the console. Empty if none is configured, also for `link`."""
    link: str = ""
    """Link that acknowledges the incident once."""
    code: str = ""
    """Six digits that acknowledge the incident once in an answer; empty for a test and a reply."""
    place: str = ""
    """Short map address of the kit's last position; empty if unknown."""
    answers: bool = False
    """True if the notice is from a kit's user, who gets the answers."""
    whole: bool = False
    """True if the notice is for a program and must not be cut."""
    language: str = ENGLISH
    """Language of the texts."""
    alarm: str = ""
    """Kind of the hub's own alarm (`sos.kind`); empty for an SOS."""


Send = Callable[[str, Notice], Awaitable[HandoverResult]]
"""Sends a notice to the address of a contact. The function does not raise expected errors: the
result contains the outcome, the reason and the remedy."""

Own: TypeAlias = "Mapping[str, Any]"
"""Settings of the kinds by name, each in the form that its `Key` reads."""


class ContactHost(NamedTuple):
    """Services of the hub for a kind of contact."""

    store: Store
    own: Own
    desk: str
    """Address of the console for people; empty if none is configured."""
    open_stream: Opener
    """Opens connections, only to addresses that the hub may call on behalf of its users."""
    clock: Callable[[], float]
    """Returns Unix time."""


class ContactAnswer(NamedTuple):
    """An answer of a contact."""

    kind: str
    id: str
    """The service's id. A repeat with the same id is ignored."""
    sender: str
    """Sender's address in the form of contacts' addresses. An SMS or a mail can have a forged
    address."""
    text: str
    answers: str = ""
    """`message_id` of the message that this one answers, if only the recipient can know that id.
    Otherwise the code in the text must prove the author."""


class AnswerInbox(Protocol):
    """Receiver of answers in the hub."""

    async def receive_message(self, answer: ContactAnswer) -> None:
        """Process an answer. The answer is on disk on return, and a repeat is ignored."""

    async def report(self, message_id: str, reached: bool, reason: str = "") -> None:
        """Record a service's report on a message: True if the message reached the handset,
        otherwise False and the reason.
        """


class AnswerServices(NamedTuple):
    """Services of the hub for a kind with answers."""

    host: ContactHost
    inbox: AnswerInbox
    note_fault: Note
    """Logs and counts a bug in the hub. The second argument is the context of the bug."""


@dataclass(frozen=True, slots=True)
class ContactKind:
    """Description of a kind of contact for settings, directory, desk, command line and API."""

    name: str
    """Name in the database and in lists."""
    by: str
    """Manner of sending, for people: `by e-mail`."""
    service: str
    """Name of the service that accepts the message, for people: `the mail relay`."""
    sender: Callable[[ContactHost], Send]
    shown: Callable[[str], str]
    """Returns the part of an address that the whole workspace may see, without secrets."""
    form: str = ""
    """Description of an address for people: `an e-mail address`. Empty if people do not type it."""
    is_one: Callable[[str], bool] = lambda address: False
    """Returns True if a typed text is an address of this kind."""
    fault_of: Callable[[str], str] = lambda address: ""
    """Returns the reason why an address of this kind cannot be used at this hub, with the fix, or
    an empty string."""
    at_the_machine: str = ""
    """Reason why a contact of this kind can only be added at the hub's machine; empty if the API
    can add such a contact."""
    signs_in: bool = False
    """True if recipients open the desk, where they are signed in, and so need no link to answer."""
    keys: tuple[Key, ...] = ()
    """Settings of the kind."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Examples for the first settings file, for settings without a default; none for a secret."""
    together: tuple[tuple[str, str], ...] = ()
    """Settings that must be set together."""
    faults: Callable[[Own], list[str]] = lambda own: []
    """Returns other faults of the settings, each as a sentence with the fix."""
    missing: Callable[[Own], str] = lambda own: ""
    """Returns the reason why these settings cannot notify anyone, with the fix, or an empty string.
    """
    is_answered: Callable[[ContactHost], bool] = lambda host: False
    """Returns True if answers reach this hub."""
    routes: Callable[[AnswerServices], list[Route]] = lambda inward: []
    """Returns the routes on which the kind's service delivers answers and reports."""
    listen: Callable[[AnswerServices], Callable[[], Awaitable[None]] | None] = lambda inward: None
    """Returns a function that polls for answers until cancelled; None if there is nothing to poll.
    """
