"""The keys of a kit's group while the hub changes them step by step."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from fieldagent.agent.mesh import radio_keys
from fieldagent.agent.mesh.key_change import KeyStep
from fieldagent.agent.mesh.radio_keys import ACCEPTED_KEYS_MAX, FILE, RadioKeys, make_keys_after
from fieldagent.agent.settings import Settings, parse

OLD, NEW, NEWER = (bytes([number] * 32) for number in (1, 2, 3))
BEFORE = RadioKeys((OLD,), KeyStep.NONE)


def settings(folder: Path, **keys: bytes) -> Settings:
    lines = [
        f"state-directory={folder}",
        "radio-port=/dev/null",
        "radio-station=1",
        *(f"{name.replace('_', '-')}={key.hex()}" for name, key in keys.items()),
    ]
    return parse("\n".join(lines), folder)


def taken(steps: tuple[int, ...], new: bytes = NEW, now: RadioKeys = BEFORE) -> RadioKeys:
    for step in steps:
        now = make_keys_after(now, step, new)
    return now


def test_each_step_is_that_of_a_change_by_hand() -> None:
    assert taken((1,)) == RadioKeys((OLD, NEW), KeyStep.SENDS_OLD)
    assert taken((1, 2)) == RadioKeys((NEW, OLD), KeyStep.SENDS_NEW)
    assert taken((1, 2, 3)) == RadioKeys((NEW,), KeyStep.NONE, (OLD,))


@pytest.mark.parametrize("steps", [*product((1, 2, 3), repeat=3)])
def test_a_kit_ends_at_the_highest_step_that_it_was_told(steps: tuple[int, ...]) -> None:
    """A kit that was away misses some commands, and a command may arrive again later."""
    assert taken(steps) == taken((max(steps),))


def test_two_at_different_steps_of_two_changes_hear_each_other() -> None:
    """Another kit is stolen before the first change has ended."""
    behind, ahead = taken((1,), NEWER, taken((1,))), taken((1,), NEWER, taken((1, 2)))
    assert behind.keys[0] in ahead.keys and ahead.keys[0] in behind.keys
    further = taken((2,), NEWER, ahead)
    assert further.keys[0] == NEWER and NEWER in behind.keys
    assert behind.keys[0] in further.keys
    assert taken((3,), NEWER, further).keys == (NEWER,)


def test_keys_do_not_pile_up_and_the_one_that_is_sent_with_stays() -> None:
    now = BEFORE
    for number in range(10, 30):
        now = make_keys_after(now, 1, bytes([number] * 32))
    assert len(now.keys) == ACCEPTED_KEYS_MAX
    assert (now.keys[0], now.keys[-1]) == (OLD, bytes([29] * 32))


def test_they_are_kept_until_the_settings_name_another_key(tmp_path: Path) -> None:
    mine = settings(tmp_path, radio_key=OLD)
    assert radio_keys.load(mine) == BEFORE
    radio_keys.store(mine, taken((1, 2)))
    assert radio_keys.load(mine) == taken((1, 2))
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    by_hand = settings(tmp_path, radio_key=NEWER)
    assert radio_keys.load(by_hand) == RadioKeys((NEWER,), KeyStep.NONE)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"settings": "", "keys": ["00"]}', b"\0"])
def test_a_file_that_cannot_be_read_counts_for_nothing(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert radio_keys.load(settings(tmp_path, radio_key=OLD)) == BEFORE
    assert "radio-keys.json cannot be read" in caplog.text


class PowerCut(Exception):
    """Simulates a power cut at this point."""


@pytest.mark.parametrize("at", range(12))
def test_a_power_cut_leaves_the_keys_of_before_or_those_of_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Cut the power at each system call in turn. `tests/system` tests the file itself on real
    disks.
    """
    mine = settings(tmp_path, radio_key=OLD)
    radio_keys.store(mine, taken((1,)))
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
            radio_keys.store(mine, taken((1, 2)))
        except PowerCut:
            cut_off = True
    assert radio_keys.load(mine) in (taken((1,)), taken((1, 2)))
    if not cut_off:
        assert radio_keys.load(mine) == taken((1, 2))
    radio_keys.store(mine, taken((1, 2)))
    assert radio_keys.load(mine) == taken((1, 2))
