"""Settings from environment variables, which replace the same settings of the file.

`FIELDAGENT_HUB_PORT` is the hub's `port`. `FIELDAGENT_HUB_ROCKBLOCK_PASSWORD_FILE` names a file
whose first line is the value of `rockblock-password`, because containers pass secrets as files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fieldagent.system.java_properties import NoProperties, set_pairs
from fieldagent.system.properties import (
    InvalidSettings,
    Key,
    WrongProperty,
    describe_unknown_setting,
)
from fieldagent.system.text_files import read_first_line
from fieldagent.system.wording import describe_reason

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
