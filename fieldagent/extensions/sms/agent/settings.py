"""Settings of the modem that sends SMS to the hub."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fieldagent.agent.channels.healing import HealingStep, read_steps
from fieldagent.agent.kit_part import RUNS_COMMAND_REASON, SECRET, SWITCHES_POWER_REASON, KitPart
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import Key, WrongProperty, make_integer_reader, read_text

SMS_PER_DAY = 100
MANAGED = re.compile(r"mmcli(:[A-Za-z0-9/_.-]{1,80})?", re.ASCII)
"""Pattern of the values of sms-port for a modem of ModemManager."""


class SmsSettings(NamedTuple):
    """Settings in the order of `KEYS`."""

    port: str | None = None
    baud: int = 115_200
    hub_number: str = ""
    allow: tuple[str, ...] = ()
    pin: str = ""
    per_day: int = SMS_PER_DAY
    after: int = 120
    answer_within: int = 600
    heal: tuple[HealingStep, ...] | None = None
    recovery_command: str | None = None

    def is_hub(self, phone_number: str) -> bool:
        """Return True if `phone_number` is the hub's number, in any form in which a network may
        show it.
        """
        return _get_ending(phone_number) == _get_ending(self.hub_number)

    def can_come_from(self, phone_number: str) -> bool:
        """Return True if the kit processes messages from this number. Some networks show numbers
        without the country code, so the function compares the last digits. The tag in the message
        authenticates it.
        """
        return any(
            _get_ending(each) == _get_ending(phone_number)
            for each in (self.hub_number, *self.allow)
        )


def _get_ending(number: str) -> str:
    return number[-8:] if number.lstrip("+").isdigit() else number


def _read_number(value: str) -> str:
    if not re.fullmatch(r"\+[1-9][0-9]{5,14}", value, re.ASCII):
        raise WrongProperty(f"must be a telephone number such as +41791234567, not {value!r}")
    return value


def _read_numbers(value: str) -> tuple[str, ...]:
    return tuple(_read_number(each) for each in value.replace(",", " ").split())


def _read_pin(value: str) -> str:
    if not re.fullmatch(r"[0-9]{4,8}", value, re.ASCII):
        raise WrongProperty("must be the SIM's PIN: 4 to 8 digits")
    return value


KEYS = (
    Key(
        "sms-port",
        read_text,
        None,
        "serial port of a GSM modem, or mmcli (mmcli:N) for a modem of ModemManager: items for"
        " the hub are sent by SMS while the IP link is down (docs/how-to/sms.md)",
    ),
    Key(
        "sms-baud",
        make_integer_reader(1200, 921_600, "baud"),
        115_200,
        "speed of the serial port (115200)",
    ),
    Key(
        "sms-hub-number",
        _read_number,
        "",
        "telephone number of the hub for SMS, such as +41791234567",
    ),
    Key(
        "sms-allow",
        _read_numbers,
        (),
        "other numbers from which the hub sends; SMS from unknown numbers are deleted (none)",
    ),
    Key("sms-pin", _read_pin, "", "PIN of the SIM, if it has one; a wrong PIN is tried once"),
    Key(
        "sms-per-day",
        make_integer_reader(0, 100_000, "SMS"),
        SMS_PER_DAY,
        "maximum SMS per UTC day; a tenth of them is reserved for an SOS (100)",
    ),
    Key(
        "sms-after",
        make_integer_reader(1, 86_400, "seconds"),
        120,
        "seconds without the IP link before SMS are sent; at most 20 for an SOS (120)",
    ),
    Key(
        "sms-answer-within",
        make_integer_reader(10, 86_400, "seconds"),
        600,
        "seconds without the hub's confirmation after which the same SMS is sent again; a third"
        " of that for an SOS (600)",
    ),
    Key(
        "sms-heal",
        read_steps,
        None,
        "recovery steps for a silent GSM modem, as satellite-heal (dtr, and the command if it"
        " is set)",
    ),
    Key("sms-recovery-command", read_text, None, "shell command that restarts a silent GSM modem"),
)

NEEDS = {
    "sms-port": "sms-hub-number",
    "sms-hub-number": "hub-address",
    **dict.fromkeys(("sms-allow", "sms-pin", "sms-heal", "sms-recovery-command"), "sms-port"),
}
"""Settings that need another setting. The tag's key is derived from hub-token."""

_OF_A_LINE = ("sms-baud", "sms-pin")


def find_sms_faults(pairs: Mapping[str, str]) -> list[str]:
    """Return the errors in the settings for a modem of ModemManager."""
    port = pairs.get("sms-port", "")
    if not MANAGED.fullmatch(port):
        return []
    faults = [
        f"{name} cannot be used with sms-port={port}, because ModemManager does that: remove {name}"
        for name in _OF_A_LINE
        if name in pairs
    ]
    if {*pairs.get("sms-heal", "").replace(",", " ").split()} & {"dtr", "usb"}:
        faults.append(
            f"sms-heal: sms-port={port} names no device; use command, gpio:LINE or usb:DEVICE"
        )
    return faults


EXAMPLES = {
    "sms-port": "/dev/ttyUSB2",
    "sms-hub-number": "+41791234567",
    "sms-allow": "+41791234568",
    "sms-heal": "dtr command",
    "sms-recovery-command": "uhubctl --action cycle --ports 4",
}
"""Example values in the first settings file."""
PART = KitPart(
    name="sms",
    title="SMS",
    keys=KEYS,
    own=SmsSettings,
    is_on=lambda own: own.port is not None,
    bearer="fieldagent.extensions.sms.agent.bearer:make_bearer",
    devices="fieldagent.extensions.sms.agent.recognition:list_devices",
    faults=find_sms_faults,
    check="fieldagent.extensions.sms.agent.check:check",
    examples=EXAMPLES,
    needs=NEEDS,
    not_from_afar={
        "sms-recovery-command": RUNS_COMMAND_REASON,
        "sms-heal": SWITCHES_POWER_REASON,
        "sms-pin": SECRET,
    },
)
