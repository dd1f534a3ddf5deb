"""Settings of the kit's radio for handhelds."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from fieldagent.agent.kit_part import KitPart
from fieldagent.page.language import ENGLISH, LANGUAGES
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import Key, WrongProperty, make_integer_reader, read_text

RADIOS = {
    "meshtastic": "fieldagent.extensions.people.meshtastic:RADIO",
    "meshcore": "fieldagent.extensions.people.meshcore:RADIO",
    "aprs": "fieldagent.extensions.people.aprs:RADIO",
    "auto": "fieldagent.extensions.people.auto:RADIO",
}
"""Kinds of radio by their name in `mesh-protocol`. To add a kind, add a module to this package and
a line here."""


class PeopleSettings(NamedTuple):
    """Settings in the order of `KEYS`."""

    port: str | None = None
    protocol: str = "auto"
    people: Mapping[str, str] | None = None
    """People that the kit itself knows. Maps handles to names."""
    join_code: str | None = None
    word: str = "@hub"
    credits_per_day: int | None = None
    """Credits per day for each person; None if the setting is missing (see `CREDITS_PER_DAY`)."""
    positions: int = 0
    callsign: str = ""
    baud: int = 9600
    calls: Collection[str] = ()
    """Stations that the kit admits, in the form that `is_among` reads."""
    sos: Collection[str] = ()
    """Stations whose SOS the kit accepts."""
    language: str = ENGLISH
    """Language of the kit's own texts to people."""


CREDITS_PER_DAY = 20
"""Default credits per day for each person. For unauthenticated people, the default is no
credits."""


_NAME = r"(?=[0-9]*[A-Za-z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{3,6}"
_CALL = rf"{_NAME}(?:-(?:[1-9]|1[0-5]))?"
_CALLS = rf"{_CALL}|{_NAME}-\*|\*"
_HANDLE = rf"![0-9a-fA-F]{{8}}|[0-9a-fA-F]{{64}}|{_CALL}"


def is_among(handle: str, calls: Collection[str]) -> bool:
    """Return True if a list of callsigns contains a station. `hb9abc-*` means the callsign with any
    SSID. `*` means all stations.
    """
    return any(each in calls for each in (handle, f"{handle.partition('-')[0]}-*", "*"))


def _read_people(value: str) -> Mapping[str, str]:
    names = {}
    for each in filter(None, map(str.strip, value.split(","))):
        handle, _, name = each.partition(" ")
        if not re.fullmatch(_HANDLE, handle) or not name.strip():
            raise WrongProperty(
                "must be radios and names such as `!a1b2c3d4 Ada, !0badf00d Ben` (of MeshCore the"
                " public key, 64 hexadecimal digits; of APRS the call, hb9abc-9),"
                f" not {each!r}"
            )
        names[handle.lower()] = name.strip()
    return names


def _read_code(value: str) -> str:
    if len(value) < 6 or " " in value:
        raise WrongProperty("must be a code of at least six characters, without spaces")
    return value


def _read_word(value: str) -> str:
    if not value or " " in value:
        raise WrongProperty("must be one word without spaces, such as @hub")
    return value


def _read_calls(value: str) -> Collection[str]:
    return _read_list(value, _CALLS, "hb9abc-9, hb9xyz-* for each SSID of one, or * for everyone")


def _read_certain_calls(value: str) -> Collection[str]:
    return _read_list(value, _CALL, "hb9abc-9, each with its SSID")


def _read_list(value: str, form: str, such_as: str) -> Collection[str]:
    calls = [each.strip() for each in value.split(",") if each.strip()]
    for each in calls:
        if not re.fullmatch(form, each):
            raise WrongProperty(f"must be call signs such as {such_as}, not {each!r}")
    return frozenset(each.lower() for each in calls)


def _read_callsign(value: str) -> str:
    if not re.fullmatch(_CALL, value):
        raise WrongProperty(f"must be a call sign such as HB9ABC-7, not {value!r}")
    return value.upper()


def _read_language(value: str) -> str:
    if value not in LANGUAGES:
        raise WrongProperty(f"must be {', '.join(LANGUAGES)}, not {value!r}")
    return value


def _read_protocol(value: str) -> str:
    if value not in RADIOS and not re.fullmatch(r"[\w.]+:\w+", value):
        radio_names = ", ".join(RADIOS)
        raise WrongProperty(f"must be {radio_names} or package.module:NAME, not {value!r}")
    return value


KEYS = (
    Key(
        "mesh-port",
        read_text,
        None,
        "radio for messages from people with handhelds: a serial port, or tcp://host"
        " (docs/how-to/handhelds.md)",
    ),
    Key(
        "mesh-protocol",
        _read_protocol,
        "auto",
        "firmware of that radio: meshtastic, meshcore (companion role), aprs (a KISS TNC), auto"
        " (meshtastic or meshcore), or package.module:NAME of your own (auto)",
    ),
    Key(
        "mesh-people",
        _read_people,
        None,
        "people whom this kit knows in addition to people from the hub: `!a1b2c3d4 Ada,"
        " !0badf00d Ben`. Unknown people can only raise an SOS",
    ),
    Key(
        "mesh-join-code",
        _read_code,
        None,
        "code with which a person joins: the kit knows a person who sends it `join CODE`"
        " (joining is off)",
    ),
    Key(
        "mesh-word",
        _read_word,
        "@hub",
        "first word of texts to the kit on a channel; other texts are ignored (@hub)",
    ),
    Key(
        "mesh-credits-per-day",
        make_integer_reader(0, 1_000_000, "credits"),
        None,
        "maximum satellite credits per UTC day for one person's messages, without "
        "SOS (20). With aprs, the limit is for all people together and includes "
        "SMS (0)",
    ),
    Key(
        "mesh-positions",
        make_integer_reader(0, 86_400, "seconds; 0 for never"),
        0,
        "seconds between two positions of a known person that are sent to the hub; "
        "positions with an SOS are always sent (0: never). With aprs, the person "
        "is a tracker at the hub (docs/how-to/trackers.md)",
    ),
    Key(
        "mesh-callsign",
        _read_callsign,
        "",
        "with aprs, this kit's call sign, such as HB9ABC-7; without it the kit only listens",
    ),
    Key(
        "mesh-baud",
        make_integer_reader(300, 921_600, "baud"),
        9600,
        "with aprs, speed of the serial port (9600)",
    ),
    Key(
        "mesh-calls",
        _read_calls,
        (),
        "with aprs, stations that are accepted in addition to known people: `hb9abc-9,"
        " hb9xyz-*`, or `*` for all. Other stations are counted and ignored (none)",
    ),
    Key(
        "mesh-sos",
        _read_certain_calls,
        (),
        "with aprs, stations whose SOS or Mic-E emergency raises an SOS of this kit, although"
        " anyone can send under any call sign: `hb9abc-9` (none)",
    ),
    Key(
        "mesh-language",
        _read_language,
        ENGLISH,
        "language of the kit's answers to people: en, de, es, fr, uk; a person who "
        "writes a word for help in one of these languages gets the answer in that "
        "language (en)",
    ),
)

EXAMPLES = {
    "mesh-callsign": "N0CALL-7",
    "mesh-calls": "N0CALL-9",
    "mesh-sos": "N0CALL-9",
    "mesh-credits-per-day": "9",
    "mesh-port": "/dev/ttyACM1",
    "mesh-people": "!a1b2c3d4 Ada, !0badf00d Ben",
}
PART = KitPart(
    name="mesh",
    title="people's radio",
    keys=KEYS,
    own=PeopleSettings,
    is_on=lambda own: own.port is not None,
    plan="fieldagent.extensions.people.service:plan",
    devices="fieldagent.extensions.people.registry:list_radio_recognitions",
    kind_key="mesh-protocol",
    kinds=RADIOS,
    check="fieldagent.extensions.people.check:check",
    metrics="fieldagent.extensions.people.metrics:list_families",
    examples=EXAMPLES,
    needs={key.name: "mesh-port" for key in KEYS[1:] if key.default is None},
)
