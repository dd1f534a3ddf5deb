"""`fieldagent clock`: the conditions under which root's unit sets the system's clock from the
agent's offer.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fieldagent.kit.root_units import read_offer, remove_offer
from fieldagent.kit.system_clock import AGE_MAX_S, set_clock
from fieldagent.system.clock_bounds import EARLIEST_TIME, LATEST_TIME
from fieldagent.system.elapsed_time import Reading
from fieldagent.system.exit_codes import OK, REFUSED

IN_1970 = Reading("this boot", 500.0, 97_445.0)
NOW = EARLIEST_TIME + 1e7
TOLD: dict[str, Any] = {
    "source": "satellite",
    "boot": "this boot",
    "sinceBoot": 440.0,
    "unix": NOW,
}


def clock(
    home: Path, left: bytes, shows: Reading, *, as_json: bool = False
) -> tuple[int, list[float]]:
    """Return the exit code, and the times to which the clock was set."""
    settings = home / "agent.properties"
    settings.write_text(f"state-directory={home}\nsatellite-port=/dev/null\n")
    (home / "clock.offer").write_bytes(left)
    put: list[float] = []
    code = set_clock(settings, lambda: shows, put.append, as_json=as_json)
    assert not (home / "clock.offer").exists(), "it does not come again"
    return code, put


def test_clock_is_set_to_the_offered_time_plus_the_elapsed_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, put = clock(tmp_path, json.dumps(TOLD).encode(), IN_1970)
    assert (code, put) == (OK, [NOW + 60])
    assert capsys.readouterr().out == (
        f"the clock was set by +{NOW + 60 - IN_1970.wall_time:.0f} s (source: satellite)\n"
    )
    clock(tmp_path, json.dumps(TOLD).encode(), IN_1970, as_json=True)
    result = json.loads(capsys.readouterr().out)
    assert result == {"source": "satellite", "moved": NOW + 60 - IN_1970.wall_time}


@pytest.mark.parametrize(
    ("left", "shows", "why"),
    [
        ({}, replace(IN_1970, source="network"), "the network has set it"),
        ({}, replace(IN_1970, source="hardware clock"), "the hardware clock has set it"),
        ({"boot": "another"}, IN_1970, "is old"),
        ({"sinceBoot": 501.0}, IN_1970, "is old"),
        ({"sinceBoot": 499.0 - AGE_MAX_S}, IN_1970, "is old"),
        ({"source": "ada"}, IN_1970, "no allowed source has reported"),
        ({"unix": EARLIEST_TIME - 1}, IN_1970, "is not plausible"),
        ({"unix": LATEST_TIME + 1}, IN_1970, "is not plausible"),
        ({"unix": float("nan")}, IN_1970, "cannot be read"),
        ({"unix": "soon"}, IN_1970, "cannot be read"),
        ({"unix": None}, IN_1970, "cannot be read"),
        (b"", IN_1970, "cannot be read"),
        (b"[1]", IN_1970, "cannot be read"),
        (b"\xff" * 10, IN_1970, "cannot be read"),
        (b"[" * 60_000, IN_1970, "cannot be read"),
    ],
)
def test_clock_is_not_set_by_an_invalid_or_unneeded_offer(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    left: dict[str, Any] | bytes,
    shows: Reading,
    why: str,
) -> None:
    body = left if isinstance(left, bytes) else json.dumps({**TOLD, **left}).encode()
    assert clock(tmp_path, body, shows) == (REFUSED, [])
    message = capsys.readouterr().err
    assert "the clock is not changed" in message and why in message


def test_clock_command_succeeds_without_an_offer(tmp_path: Path) -> None:
    settings = tmp_path / "agent.properties"
    settings.write_text(f"state-directory={tmp_path}\nsatellite-port=/dev/null\n")
    assert set_clock(settings, lambda: IN_1970, os.abort, as_json=False) == OK  # type: ignore[arg-type]


def test_second_large_clock_step_in_a_boot_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "agent.properties"
    settings.write_text(f"state-directory={tmp_path}\nsatellite-port=/dev/null\n")
    own, put = tmp_path / "own", list[float]()
    own.mkdir()

    def tell(unix: float, shows: Reading) -> int:
        (tmp_path / "clock.offer").write_bytes(json.dumps({**TOLD, "unix": unix}).encode())
        return set_clock(settings, lambda: shows, put.append, as_json=False, own_folder=own)

    assert tell(NOW, IN_1970) == OK
    right = replace(IN_1970, wall_time=NOW + 60)
    assert tell(NOW + 86_400, right) == tell(NOW - 86_400, right) == REFUSED
    assert "already set in this boot" in capsys.readouterr().err
    assert tell(NOW + 30, right) == OK
    assert put == [NOW + 60, NOW + 90]
    # Many small moves go no further than one.
    for hour in range(1, 5):
        wall = replace(IN_1970, wall_time=put[-1])
        assert tell(NOW + hour * 3_500, wall) == (OK if hour == 1 else REFUSED)
    assert put[-1] == NOW + 3_560


@pytest.mark.parametrize("kind", ["folder", "full folder", "FIFO", "link", "unreadable"])
def test_object_of_any_kind_in_place_of_an_offer_is_removed(tmp_path: Path, kind: str) -> None:
    """The path unit starts root's unit as long as something has this path."""
    left = tmp_path / "program.offer"
    if "folder" in kind:
        left.mkdir()
        (left / "x").mkdir() if "full" in kind else None
    elif kind == "FIFO":
        os.mkfifo(left)
    elif kind == "link":
        left.symlink_to(tmp_path / "elsewhere")
    else:
        left.write_bytes(b"x")
        left.chmod(0)
    body = read_offer(left)
    assert body == (b"x" if kind == "unreadable" and os.geteuid() == 0 else b"")
    remove_offer(left)
    assert not os.path.lexists(left)
