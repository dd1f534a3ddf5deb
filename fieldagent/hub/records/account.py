"""A device with its satellite budget and modem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldagent.hub.contract import Device
from fieldagent.hub.records.modem_kinds import find_modem_kind
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import derive_key


@dataclass(frozen=True, slots=True)
class Account:
    device: Device
    key: bytes | None
    budget: int | None
    reserve: int
    modem: str = ""
    """Kind of the modem according to its operator; empty if the kind is unknown."""

    @property
    def mt_bytes(self) -> int:
        """Return the largest number of bytes that the modem accepts in one message."""
        return find_modem_kind(self.modem).mt_bytes

    @property
    def by_bytes(self) -> bool:
        """Return True if the operator bills messages by bytes instead of credits."""
        return find_modem_kind(self.modem).by_bytes


ACCOUNT = (
    "device.id, device.workspace, device.member, device.name, device.imei, device.air_key,"
    " device.credits_per_day, device.sos_reserve, device.modem"
)
"""Columns that `read_account` reads."""


def read_account(row: Sequence[Any]) -> Account:
    """Return the account in a row of the columns `ACCOUNT`. The key in the account, which tags MT
    messages, is derived from the satellite key.
    """
    *device, key, budget, reserve, modem = row
    secret = None if key is None else derive_key(bytes(key), "MT")
    return Account(Device(*device), secret, budget, reserve, modem)
