"""The simulated GSM modem, tested with a program for real ones: Debian's gammu."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.machine import needs
from tests.processes import MODULE, PATIENCE, Running, until

pytestmark = needs(shutil.which("gammu"), "apt-get install gammu")
NUMBER = "+41791234567"


@contextmanager
def gsm(home: Path) -> Iterator[tuple[Running, Path]]:
    link = home / "gsm"
    with Running([*MODULE, "simulate", "gsm", "--link", str(link)], "what can go wrong") as modem:
        yield modem, link


def gammu(home: Path, port: Path, *words: str) -> tuple[int, str]:
    settings = home / "gammurc"
    settings.write_text(f"[gammu]\ndevice = {port}\nconnection = at115200\n")
    done = subprocess.run(
        ["gammu", "-c", str(settings), *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    return done.returncode, done.stdout + done.stderr


def test_gammu_identifies_the_simulated_modem(tmp_path: Path) -> None:
    with gsm(tmp_path) as (_, port):
        code, said = gammu(tmp_path, port, "identify")
        assert code == 0, said
        assert "490154203237518" in said
        assert "simulated GSM modem" in said


@pytest.mark.full
@pytest.mark.parametrize("text", ["Camp reached, grüezi €", "нога сломана", "long " * 50])
def test_sms_sent_by_gammu_is_read_and_reported_delivered(tmp_path: Path, text: str) -> None:
    with gsm(tmp_path) as (modem, port):
        size = str(len(text))
        more = ["-len", size] + (["-unicode"] if "н" in text else [])
        words = ("sendsms", "TEXT", NUMBER, *more, "-report", "-text", text)
        code, said = gammu(tmp_path, port, *words)
        assert code == 0, said
        assert "message reference=1" in said
        left = [line for line in modem.output() if "SMS to" in line]
        until(lambda: len([each for each in modem.output() if "SMS to" in each]) >= len(left))
        read = "".join(re.findall(r": '(.*)'$", line)[0] for line in left)
        assert read == text
        assert all(NUMBER in line for line in left)
        # The network has reported the result of each.
        code, said = gammu(tmp_path, port, "getallsms")
        assert code == 0, said
        assert "elivered" in said, said


@pytest.mark.full
@pytest.mark.parametrize("text", ["Come back, grüezi €[]", "нога 12", "long " * 50])
def test_gammu_reads_and_deletes_received_sms(tmp_path: Path, text: str) -> None:
    with gsm(tmp_path) as (modem, port):
        modem.type(f"sms {NUMBER} {text}")
        modem.expect("stored")
        code, said = gammu(tmp_path, port, "geteachsms")
        assert code == 0, said
        assert text.strip() in said.replace("\n", "")
        assert NUMBER in said
        code, said = gammu(tmp_path, port, "deleteallsms", "3")
        assert code == 0, said
        code, said = gammu(tmp_path, port, "getallsms")
        assert text[:9] not in said


@pytest.mark.full
def test_gammu_reports_an_sms_refused_by_the_network(tmp_path: Path) -> None:
    with gsm(tmp_path) as (modem, port):
        modem.type("refuse 38")
        modem.expect("done")
        ended, said = gammu(tmp_path, port, "sendsms", "TEXT", NUMBER, "-text", "hello")
        assert ended != 0, said
        assert not [each for each in modem.output() if "SMS to" in each]
        ended, said = gammu(tmp_path, port, "sendsms", "TEXT", NUMBER, "-text", "hello")
        assert ended == 0, said


@pytest.mark.full
@pytest.mark.parametrize(("offers", "unasked", "stored"), [("012", "off", 3), ("01", "on", 1)])
def test_gammu_reads_stored_and_directly_routed_sms(
    tmp_path: Path, offers: str, unasked: str, stored: int
) -> None:
    """gammu selects <ds> by the modem's offer. It reads +CMTI and +CDSI, and +CMT and +CDS."""
    with gsm(tmp_path) as (modem, port):
        modem.type(f"offers {offers}")
        modem.type(f"unasked {unasked}")
        code, said = gammu(tmp_path, port, "sendsms", "TEXT", NUMBER, "-report", "-text", "out")
        assert code == 0, said
        rc = str(tmp_path / "gammurc")
        with Running(["stdbuf", "-oL", "gammu", "-c", rc, "monitor"], "20 locations") as monitor:
            modem.type(f"sms {NUMBER} noon")
            monitor.expect("noon")
            modem.type("report 1 delivered")
            monitor.expect("Delivery status      : Delivered")
            used = f"{stored} used"
            until(lambda: used in [line for line in monitor.output() if " used, " in line][-1])
