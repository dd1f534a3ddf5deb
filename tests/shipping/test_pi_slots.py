"""A Pi's other system is tried once by the kernel of the working one, on the Pi 3 B that QEMU
emulates. `test_system_update` tests its writing and its trial on the other board. Each test
continues after the previous one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import Running
from tests.shipping.board import MIB, Board
from tests.shipping.card import partitions
from tests.shipping.conftest import card_image
from tests.shipping.pi_board import PiBoard

pytestmark = [pytest.mark.full, pytest.mark.machine]

SLOTS = (
    "PYTHONPATH=/usr/lib/fieldagent/fieldagent.pyz python3 -c"
    " 'from fieldagent.extensions.fleet.system_slots import SystemSlots; slots = SystemSlots(); {}'"
)
RESET = 240.0


@pytest.fixture(scope="module")
def board(sim: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """Yield a board with the same system in both slots."""
    folder = tmp_path_factory.mktemp("pi")
    card = card_image("arm64", folder)
    copy_system(card)
    made = PiBoard(folder, card, Path(sim.ready.partition("=")[2]))
    try:
        made.boot()
        yield made
    finally:
        made.close()
        card.unlink()


def copy_system(card: Path) -> None:
    _, a, b, _ = partitions(card)
    with card.open("r+b") as file:
        for at in range(0, a.size, MIB):
            file.seek(a.start + at)
            piece = file.read(MIB)
            if any(piece):
                file.seek(b.start + at)
                file.write(piece)


def slots(board: Board, what: str) -> str:
    return board.run(SLOTS.format(what))


def read_kernel_parameters(board: Board) -> list[str]:
    return board.run("cat /proc/cmdline").split()


def try_other_slot(board: Board) -> None:
    """Let the kit arm the other slot, and reboot."""
    slots(board, 'slots.arm("b")')
    assert slots(board, 'print(slots.get_state("b"))') == "armed"
    board.run("sync; systemctl reboot --no-block")
    board.until_reset(RESET)


def test_working_kernel_boots_the_other_slot_once(board: Board) -> None:
    assert {"kit.slot=a"} <= {*read_kernel_parameters(board)}
    slots(board, 'slots.copy_kernel("b")')
    try_other_slot(board)
    board.boot()
    parameters = read_kernel_parameters(board)
    assert {"kit.slot=b", "kit.trial", "root=PARTUUID=6b697400-03"} <= {*parameters}
    assert "nr_cpus=1" not in parameters
    assert slots(board, 'print(slots.get_state("b"))') == "spent"
    board.until_active("fieldagent")


def test_next_boot_returns_to_the_working_slot(board: Board) -> None:
    board.cut()
    assert board.read("::/slot.txt").startswith("kernel=a/vmlinuz\n")
    board.boot()
    assert "kit.slot=a" in read_kernel_parameters(board)
    assert "nr_cpus=1" not in read_kernel_parameters(board)


def test_unbootable_kernel_is_abandoned_at_once(board: Board) -> None:
    kernel = board.run("cd /boot/firmware/b && cp vmlinuz /tmp/ && echo damaged >vmlinuz && sync")
    assert kernel == ""
    try_other_slot(board)
    board.boot_in_vain(RESET)
    board.boot()
    assert "kit.slot=a" in read_kernel_parameters(board)
    assert slots(board, 'print(slots.get_state("b"))') == "spent"


def test_kept_slot_boots_without_the_other(board: Board) -> None:
    slots(board, 'slots.copy_kernel("b")')
    slots(board, 'slots.set_default_slot("b")')
    board.run("sync")
    board.cut()
    board.boot()
    assert "kit.slot=b" in read_kernel_parameters(board)
    assert "kit.trial" not in read_kernel_parameters(board)
