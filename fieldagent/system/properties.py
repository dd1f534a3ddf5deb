"""Parses Java properties files strictly. Unknown keys are faults, and all faults are reported
together. Settings from environment variables replace the same settings of the file.

`FIELDAGENT_HUB_PORT` is the hub's `port`. `FIELDAGENT_HUB_ROCKBLOCK_PASSWORD_FILE` names a file
whose first line is the value of `rockblock-password`, because containers pass secrets as files.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from fieldagent.system.java_properties import NoProperties, set_pairs
from fieldagent.system.java_properties import read_pairs as pairs_in
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.text_files import read_first_line, read_text_file
from fieldagent.system.wording import describe_reason

ALTERNATIVES_MAX = 3
"""Maximum number of known names offered for an unknown one."""
SIMILARITY_MARGIN = 0.06
"""A known name is also offered if its similarity (difflib) is at most this much below the best."""


class InvalidSettings(Exception):
    """All faults in the file, each as a sentence with its key."""

    def __init__(self, path: Path, faults: list[str]) -> None:
        super().__init__("\n".join(f"{path}: {fault}" for fault in faults))
        self.faults = faults


class WrongProperty(Exception):
    pass


def read_text(value: str) -> str:
    """Return `value` unchanged. Raises WrongProperty if it is blank."""
    if not value.strip():
        raise WrongProperty("is empty; remove the line to leave it unset")
    return value


def make_integer_reader(minimum: int, maximum: int, unit: str) -> Callable[[str], int]:
    """Return a function that parses an integer from `minimum` to `maximum` inclusive. The function
    raises WrongProperty, with the unit in its message.
    """

    def read(value: str) -> int:
        if not value.isascii() or not value.isdigit() or not minimum <= int(value[:12]) <= maximum:
            raise WrongProperty(
                f"must be a whole number from {minimum} to {maximum} ({unit}), not {value!r}"
            )
        return int(value)

    return read


def make_choice_reader(*words: str) -> Callable[[str], str]:
    """Return a function that accepts one of these words. The function raises WrongProperty, with
    the words in its message.
    """

    def read(value: str) -> str:
        if value not in words:
            choices = f"{', '.join(words[:-1])} or {words[-1]}" if words[1:] else words[0]
            raise WrongProperty(f"must be {choices}, not {value!r}")
        return value

    return read


def make_choices_reader(*words: str) -> Callable[[str], frozenset[str]]:
    """Return a function that parses some of these words, separated by spaces. `none` is the empty
    set.
    """

    def read(value: str) -> frozenset[str]:
        chosen_words = frozenset(value.split())
        if chosen_words == {"none"}:
            return frozenset()
        if not chosen_words <= {*words}:
            rule = f"must be some of {', '.join(words)}, with spaces between, or none"
            raise WrongProperty(f"{rule}, not {value!r}")
        return chosen_words

    return read


def split_url(value: str, *schemes: str) -> SplitResult | None:
    """Split a URL. Return None if its scheme is not one of `schemes`, if it has no host, or if its
    port is 0. Raises WrongProperty if `value` is not a URL, contains a blank, or has a host that
    cannot be looked up.
    """
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise WrongProperty(f"is not a URL: {error}") from None
    if any(character <= " " for character in value):
        raise WrongProperty(f"is not a URL: there is a blank in {value!r}")
    if parts.scheme not in schemes or not parts.hostname or port == 0:
        return None
    _check_host(parts.hostname)
    return parts


def read_url(value: str) -> str:
    """Check that `value` is an http or https URL with a host, and return it. Raises WrongProperty
    for any other value.
    """
    if split_url(value, "http", "https") is None:
        raise WrongProperty(f"must be a URL such as https://example.org, not {value!r}")
    return value


def read_endpoint(value: str) -> tuple[str, int]:
    """Parse HOST:PORT. The brackets of an IPv6 address are removed. Raises WrongProperty for any
    other value.
    """
    host, _, port = value.rpartition(":")
    if not host:
        raise WrongProperty(f"must be HOST:PORT, not {value!r}")
    _check_host(host)
    return host.strip("[]"), make_integer_reader(0, 65535, "port")(port)


def _check_host(host: str) -> None:
    """Raise WrongProperty for a name that cannot be looked up. Otherwise a look-up would raise
    UnicodeError instead of OSError.
    """
    try:
        # Use the codec only for other names, because it takes memory that an agent with ASCII names
        # saves.
        name = host if host.isascii() else host.encode("idna").decode()
        *labels, last = name.split(".")
        is_host = all(0 < len(label) < 64 for label in labels) and len(last) < 64
    except UnicodeError:
        is_host = False
    if not is_host:
        raise WrongProperty(f"must name a host, but {host[:80]!r} is not a host")


def read_networks(value: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Parse networks in CIDR notation, separated by spaces. The value may be empty. Raises
    WrongProperty for any other value.
    """
    try:
        return tuple(ipaddress.ip_network(each) for each in value.split())
    except ValueError as error:
        raise WrongProperty(
            f"must be networks such as 10.0.0.0/8, with spaces between: {error}"
        ) from None


def read_absolute_path(value: str) -> Path:
    """Parse a path that begins with /. The file is not checked. Raises WrongProperty for any other
    value.
    """
    if not value.startswith("/"):
        raise WrongProperty(f"must be a path that begins with /, not {value!r}")
    return Path(value)


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    read: Callable[[str], Any]
    default: Any
    description: str
    """Text for people: effect, unit, default."""

    @property
    def attribute(self) -> str:
        """Return the name of the settings' field that contains the key's value."""
        return self.name.replace("-", "_")


def read_file(path: Path, *, is_required: bool) -> str:
    """Return the text of the file, or '' if it is missing and not `is_required`.

    Raises InvalidSettings or OSError.
    """
    try:
        return read_text_file(path)
    except FileNotFoundError:
        if is_required:
            raise FileNotFoundError(
                f"settings file {path} not found: correct --config, or create the file"
            ) from None
        return ""
    except UnicodeDecodeError as error:
        raise InvalidSettings(path, [f"byte {error.start} is not UTF-8"]) from None


def read(
    text: str,
    path: Path,
    keys: Sequence[Key],
    absent_extension: Callable[[str], str] = lambda name: "",
) -> tuple[dict[str, Any], Mapping[str, str], list[str]]:
    """Parse a settings file. Return the value of each key by its attribute, the names and values in
    the file, and a sentence for each fault. If a key belongs to an extension that this program does
    not have, `absent_extension` returns that extension's name, otherwise an empty string.

    Raises InvalidSettings if the text is not a properties file.
    """
    key_by_name = {key.name: key for key in keys}
    values: dict[str, Any] = {key.attribute: key.default for key in keys}
    faults = []
    try:
        entries = list(pairs_in(text))
    except NoProperties as error:
        raise InvalidSettings(path, [str(error)]) from None
    pairs = dict(entries)
    times = Counter(name for name, _ in entries)
    faults += [f"{name} is set {times[name]} times: keep one" for name in pairs if times[name] > 1]
    for name, value in pairs.items():
        if name not in key_by_name:
            extension = absent_extension(name)
            faults.append(
                f"{name} belongs to the extension {extension}, which this program does not have:"
                " install a program that has it, or remove the line"
                if extension
                else describe_unknown_setting(name, key_by_name)
            )
            continue
        try:
            values[key_by_name[name].attribute] = key_by_name[name].read(value)
        except WrongProperty as wrong:
            faults.append(f"{name} {wrong}")
    return values, pairs, faults


def describe_unknown_setting(name: str, known_names: Iterable[str]) -> str:
    """Return the fault, with the most similar known names if there are any."""
    import difflib  # Import this module here, because only a misspelt key needs it.

    near = difflib.get_close_matches(name, known_names, n=ALTERNATIVES_MAX)
    if not near:
        return f"{name!r} is not a setting; correct its name, or remove it"
    ratios = [difflib.SequenceMatcher(None, each, name).ratio() for each in near]
    *others, last = [
        each
        for each, ratio in zip(near, ratios, strict=True)
        if ratio >= ratios[0] - SIMILARITY_MARGIN
    ]
    if others:
        return f"{name!r} is not a setting; the nearest are {', '.join(others)} and {last}"
    return f"{name!r} is not a setting; the nearest is {last}"


_FILE_SUFFIX = "-file"


def get_variables(environ: Mapping[str, str], prefix: str) -> Mapping[str, str]:
    """Return the values of the variables that begin with `prefix`, by the rest of their names."""
    return {
        name.removeprefix(prefix).lower().replace("_", "-"): name
        for name in sorted(environ)
        if name.startswith(prefix)
    }


def add_environment(
    text: str,
    environ: Mapping[str, str],
    prefix: str,
    keys_of: Callable[[str], Iterable[Key]],
) -> str:
    """Return the text of a settings file with the settings of the environment. `keys_of` returns
    the keys that are allowed in a settings file with the given text.

    Raises InvalidSettings with a sentence for each unknown variable and each unusable value.
    """
    variable_by_key = get_variables(environ, prefix)
    if not variable_by_key:
        return text
    value_by_key = {name: environ[variable] for name, variable in variable_by_key.items()}
    try:
        key_by_name = {key.name: key for key in keys_of(set_pairs(text, value_by_key))}
    except NoProperties:
        # The later check of the whole file reports the fault.
        return text
    values: dict[str, str] = {}
    faults = []
    for name, value in value_by_key.items():
        try:
            setting, its_value = _parse_variable(name, value, key_by_name)
            if setting in values:
                raise WrongProperty(f"{setting} has a value from another variable: remove one")
            values[setting] = its_value
        except WrongProperty as wrong:
            faults.append(f"{variable_by_key[name]}: {wrong}")
    if faults:
        raise InvalidSettings(Path("environment"), faults)
    return set_pairs(text, values)


def _parse_variable(name: str, value: str, key_by_variable: Mapping[str, Key]) -> tuple[str, str]:
    """Return the name and value of the setting that a variable contains. Raises WrongProperty if
    the setting is unknown or its file cannot be read.
    """
    if (
        name not in key_by_variable
        and name.endswith(_FILE_SUFFIX)
        and name.removesuffix(_FILE_SUFFIX) in key_by_variable
    ):
        name = name.removesuffix(_FILE_SUFFIX)
        try:
            value = read_first_line(Path(value))
        except (OSError, ValueError) as error:
            raise WrongProperty(
                f"the file {value} cannot be read: {describe_reason(error)}"
            ) from None
    if name not in key_by_variable:
        raise WrongProperty(describe_unknown_setting(name, key_by_variable))
    if "\n" in value or "\r" in value:
        raise WrongProperty("must be one line")
    key_by_variable[name].read(value)
    return name, value
