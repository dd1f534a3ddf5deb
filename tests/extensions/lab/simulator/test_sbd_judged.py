"""The simulated 9602, tested with a program for real ones: Adafruit's driver from PyPI."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import MODULE, PATIENCE, Running

IMEI = "300234010000001"
BEGIN = """
import json, sys
from adafruit_rockblock import RockBlock
from serial import Serial
modem = RockBlock(Serial(sys.argv[1], 19200, timeout=20))
"""


@pytest.fixture
def sky(tmp_path: Path) -> Iterator[Running]:
    arguments = ["--link", str(tmp_path / "modem"), "--latency", "0.2"]
    with Running([*MODULE, "simulate", "satellite", *arguments], "`help`") as running:
        yield running


def run_official_driver(home: Path, text: str) -> Any:
    """Return the driver's results from a script that prints them as JSON. A driver that waits for
    an answer that never comes is ended.
    """
    command = [sys.executable, "-c", f"{BEGIN}print(json.dumps({text}))", str(home / "modem")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_official_driver_reads_identity_and_state(sky: Running, tmp_path: Path) -> None:
    values = run_official_driver(
        tmp_path, "[modem.serial_number, modem.model, modem.signal_quality]"
    )
    assert values == [IMEI, "IRIDIUM 9600 Family SBD Transceiver", 4]
    assert run_official_driver(tmp_path, "[modem.revision[0], modem.ring_alert]") == [
        "Call Processor Version: TA16005",
        True,
    ]


@pytest.mark.parametrize("size", [1, 100, 340])
def test_official_driver_sends_messages_of_every_size(
    sky: Running, tmp_path: Path, size: int
) -> None:
    # The driver cannot send bytes whose sum needs more than 16 bits.
    body = f"b'Z' * {size}"
    before, session, after = run_official_driver(
        tmp_path,
        f"[setattr(modem, 'data_out', {body}) or modem.status, modem.satellite_transfer(),"
        " modem.status]",
    )
    assert before == [1, 0, 0, -1, 0, 0], "MO flag, MOMSN, MT flag, MTMSN, ring, waiting"
    assert (session[:3], session[4:]) == ([0, 0, 0], [0, 0])
    assert after == [0, 1, 0, -1, 0, 0]
    sky.expect(f"MO 0 from {IMEI}: {size} byte")


@pytest.mark.parametrize("size", [1, 100, 270])
def test_official_driver_receives_messages_of_every_size(
    sky: Running, tmp_path: Path, size: int
) -> None:
    body = "5a" * size
    sky.type(f"mt-raw {body}")
    sky.expect("the modem rings")
    before, session, came, after = run_official_driver(
        tmp_path,
        "[modem.status, modem.satellite_transfer(), modem.data_in.hex(), modem.status]",
    )
    assert before[4:] == [1, 1], "it rang, and one message waits"
    assert session == [0, 0, 1, 0, size, 0]
    assert came == body
    assert after == [0, 1, 1, 0, 1, 0], "only +SBDIXA answers a ring"


def test_modem_keeps_a_message_that_the_network_refused(sky: Running, tmp_path: Path) -> None:
    sky.type("service 0")
    sky.expect("no network")
    session, after = run_official_driver(
        tmp_path,
        "[setattr(modem, 'data_out', b'hello') or modem.satellite_transfer(), modem.status]",
    )
    assert (session[0], after[0]) == (32, 1)
    sky.type("service 1")
    sky.expect("the network is there")
    assert run_official_driver(tmp_path, "[modem.satellite_transfer()]")[0][:2] == [0, 0]
    sky.expect(f"MO 0 from {IMEI}: 5 byte")
