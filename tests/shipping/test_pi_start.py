"""The card of a Raspberry Pi, booted in QEMU, with its modem behind a USB adapter. Each test
continues after the previous one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import Running
from tests.shipping.board import ANSWER, BOOT, Board
from tests.shipping.card import ssh_key
from tests.shipping.conftest import card_image
from tests.shipping.pi_board import PiBoard
from tests.shipping.test_image import arrived, until_ready, until_sent

pytestmark = [pytest.mark.full, pytest.mark.machine]

SETTINGS = """\
satellite-port=/dev/fieldagent-satellite
inbound-hook=cat >>/var/lib/fieldagent/came; echo >>/var/lib/fieldagent/came
"""
ASK = "curl --fail --silent http://127.0.0.1:9091/api/health"


@pytest.fixture(scope="module")
def board(sim: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """Yield a board after its first boot with settings on its card."""
    folder = tmp_path_factory.mktemp("pi")
    card = card_image("arm64", folder)
    made = PiBoard(folder, card, Path(sim.ready.partition("=")[2]))
    try:
        made.write("::/fieldagent.properties", SETTINGS.encode())
        made.write("::/authorized_keys", ssh_key(folder / "key"))
        made.boot()
        yield made
    finally:
        made.close()
        card.unlink()


def test_pi_boots_from_its_card_and_applies_settings(board: Board) -> None:
    assert "Raspberry Pi 3 Model B" in board.run("tr -d '\\0' </proc/device-tree/model")
    assert board.run("uname -m") == "aarch64"
    assert board.run("systemctl --failed --quiet") == ""
    board.until_active("fieldagent", "ssh")
    board.until(ASK, BOOT)
    assert "ssh-ed25519" in board.run("ssh-keyscan -t ed25519 127.0.0.1")
    board.run("sync")
    report = board.read("::/fieldagent-result.txt")
    assert "inbound-hook, satellite-port" in report


def test_message_is_sent_over_the_usb_modem(board: Board, sim: Running) -> None:
    until_ready(board)
    assert "ftdi_sio" in board.run("lsmod")
    assert "Delivered" in board.run("fieldagent send message 'from a Pi' --channel Satellite")
    assert len(arrived(sim, "from a Pi")) == 1
    sim.type("mt hello Pi")
    board.until("grep -q 'hello Pi' /var/lib/fieldagent/came")


def test_clock_is_set_from_the_satellite_network(board: Board) -> None:
    """A Pi has no battery-backed clock, and TLS needs the time."""
    board.until("journalctl --unit fieldagent-clock | grep '(source: satellite)'", BOOT)
    assert abs(int(board.run("date +%s")) - time.time()) < ANSWER


def test_waiting_message_survives_a_power_cut(board: Board, sim: Running) -> None:
    sim.type("service 0")
    board.run("fieldagent send message 'before the cut' --channel Satellite --no-wait")
    board.cut()
    sim.type("service 1")
    board.boot()
    board.until(ASK, BOOT)
    until_ready(board)
    until_sent(board, BOOT)
    assert len(arrived(sim, "before the cut")) == 1
    assert board.run("systemctl --failed --quiet") == ""
