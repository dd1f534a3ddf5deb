"""Messages and markers that people at a TAK server send to users of this hub.

1. An event is accepted once. The phone's uid and the phone's id of the event identify the event.
2. Its author becomes a member who cannot sign in, with the name `CALLSIGN (TAK)`. Kits answer to
   this name or id. A callsign is not authenticated: the TAK server determines who may use it.
3. The item may go over satellite or SMS if its author is in `tak-allow` and the day's credits are
   sufficient. Otherwise it waits for a link, and the author is notified, but not often.
4. A text that begins with `?` asks for the cost of the rest. The hub answers and stores nothing.
5. The author gets a receipt when a kit has the item on disk, and another receipt when a person at
   this kit has read the item.
"""

from __future__ import annotations

from dataclasses import replace

from fieldagent.extensions.tak import emergency
from fieldagent.extensions.tak import map_events as tak_map
from fieldagent.extensions.tak.bridge import dry_run, records
from fieldagent.extensions.tak.bridge.records import TakPerson
from fieldagent.extensions.tak.bridge.site import FindPerson
from fieldagent.extensions.tak.events import GeoChat, PlacedMarker, TakUnit
from fieldagent.hub.bridge import spending
from fieldagent.hub.bridge.spending import Allowance
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import Message, Waypoint
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import make_visible

PRIORITY = 10
TEXT_BYTES_MAX = 2_000
NAME_MAX, NOTES_MAX, CALLSIGN_MAX, UID_MAX = 40, 200, 40, 100
NOT_ALLOWED = "waits for a link: its author at the TAK server is not in tak-allow"
SPENT_REASON = "waits for a link: tak-credits-per-day is spent"


class TakRules(NamedTuple):
    """Settings of one workspace's TAK bridge."""

    workspace: str
    """Id or name of the workspace of the bridge."""
    shares: frozenset[str]
    people: int
    allow: frozenset[str]
    """Callsigns whose messages may use paid channels."""
    credits_per_day: int


class TakInbox(NamedTuple):
    """Workspace for incoming events, and the rules for them."""

    workspace: int
    rules: TakRules
    person_of: FindPerson = records.record_person


class SentMarker(NamedTuple):
    author: TakUnit
    uid: str
    placed: PlacedMarker


class TakOutcome(NamedTuple):
    result: ItemResult
    why: str = ""
    """Text for the author: the reason for a delay, or the cost of the message."""


def accept_chat(db: Db, inbox: TakInbox, member: int, chat: GeoChat, now: float) -> TakOutcome:
    """Add a text from a person at the TAK server as a message to a member. If the text begins
    with `?`, only compute its cost. Refuse a text that is empty, or longer than TEXT_BYTES_MAX.
    """
    text = make_visible(chat.text)
    question = tak_map.find_question(text)
    text = question or text
    if not text or len(text.encode()) > TEXT_BYTES_MAX:
        return TakOutcome(
            ItemResult.REFUSED, text and f"Not sent: {TEXT_BYTES_MAX} bytes are the maximum."
        )
    posting = Posting(
        inbox.workspace, 0, Message(text), int(now), PRIORITY, target=member, asks=True
    )
    if question:
        return _describe_cost(db, inbox, posting, chat.sender, now)
    outcome = _add_event(db, inbox, posting, chat.sender, chat.message_id, now)
    emergency_question = emergency.make_question(text, direct=True)
    if emergency_question and outcome.result is ItemResult.TAKEN:
        return outcome._replace(why=f"{emergency_question} {outcome.why}".rstrip())
    return outcome


def accept_marker(
    db: Db, inbox: TakInbox, member: int, marker: SentMarker, now: float
) -> TakOutcome:
    """Accept a marker that was sent to a member. If the marker is moved later, it counts as a new
    marker.
    """
    placed = marker.placed
    item = Waypoint(
        placed.point.latitude,
        placed.point.longitude,
        make_visible(placed.name)[:NAME_MAX] or "marker",
        placed.at,
        make_visible(placed.notes)[:NOTES_MAX] or None,
    )
    posting = Posting(inbox.workspace, 0, item, int(now), PRIORITY, target=member)
    # The same event can be sent to several users. Each of them must receive it.
    version = f"{marker.uid[:60]} {placed.at:%Y%m%dT%H%M%S} {member}"
    return _add_event(db, inbox, posting, marker.author, version, now)


def _add_event(
    db: Db, inbox: TakInbox, posting: Posting, author: TakUnit, event_id: str, now: float
) -> TakOutcome:
    member = posting.target
    assert member is not None
    if len(event_id) > UID_MAX:
        return TakOutcome(ItemResult.REFUSED)
    person = _find_person(db, inbox, author, now)
    if isinstance(person, TakOutcome):
        return person
    row = records.record_event(db, member, author.uid, event_id, now, person=person.member)
    if row is None:
        return TakOutcome(ItemResult.REPEATED)
    posting = replace(posting, sender=person.member, expires=now + records.OVER_AFTER_S)
    allowance = _make_allowance(db, inbox, person, now)
    added = spending.add_item_within(db, posting, allowance, now)
    records.record_added_item(db, row, added.ids.item, added.credits)
    return TakOutcome(ItemResult.TAKEN, f"The message {added.reason}." if added.reason else "")


def _describe_cost(
    db: Db, inbox: TakInbox, posting: Posting, author: TakUnit, now: float
) -> TakOutcome:
    person = _find_person(db, inbox, author, now)
    if isinstance(person, TakOutcome):
        return person
    assert isinstance(posting.item, Message)
    allowance = _make_allowance(db, inbox, person, now)
    quote = spending.make_quote(db, replace(posting, sender=person.member), allowance, now)
    size = len(posting.item.content.encode())
    answer = dry_run.describe_cost(
        quote, allowance, person.callsign, inbox.rules.credits_per_day, size
    )
    return TakOutcome(ItemResult.ASKED, answer)


def _find_person(db: Db, inbox: TakInbox, author: TakUnit, now: float) -> TakPerson | TakOutcome:
    """Return the person who wrote, or a TakOutcome with the reason if the hub refuses them."""
    callsign = make_visible(author.callsign)[:CALLSIGN_MAX]
    if not callsign or len(author.uid) > UID_MAX:
        return TakOutcome(ItemResult.REFUSED)
    person = inbox.person_of(db, inbox.workspace, callsign, author.uid, now)
    return TakOutcome(ItemResult.LIMITED) if person is None else person


def _make_allowance(db: Db, inbox: TakInbox, person: TakPerson, now: float) -> Allowance:
    rules = inbox.rules
    credits_left = rules.credits_per_day - records.compute_spent_today(db, now)
    return Allowance(person.callsign in rules.allow, credits_left, NOT_ALLOWED, SPENT_REASON)
