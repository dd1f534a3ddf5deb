"""Checks the radio for `fieldagent check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fieldagent.agent.channels.serial_check import check_serial_port
from fieldagent.extensions.radio.mesh import radio_keys
from fieldagent.extensions.radio.mesh.key_change import KeyStep, describe_step
from fieldagent.extensions.radio.mesh.troubles import Trouble, describe_trouble
from fieldagent.extensions.radio.registry import load_radio
from fieldagent.extensions.radio.settings import RadioSettings, get_radio_place
from fieldagent.system.finding import Finding


def check(
    settings: RadioSettings, radio: Mapping[str, Any] | None, folder: Path
) -> Iterator[Finding]:
    """Yield findings about the radio's port, the range of an SOS, and the keys of the group.
    `radio` is the member Radio of the agent's status, or None if no agent runs. `folder` is the
    agent's state directory.
    """
    yield _check_port(settings)
    yield _describe_range(settings.hops)
    yield from _check_key_change(settings, radio, folder)
    yield from _check_encryption(settings, radio)


def _check_port(settings: RadioSettings) -> Finding:
    kind = load_radio(settings.protocol)
    if kind.check is None:
        return check_serial_port(Path(settings.port or ""))
    return kind.check(get_radio_place(settings))


def _describe_range(hops: int) -> Finding:
    """Return a Finding about the number of kits over which an SOS can travel."""
    if hops == 1:
        return Finding(True, "radio-hops=1: this kit passes on no SOS of other kits")
    return Finding(
        True,
        f"radio-hops={hops}: in a line of kits, an SOS reaches the {hops} nearest kits in each"
        " direction; for a longer line, set a larger number on each kit (at most 7)",
    )


def _check_key_change(
    settings: RadioSettings, radio: Mapping[str, Any] | None, folder: Path
) -> Iterator[Finding]:
    """Yield the step of the key change. If an agent runs, also yield the stations that send with
    the old key and with the new key, or a fault if the key was changed after the agent started.
    """
    step = radio_keys.load(settings, folder).step
    if radio is None:
        change: Mapping[str, Any] = {"step": step, "old": [], "new": []}
    else:
        change = radio.get("keyChange") or {"step": KeyStep.NONE}
    if change["step"] != step:
        yield Finding(False, "radio-key was changed after the agent started: restart the agent")
    elif step is not KeyStep.NONE:
        yield Finding(True, describe_step(step, change["old"], change["new"]))


def _check_encryption(
    settings: RadioSettings, radio: Mapping[str, Any] | None
) -> Iterator[Finding]:
    """Yield findings about who can read the messages, and about kits in range that use another
    setting.
    """
    if settings.seal == "on":
        yield Finding(
            True, "radio-seal=on: only kits with the radio-key can read this kit's packets"
        )
    for trouble_kind in (Trouble.NOT_SEALED, Trouble.SEALED):
        if count := (radio or {}).get(trouble_kind.member):
            yield Finding(True, f"since the agent began {describe_trouble(trouble_kind, count)}")
