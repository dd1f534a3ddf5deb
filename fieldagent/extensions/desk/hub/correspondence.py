"""Answers by email or SMS to a kit that wrote to an address.

1. The address of an email shows which message the email answers. An SMS is for the kit that wrote
   to the sender's number. If several kits wrote to this number, the SMS is for the kit whose user's
   name is at the beginning of the SMS.
2. The kit sees the author as an integration with the address as its name. The kit can answer to
   this name, and the hub sends the answer to the address.
3. A text that is too long, or that costs more credits than the kit has left, is not sent. The
   author is notified.
4. An answer is also a read receipt. An email is a receipt for the message that it answers. An SMS
   is a receipt for the oldest unread message to its number.
"""

from __future__ import annotations

from dataclasses import replace

from fieldagent.extensions.desk.hub import outward
from fieldagent.hub.api.sos_desk import GRACE_S
from fieldagent.hub.contact.contract import ContactAnswer
from fieldagent.hub.field import texts_to_kits
from fieldagent.hub.records import ledger, sending
from fieldagent.hub.records.due_receipts import THE_HUB
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Message
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import make_visible

REPLY_WINDOW_S = 30 * 86_400.0
"""Seconds after a kit's message to a number. During this time, an SMS from the number can answer
the message."""
LETTERS_PER_DAY_MAX = 50
"""Largest number of answers per day that the hub sends to kits from one address."""
PRIORITY = 10


class WrittenMessage(NamedTuple):
    """Newest message that a kit has sent to an address."""

    item: int
    address: str
    workspace: int
    device: int
    owner: int
    """Member who owns the kit."""
    member: int
    """Member who wrote the message at the kit."""
    name: str
    """Name of the author."""


_LETTERS = (
    "SELECT outward.item, outward.address, item.workspace, device.id, device.member, member.id,"
    " member.name FROM outward JOIN item ON item.id = outward.item JOIN device"
    " ON device.id = source_device JOIN member ON member.id = item.sender"
    " WHERE device.disabled IS NULL AND outward.text = '' AND {which}"
    " ORDER BY outward.item DESC LIMIT 100"
)


def find_by_message(db: Db, message_id: str) -> WrittenMessage | None:
    """Return the message with this id, which an email answers. Only the recipient of the message
    can know the id. Return None if the message is unknown.
    """
    rows = db.execute(_LETTERS.format(which="message_id = ?"), message_id)
    return WrittenMessage(*rows[0]) if rows else None


def find_by_address(db: Db, address: str, now: float) -> list[WrittenMessage]:
    """Return the newest recent message of each kit to an address."""
    condition = "outward.address = ? AND outward.state = 'handed over' AND item.accepted > ?"
    rows = db.execute(_LETTERS.format(which=condition), address, now - REPLY_WINDOW_S)
    return [
        *{message.device: message for message in map(WrittenMessage._make, reversed(rows))}.values()
    ]


def is_to_one(writings: list[WrittenMessage], answer: ContactAnswer) -> bool:
    """Return True if the answer begins with the name of exactly one of the authors."""
    visible_text = make_visible(answer.text)
    return sum(_is_named(visible_text, each) for each in writings) == 1


def join_names(writings: list[WrittenMessage]) -> str:
    """Return the names of the authors in their order."""
    return ", ".join(sorted({make_visible(each.name) for each in writings}))


def send_answer(db: Db, writings: list[WrittenMessage], answer: ContactAnswer, now: float) -> str:
    """Send the answer to the kit, and return the result in one or two words. If it cannot be sent,
    or if its author is new, also queue a reply to the author.
    """
    visible_text = make_visible(answer.text)
    meant_messages = (
        writings
        if len(writings) == 1
        else [each for each in writings if _is_named(visible_text, each)]
    )
    if len(meant_messages) != 1:
        names = join_names(writings)
        reason = f"Nothing sent: several people wrote to you. Begin with one of the names: {names}."
        return _queue_reply(db, writings[0], "ambiguous", reason, now)
    (message,) = meant_messages
    if len(writings) > 1:
        visible_text = visible_text[len(message.name) :].lstrip(" ,:;-")
    if not visible_text:
        return _queue_reply(db, message, "empty", "Nothing sent: your message was empty.", now)
    ((today,),) = db.execute(
        "SELECT count(*) FROM contact_answer WHERE kind = ? AND sender = ? AND at > ?"
        " AND outcome = 'to the kit'",
        *(answer.kind, answer.sender, now - 86_400),
    )
    if today >= LETTERS_PER_DAY_MAX:
        reason = f"Nothing sent: the limit of {LETTERS_PER_DAY_MAX} messages a day is reached."
        return _queue_reply(db, message, "limited", reason, now)
    voice, is_new = _find_or_add_sender(db, message, now)
    to_kit = Posting(
        message.workspace, voice, Message(visible_text), int(now), PRIORITY, target=message.owner
    )
    if reason := texts_to_kits.find_excess(db, to_kit, message.device, now):
        return _queue_reply(db, message, "not sent", f"Nothing sent: {reason}", now)
    to_whom = replace(to_kit, target=message.member, device=message.device)
    ledger.add_item(db, to_whom, now=now, grace=GRACE_S)
    _note_read(db, message, answer, now)
    if not is_new:
        return "to the kit"
    name = make_visible(message.name)
    reason = f"Your message is sent to {name} as soon as the kit can be reached."
    return _queue_reply(db, message, "to the kit", reason, now)


def _is_named(words: str, message: WrittenMessage) -> bool:
    name = make_visible(message.name).casefold()
    rest = words.casefold().removeprefix(name)
    return rest != words.casefold() and not rest[:1].isalnum()


def _find_or_add_sender(db: Db, message: WrittenMessage, now: float) -> tuple[int, bool]:
    """Return the member that the kit sees as the sender of answers from this address. The second
    value is True if the member is new. Such a member cannot sign in.
    """
    voice_rows = db.execute(
        "SELECT member.id FROM member JOIN membership ON membership.member = member.id"
        " WHERE workspace = ? AND type = 'Integration' AND name = ? ORDER BY member.id LIMIT 1",
        *(message.workspace, texts_to_kits.make_author_name(message.address)),
    )
    if voice_rows:
        return int(voice_rows[0][0]), False
    return texts_to_kits.add_text_author(db, message.workspace, message.address, now), True


def _note_read(db: Db, message: WrittenMessage, answer: ContactAnswer, now: float) -> None:
    item = message.item
    if not answer.answers:
        rows = db.execute(
            "SELECT outward.item FROM outward JOIN item ON item.id = outward.item WHERE address = ?"
            " AND outward.text = '' AND outward.state = 'handed over' AND source_device = ?"
            " AND item.accepted > ? AND NOT EXISTS (SELECT 1 FROM reached WHERE reached.item ="
            " outward.item AND rung = ?) ORDER BY outward.item LIMIT 1",
            *(message.address, message.device, now - REPLY_WINDOW_S, int(Stage.READ)),
        )
        if not rows:
            return
        ((item,),) = rows
    ledger.record_stage(db, item, THE_HUB, Stage.READ, message.address, now)


def _queue_reply(db: Db, message: WrittenMessage, outcome: str, text: str, now: float) -> str:
    """Queue a reply to the author of the answer, unless a limit of replies is reached. Return
    `outcome`.
    """
    ((lately,),) = db.execute(
        "SELECT count(*) FROM outward WHERE address = ? AND text <> '' AND not_before > ?",
        *(message.address, now - 3_600.0),
    )
    if lately < texts_to_kits.REPLIES_MAX and not sending.record_message_or_refuse(
        db, message.workspace, message.address, sending.REPLY, now
    ):
        outward.queue_message(db, message.item, message.address, text, now)
    return outcome
