"""Drivers for SMS modems, listed in `MODEM_KINDS`. The form of the setting sms-port determines the
driver.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.healing import HealingStep
from fieldagent.agent.channels.serial_check import check_serial_port
from fieldagent.extensions.sms.agent.contract import SmsModem
from fieldagent.extensions.sms.agent.pin import PinMemory
from fieldagent.extensions.sms.agent.settings import MANAGED, SmsSettings
from fieldagent.system.finding import Finding
from fieldagent.system.lazy_named_tuple import NamedTuple

Opened = AbstractAsyncContextManager[SmsModem]


class SmsModemKind(NamedTuple):
    form: re.Pattern[str]
    """Pattern of the values of sms-port for this driver."""
    open: Callable[[str, SmsSettings, ChannelLink, PinMemory], Opened]
    """Opens the modem within a context. Raises one of `contract.MODEM_LOST_ERRORS`."""
    check: Callable[[str], Finding]
    """Checks that the modem is present while no agent is running."""
    heals: tuple[HealingStep, ...]
    """Recovery steps for a silent modem if sms-heal is not set."""


def _open_managed(port: str, settings: SmsSettings, link: ChannelLink, pin: PinMemory) -> Opened:
    from fieldagent.extensions.sms.agent.mmcli import open_managed
    from fieldagent.extensions.sms.modem_manager import ANY_MODEM

    return open_managed(port.partition(":")[2] or ANY_MODEM, link)


def _open_line(port: str, settings: SmsSettings, link: ChannelLink, pin: PinMemory) -> Opened:
    from fieldagent.extensions.sms.agent.gsm_modem import open_gsm

    return open_gsm(port, settings.baud, link, pin)


def _check_command(port: str) -> Finding:
    if shutil.which("mmcli") is None:
        return Finding(False, "SMS by ModemManager: mmcli is missing: install modemmanager")
    return Finding(True, "SMS by ModemManager: mmcli is there")


def _check_line(port: str) -> Finding:
    return check_serial_port(Path(port))


MODEM_KINDS = (
    SmsModemKind(MANAGED, _open_managed, _check_command, ()),
    SmsModemKind(re.compile(r".*"), _open_line, _check_line, (HealingStep("dtr"),)),
)
"""Kinds of modems. The first kind whose pattern matches is used. The last kind is an AT line on any
device."""


def find_modem_kind(port: str) -> SmsModemKind:
    """Return the kind for a value of `sms-port`. Raises StopIteration if none matches."""
    return next(each for each in MODEM_KINDS if each.form.fullmatch(port))
