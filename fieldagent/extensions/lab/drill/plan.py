"""Parses the plan of a drill from a TOML file: kits and their users, outages, and dispatchers.

Each error contains the key and its allowed values.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeVar

from fieldagent.package.package import Channel
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.span import read_span

T = TypeVar("T")
HOUR_S = 3600.0
KITS_MAX = 40

_HOURS = re.compile(r"([01]?[0-9]|2[0-4])-([01]?[0-9]|2[0-4])", re.ASCII)
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,23}", re.ASCII)


class BadPlan(ValueError):
    """Error in a plan. The text contains the wrong key and the allowed values."""


class PlanHours:
    """Hours of the day from a first hour (included) to a last hour (not included). They can span
    midnight.
    """

    def __init__(self, text: str) -> None:
        match = _HOURS.fullmatch(text)
        if match is None:
            raise ValueError
        self.text = text
        self._from, self._to = int(match[1]), int(match[2])
        if self._from == self._to:
            # Two equal hours are ambiguous, because they could mean no time or the whole day. The
            # whole day is 0-24.
            raise ValueError

    def has(self, hour: float) -> bool:
        """Return True if `hour` (0 to below 24) is at or after the first hour and before the
        second.
        """
        if self._from <= self._to:
            return self._from <= hour < self._to
        return hour >= self._from or hour < self._to


@dataclass(frozen=True, slots=True)
class Outages:
    """Outages at fixed hours of each day, and outages at random times."""

    hours: tuple[PlanHours, ...] = ()
    lost: float = 0.0
    """Fraction of the time with random outages, 0 to 0.95."""
    lasting: float = 600.0
    """Mean duration of a random outage in seconds."""


@dataclass(frozen=True, slots=True)
class KitPlan:
    name: str
    bearers: tuple[Channel, ...]
    credits_per_day: int = 50
    sos_reserve: int = 20
    messages_per_day: float = 6.0
    message_length: int = 40
    """Number of characters in a message."""
    position_every: float = 0.0
    """Seconds between two positions. If 0, the kit sends no positions."""
    by: float = 0.0
    """Deadline in seconds of Packages that are not an SOS. If 0, there is no deadline."""
    sos_per_week: float = 1.0
    awake: tuple[PlanHours, ...] = (PlanHours("7-21"),)
    """Hours in which the kit's users write. They can raise an SOS at any hour."""
    sky: Outages = Outages()
    network: Outages = Outages()
    earshot: Outages = Outages()
    power: Outages = Outages()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings for agent.properties, as text."""


@dataclass(frozen=True, slots=True)
class DispatcherPlan:
    name: str
    shift: tuple[PlanHours, ...] = ()
    """Hours in which the dispatcher is at the desk. Empty: always."""
    answers_in: float = 180.0
    """Mean number of seconds from the moment when the desk shows an SOS until the dispatcher
    answers."""
    messages_per_day: float = 0.0
    """Number of messages per day to each kit."""


@dataclass(frozen=True, slots=True)
class AirPlan:
    bit_rate: float = 9600.0
    loss: float = 0.05
    fades: Outages = Outages(lost=0.0, lasting=60.0)
    pairs: tuple[tuple[str, str, float], ...] = ()
    """Pairs of kits that are in range of each other, with the loss between them. If empty, all kits
    are in range of each other."""


@dataclass(frozen=True, slots=True)
class DrillPlan:
    name: str
    text: str
    days: float
    late: float
    """Seconds after which a message that has not reached the hub is late."""
    kits: tuple[KitPlan, ...]
    dispatchers: tuple[DispatcherPlan, ...]
    air: AirPlan = AirPlan()
    hub: Outages = Outages()
    session: float = 20.0
    """Duration of a satellite session in seconds."""


def load_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text. Raises BadPlan if the text is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadPlan(f"the file is not TOML: {error}") from None


def change_values(values: dict[str, Any], change: str) -> dict[str, Any]:
    """Return the values after the change `KEY=VALUE`. KEY is a path such as `kits.credits-per-day`.
    VALUE is a TOML value; if it is not valid TOML, it is a text. Raises BadPlan if the text has
    another form, or if a key on the path is not a table.
    """
    path, equals, text = change.partition("=")
    if not equals or not path:
        raise BadPlan(f"{change!r} is not KEY=VALUE, such as kits.credits-per-day=20")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    first, _, rest = path.partition(".")
    if not rest:
        return {**values, first: value}
    below = values.get(first, {})
    if not isinstance(below, dict):
        raise BadPlan(f"{path}: {first} is not a table; `kits` contains the settings of all kits")
    return {**values, first: change_values(below, f"{rest}={text}")}


def read_plan(values: Mapping[str, Any]) -> DrillPlan:
    """Return the plan from the values in a file. Raises BadPlan if a value is invalid."""
    table = _PlanTable("", values)
    common = table.read_table("kits")
    common.read_all(_KIT)
    kits: list[KitPlan] = []
    for number, each in enumerate(table.read_tables("kit"), 1):
        kits += _read_kits(_PlanTable(f"kit {number}: ", {**common.values, **each}))
    if not kits:
        raise BadPlan(
            "kit: a drill needs at least one kit. Add a table [[kit]] with a name and bearers"
        )
    if len(kits) > KITS_MAX:
        raise BadPlan(f"kit: {KITS_MAX} at most, not {len(kits)}")
    names = [kit.name for kit in kits]
    if len({*names}) < len(names):
        raise BadPlan("kit: give each kit another name")
    dispatchers = [
        DispatcherPlan(
            **_read_values(_PlanTable(f"dispatcher {number}: ", each), _DISPATCHER, "name")
        )
        for number, each in enumerate(table.read_tables("dispatcher"), 1)
    ]
    members = table.read_all(_DRILL, table_keys=("kits", "kit", "dispatcher"))
    air = AirPlan() if "air" not in members else members.pop("air")
    for first, other, _ in air.pairs:
        if {first, other} - {*names}:
            raise BadPlan(f"air.pairs: {first} and {other} are not both names of kits")
    defaults = {"name": "a drill", "text": "", "days": 7.0, "late": HOUR_S}
    return DrillPlan(
        **{**defaults, **members}, kits=tuple(kits), dispatchers=tuple(dispatchers), air=air
    )


def _read_kits(table: _PlanTable) -> list[KitPlan]:
    members = _read_values(table, _KIT, "name", "bearers")
    count = members.pop("count", 1)
    if count == 1:
        return [KitPlan(**members)]
    return [KitPlan(**{**members, "name": f"{members['name']}-{n}"}) for n in range(1, count + 1)]


def _read_values(table: _PlanTable, keys: Mapping[str, _Key], *needed: str) -> dict[str, Any]:
    """Return the values of these keys. Raises BadPlan if a value is wrong, or if a key in `needed`
    is missing.
    """
    members = table.read_all(keys)
    for name in needed:
        if name not in members:
            raise BadPlan(f"{table.path_prefix}{name} is missing: {keys[name].allowed}")
    return members


class _PlanTable:
    def __init__(self, place: str, values: Mapping[str, Any]) -> None:
        self.path_prefix = place
        self.values = values

    def read_table(self, key: str) -> _PlanTable:
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise BadPlan(f"{self.path_prefix}{key} must be a table: [{key}]")
        return _PlanTable(f"{self.path_prefix}{key}.", value)

    def read_tables(self, key: str) -> list[dict[str, Any]]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise BadPlan(f"{self.path_prefix}{key} must be a list of tables: [[{key}]]")
        return value

    def read_all(
        self, keys: Mapping[str, _Key], table_keys: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Return the values by their attribute names. Raises BadPlan if a value is invalid."""
        unknown = [name for name in self.values if name not in keys and name not in table_keys]
        if unknown:
            allowed = ", ".join([*keys, *table_keys])
            raise BadPlan(f"{self.path_prefix}{unknown[0]} is not a key; known are {allowed}")
        return {
            key.attribute or name.replace("-", "_"): self._read(name, key)
            for name, key in keys.items()
            if name in self.values
        }

    def _read(self, name: str, key: _Key) -> Any:
        value = self.values[name]
        try:
            return key.read(value)
        except BadPlan as bad:
            raise BadPlan(f"{self.path_prefix}{name}.{bad}") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise BadPlan(
                f"{self.path_prefix}{name} must be {key.allowed}, not {value!r}"
            ) from None


@dataclass(frozen=True, slots=True)
class _Key:
    read: Callable[[Any], Any]
    allowed: str
    attribute: str = ""


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 4_000:
        raise ValueError
    return value


def _make_number_reader(low: float, high: float, unit: str = "") -> _Key:
    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        if not low <= value <= high:
            raise ValueError
        return value

    return _Key(read, f"a number{unit} from {low:g} to {high:g}")


def _make_integer_reader(low: int, high: int) -> _Key:
    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError
        return value

    return _Key(read, f"a whole number from {low} to {high}")


def _read_span(value: Any) -> float:
    seconds = read_span(value)
    if not seconds:
        raise ValueError
    return float(seconds)


def _make_spells_reader(attribute: str = "") -> _Key:
    return _Key(_read_span, "a time such as 30s, 5m or 2h", attribute)


def _read_hours(value: Any) -> tuple[PlanHours, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(PlanHours(each) for each in value)


def _read_name(value: Any) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError
    return str(value)


def _read_bearers(value: Any) -> tuple[Channel, ...]:
    channels = tuple(Channel(each.capitalize()) for each in value)
    if not channels or isinstance(value, str):
        raise ValueError
    return channels


def _read_outages(value: Any) -> Outages:
    if not isinstance(value, dict):
        raise ValueError
    return Outages(**_PlanTable("", value).read_all(_OUTAGES))


def _read_settings(value: Any) -> dict[str, str]:
    if not all(isinstance(each, str | int) for each in value.values()):
        raise ValueError
    return {str(name): str(each) for name, each in value.items()}


def _read_pairs(value: Any) -> tuple[tuple[str, str, float], ...]:
    pairs = []
    for each in value:
        first, other, *loss = each.split()
        pairs.append((first, other, float((*loss, "0")[0])))
        if len(loss) > 1 or not 0 <= pairs[-1][2] <= 1:
            raise ValueError
    return tuple(pairs)


def _read_air(value: Any) -> AirPlan:
    if not isinstance(value, dict):
        raise ValueError
    return AirPlan(**_PlanTable("", value).read_all(_AIR))


_AN_OUTAGE = 'a table such as { hours = ["22-6"], lost = 0.2, lasting = "20m" }'
_SOME_HOURS = 'a list of hours such as ["22-6", "12-13"]'
_SHARE = _make_number_reader(0, 0.95)

_OUTAGES = {
    "hours": _Key(_read_hours, _SOME_HOURS),
    "lost": _SHARE,
    "lasting": _make_spells_reader(),
}
_KIT = {
    "name": _Key(_read_name, "a name of a to z, 0 to 9 and -, 24 characters at most"),
    "count": _make_integer_reader(1, KITS_MAX),
    "bearers": _Key(_read_bearers, 'a list of "satellite", "cellular" and "radio"'),
    "credits-per-day": _make_integer_reader(1, 100_000),
    "sos-reserve": _make_integer_reader(0, 100_000),
    "messages-per-day": _make_number_reader(0, 1000),
    "message-length": _make_integer_reader(1, 1000),
    "position-every": _make_spells_reader(),
    "by": _make_spells_reader(),
    "sos-per-week": _make_number_reader(0, 1000),
    "awake": _Key(_read_hours, _SOME_HOURS),
    **{name: _Key(_read_outages, _AN_OUTAGE) for name in ("sky", "network", "earshot", "power")},
    "settings": _Key(_read_settings, 'a table of settings such as { fan-out = "cheapest" }'),
}
_DISPATCHER = {
    "name": _Key(_read_text, "a name"),
    "shift": _Key(_read_hours, _SOME_HOURS),
    "answers-in": _make_spells_reader(),
    "messages-per-day": _make_number_reader(0, 100),
}
_AIR = {
    "bit-rate": _make_number_reader(100, 1_000_000, " of bits a second"),
    "loss": _SHARE,
    "fades": _Key(_read_outages, 'a table such as { lost = 0.1, lasting = "1m" }'),
    "pairs": _Key(
        _read_pairs,
        'a list of radio links with losses, such as ["ada ben", "ben cleo 0.3"]',
    ),
}
_DRILL = {
    "name": _Key(_read_text, "a text"),
    "text": _Key(_read_text, "a text of 4000 characters at most"),
    "days": _make_number_reader(0.02, 60, " of days"),
    "late": _make_spells_reader(),
    "session": _make_spells_reader(),
    "hub": _Key(_read_outages, _AN_OUTAGE),
    "air": _Key(_read_air, "a table: [air]"),
}
