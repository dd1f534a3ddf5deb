"""Computes the cost of a push to each device before the hub stores the push."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fieldagent.hub.field.envelope_packing import WaitingItem, introduce_member
from fieldagent.hub.field.mobile_terminated import compute_allowance, compute_max_parts, list_sizes
from fieldagent.hub.records.account import ACCOUNT, Account, read_account
from fieldagent.hub.records.lease import IS_LINKED
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.records.past_deliveries import list_past_deliveries
from fieldagent.hub.store.contract import Db, make_marks
from fieldagent.package.forecast import PACKAGES_READ_MAX, make_forecast
from fieldagent.wire.credit import compute_credits
from fieldagent.wire.envelope import Contact, Entry
from fieldagent.wire.errors import LocalProtocolError

_ADDRESSED = (
    f"SELECT device.next_sequence, operator, {IS_LINKED}, introduced.digest, {ACCOUNT} FROM device"
    " JOIN membership ON membership.member = device.member"
    " AND membership.workspace = device.workspace LEFT JOIN introduced"
    " ON introduced.device = device.id AND introduced.member = ?"
    " WHERE device.workspace = ? AND device.disabled IS NULL AND {whom} ORDER BY device.id"
)


def list_costs(db: Db, posting: Posting, now: float) -> list[dict[str, Any]]:
    """Return the cost of a push for each addressed device. The cost is that of satellite messages
    which contain only this push. For a linked device, the push is free.
    """
    condition, members = _make_device_condition(posting)
    rows = db.execute(
        _ADDRESSED.format(whom=condition),
        *(now, posting.sender, posting.workspace, *members),
    )
    digest, name = introduce_member(db, posting.sender, posting.workspace)
    entries = []
    for sequence, operator, linked, is_known, *row in rows:
        account = read_account(row)
        names = [] if is_known is not None and bytes(is_known) == digest else [name]
        is_reachable = account.device.imei is not None and operator is not None
        over_satellite = (
            _compute_satellite_costs(db, posting, account, sequence, names, now)
            if is_reachable
            else None
        )
        entries.append(
            {
                "id": account.device.id,
                "name": account.device.name,
                "userId": str(account.device.member),
                "linked": bool(linked),
                "satellite": over_satellite,
            }
        )
    return entries


def list_costs_and_forecast(db: Db, posting: Posting, now: float) -> list[dict[str, Any]]:
    """Return the costs as `list_costs` does. If only one device is addressed, also return a
    forecast of the time when the device has the push on disk.
    """
    entries = list_costs(db, posting, now)
    expected = None
    if len(entries) == 1:
        expected = make_forecast(list_past_deliveries(db, entries[0]["id"], PACKAGES_READ_MAX), now)
    return [{**each, "expected": expected and expected._asdict()} for each in entries]


def _make_device_condition(posting: Posting) -> tuple[str, list[int]]:
    """Return the SQL condition for the devices that the push addresses, and its parameters."""
    if posting.device is not None:
        return "device.id = ?", [posting.device]
    if posting.target is not None:
        return "device.member = ?", [posting.target]
    if posting.team is None:
        return "device.member <> ?", [posting.sender]
    audience = sorted(posting.audience - {posting.sender}) or [0]
    return f"device.member IN ({make_marks(audience)})", audience


def _compute_satellite_costs(
    db: Db, posting: Posting, account: Account, sequence: int, names: Sequence[Entry], now: float
) -> dict[str, int | None] | None:
    contact = Contact(**json.loads(posting.contact)) if posting.contact else None
    options = posting.sos, posting.back, posting.to, posting.asks
    entry = Entry(sequence, posting.item, posting.time, *options)
    try:
        part_sizes = list_sizes(
            WaitingItem(0, posting.sender, entry, contact=contact), names, account
        )
    except LocalProtocolError:
        return None  # The item is too large for the modem.
    if len(part_sizes) > compute_max_parts(posting.item):
        return None
    return {
        "parts": len(part_sizes),
        "bytes": sum(part_sizes),
        "credits": 0 if account.by_bytes else sum(map(compute_credits, part_sizes)),
        "creditsLeft": compute_allowance(db, account, now, urgent=posting.sos),
    }
