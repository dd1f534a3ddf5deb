"""A whole system of a card is replaced, tried once, and abandoned if it is dead: by the boot loader
if it does not start, by the kit's trial if its agent does not. On an emulated board, with a
power cut in the middle. Each test continues after the previous one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.machine import tool, unavailable
from tests.processes import Running
from tests.shipping.board import BOOT, ENTRIES, Board
from tests.shipping.card import cut_out, partitions
from tests.shipping.conftest import ROOT, build
from tests.shipping.test_image import DEAD, Changes
from tests.shipping.update_kit import rebuilt, version
from tests.signer import Signer

pytestmark = [pytest.mark.full, pytest.mark.machine]

SETTINGS = b"satellite-port=/dev/fieldagent-satellite\n"
WRITTEN = 1800.0
"""Maximum seconds of an emulated processor to write a system."""
JUDGED = 900.0
PROGRAM = "/usr/lib/fieldagent/fieldagent.pyz"
INIT = "/usr/lib/systemd/systemd"
ABOUT = "/usr/lib/kit/system.json"


@pytest.fixture(scope="module")
def board(image: Path, sim: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    made = Board(tmp_path_factory.mktemp("board"), image, Path(sim.ready.partition("=")[2]))
    try:
        made.write("::/fieldagent.properties", SETTINGS)
        made.boot()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def signer(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Signer:
    """Return the signer that the kit trusts."""
    made = Signer(tmp_path_factory.mktemp("keys") / "of-the-team")
    (board.share / "update.pub").write_text(made.public)
    board.run("install -m 644 /mnt/update.pub /etc/fieldagent/update.pub; sync")
    return made


Made = Callable[..., Path]


@pytest.fixture(scope="module")
def system(
    pc_image: Path,
    board: Board,
    signer: Signer,
    python_313: str | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Made:
    """Return a function that puts the card's own system at /mnt/VERSION.system, with that version
    and these changes of its program. A dead system has an init that ends immediately.
    """
    home = tmp_path_factory.mktemp("systems")
    python = python_313 or unavailable("no Python 3.13 here to compile for the card's")
    program = build(home / "own.pyz", "--for", python, stdout=subprocess.DEVNULL)

    def make(number: str, changes: Changes, *, dead_init: bool = False) -> Path:
        part = extract_system(pc_image, home / "part")
        new = rebuilt(program, home / "new.pyz", {**version(number), **changes}, python)
        about = home / "system.json"
        about.write_text(json.dumps({"board": "amd64", "version": number, "id": f"id-{number}"}))
        for path in (PROGRAM, ABOUT):
            debugfs(part, f"rm {path}")
        if dead_init:
            debugfs(part, f"dump -p /usr/bin/false {home}/false")
            debugfs(part, f"rm {INIT}")
            debugfs(part, f"write {home}/false {INIT}")
        debugfs(part, f"write {new} {PROGRAM}")
        debugfs(part, f"write {about} {ABOUT}")
        made = board.share / f"{number}.system"
        script = [sys.executable, str(ROOT / "build/system.py"), str(part), str(about), str(made)]
        subprocess.run(script, check=True)
        signer.release(made)
        return made

    return make


def extract_system(image: Path, target: Path) -> Path:
    """Extract the first of the card's systems to a file."""
    cut_out(image, partitions(image)[1], target)
    # Its file system is smaller than its partition.
    output = subprocess.check_output([tool("dumpe2fs", "e2fsprogs"), "-h", target], text=True)
    blocks, size = (
        int(re.findall(rf"(?m)^{name}: +(\d+)$", output)[0])
        for name in ("Block count", "Block size")
    )
    os.truncate(target, blocks * size)
    return target


def debugfs(part: Path, request: str) -> None:
    done = subprocess.run(
        [tool("debugfs", "e2fsprogs"), "-w", "-R", request, part], capture_output=True, text=True
    )
    assert len(done.stderr.splitlines()) == 1, done.stderr


def slot(board: Board) -> str:
    return board.run("sed 's/.*kit.slot=\\([ab]\\).*/\\1/' /proc/cmdline")


def entries(board: Board) -> set[str]:
    return {Path(each).name for each in board.files(ENTRIES)}


def begin_update(board: Board, number: str) -> None:
    board.until("fieldagent status | grep -q 'Satellite: ready'", BOOT)
    update = f"fieldagent update /mnt/{number}.system --within 3 --steady 5"
    board.run(f"systemd-run --quiet --collect {update}")


def wait_for_result(board: Board) -> tuple[int, str]:
    board.until("test -e /var/lib/fieldagent-update/result.json", JUDGED)
    board.until("! test -e /var/lib/fieldagent-update/system.json", JUDGED)
    return board.ask("fieldagent update --last")


def test_system_signed_with_an_unknown_key_is_refused(
    board: Board, system: Made, tmp_path: Path
) -> None:
    Signer(tmp_path / "stranger").release(system("9.0.0", {}))
    code, output = board.ask("fieldagent update /mnt/9.0.0.system")
    assert (code, "the signature is from key" in output) == (65, True), output
    assert entries(board) == {"system-a.conf"}


def test_power_cut_while_an_update_is_written_keeps_the_current_system(
    board: Board, signer: Signer
) -> None:
    signer.release(board.share / "9.0.0.system")
    begin_update(board, "9.0.0")
    board.until("journalctl -b -u fieldagent-system | grep -q ' 5 of .* pieces'", WRITTEN)
    board.cut()
    assert entries(board) == {"system-a.conf"}
    board.boot()
    assert slot(board) == "a"
    board.until("fieldagent status")
    assert "the new system is written" in board.run("fieldagent update --last")


def test_working_system_is_kept(board: Board) -> None:
    """The test before has started to write this system, up to a power cut."""
    board.until_reset(WRITTEN)
    assert entries(board) == {"system-a.conf", "system-b+1.conf"}
    board.boot()
    assert slot(board) == "b"
    assert "9.0.0 runs" in wait_for_result(board)[1]
    assert "fieldagent 9.0.0" in board.run("fieldagent status")
    board.run("sync")
    board.cut()
    assert entries(board) == {"system-a.conf", "system-b.conf"}
    board.boot()
    assert slot(board) == "b"
    # Its settings were copied too.
    board.until("fieldagent status | grep -q 'Satellite: ready'", BOOT)


def test_unbootable_system_is_abandoned_by_the_boot_loader(board: Board, system: Made) -> None:
    system("9.0.1", {}, dead_init=True)
    begin_update(board, "9.0.1")
    board.until_reset(WRITTEN)
    board.boot_in_vain()
    assert entries(board) == {"system-b.conf", "system-a+0-1.conf"}
    board.boot()
    assert slot(board) == "b"
    code, output = wait_for_result(board)
    assert (
        code,
        "9.0.1 did not work, and 9.0.0 runs again: the system did not start" in output,
    ) == (
        1,
        True,
    )
    assert "fieldagent 9.0.0" in board.until("fieldagent status")


def test_system_with_a_dead_agent_is_rolled_back(board: Board, system: Made, sim: Running) -> None:
    system("9.0.2", DEAD)
    begin_update(board, "9.0.2")
    board.until_reset(WRITTEN)
    board.boot()
    assert slot(board) == "a"
    board.until_reset(JUDGED)
    board.boot()
    assert slot(board) == "b"
    code, output = wait_for_result(board)
    assert (code, "9.0.2 did not work, and 9.0.0 runs again: no agent" in output) == (1, True), (
        output
    )
    board.until("fieldagent status | grep -q 'Satellite: ready'", BOOT)
    assert "Delivered" in board.run("fieldagent send message 'still here' --channel Satellite")
    assert [line for line in sim.output() if "still here" in line and "message" in line]
