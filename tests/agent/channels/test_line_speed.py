"""The agent finds a modem with an unusual line speed at the port, and reports it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fieldagent.agent.satellites.auto import list_probes
from fieldagent.agent.satellites.sbd import SBD
from tests.breaking import Put, environment
from tests.processes import MODULE, PATIENCE, Running, agent, sky

Sky = Callable[[Path], AbstractContextManager[Running]]
QUICK = (Put("fieldagent.agent.channels.line_speed:ANSWER_TIMEOUT_S", 0.5),)
OTHER = [("sbd", 9_600), ("auto", 38_400)]


def check_found(home: Path, kind: str, above: Sky, baud: int, *quick: Put) -> None:
    """Check that an agent finds the modem of that sky at another speed."""
    with above(home) as simulator:
        simulator.type(f"baud {baud}")
        simulator.expect(f"talks at {baud} baud")
        settings = {"satellite-modem": kind}
        with agent(home, settings, MODULE, **environment(home, *QUICK, *quick)) as kit:
            assert kit.post("found").body["status"] == "Delivered"
            assert any(f"at {baud} baud" in line for line in kit.output())
        simulator.expect('"found"')


def check_told(home: Path, kind: str, above: Sky, baud: int) -> None:
    """Check that `fieldagent check` reports the speed of the modem of that sky."""
    with above(home) as simulator:
        simulator.type(f"baud {baud}")
        simulator.expect(f"talks at {baud} baud")
        done, output = _checked(home, kind)
        assert f"at {baud} baud" in output, output
        assert done.returncode == 0, output


@pytest.mark.full
@pytest.mark.parametrize(("kind", "baud"), OTHER)
def test_modem_with_other_line_speed_is_found(tmp_path: Path, kind: str, baud: int) -> None:
    check_found(tmp_path, kind, sky, baud)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "baud"), OTHER)
def test_check_command_prints_line_speed(tmp_path: Path, kind: str, baud: int) -> None:
    check_told(tmp_path, kind, sky, baud)


@pytest.mark.full
def test_only_configured_line_speed_is_tried(tmp_path: Path) -> None:
    with sky(tmp_path) as simulator:
        simulator.type("baud 9600")
        simulator.expect("talks at 9600 baud")
        done, output = _checked(tmp_path, "sbd", "satellite-baud=19200\n")
        assert done.returncode != 0
        assert "no answer to AT" in output


def _checked(home: Path, kind: str, more: str = "") -> tuple[subprocess.CompletedProcess[str], str]:
    file = home / "agent.properties"
    file.write_text(
        f"satellite-port={home}/modem\nsatellite-modem={kind}\nstate-directory={home}\n"
        f"api-port=0\n{more}"
    )
    command = [*MODULE, "check", "--json", "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    return done, "\n".join(each["text"] for each in json.loads(done.stdout)["findings"])


def test_line_speeds_of_each_modem_kind_are_unique() -> None:
    assert SBD.speeds[0] == 19_200
    for probe in list_probes():
        assert len(set(probe.speeds)) == len(probe.speeds)
