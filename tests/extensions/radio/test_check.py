"""`fieldagent check` of the radio: its port, and the range of an SOS."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.test_check import check, settings
from tests.processes import MODULE


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("radio-port={home}/none", "is the modem plugged in?"),
        ("radio-port=tcp://127.0.0.1:9", "a node is on a serial port"),
        (
            "radio-port=tcp://127.0.0.1:9\nradio-protocol=kiss\nradio-callsign=N0CALL",
            "does the KISS modem run?",
        ),
    ],
)
def test_check_command_reports_fault_of_radio(tmp_path: Path, lines: str, problem: str) -> None:
    properties = tmp_path / "agent.properties"
    common = f"radio-station=1\napi-port=0\nstate-directory={tmp_path}\n"
    properties.write_text(common + lines.format(home=tmp_path) + "\n")
    arguments = [*MODULE, "check", "--config", str(properties)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert problem in done.stderr


@pytest.mark.parametrize(
    ("hops", "words"),
    [
        ("", "radio-hops=3: in a line of kits, an SOS reaches the 3 nearest kits"),
        ("radio-hops=7\n", "radio-hops=7: in a line of kits, an SOS reaches the 7 nearest kits"),
        ("radio-hops=1\n", "radio-hops=1: this kit passes on no SOS"),
    ],
)
def test_check_reports_how_many_hops_an_sos_travels(tmp_path: Path, hops: str, words: str) -> None:
    properties = settings(tmp_path, "none")
    lines = properties.read_text().replace("satellite-port=none\n", "")
    properties.write_text(f"{lines}radio-port=udp://127.0.0.1:1\nradio-station=7\n{hops}")
    _, good, _ = check(properties)
    assert [each for each in good if each.startswith(words)], good
