"""A device with what its satellite messages may cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldagent.hub.contract import Device
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import imt
from fieldagent.wire.envelope import derive_key
from fieldagent.wire.sbd import MT_BYTES


@dataclass(frozen=True, slots=True)
class Account:
    device: Device
    key: bytes | None
    budget: int | None
    reserve: int
    modem: str = ""
    """Its kind, as its operator told: sbd, imt."""

    @property
    def mt_bytes(self) -> int:
        """Return what its modem takes in one message."""
        return mt_bytes_of(self.modem)

    @property
    def by_bytes(self) -> bool:
        """Return whether it is paid by bytes, and not in credits."""
        return self.modem == "imt"


def mt_bytes_of(modem: str) -> int:
    """Return what a kind of modem takes in one message; one that is not known takes little."""
    return imt.PAYLOAD_BYTES if modem == "imt" else MT_BYTES


ACCOUNT = (
    "device.id, device.workspace, device.member, device.name, device.imei, device.air_key,"
    " device.credits_per_day, device.sos_reserve, device.modem"
)
"""The columns of which `account_of` makes one."""


def account_of(row: Sequence[Any]) -> Account:
    """Return the account in a row of `ACCOUNT`; of the satellite-key it holds the key that tags MT
    messages."""
    *device, key, budget, reserve, modem = row
    secret = None if key is None else derive_key(bytes(key), "MT")
    return Account(Device(*device), secret, budget, reserve, modem)
