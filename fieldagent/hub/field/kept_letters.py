"""Processes dead letters of devices whose settings have been corrected."""

from __future__ import annotations

from collections.abc import Collection

from fieldagent.hub.access import device_keys, directory
from fieldagent.hub.contract import UnknownDevice
from fieldagent.hub.field.mobile_originated import MobileOriginatedReceiver
from fieldagent.hub.store.contract import Db


def accept_letters(
    db: Db, mobile_originated: MobileOriginatedReceiver, devices: Collection[int]
) -> int:
    """Process each dead letter of the devices once, and return the number of letters that the hub
    could use. Skip disabled devices.
    """
    accepted_count = 0
    for device in devices:
        try:
            kit = directory.find_device(db, device)
        except UnknownDevice:  # Skip a disabled device.
            continue
        accepted_count += mobile_originated.replay(db, kit, device_keys.read_mo_keys(db, device))
    return accepted_count
