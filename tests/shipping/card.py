"""Reads the partitions and files of a card's image, without loop devices."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from tests.machine import tool

SECTOR = 512
IN_THE_SYSTEM = (
    'mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot --userspec "$@"'
)


class Partition(NamedTuple):
    start: int
    """Offset in bytes."""
    size: int
    type: str


def partitions(card: Path) -> list[Partition]:
    output = subprocess.check_output([tool("sfdisk", "fdisk"), "--json", card])
    entries: list[dict[str, Any]] = json.loads(output)["partitiontable"]["partitions"]
    return [
        Partition(each["start"] * SECTOR, each["size"] * SECTOR, each["type"]) for each in entries
    ]


def label(card: Path, partition: Partition) -> str:
    where = ["--probe", "--offset", str(partition.start), "--size", str(partition.size)]
    options = ["--match-tag", "LABEL", "--output", "value"]
    return subprocess.check_output(["blkid", *where, *options, card], text=True).strip()


def fat_files(card: Path, partition: Partition, target: Path) -> Path:
    target.mkdir()
    image = f"{card}@@{partition.start}"
    subprocess.run([tool("mcopy", "mtools"), "-s", "-i", image, "::/", target], check=True)
    return target


def ssh_key(file: Path) -> bytes:
    """Make a key file, and return its public key, which a card needs to allow the login."""
    keygen = tool("ssh-keygen", "openssh-client")
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    return file.with_suffix(".pub").read_bytes()


def cut_out(card: Path, partition: Partition, target: Path) -> Path:
    """Copy a partition to a file. Empty parts take no space."""
    with card.open("rb") as whole, target.open("wb") as part:
        whole.seek(partition.start)
        for _ in range(partition.size >> 20):
            piece = whole.read(1 << 20)
            if piece.count(0) == len(piece):
                part.seek(len(piece), os.SEEK_CUR)
            else:
                part.write(piece)
        part.truncate(partition.size)
    return target


def ext4_files(image: Path, target: Path) -> Path:
    """Extract files with owners and modes."""
    target.mkdir()
    take_out = [tool("debugfs", "e2fsprogs"), "-R", f'rdump / "{target}"', str(image)]
    subprocess.run(take_out, check=True, capture_output=True)
    return target


def in_the_system(system: Path, user: str, *command: str) -> list[str]:
    """Return a command that runs `command` with the card's system as its root."""
    own = ["unshare", "--mount", "--propagation", "private", "env", "--ignore-environment"]
    there = ["PATH=/usr/sbin:/usr/bin", "LC_ALL=C.UTF-8", "QEMU_CPU=cortex-a53"]
    return [*own, *there, "sh", "-c", IN_THE_SYSTEM, str(system), user, str(system), *command]
