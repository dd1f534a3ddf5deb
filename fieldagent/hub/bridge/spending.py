"""Enters what came from somebody else's server, over what costs where its writer may and the day's
budget lasts. Everything else waits for a link."""

from __future__ import annotations

from typing import NamedTuple

from fieldagent.hub.api.sos_desk import GRACE
from fieldagent.hub.escalation import words_down
from fieldagent.hub.field import cost
from fieldagent.hub.records import ledger
from fieldagent.hub.records.ledger import Entered, Posting
from fieldagent.hub.store.contract import Db, one_of
from fieldagent.package.package import Message

SMS_CREDITS = 1
"""What counts for an SMS."""
NO_DISTANCE = "waits for a link: it is too long, or too dear, for satellite and SMS"


class Allowance(NamedTuple):
    """What a writer may spend."""

    allowed: bool
    left: int
    """Credits of this day."""
    not_allowed: str
    """Why it waits where they are not allowed to, for them."""
    spent: str
    """The same where the budget is spent."""


class Paid(NamedTuple):
    entered: Entered
    credits: int
    """That it may cost."""
    why: str
    """Why it waits for a link, where it does; for its writer."""


def enter_within(db: Db, posting: Posting, allowance: Allowance, now: float) -> Paid:
    price, why = _price(db, posting, now)
    if price and not allowance.allowed:
        why = allowance.not_allowed
    elif price and not why and price > allowance.left:
        why = allowance.spent
    free = not price or bool(why)
    entered = ledger.enter(db, posting, now=now, grace=GRACE)
    if free:
        # A link that ends before it has left must not make it cost.
        ledger.keep_from_costing(db, entered.item, why)
    return Paid(entered, 0 if free else price, why)


def _price(db: Db, posting: Posting, now: float) -> tuple[int, str]:
    """Return what it may cost now, 0 where each kit of its addressees has a link; and why it goes
    over nothing that costs, whoever wrote it."""
    price = 0
    devices = cost.costs(db, posting, now)
    by_sms = _heard_by_sms(db, [int(each["id"]) for each in devices])
    for device in devices:
        over = device["satellite"]
        if device["linked"]:
            continue
        if over is not None:
            price += over["credits"]
        if device["id"] in by_sms:
            price += SMS_CREDITS
        is_text = isinstance(posting.item, Message)
        if is_text and price and words_down.too_much(db, posting, int(device["id"]), now):
            return price, NO_DISTANCE
    return price, ""


def _heard_by_sms(db: Db, devices: list[int]) -> set[int]:
    if not devices:
        return set()
    which, some = one_of(db, devices)
    rows = db.execute(f"SELECT device FROM contact WHERE way = 'sms' AND device {which}", *some)
    return {device for (device,) in rows}
