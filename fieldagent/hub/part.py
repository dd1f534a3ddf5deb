"""Interface of a part that an extension adds to the hub."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from fieldagent.extensions import list_places
from fieldagent.http.routes import Route
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.directory import Row
from fieldagent.hub.contact.contract import AnswerInbox
from fieldagent.hub.contact.registry import ContactSenders
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.records.usage import Prices
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.coordinates import DatedPlace
from fieldagent.system.extension import import_named_object
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.supervisor import Note

NO_ADDRESSES = "this hub sends no e-mail or SMS"
"""Reason why an item for an address is not sent, if no extension sends such items."""


@dataclass(frozen=True, slots=True)
class PartHost:
    """Services that the hub offers to the parts of extensions."""

    store: Store
    authentication: Authentication
    clock: Callable[[], float]
    """Returns Unix time."""
    prices: Prices
    """Returns an operator's price per credit."""
    note_event: Callable[[str, ItemResult], None]
    """Counts an event that arrived. The arguments are the name of its source and its result."""
    reach: ContactSenders
    """Sends notices to contacts, and contains the kinds of contacts and their settings."""


class KitPosition(NamedTuple):
    """Position of a kit or a tracker, with the member to whom the kit or tracker belongs."""

    device: int
    workspace: int
    member: int
    name: str
    position: DatedPlace


class TimedAct(Protocol):
    """Function that does the work that is due at the Unix time `now`, and returns lines for the
    log.
    """

    def __call__(self, db: Db, now: float) -> list[str]: ...


class Deletion(Protocol):
    """Function that deletes some rows that ended before a Unix time and returns their number."""

    def __call__(self, db: Db, before: float) -> int: ...


class AddressSending(Protocol):
    """Function that queues an item for an email address or a telephone number at a Unix time. It
    returns the reason why the item cannot be sent, or an empty string.
    """

    def __call__(self, db: Db, item: int, address: str, now: float) -> str: ...


class AnswerLinking(Protocol):
    """Function that returns the path of a link with which the person `name`, who gets the message
    `message_id`, can acknowledge an incident once.
    """

    def __call__(self, db: Db, sos: int, name: str, message_id: str, now: float) -> str: ...


class HubCheck(NamedTuple):
    """A check that the hub runs when the check is due."""

    next_due: Callable[[Db], float]
    """Returns the Unix time when `look` should run next."""
    look: TimedAct


@dataclass(frozen=True, slots=True)
class HubPart:
    """Description of one part of the hub. Each field is optional."""

    routes: Callable[[PartHost], Sequence[Route]] = lambda host: ()
    tasks: Mapping[str, Callable[[PartHost, Note], Awaitable[None]]] = field(default_factory=dict)
    """Functions that run until cancelled, by the name that people see. The second argument logs and
    counts a bug in the hub."""
    make_inbox: Callable[[PartHost], AnswerInbox] | None = None
    """Returns the object that processes the answers of contacts. The hub uses the first part that
    has this function, and ignores the answers if there is none."""
    is_notifying_contacts: bool = False
    """True if a task of the part notifies the contacts of an SOS."""
    send_to_address: AddressSending | None = None
    """Queues items for addresses. The hub uses the first part that has this function."""
    make_answer_link: AnswerLinking | None = None
    """Makes links for webhooks. The hub uses the first part that has this function."""
    read_figures: Callable[[Db, PartHost], Mapping[str, float]] | None = None
    """Returns the values of metrics, by the metric's name without `fieldagent_hub_`."""
    take_positions: Callable[[Db, Sequence[KitPosition], float], None] | None = None
    """Processes new positions in the transaction that stores them. The last argument is Unix
    time."""
    checks: Sequence[HubCheck] = ()
    forget: Deletion | None = None
    exports: Mapping[str, Callable[[Db, int], list[Row]]] = field(default_factory=dict)
    """Functions that return the rows for the export of a workspace, by the name of the exported
    file."""
    refusals: str = ""
    """Name of the Python package that contains the catalogues of the part's error texts."""
    console: str = ""
    """Package that contains a script of the console and the catalogues of its texts. The script has
    the name of the part, for example `places.js`, so the name of the part must be a JavaScript
    identifier. Each export of the script is optional. `console.js` calls `setUp`, `startSession`,
    `load` and `endSession`, and `chart.js` calls `loadMap` and `drawOnMap`. `administration.js`
    shows `subjects`, and `usage.js` shows the result of `linksOf`."""
    console_subjects: Sequence[str] = ()
    """Names of the script's `subjects`. Each has a page at `/console/administration/NAME`."""


def list_hub_parts() -> list[HubPart]:
    """Return the hub parts of all extensions."""
    return [*_load_parts().values()]


def list_console_parts() -> dict[str, str]:
    """Return the packages of the parts that add a script to the console, by the name of the
    part.
    """
    return {name: part.console for name, part in _load_parts().items() if part.console}


def _load_parts() -> dict[str, HubPart]:
    return {
        name: import_named_object(part_place, HubPart)
        for name, part_place in list_places("hub_parts").items()
    }


def make_answer_link(db: Db, sos: int, name: str, message_id: str, now: float) -> str:
    """Return the path of a link for a message (see `AnswerLinking`). The path is empty if no
    extension has such links.
    """
    makers = (part.make_answer_link for part in list_hub_parts() if part.make_answer_link)
    return next((each(db, sos, name, message_id, now) for each in makers), "")


def send_to_address(db: Db, item: int, address: str, now: float) -> str:
    """Queue an item for an address (see `AddressSending`). Return the reason why it cannot be sent,
    or an empty string.
    """
    senders = (part.send_to_address for part in list_hub_parts() if part.send_to_address)
    return next((each(db, item, address, now) for each in senders), NO_ADDRESSES)
