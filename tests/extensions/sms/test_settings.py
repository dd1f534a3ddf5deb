"""The kit's settings of the SMS modem."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldagent.agent.settings import parse
from fieldagent.extensions.sms.agent.settings import KEYS
from fieldagent.system.properties import InvalidSettings

PATH = Path("agent.properties")
GOOD = {
    "sms-port": "/dev/ttyUSB2",
    "sms-baud": "9600",
    "sms-hub-number": "+41791234567",
    "sms-allow": "+41791234568 +41791234569",
    "sms-pin": "1234",
    "sms-per-day": "50",
    "sms-after": "60",
    "sms-answer-within": "300",
    "sms-heal": "dtr",
    "sms-recovery-command": "uhubctl",
}
HUB = "hub-address=https://hub.example.org\nhub-token=t\n"


def test_every_sms_setting_is_read() -> None:
    assert GOOD.keys() == {key.name for key in KEYS}
    text = HUB + "".join(f"{name}={value}\n" for name, value in GOOD.items())
    sms = parse(text, PATH).parts["sms"]
    assert (sms.port, sms.baud, sms.hub_number) == ("/dev/ttyUSB2", 9600, "+41791234567")
    assert (sms.pin, sms.per_day, sms.after, sms.answer_within) == ("1234", 50, 60, 300)
    assert sms.can_come_from("0791234567")
    assert sms.can_come_from("+41791234569")
    assert not sms.can_come_from("+41791234570")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sms-hub-number=0791234567", "must be a telephone number such as"),
        ("sms-pin=12", "4 to 8 digits"),
        ("sms-port=mmcli:0\nsms-pin=1234", "sms-pin cannot be used with sms-port=mmcli:0"),
        ("sms-port=mmcli\nsms-heal=dtr", "sms-port=mmcli names no device; use command"),
    ],
)
def test_invalid_sms_setting_is_reported_with_key_and_remedy(line: str, said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        parse(line, PATH)
