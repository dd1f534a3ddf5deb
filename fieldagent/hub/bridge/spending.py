"""Adds items from third-party servers. An item may use satellite and SMS if its author is allowed
to and the day's budget is sufficient. All other items wait for an IP link.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fieldagent.hub.api.sos_desk import GRACE_S
from fieldagent.hub.field import cost, texts_to_kits
from fieldagent.hub.records import ledger
from fieldagent.hub.records.ledger import ItemIds, Posting
from fieldagent.hub.store.contract import Db, make_membership
from fieldagent.package.package import Message
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.credit import compute_credits

SMS_CREDITS = 1
"""Credits counted for one SMS."""
NO_DISTANCE = "waits for a link: it is too long or too expensive for satellite and SMS"


class Allowance(NamedTuple):
    """Credits that an author may spend today. The texts are shown to an author whose item waits for
    a link.
    """

    allowed: bool
    remaining: int
    """Credits that the author may still spend today."""
    not_allowed: str
    """Reason if the author is not allowed to use paid channels."""
    spent_reason: str
    """Reason if today's credits are not sufficient."""


class KitCost(NamedTuple):
    """Channels that an item to one kit would use now, and their cost."""

    kit: str
    linked: bool
    bytes: int
    """Bytes of the satellite messages; 0 if no satellite message is possible."""
    sms: int
    """Number of SMS; 0 if the hub did not hear the kit by SMS last."""
    credits: int


class Quote(NamedTuple):
    """Cost of an item for each kit, computed before the hub stores the item."""

    kits: tuple[KitCost, ...]
    reason: str
    """Reason why the item uses no paid channel, for its author."""

    @property
    def price(self) -> int:
        """Return the credits for all kits together."""
        return sum(each.credits for each in self.kits)

    @property
    def credits(self) -> int:
        """Return the largest possible cost in credits. 0 if the item waits for a link."""
        return 0 if self.reason else self.price


class PaidItem(NamedTuple):
    ids: ItemIds
    credits: int
    """Largest possible cost in credits."""
    reason: str
    """Reason why the item waits for a link, for its author; empty if the item does not wait."""


def add_item_within(db: Db, posting: Posting, allowance: Allowance, now: float) -> PaidItem:
    """Add an item. The item uses paid channels only if it has a cost now and the allowance covers
    this cost. Raises the errors of `ledger.add_item`.
    """
    quote = make_quote(db, posting, allowance, now)
    ids = ledger.add_item(db, posting, now=now, grace=GRACE_S)
    if not quote.credits:
        # If a link ends before the item is sent, the item must not cause costs.
        ledger.restrict_to_free(db, ids.item, quote.reason)
    return PaidItem(ids, quote.credits, quote.reason)


def make_quote(db: Db, posting: Posting, allowance: Allowance, now: float) -> Quote:
    """Return the cost of adding an item now, without adding it. If the item may not use paid
    channels, the result contains the reason.
    """
    devices = cost.list_costs(db, posting, now)
    quote = Quote(tuple(_list_kit_costs(db, devices)), "")
    if not quote.price:
        return quote
    if not allowance.allowed:
        return quote._replace(reason=allowance.not_allowed)
    unlinked_ids = [int(each["id"]) for each in devices if not each["linked"]]
    is_text = isinstance(posting.item, Message)
    if is_text and any(
        texts_to_kits.find_excess(db, posting, device, now) for device in unlinked_ids
    ):
        return quote._replace(reason=NO_DISTANCE)
    return quote._replace(
        reason=allowance.spent_reason if quote.price > allowance.remaining else ""
    )


def _list_kit_costs(db: Db, devices: Sequence[dict[str, Any]]) -> Iterator[KitCost]:
    by_sms = _find_heard_by_sms(db, [int(each["id"]) for each in devices])
    for device in devices:
        over_satellite = device["satellite"]
        if device["linked"]:
            yield KitCost(device["name"], True, 0, 0, 0)
            continue
        size = 0 if over_satellite is None else over_satellite["bytes"]
        sms = SMS_CREDITS if device["id"] in by_sms else 0
        # For a modem that is billed by bytes, a byte counts as a credit, as in a kit's bridges.
        satellite_credits = 0
        if over_satellite is not None:
            satellite_credits = over_satellite["credits"] or compute_credits(size)
        yield KitCost(device["name"], False, size, sms, satellite_credits + sms)


def _find_heard_by_sms(db: Db, devices: list[int]) -> set[int]:
    if not devices:
        return set()
    which, membership_values = make_membership(db, devices)
    rows = db.execute(
        f"SELECT device FROM contact WHERE way = 'sms' AND device {which}", *membership_values
    )
    return {device for (device,) in rows}
