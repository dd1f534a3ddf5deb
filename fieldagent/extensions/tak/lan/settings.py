"""Settings for phones with ATAK and similar apps on the kit's own network."""

from __future__ import annotations

import ipaddress

from fieldagent.agent.kit_part import KitPart
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import Key, WrongProperty, make_integer_reader


class TakLanSettings(NamedTuple):
    """Settings in the order of `KEYS`."""

    address: str | None = None
    name: str = "kit"
    allow: frozenset[str] = frozenset()
    """Callsigns that may use channels that cost money."""
    credits_per_day: int = 0
    messages_per_hour: int = 60


NAME_MAX = 40


def _read_address(value: str) -> str:
    try:
        address = ipaddress.IPv4Address(value)
    except ValueError:
        address = ipaddress.IPv4Address(0)
    if address.is_unspecified or address.is_multicast:
        raise WrongProperty(
            f"must be this kit's IPv4 address in that network, such as 192.168.4.1, not {value!r}"
        )
    return str(address)


def _read_name(value: str) -> str:
    if not value.isprintable() or not 1 <= len(value) <= NAME_MAX:
        raise WrongProperty(f"must be 1 to {NAME_MAX} printable characters, not {value!r}")
    return value


def _read_callsigns(value: str) -> frozenset[str]:
    callsigns = frozenset(filter(None, (each.strip() for each in value.split(","))))
    if not callsigns:
        raise WrongProperty(
            "must be callsigns, separated by commas; to allow none, remove the line"
        )
    return callsigns


KEYS = (
    Key(
        "tak-lan",
        _read_address,
        None,
        "IPv4 address of this kit in a network with phones that run ATAK or "
        "similar apps. The kit shows these phones all positions, messages and SOS "
        "by multicast, and the phones can write to the kit (docs/how-to/tak.md)",
    ),
    Key(
        "tak-lan-name",
        _read_name,
        "kit",
        "name of this kit for those phones, unique in the network (kit)",
    ),
    Key(
        "tak-lan-allow",
        _read_callsigns,
        frozenset[str](),
        "callsigns, separated by commas, that may use paid channels: satellite and SMS (none)",
    ),
    Key(
        "tak-lan-credits-per-day",
        make_integer_reader(0, 1_000_000, "credits"),
        0,
        "maximum satellite credits, and maximum SMS, per UTC day for all these callsigns (0: none)",
    ),
    Key(
        "tak-lan-messages-per-hour",
        make_integer_reader(1, 100_000, "messages"),
        60,
        "maximum messages per hour from phones on the network (60)",
    ),
)
EXAMPLES = {"tak-lan": "192.168.4.1", "tak-lan-allow": "LEAD 1, COOK"}
NEEDS = {"tak-lan-allow": "tak-lan"}
PART = KitPart(
    name="takLan",
    title="TAK on the network",
    keys=KEYS,
    own=TakLanSettings,
    is_on=lambda own: own.address is not None,
    plan="fieldagent.extensions.tak.lan.service:plan",
    examples=EXAMPLES,
    needs=NEEDS,
    not_from_afar={
        "tak-lan": "phones in that network would read received items, and write through the kit"
    },
)
