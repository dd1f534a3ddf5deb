"""The card's partition for data survives a power cut that tears its superblock."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from fieldagent.extensions.fleet.system_slots import PARTITIONS
from tests.machine import tool

BUILD = Path(__file__).parents[2] / "build"
SECTOR = 512
SUPERBLOCK = (2, 3)
"""Sectors of ext4's superblock in its partition."""


def line_of_the_table() -> list[str]:
    """Return the fields of the data partition in the card's table of file systems."""
    lines = (BUILD / "card/etc/fstab").read_text().splitlines()
    (line,) = [each.split() for each in lines if " /var/lib/kit ext4 " in each]
    return line


def test_data_partition_is_mounted_by_number_instead_of_label() -> None:
    """The label is in the superblock, which may be torn. The number is that of the other
    partitions.
    """
    disk = PARTITIONS["a"].partition("-")[0]
    assert line_of_the_table()[0] == f"PARTUUID={disk}-04"
    assert f"\ndisk={disk}\n" in (BUILD / "image").read_text()


@pytest.mark.parametrize("board", ["arm64/slot/cmdline.txt", "amd64/slot/entry.conf"])
def test_boot_check_repairs_without_asking(board: str) -> None:
    assert re.search(r"\bfsck\.repair=yes\b", (BUILD / "boards" / board).read_text())


@pytest.mark.parametrize("torn", SUPERBLOCK)
def test_boot_check_restores_a_torn_superblock_from_its_copy(tmp_path: Path, torn: int) -> None:
    """systemd-fsck@.service runs the check in this way. Its exit code 1 means that it has repaired
    something.
    """
    folder, image, out = tmp_path / "kept", tmp_path / "image", tmp_path / "out"
    folder.mkdir()
    (folder / "journal").write_text("what the kit keeps")
    made = [tool("mke2fs", "e2fsprogs"), "-q", "-t", "ext4", "-L", "kit", "-d", str(folder)]
    subprocess.run([*made, str(image), "512M"], check=True)
    with image.open("r+b") as disk:
        disk.seek(torn * SECTOR)
        disk.write(os.urandom(SECTOR))
    table = tmp_path / "fstab"
    table.write_text(" ".join([str(image), *line_of_the_table()[1:]]) + "\n")
    check = [tool("fsck", "util-linux"), "-y", "-T", str(image)]
    environment = {**os.environ, "FSTAB_FILE": str(table)}
    done = subprocess.run(check, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    dump = [tool("debugfs", "e2fsprogs"), "-R", f"dump /journal {out}", str(image)]
    subprocess.run(dump, check=True, capture_output=True)
    assert out.read_text() == "what the kit keeps"
