"""Settings of the satellite channel. A modem adds its own settings (`satellites/contract.py`)."""

from __future__ import annotations

from fieldagent.agent.channels.healing import read_steps
from fieldagent.agent.satellites.registry import get_modems, load_modem
from fieldagent.system.price import read_credit_price
from fieldagent.system.properties import (
    Key,
    WrongProperty,
    make_choice_reader,
    make_integer_reader,
    read_text,
)


def _read_hours(value: str) -> float | None:
    hours = make_integer_reader(0, 8760, "hours; 0 for never")(value)
    return hours * 3600.0 or None


def read_hexadecimal_keys(value: str) -> tuple[bytes, ...]:
    """Parse one or two keys, each of 64 hexadecimal digits. Raises WrongProperty for any other
    value.
    """
    try:
        keys = tuple(bytes.fromhex(key) for key in value.split())
    except ValueError:
        raise WrongProperty(
            "must be 64 hexadecimal digits; to rotate, set two with a space between them"
        ) from None
    if not 1 <= len(keys) <= 2 or any(len(key) != 32 for key in keys):
        raise WrongProperty(
            "must be 64 hexadecimal digits; to rotate, set two with a space between them"
        )
    return keys


def _read_modem_name(value: str) -> str:
    if value not in get_modems():
        load_modem(value)
    return value


KEYS = (
    Key(
        "satellite-port",
        read_text,
        None,
        "serial port of the satellite modem, such as /dev/ttyUSB0",
    ),
    Key(
        "satellite-modem",
        _read_modem_name,
        "sbd",
        f"kind of modem: {', '.join(get_modems())} (see below), or package.module:NAME of your own"
        " (sbd)",
    ),
    Key(
        "satellite-baud",
        make_integer_reader(1200, 921600, "baud"),
        None,
        "speed of the serial port (the usual one of the kind, or another at which the modem"
        " answers)",
    ),
    Key(
        "satellite-credits-per-day",
        make_integer_reader(0, 1_000_000, "credits of 50 bytes"),
        None,
        "maximum credits of 50 bytes per UTC day (no limit)",
    ),
    Key(
        "satellite-bytes-per-day",
        make_integer_reader(0, 100_000_000, "bytes"),
        None,
        "maximum bytes per UTC day, for an account that pays for bytes (no limit)",
    ),
    Key(
        "satellite-sos-reserve",
        make_integer_reader(0, 1_000_000, "credits"),
        None,
        "number of these credits that only an SOS, and the message that ends it, "
        "may use. Half of them may also fetch the answer. For an account that pays "
        "for bytes, each is 50 bytes (10, or half of the day's credits if that is "
        "less)",
    ),
    Key(
        "satellite-credit-price",
        read_credit_price,
        None,
        "price of a credit, such as 0.12 EUR, to show costs in money",
    ),
    Key(
        "satellite-mailbox-check",
        _read_hours,
        None,
        "hours after which the mailbox is checked without a ring; each check costs a credit (0:"
        " never)",
    ),
    Key(
        "satellite-registration",
        make_choice_reader("auto", "session"),
        "auto",
        "auto: the modem registers itself after a long move, so that rings reach it; session:"
        " it registers only with each session, for accounts that pay for registrations (auto)",
    ),
    Key(
        "satellite-heal",
        read_steps,
        None,
        "recovery steps for a silent modem, in this order: dtr, gpio:LINE (its sleep pin),"
        " rockblock:I_EN/I_BTD (its power pins), usb (its port), command; or none (dtr, and the"
        " command if it is set)",
    ),
    Key(
        "satellite-recovery-command",
        read_text,
        None,
        "shell command that restarts a silent modem, such as `uhubctl --action cycle --ports 2`",
    ),
    Key(
        "satellite-key",
        read_hexadecimal_keys,
        (),
        "64 hexadecimal digits that authenticate messages in both directions; to "
        "rotate, set two with a space between them",
    ),
    Key(
        "satellite-receipts",
        make_choice_reader("ride", "at-once"),
        "ride",
        "ride: send receipts to the hub with the next message, without cost; at-once: send each"
        " receipt separately, for a credit (ride). Receipts of an SOS are sent at once",
    ),
)
EXAMPLE_VALUES = {
    "satellite-port": "/dev/fieldagent-satellite",
    "satellite-credits-per-day": "100",
    "satellite-sos-reserve": "10",
    "satellite-credit-price": "0.12 EUR",
    "satellite-mailbox-check": "24",
    "satellite-registration": "session",
    "satellite-heal": "dtr gpio:17",
    "satellite-recovery-command": "uhubctl --action cycle --ports 2",
    "satellite-baud": "19200",
    "satellite-bytes-per-day": "100000",
}
REQUIRED_SETTINGS = {
    "satellite-heal": "satellite-port",
    "satellite-recovery-command": "satellite-port",
}
