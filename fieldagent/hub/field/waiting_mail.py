"""Mail that waits for linked kits. One read serves all kits that wake up at the same moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fieldagent.hub.contract import Device
from fieldagent.hub.field.envelope_packing import (
    LOOK_AT,
    DeviceNames,
    EnvelopeSpace,
    Load,
    NeededNames,
    WaitingItem,
    WaitingReceipt,
    fill_envelope,
    list_names,
    list_receipts_for_each,
    list_waiting_at_each,
)
from fieldagent.hub.records import commands, workspace_log
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import Entry

RECEIPTS = 32
"""Largest number of receipts in one envelope. The same limit applies to commands."""


class UnconfirmedCounts(NamedTuple):
    """Counts of items, receipts and commands that were sent over a link and are not confirmed
    yet.
    """

    items: int
    receipts: int
    commands: int


class MailRequest(NamedTuple):
    device: Device
    now: float
    unconfirmed: UnconfirmedCounts


class Mail(NamedTuple):
    """Mail that waits for one device, including sent mail that is not confirmed yet."""

    items: list[WaitingItem]
    receipts: list[WaitingReceipt]
    commands: list[Entry]
    names: DeviceNames
    is_behind: bool
    """True if the log of the device's workspace contains items for which the device has no rows
    yet."""
    is_all: bool
    """True if no other mail waits than these items, receipts and commands."""

    @property
    def has_sos(self) -> bool:
        """Return True if an SOS is among the waiting items."""
        return any(each.entry.sos for each in self.items)

    def pack(self, capacity: int, unconfirmed: Iterable[Load]) -> tuple[Load, bool]:
        """Return the next envelope, of at most `capacity` bytes, without the entries in
        `unconfirmed`. Also return True if nothing else waits.
        """
        loads = list(unconfirmed)
        sent = {item for load in loads for item in load.items}
        sent_receipts = {receipt for load in loads for receipt in load.receipts}
        sent_commands = {number for load in loads for number in load.commands}
        items = [each for each in self.items if each.item not in sent]
        receipts = [each for each in self.receipts if each.id not in sent_receipts]
        orders = [each for each in self.commands if each.sequence not in sent_commands]
        load = fill_envelope(self.names, items, receipts, EnvelopeSpace(capacity), commands=orders)
        packed = len(load.items) + len(load.receipts) + len(load.commands)
        return load, self.is_all and packed == len(items) + len(receipts) + len(orders)


def read_mail(db: Db, requests: Sequence[MailRequest]) -> list[Mail]:
    """Return the waiting mail for the device of each request, in the order of the requests."""
    devices = list(dict.fromkeys(each.device.id for each in requests))
    now = max(each.now for each in requests)
    highest_numbers = UnconfirmedCounts(
        *map(max, zip(*(each.unconfirmed for each in requests), strict=True))
    )
    look_at, receipts_max = LOOK_AT + highest_numbers.items, RECEIPTS + highest_numbers.receipts
    ordered = RECEIPTS + highest_numbers.commands
    behind_by_device = dict(zip(devices, workspace_log.find_behind(db, devices), strict=True))
    items = list_waiting_at_each(db, devices, now, limit=look_at)
    receipts = list_receipts_for_each(db, devices, limit=receipts_max)
    orders = commands.list_commands_at_each(db, devices, now, limit=ordered)
    wanted_devices = {
        each.device.id: NeededNames(
            each.device.id,
            each.device.workspace,
            {item.sender for item in items[each.device.id]}
            | {receipt.member for receipt in receipts[each.device.id]},
        )
        for each in requests
    }
    with_mail = [each for each in wanted_devices.values() if each.members or orders[each.device]]
    names = dict(zip((w.device for w in with_mail), list_names(db, with_mail), strict=True))
    return [
        Mail(
            items[device],
            receipts[device],
            orders[device],
            names.get(device, DeviceNames({}, ())),
            behind_by_device[device],
            len(items[device]) < look_at
            and len(receipts[device]) < receipts_max
            and len(orders[device]) < ordered,
        )
        for device in (each.device.id for each in requests)
    ]
