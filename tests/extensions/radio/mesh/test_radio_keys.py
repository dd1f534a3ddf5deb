"""The keys of a kit's group while the hub changes them step by step."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from fieldagent.agent.settings import parse
from fieldagent.extensions.radio.mesh import radio_keys
from fieldagent.extensions.radio.mesh.key_change import KeyStep
from fieldagent.extensions.radio.mesh.radio_keys import (
    ACCEPTED_KEYS_MAX,
    FILE,
    RadioKeys,
    make_keys_after,
)
from fieldagent.extensions.radio.settings import RadioSettings

OLD, NEW, NEWER = (bytes([number] * 32) for number in (1, 2, 3))
BEFORE = RadioKeys((OLD,), KeyStep.NONE)


def settings(**keys: bytes) -> RadioSettings:
    lines = [
        "radio-port=/dev/null",
        "radio-station=1",
        *(f"{name.replace('_', '-')}={key.hex()}" for name, key in keys.items()),
    ]
    own: RadioSettings = parse("\n".join(lines), Path("agent.properties")).parts["radio"]
    return own


def apply_steps(steps: tuple[int, ...], new: bytes = NEW, now: RadioKeys = BEFORE) -> RadioKeys:
    for step in steps:
        now = make_keys_after(now, step, new)
    return now


def test_each_step_sets_keys_as_in_manual_change() -> None:
    assert apply_steps((1,)) == RadioKeys((OLD, NEW), KeyStep.SENDS_OLD)
    assert apply_steps((1, 2)) == RadioKeys((NEW, OLD), KeyStep.SENDS_NEW)
    assert apply_steps((1, 2, 3)) == RadioKeys((NEW,), KeyStep.NONE, (OLD,))


@pytest.mark.parametrize("steps", [*product((1, 2, 3), repeat=3)])
def test_missed_and_repeated_steps_end_at_highest_step(steps: tuple[int, ...]) -> None:
    """A kit that was away misses some commands, and a command may arrive again later."""
    assert apply_steps(steps) == apply_steps((max(steps),))


def test_kits_at_different_steps_of_two_key_changes_hear_each_other() -> None:
    """Another kit is stolen before the first change has ended."""
    behind, ahead = (
        apply_steps((1,), NEWER, apply_steps((1,))),
        apply_steps((1,), NEWER, apply_steps((1, 2))),
    )
    assert behind.keys[0] in ahead.keys and ahead.keys[0] in behind.keys
    further = apply_steps((2,), NEWER, ahead)
    assert further.keys[0] == NEWER and NEWER in behind.keys
    assert behind.keys[0] in further.keys
    assert apply_steps((3,), NEWER, further).keys == (NEWER,)


def test_number_of_accepted_keys_is_limited_and_sending_key_stays() -> None:
    now = BEFORE
    for number in range(10, 30):
        now = make_keys_after(now, 1, bytes([number] * 32))
    assert len(now.keys) == ACCEPTED_KEYS_MAX
    assert (now.keys[0], now.keys[-1]) == (OLD, bytes([29] * 32))


def test_stored_keys_are_used_until_settings_contain_another_key(tmp_path: Path) -> None:
    mine = settings(radio_key=OLD)
    assert radio_keys.load(mine, tmp_path) == BEFORE
    radio_keys.store(mine, tmp_path, apply_steps((1, 2)))
    assert radio_keys.load(mine, tmp_path) == apply_steps((1, 2))
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    by_hand = settings(radio_key=NEWER)
    assert radio_keys.load(by_hand, tmp_path) == RadioKeys((NEWER,), KeyStep.NONE)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"settings": "", "keys": ["00"]}', b"\0"])
def test_unreadable_key_file_is_ignored_and_logged(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert radio_keys.load(settings(radio_key=OLD), tmp_path) == BEFORE
    assert "radio-keys.json cannot be read" in caplog.text


class PowerCut(Exception):
    """Simulates a power cut at this point."""


@pytest.mark.parametrize("at", range(12))
def test_power_cut_leaves_either_old_or_new_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Cut the power at each system call in turn. `tests/system` tests the file itself on real
    disks.
    """
    mine = settings(radio_key=OLD)
    radio_keys.store(mine, tmp_path, apply_steps((1,)))
    calls = 0

    def cut(call: Callable[..., object]) -> Callable[..., object]:
        def until_then(*arguments: object, **named: object) -> object:
            nonlocal calls
            calls += 1
            if calls == at + 1:
                raise PowerCut
            return call(*arguments, **named)

        return until_then

    with monkeypatch.context() as patched:
        for name in ("open", "fdopen", "fsync", "fstat", "unlink", "rename"):
            patched.setattr(os, name, cut(getattr(os, name)))
        cut_off = False
        try:
            radio_keys.store(mine, tmp_path, apply_steps((1, 2)))
        except PowerCut:
            cut_off = True
    assert radio_keys.load(mine, tmp_path) in (apply_steps((1,)), apply_steps((1, 2)))
    if not cut_off:
        assert radio_keys.load(mine, tmp_path) == apply_steps((1, 2))
    radio_keys.store(mine, tmp_path, apply_steps((1, 2)))
    assert radio_keys.load(mine, tmp_path) == apply_steps((1, 2))
