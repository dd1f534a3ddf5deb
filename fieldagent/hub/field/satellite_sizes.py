"""Checks that a push fits the satellite modems of its kits, before the hub stores the push.

For example, an SBD modem accepts 270 bytes in a message. If no addressed kit can receive the push,
the hub refuses it with the reason. If only some kits can receive the push, the hub stores it. For
the other kits, the push waits for a link.
"""

from __future__ import annotations

from fieldagent.hub.field.envelope_packing import WaitingItem
from fieldagent.hub.field.mobile_terminated import compute_max_parts, list_sizes, wait_for_link
from fieldagent.hub.records.account import ACCOUNT, Account, read_account
from fieldagent.hub.records.lease import IS_LINKED
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db, make_marks
from fieldagent.package.package import Data
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import join_sentences, sentence
from fieldagent.wire.envelope import Entry
from fieldagent.wire.errors import LocalProtocolError

_KITS = (
    f"SELECT {IS_LINKED}, contact.way, {ACCOUNT} FROM device LEFT JOIN contact"
    " ON contact.device = device.id JOIN membership ON membership.member = device.member"
    " AND membership.workspace = device.workspace WHERE device.workspace = ?"
    " AND device.disabled IS NULL AND {whom} ORDER BY device.id"
)


class UnfitKit(NamedTuple):
    """A kit that cannot receive the push."""

    device: int
    name: str
    reason: str
    """Reason that people see, as a text that follows the kit's name."""


class SatelliteKits(NamedTuple):
    """Addressed kits without a link whose satellite modem cannot carry the push, and the number of
    the other addressed kits.
    """

    unfit: tuple[UnfitKit, ...] = ()
    fit_count: int = 0
    """Number of kits that can receive the push."""

    def find_refusal(self) -> str:
        """Return the reason why no kit can receive the push. The text is empty if some kit can, or
        if there are no kits.
        """
        if self.fit_count or not self.unfit:
            return ""
        return sentence(
            "{whom}. Send fewer bytes, or wait until the kit has a link",
            whom=join_sentences(
                [sentence("{name} {why}", name=each.name, why=each.reason) for each in self.unfit]
            ),
        )


def find_unfit_kits(db: Db, posting: Posting, now: float) -> SatelliteKits:
    """Return the addressed kits that cannot receive the push, and the number of those that can.
    `now` is Unix time.
    """
    if not isinstance(posting.item, Data):
        return SatelliteKits()
    device_condition, members = _make_device_condition(posting)
    rows = db.execute(_KITS.format(whom=device_condition), now, posting.workspace, *members)
    cannot, others = [], 0
    for linked, bearer, *row in rows:
        account = read_account(row)
        needs_satellite = (
            not linked and bearer not in ("ip", "sms") and account.device.imei is not None
        )
        reason = _explain_too_large(posting.item, account) if needs_satellite else ""
        if reason:
            cannot.append(UnfitKit(account.device.id, account.device.name, reason))
        else:
            others += 1
    return SatelliteKits(tuple(cannot), others)


def delay_until_linked(db: Db, item: int, kits: SatelliteKits) -> None:
    """Let an item of the ledger wait for an IP link to each kit whose modem cannot carry it."""
    for each in kits.unfit:
        wait_for_link(db, item, each.device, f"it {each.reason}")


def _make_device_condition(posting: Posting) -> tuple[str, list[int]]:
    if posting.device is not None:
        return "device.id = ?", [posting.device]
    if posting.team is not None:
        audience = sorted(posting.audience - {posting.sender}) or [0]
        return f"device.member IN ({make_marks(audience)})", audience
    if posting.target is not None:
        return "device.member = ?", [posting.target]
    return "device.member <> ?", [posting.sender]


def _explain_too_large(item: Data, account: Account) -> str:
    """Return the reason why a kit cannot receive the item over satellite, its only channel. The
    text is empty if the kit can.
    """
    try:
        parts = len(list_sizes(WaitingItem(0, 1, Entry(1, item)), [], account))
    except LocalProtocolError:
        parts = 0
    if parts and parts <= compute_max_parts(item):
        return ""
    if parts == 1:
        needs = sentence("1 message")
    elif parts:
        needs = sentence("{n} messages", n=parts)
    else:
        needs = sentence("too many messages")
    return sentence(
        "is reached only by satellite, and its modem takes {most} bytes in a message: these"
        " {size} bytes need {needs}",
        most=account.mt_bytes,
        size=len(item.payload),
        needs=needs,
    )
