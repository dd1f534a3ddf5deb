"""Settings of the radio among kits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fieldagent.agent.channels.air_pace import AIR_BYTES, AIR_BYTES_MAX, AIR_BYTES_MIN
from fieldagent.agent.channels.healing import Healing, HealingStep, get_steps, read_steps
from fieldagent.agent.kit_part import RUNS_COMMAND_REASON, SECRET, SWITCHES_POWER_REASON, KitPart
from fieldagent.agent.satellite_settings import read_hexadecimal_keys
from fieldagent.extensions.radio.radios.regions import (
    find_region_faults,
    parse_region,
    read_frequency,
)
from fieldagent.extensions.radio.registry import RADIOS, find_missing_settings, load_radio
from fieldagent.package.package import Channel
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import (
    Key,
    WrongProperty,
    make_choice_reader,
    make_integer_reader,
    read_text,
)

if TYPE_CHECKING:
    from fieldagent.extensions.radio.contract import RadioPlace


class RadioSettings(NamedTuple):
    """Settings in the order of `KEYS`, then the settings of the kind of radio."""

    port: str | None = None
    protocol: str = "node"
    baud: int = 115_200
    heal: tuple[HealingStep, ...] | None = None
    recovery_command: str | None = None
    callsign: str = ""
    packet_bytes: int = AIR_BYTES
    station: int | None = None
    name: str = ""
    key: tuple[bytes, ...] = ()
    key_next: tuple[bytes, ...] = ()
    seal: str = "off"
    hops: int = 3
    relay: frozenset[Channel] = frozenset()
    relay_credits_per_day: int = 10
    relay_down: str = "off"
    region: str | None = None
    frequency: int | None = None
    bit_rate: int | None = None
    own: Mapping[str, Any] = {}
    """Settings of the configured kind of radio, by name."""


def get_radio_place(settings: RadioSettings) -> RadioPlace:
    """Return the port and the settings of the radio. `radio-port` must be set."""
    # Import this module here, so that a kit without a radio saves this memory.
    from fieldagent.extensions.radio.contract import RadioPlace

    assert settings.port is not None
    return RadioPlace(
        settings.port, settings.baud, settings.callsign, settings.packet_bytes, settings.own
    )


_RELAY_CHANNELS = {"cellular": Channel.CELLULAR, "satellite": Channel.SATELLITE}


def _read_relay_channels(value: str) -> frozenset[Channel]:
    channel_words = value.lower().replace(",", " ").split()
    if not channel_words or not set(channel_words) <= set(_RELAY_CHANNELS):
        raise WrongProperty(f"must be cellular, satellite or both, not {value!r}")
    return frozenset(_RELAY_CHANNELS[channel_word] for channel_word in channel_words)


def _read_one_key(value: str) -> tuple[bytes, ...]:
    if len(keys := read_hexadecimal_keys(value)) == 1:
        return keys
    raise WrongProperty("must be one key of 64 hexadecimal digits")


def _read_callsign(value: str) -> str:
    if not re.fullmatch(r"[A-Z0-9]{1,6}(-(?:[0-9]|1[0-5]))?", value):
        raise WrongProperty(
            f"must be a call sign of up to 6 capitals and digits, such as N0CALL-7, not {value!r}"
        )
    return value


def _read_radio_name(value: str) -> str:
    load_radio(value)
    return value


KEYS = (
    Key(
        "radio-port",
        read_text,
        None,
        "port of the radio: a serial port such as /dev/ttyACM0, or the address that its kind takes",
    ),
    Key(
        "radio-protocol",
        _read_radio_name,
        "node",
        f"kind of radio: {', '.join(RADIOS)} (see below), or package.module:NAME of your own"
        " (node)",
    ),
    Key(
        "radio-baud",
        make_integer_reader(1200, 921600, "baud"),
        115200,
        "speed of the serial port (115200)",
    ),
    Key(
        "radio-heal",
        read_steps,
        None,
        "recovery steps for a silent radio, as satellite-heal (the command, if it is set)",
    ),
    Key("radio-recovery-command", read_text, None, "shell command that restarts a silent radio"),
    Key(
        "radio-callsign",
        _read_callsign,
        "",
        "call sign of this station, such as N0CALL-7; kiss needs it in each frame, and a node"
        " sends it in plain text within ten minutes of each transmission",
    ),
    Key(
        "radio-packet-bytes",
        make_integer_reader(AIR_BYTES_MIN, AIR_BYTES_MAX, "bytes"),
        AIR_BYTES,
        "maximum bytes of a packet, the same for each radio of the group (200)",
    ),
    Key(
        "radio-station",
        make_integer_reader(1, 2**32 - 1, "the device's number"),
        None,
        "station number of this kit, as the hub shows it for the device; unique among kits in"
        " range",
    ),
    Key("radio-name", read_text, "", "name of this kit for neighbours (the station number)"),
    Key(
        "radio-key",
        read_hexadecimal_keys,
        (),
        "64 hexadecimal digits that all kits of a group share; packets without it are ignored."
        " During a change: the new key and the old key, with a space (docs/how-to/radio-key.md)."
        " Check that your licence allows authentication",
    ),
    Key(
        "radio-key-next",
        _read_one_key,
        (),
        "64 hexadecimal digits of the next radio-key: packets with it are accepted, but none"
        " are sent with it yet (docs/how-to/radio-key.md)",
    ),
    Key(
        "radio-seal",
        make_choice_reader("off", "on"),
        "off",
        "on: encrypt packets with radio-key (off). Check that your licence allows encryption:"
        " amateur bands do not",
    ),
    Key(
        "radio-hops",
        make_integer_reader(1, 7, "transmissions"),
        3,
        "maximum transmissions of an item on its way. In a line of kits, an item reaches that many"
        " kits in each direction. With 1, this kit relays nothing (3)",
    ),
    Key(
        "radio-relay",
        _read_relay_channels,
        frozenset[Channel](),
        "channels over which this kit relays items of neighbours to the hub: cellular,"
        " satellite (none)",
    ),
    Key(
        "radio-relay-credits-per-day",
        make_integer_reader(0, 1_000_000, "credits"),
        10,
        "maximum satellite credits per UTC day for neighbours; an SOS has 5 more (10)",
    ),
    Key(
        "radio-relay-down",
        make_choice_reader("off", "on"),
        "off",
        "on: send items from the hub to neighbours without a link by radio (off)",
    ),
    Key(
        "radio-region",
        parse_region,
        None,
        "rules that limit the air-time of this radio: EU868, EU433, US915, AU915, or amateur,"
        " which has no limit (air-time is not limited)",
    ),
    Key(
        "radio-frequency",
        read_frequency,
        None,
        "frequency in MHz, such as 869.525, for a radio without its own frequency setting",
    ),
    Key(
        "radio-bit-rate",
        make_integer_reader(50, 10_000_000, "bits a second"),
        None,
        "bits per second on the air, for a radio that does not count its air-time, such as 1200"
        " for AX.25 on VHF",
    ),
)

EXAMPLES = {
    "radio-port": "/dev/ttyACM0",
    "radio-heal": "dtr command",
    "radio-recovery-command": "uhubctl --action cycle --ports 3",
    "radio-callsign": "N0CALL",
    "radio-station": "2",
    "radio-name": "Hut",
    "radio-relay": "cellular",
    "radio-region": "amateur",
    "radio-frequency": "869.525",
    "radio-bit-rate": "9600",
}
"""Example values in the first settings file."""
NEEDS = {
    "radio-port": "radio-station",
    **dict.fromkeys(
        (
            "radio-heal",
            "radio-recovery-command",
            "radio-callsign",
            "radio-key",
            "radio-relay",
            "radio-region",
            "radio-bit-rate",
        ),
        "radio-port",
    ),
    "radio-key-next": "radio-key",
    "radio-seal": "radio-key",
    "radio-relay-down": "radio-relay",
    "radio-frequency": "radio-region",
}
"""Settings that require another setting, and the other setting."""


def find_radio_faults(pairs: Mapping[str, str]) -> list[str]:
    """Return the errors in the combination of the settings."""
    faults = find_missing_settings(pairs) + find_region_faults(pairs)
    keys, next_key = pairs.get("radio-key", "").split(), pairs.get("radio-key-next", "")
    if next_key and len(keys) > 1:
        faults.append(
            "radio-key-next and two keys in radio-key: remove radio-key-next, or the second key"
        )
    if next_key and [next_key.strip().lower()] == [each.lower() for each in keys]:
        faults.append(
            "radio-key-next is the same as radio-key: set the new key there, or remove it"
        )
    return faults


def _make_healing(settings: RadioSettings) -> Healing:
    assert settings.port is not None
    command = settings.recovery_command
    return Healing("radio", settings.port, get_steps(settings.heal, command), command)


PART = KitPart(
    name="radio",
    title="the radio rounds",
    keys=KEYS,
    own=RadioSettings,
    is_on=lambda own: own.port is not None,
    station="fieldagent.extensions.radio.service:RadioPlan",
    station_number=lambda own: own.station,
    healing=_make_healing,
    devices="fieldagent.extensions.radio.registry:list_recognitions",
    kind_key="radio-protocol",
    kinds=RADIOS,
    load_kind=load_radio,
    faults=find_radio_faults,
    check="fieldagent.extensions.radio.check:check",
    examples=EXAMPLES,
    needs=NEEDS,
    not_from_afar={
        "radio-recovery-command": RUNS_COMMAND_REASON,
        "radio-heal": SWITCHES_POWER_REASON,
        "radio-key": SECRET,
        "radio-key-next": SECRET,
    },
)
