"""Power fails in the first boot of a card, a hundred times, and after the next boot people can log
in.

One board boots a card for the first time, and QEMU records its writes and flushes. For each moment,
the test computes the card's content, lets ext4 and FAT recover as at a boot, and runs the programs
of the next boot on it. A few of these cards are really booted. CI's step for cards does this.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from fieldagent.agent.journal.journal import Journal
from tests.machine import tool
from tests.processes import MODULE
from tests.shipping.board import BOOT, Board
from tests.shipping.card import Partition, ext4_files, partitions, ssh_key
from tests.shipping.disk_log import entries, left_of
from tests.shipping.test_first_start import KEY, SCRIPT, public

pytestmark = [pytest.mark.full, pytest.mark.machine]

CUTS = 100
STARTED = 2
"""Number of cards that are booted on a board, which takes a minute or two each."""
SETTINGS = "satellite-port=/dev/ttyUSB0\nsatellite-credits-per-day=20\n"


@dataclass
class Recorded:
    before: Path
    """The card before its first boot."""
    log: Path
    key: Path
    """The key file whose public half is on the card."""


@pytest.fixture(scope="module")
def recorded(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    home = tmp_path_factory.mktemp("first-start")
    before, card, log, key = home / "before", home / "card", home / "log", home / "key"
    log.touch()
    copy(image, before)
    board = Board(home, before, None, recorded_to=log)
    board.write("::/fieldagent.properties", SETTINGS.encode())
    board.write("::/authorized_keys", ssh_key(key))
    copy(before, card)
    board.card = card
    try:
        board.boot()
        board.until_active("ssh", "fieldagent")
        board.run("sync")
    finally:
        board.close()
    card.unlink()
    return Recorded(before, log, key)


def copy(image: Path, target: Path) -> None:
    subprocess.run(["cp", "--sparse=always", "--reflink=auto", image, target], check=True)


@pytest.fixture
def cuts(recorded: Recorded, tmp_path: Path) -> Iterator[Iterator[list[Path]]]:
    """Yield the states of both written partitions after each cut. Half of the cuts hit recent
    writes to ext4, which contains the settings and keys.
    """
    boot, *_, kept = partitions(recorded.before)
    random = Random(1)
    written = [each for each in entries(recorded.log, recorded.log.stat().st_size) if each.data]
    ext4 = [each.end for each in written if each.offset >= kept.start]
    chosen = random.choices([each.end for each in written], k=CUTS // 2)
    chosen += random.choices(ext4, k=CUTS - CUTS // 2)
    yield left_of(recorded.before, recorded.log, [boot, kept], sorted(chosen), tmp_path, random)


def test_ssh_login_and_settings_survive_any_power_cut_in_the_first_boot(
    recorded: Recorded, cuts: Iterator[list[Path]], tmp_path: Path
) -> None:
    whole = 0
    for boot, kept in cuts:
        place = tmp_path / "state"
        place.mkdir()
        state = start_again(boot, kept, place)
        assert public(state / "ssh" / KEY)
        assert (state / "settings/agent.properties").read_text() == SETTINGS
        Journal(state / "agent/journal.sqlite3").close()
        assert not [*state.glob("agent/*.bad")]
        shutil.rmtree(place)
        whole += 1
        if whole % (CUTS // STARTED) == 0 and whole // (CUTS // STARTED) <= STARTED:
            check_on_board(recorded, boot, kept, tmp_path / f"board-{whole}")
    assert whole == CUTS


def start_again(boot: Path, kept: Path, place: Path) -> Path:
    """Return the kit's stored files after the programs of the next boot."""
    part = place / "kept.part"
    copy(kept, part)
    checked = subprocess.run(
        [tool("e2fsck", "e2fsprogs"), "-p", part], capture_output=True, text=True
    )
    # 1: it has repaired something (e2fsck(8)).
    assert checked.returncode in (0, 1), checked.stdout
    state = ext4_files(part, place / "kept")
    part.unlink()
    card = place / "boot"
    card.mkdir()
    mcopy = [tool("mcopy", "mtools"), "-n", "-i", str(boot), "::/fieldagent*", str(card)]
    subprocess.run(mcopy, capture_output=True)
    settings = str(state / "settings/agent.properties")
    provision = ["provision", "--card", str(card), "--config", settings]
    for command in ([str(SCRIPT), str(state / "ssh")], [*MODULE, *provision]):
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
    return state


def check_on_board(recorded: Recorded, boot: Path, kept: Path, folder: Path) -> None:
    folder.mkdir()
    own = folder / "card"
    copy(recorded.before, own)
    there, *_, keeps = partitions(own)
    write_partition(own, boot, there)
    write_partition(own, kept, keeps)
    board = Board(folder, own, None)
    shutil.copy(recorded.key, board.share / "key")
    try:
        board.boot()
        board.until_active("ssh", "fieldagent", seconds=BOOT)
        board.run("install -m 600 /mnt/key /tmp/key")
        reach = "ssh -o BatchMode=yes -o StrictHostKeyChecking=no -i /tmp/key root@127.0.0.1"
        assert "fieldagent" in board.run(f"{reach} fieldagent status")
    finally:
        board.close()
        own.unlink()


def write_partition(card: Path, part: Path, partition: Partition) -> None:
    command = ["dd", f"if={part}", f"of={card}", "bs=1M", f"seek={partition.start >> 20}"]
    subprocess.run([*command, "conv=notrunc", "status=none"], check=True)
