"""Interface of a kind of contact, such as email or SMS. Only the module of a kind contains code for
this kind.

A kind is a module with a `ContactKind`, which an extension names. A kind defines its settings, the
form and the visible part of its addresses, how to send, and how answers arrive. Each kind must pass
`tests/extensions/desk/test_contract.py`. docs/how-to/add-an-operator.md describes all steps.
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
    """Notification of a contact. Its texts are suitable for an email, a pager and a lock screen."""

    message_id: str
    """Unique id, from which a recipient can recognise duplicates."""
    subject: str
    text: str
    sos: int = 0
    """Id of the incident; 0 for a test."""
    device: str = ""
    said: str = ""
    desk: str = ""
    """Address of the incident at the console. Empty if no address of the console is configured. In
    this case, `link` is empty too."""
    link: str = ""
    """Link that acknowledges the incident once."""
    code: str = ""
    """Six digits with which a reply acknowledges the incident once. Empty for a test and for a
    response to a reply."""
    place: str = ""
    """Short URL of a map with the kit's last position; empty if the position is unknown."""
    answers: bool = False
    """True if the notice is from a kit's user, to whom the hub sends the answers."""
    whole: bool = False
    """True if a program receives the notice, so that its texts must not be shortened."""
    language: str = ENGLISH
    """Language of the texts."""
    alarm: str = ""
    """Kind of an alarm that the hub itself raised (`sos.kind`); empty for an SOS."""


Send = Callable[[str, Notice], Awaitable[HandoverResult]]
"""Sends a notice to the address of a contact. The function does not raise expected errors. Its
result contains the outcome, the reason and the remedy."""

Own: TypeAlias = "Mapping[str, Any]"
"""Settings of all kinds by name, each in the form that its `Key` reads."""


class ContactHost(NamedTuple):
    """Services that the hub offers to a kind of contact."""

    store: Store
    own: Own
    desk: str
    """Address of the console for people; empty if no address is configured."""
    open_stream: Opener
    """Opens connections, but only to addresses that the hub may call on behalf of its users."""
    clock: Callable[[], float]
    """Returns Unix time."""


class ContactAnswer(NamedTuple):
    """A contact's answer by SMS or email, as its service delivered it."""

    kind: str
    id: str
    """Id that the service gave the answer. The hub ignores a repeat with the same id."""
    sender: str
    """Sender's address in the form of contacts' addresses. Anyone can forge the address of an SMS
    or email."""
    text: str
    answers: str = ""
    """`message_id` of the message that this answer is for, if only the recipient can know this id.
    If it is empty, the code in the text must identify the author."""


class AnswerInbox(Protocol):
    """Part of the hub that processes answers."""

    async def receive_message(self, answer: ContactAnswer) -> None:
        """Process an answer. A repeat is ignored. When the method returns, the answer is on
        disk.
        """

    async def report(self, message_id: str, reached: bool, reason: str = "") -> None:
        """Record a service's report about a message. `reached` is True if the message reached the
        handset. Otherwise, `reason` contains the reason.
        """


class AnswerServices(NamedTuple):
    """Services that the hub offers to a kind of contact with answers."""

    host: ContactHost
    inbox: AnswerInbox
    note_fault: Note
    """Logs and counts a bug in the hub. The second argument describes what the hub was doing."""


@dataclass(frozen=True, slots=True)
class ContactKind:
    """Description of a kind of contact for settings, directory, desk, command line and API."""

    name: str
    """Name in the database and in lists."""
    by: str
    """Way of sending, as a part of sentences for people: `by e-mail`."""
    service: str
    """Name of the service that accepts the message, as shown to people: `the mail relay`."""
    sender: Callable[[ContactHost], Send]
    shown: Callable[[str], str]
    """Returns the part of an address that all members of the workspace may see. The part contains
    no secret."""
    form: str = ""
    """Description of an address, as shown to people: `an e-mail address`. Empty if people do not
    type the address."""
    is_one: Callable[[str], bool] = lambda address: False
    """Returns True if a text that a person typed is an address of this kind."""
    fault_of: Callable[[str], str] = lambda address: ""
    """Returns the reason, with the fix, why this hub cannot use an address of this kind. Returns an
    empty string if the hub can use the address."""
    at_the_machine: str = ""
    """Reason why a contact of this kind can only be added on the hub's machine. Empty if the API
    can add such a contact."""
    signs_in: bool = False
    """True if recipients open the desk, where they are signed in, so that they need no link to
    answer."""
    keys: tuple[Key, ...] = ()
    """Keys with which the hub's settings file configures this kind of contact."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Example values in the first settings file, for settings without a default. A secret has no
    example."""
    together: tuple[tuple[str, str], ...] = ()
    """Settings that must be set together."""
    faults: Callable[[Own], list[str]] = lambda own: []
    """Returns other errors in the settings. Each is a sentence that contains the fix."""
    missing: Callable[[Own], str] = lambda own: ""
    """Returns the reason, with the fix, why the hub cannot notify anyone with these settings.
    Returns an empty string if it can."""
    is_answered: Callable[[ContactHost], bool] = lambda host: False
    """Returns True if answers reach this hub."""
    routes: Callable[[AnswerServices], list[Route]] = lambda inward: []
    """Returns the routes on which the kind's service delivers answers and reports."""
    listen: Callable[[AnswerServices], Callable[[], Awaitable[None]] | None] = lambda inward: None
    """Returns a function that polls for answers until it is cancelled, or None if there is nothing
    to poll."""
