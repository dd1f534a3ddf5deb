"""The simulated 9704, tested with its maker's own library (PyPI rockblock9704): a process for each
case, because the library keeps one port in its module.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import MODULE, PATIENCE, Running, until

pytest.importorskip("rockblock9704", reason="its wheel is for x86-64 alone")

BEGIN = """
import json, sys, time
from rockblock9704 import RockBlock9704
modem = RockBlock9704()
def until(condition):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise SystemExit("nothing came")
assert until(lambda: modem.begin(sys.argv[1])), "it does not begin"
time.sleep(0.2)
print("begun", flush=True)
"""


@pytest.fixture
def sky(tmp_path: Path) -> Iterator[Running]:
    arguments = ["--kind", "imt", "--link", str(tmp_path / "modem"), "--latency", "0.2"]
    command = [*MODULE, "simulate", "satellite", *arguments]
    with Running(command, "set satellite-modem=imt") as running:
        yield running


def run_official_library(home: Path, text: str) -> Any:
    """Return the library's result from a script that prints it as JSON. The library accepts only
    short paths.
    """
    command = [sys.executable, "-c", BEGIN + text, os.path.realpath(home / "modem")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_official_library_reads_identity_and_state(sky: Running, tmp_path: Path) -> None:
    values = run_official_library(
        tmp_path,
        "print(json.dumps([modem.get_imei(), modem.get_signal(), modem.get_card_present(),"
        " modem.get_sim_connected(), modem.get_iccid(), modem.get_board_temp()]))",
    )
    assert values == ["300234010000001", 4, True, True, "8988169771000000001", 19]


@pytest.mark.parametrize("size", [1, 20, 1444, 1445, 3000, 100_000])
def test_official_library_sends_messages_of_every_size(
    sky: Running, tmp_path: Path, size: int
) -> None:
    body = random.Random(size).randbytes(size)
    (tmp_path / "body").write_bytes(body)
    name = str(tmp_path / "body")
    sent = run_official_library(
        tmp_path, f"print(json.dumps(modem.send_message(open({name!r}, 'rb').read(), timeout=60)))"
    )
    assert sent is True
    sky.expect(f"MO 1 from 300234010000001: {size} byte")
    # For noise that is a valid envelope by accident, the base camp prints another text.
    if size > 100:
        assert body.hex() in sky.expect("not readable")


@pytest.mark.parametrize("size", [3, 1444, 3000, 100_000])
def test_official_library_receives_messages_of_every_size(
    sky: Running, tmp_path: Path, size: int
) -> None:
    body = random.Random(size).randbytes(size)
    (tmp_path / "body").write_bytes(body)
    text = "print(json.dumps(until(modem.receive_message).hex()))"
    command = [sys.executable, "-c", BEGIN + text, os.path.realpath(tmp_path / "modem")]
    with Running(command, "begun") as library:
        sky.type(f"mt-raw @{tmp_path / 'body'}")
        came = bytes.fromhex(json.loads(library.expect('"')))
    assert came == body


def test_message_failed_by_the_network_is_not_reported_as_sent(
    sky: Running, tmp_path: Path
) -> None:
    sky.type("final network_error")
    sky.expect("the next message ends")
    assert (
        run_official_library(
            tmp_path, "print(json.dumps(modem.send_message(b'hello', timeout=60)))"
        )
        is False
    )


@pytest.mark.full
def test_modem_sends_again_after_an_interrupted_message(sky: Running, tmp_path: Path) -> None:
    sky.type("latency 3600")
    sky.expect("3600")
    text = "print(json.dumps(modem.send_message(b'x' * 5000, timeout=1)))"
    assert run_official_library(tmp_path, text) is False, "interrupted"
    sky.type("brownout")
    sky.type("latency 0")
    sky.expect("a message takes 0 s")
    assert (
        run_official_library(
            tmp_path, "print(json.dumps(modem.send_message(b'after', timeout=60)))"
        )
        is True
    )
    until(lambda: any("5 bytes" in line for line in sky.output()))


def test_modem_reports_transmission_activity_once_enabled(sky: Running, tmp_path: Path) -> None:
    answers = run_official_library(
        tmp_path,
        "told = [modem.get_message_activity_status()]\n"
        "told.append(modem.set_message_activity_status(True))\n"
        "modem.set_message_activity_status_callback(told.append)\n"
        "assert modem.send_message(b'hello', timeout=60)\n"
        "until(lambda: modem.poll() or told[-1] is False)\n"
        "told.append(modem.get_message_activity_status())\n"
        "print(json.dumps(told))",
    )
    before, done, *during, after = answers
    assert (before, done) == ({"enabled": False, "active": False}, True)
    assert (during[0], during[-1]) == (True, False)
    assert after == {"enabled": True, "active": False}
