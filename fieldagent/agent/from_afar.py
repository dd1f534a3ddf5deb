"""Decides whether a setting may be changed remotely, and makes the new settings file. Root's units
use this module to check settings and programs that arrive over the link (`fieldagent settings
--go-on`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from fieldagent.agent.kit_part import (
    RUNS_COMMAND_REASON,
    SECRET,
    SWITCHES_POWER_REASON,
    get_kit_parts,
)
from fieldagent.agent.satellites.registry import get_modems
from fieldagent.agent.settings import Settings, parse
from fieldagent.system.java_properties import read_pairs, remove_pairs, set_pairs
from fieldagent.system.properties import InvalidSettings
from fieldagent.wire.settings_change import SettingsChange, get_kit_id

_NETWORK_REASON = "it opens the kit to a network"
_LINK = "it would move the kit to another hub, and this hub could not undo that"

LOCAL_ONLY_SETTINGS = {
    "inbound-hook": RUNS_COMMAND_REASON,
    "cellular-recovery-command": RUNS_COMMAND_REASON,
    "satellite-recovery-command": RUNS_COMMAND_REASON,
    "satellite-heal": SWITCHES_POWER_REASON,
    "cellular-heal": SWITCHES_POWER_REASON,
    "webhook-address": "all received items would go there",
    "webhook-secret": SECRET,
    "satellite-key": SECRET,
    "hub-token": (
        "it is a secret that identifies the kit in the signed text, and readers of the hub's"
        " database could read it"
    ),
    "hub-address": _LINK,
    "hub-ca-file": _LINK,
    "page-listen": _NETWORK_REASON,
    "page-port": _NETWORK_REASON,
    "page-portal-port": _NETWORK_REASON,
    "api-port": "programs on the kit, and the trial itself, call this port",
    "state-directory": "waiting items are stored there",
    **{name: why for part in get_kit_parts().values() for name, why in part.not_from_afar.items()},
}
"""Settings that can only be changed on the kit itself, and the reason for each."""
BUILT_IN_VALUES: Mapping[str, Collection[str]] = {
    "extensions": (),
    "satellite-modem": get_modems(),
    **{part.kind_key: part.kinds for part in get_kit_parts().values() if part.kind_key},
}
"""Settings whose value may name a third-party program, and the names of our own programs. A remote
change may use only these names."""


class NotForThisKit(Exception):
    """The change was refused, and nothing was changed. The message contains the reason."""


def change_settings(text: str, change: SettingsChange, path: Path) -> tuple[str, Settings]:
    """Return the text of the settings file at `path` after `change`, and its settings. `text` is
    the present content of the file. Its comments and other lines are kept. A setting with an empty
    value in `change` is removed. Raises NotForThisKit.
    """
    before = dict(read_pairs(text))
    if change.kit != get_kit_id(before.get("hub-token", "")):
        raise NotForThisKit(
            f"the settings are for another kit, or {change.device} has a new hub-token since then"
        )
    for name, value in change.pairs:
        if name in LOCAL_ONLY_SETTINGS:
            raise NotForThisKit(f"{name} can only be set on the kit: {LOCAL_ONLY_SETTINGS[name]}")
        if value and value not in BUILT_IN_VALUES.get(name, (value,)):
            raise NotForThisKit(
                f"a custom {name} can only be set on the kit, because it is a program"
            )
    pairs = dict(change.pairs)
    unset = {name for name, value in change.pairs if not value}
    new_values = {name: value for name, value in change.pairs if value}
    after = set_pairs(remove_pairs(text, unset), new_values)
    if dict(read_pairs(after)) != {k: v for k, v in (before | pairs).items() if k not in unset}:
        raise NotForThisKit(f"the last line of {path} is continued: correct it on the kit")
    try:
        return after, parse(after, path)
    except InvalidSettings as wrong:
        raise NotForThisKit("; ".join(wrong.faults)) from None
