"""Enters what came from somebody else's server, over what costs where its writer may and the day's
budget lasts. Everything else waits for a link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fieldagent.hub.api.sos_desk import GRACE
from fieldagent.hub.escalation import words_down
from fieldagent.hub.field import cost
from fieldagent.hub.records import ledger
from fieldagent.hub.records.ledger import Entered, Posting
from fieldagent.hub.store.contract import Db, one_of
from fieldagent.package.package import Message
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.credit import credits_for

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


class KitCost(NamedTuple):
    """How an item would reach one kit now."""

    kit: str
    linked: bool
    bytes: int
    """Of its satellite messages; 0 where none may go."""
    sms: int
    """How many SMS are counted; 0 where it is not heard by SMS."""
    credits: int


class Quote(NamedTuple):
    """What an item would cost, before anything is entered."""

    kits: tuple[KitCost, ...]
    why: str
    """Why it goes over nothing that costs; for its writer."""

    @property
    def price(self) -> int:
        """Return the credits of all kits together."""
        return sum(each.credits for each in self.kits)

    @property
    def credits(self) -> int:
        """Return what it may cost: nothing where it waits for a link."""
        return 0 if self.why else self.price


class Paid(NamedTuple):
    entered: Entered
    credits: int
    """That it may cost."""
    why: str
    """Why it waits for a link, where it does; for its writer."""


def enter_within(db: Db, posting: Posting, allowance: Allowance, now: float) -> Paid:
    """Enter an item. Unless it costs something now and the allowance covers that, it is kept from
    all that costs. Raises what `ledger.enter` does."""
    quote = quoted(db, posting, allowance, now)
    entered = ledger.enter(db, posting, now=now, grace=GRACE)
    if not quote.credits:
        # A link that ends before it has left must not make it cost.
        ledger.keep_from_costing(db, entered.item, quote.why)
    return Paid(entered, quote.credits, quote.why)


def quoted(db: Db, posting: Posting, allowance: Allowance, now: float) -> Quote:
    """Return what it would cost to enter an item now, and whether it may. Enters nothing."""
    devices = cost.costs(db, posting, now)
    quote = Quote(tuple(_kit_costs(db, devices)), "")
    if not quote.price:
        return quote
    if not allowance.allowed:
        return quote._replace(why=allowance.not_allowed)
    away = [int(each["id"]) for each in devices if not each["linked"]]
    is_text = isinstance(posting.item, Message)
    if is_text and any(words_down.too_much(db, posting, device, now) for device in away):
        return quote._replace(why=NO_DISTANCE)
    return quote._replace(why=allowance.spent if quote.price > allowance.left else "")


def _kit_costs(db: Db, devices: Sequence[dict[str, Any]]) -> Iterator[KitCost]:
    by_sms = _heard_by_sms(db, [int(each["id"]) for each in devices])
    for device in devices:
        over = device["satellite"]
        if device["linked"]:
            yield KitCost(device["name"], True, 0, 0, 0)
            continue
        size = 0 if over is None else over["bytes"]
        sms = SMS_CREDITS if device["id"] in by_sms else 0
        # An account that pays for bytes counts them as credits here, as a kit's bridges do.
        above = 0 if over is None else over["credits"] or credits_for(size)
        yield KitCost(device["name"], False, size, sms, above + sms)


def _heard_by_sms(db: Db, devices: list[int]) -> set[int]:
    if not devices:
        return set()
    which, some = one_of(db, devices)
    rows = db.execute(f"SELECT device FROM contact WHERE way = 'sms' AND device {which}", *some)
    return {device for (device,) in rows}
