"""A device with what its satellite messages may cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldagent.hub.contract import Device
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import derive_key


@dataclass(frozen=True, slots=True)
class Account:
    device: Device
    key: bytes | None
    budget: int | None
    reserve: int
    packs_text: bool


ACCOUNT = (
    "device.id, device.workspace, device.member, device.name, device.imei, device.air_key,"
    " device.credits_per_day, device.sos_reserve, device.packs_text"
)
"""The columns of which `account_of` makes one."""


def account_of(row: Sequence[Any]) -> Account:
    *device, key, budget, reserve, packs_text = row
    secret = None if key is None else derive_key(bytes(key), "MT")
    return Account(Device(*device), secret, budget, reserve, bool(packs_text))
