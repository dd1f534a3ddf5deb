"""The card of a Raspberry Pi, part by part, with its program under qemu-user. The tests check the
names that a Pi's firmware needs. `test_pi_start` boots the rest.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.machine import tool
from tests.own_network import own_network
from tests.processes import Running, sky
from tests.shipping.board import MIB
from tests.shipping.card import (
    Partition,
    cut_out,
    ext4_files,
    fat_files,
    in_the_system,
    label,
    partitions,
)
from tests.shipping.conftest import card_image

pytestmark = [pytest.mark.full, pytest.mark.machine]

BOARDS = {
    "bcm2837-rpi-3-a-plus": "raspberrypi,3-model-a-plus",
    "bcm2837-rpi-3-b": "raspberrypi,3-model-b",
    "bcm2837-rpi-3-b-plus": "raspberrypi,3-model-b-plus",
    "bcm2837-rpi-zero-2-w": "raspberrypi,model-zero-2-w",
    "bcm2711-rpi-4-b": "raspberrypi,4-model-b",
    "bcm2711-rpi-400": "raspberrypi,400",
}
"""Device trees by the firmware's names, and the board in each."""
FIRST_STAGES = {
    "Pi 3 and Zero 2 W": {"bootcode.bin", "start.elf", "fixup.dat"},
    "Pi 4": {"start4.elf", "fixup4.dat"},
}
AARCH64 = 183
"""e_machine (elf(5))."""
UNITS = {
    "local-fs.target.requires/kit-program.service",
    "multi-user.target.wants/fieldagent.service",
    "multi-user.target.wants/ssh.service",
    "multi-user.target.wants/systemd-networkd.service",
    "sockets.target.wants/gpsd.socket",
    "sysinit.target.wants/systemd-resolved.service",
    "sysinit.target.wants/systemd-timesyncd.service",
}
MASKED = {"apt-daily.timer", "apt-daily-upgrade.timer", "sshd-keygen.service"}
OWNED = {
    "system/etc/fieldagent/agent.properties": "600 root",
    "system/usr/bin/fieldagent": "755 root",
    "system/usr/lib/fieldagent/fieldagent.pyz": "644 root",
    "system/usr/lib/systemd/system/fieldagent.service": "644 root",
    "system/etc/shadow": "640 root",
    "kept/settings/agent.properties": "600 root",
    "kept/update": "700 root",
    "kept/ssh": "700 root",
    "kept/agent": "755 root",
}
"""Its tmpfiles.d and its units give the kit's files to their users at the first start."""
SETTINGS = "satellite-port={port}\nhub-address=https://127.0.0.1:9\nhub-token={token}\n"
TOKEN = "the-token-of-a-link-that-nobody-answers"


class Card(NamedTuple):
    image: Path
    partitions: list[Partition]
    folder: Path

    @property
    def boot(self) -> Path:
        return self.folder / "boot"

    @property
    def system(self) -> Path:
        return self.folder / "system"


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Card]:
    folder = tmp_path_factory.mktemp("card")
    image = card_image("arm64", folder)
    parts = partitions(image)
    fat_files(image, parts[0], folder / "boot")
    for partition, name in zip((parts[1], parts[3]), ("system", "kept"), strict=True):
        part = cut_out(image, partition, folder / f"{name}.part")
        check = [tool("e2fsck", "e2fsprogs"), "-f", "-n", str(part)]
        subprocess.run(check, check=True, capture_output=True)
        ext4_files(part, folder / name)
        part.unlink()
    yield Card(image, parts, folder)
    subprocess.run(["rm", "-rf", "--one-file-system", folder], check=True)


def test_card_has_four_consecutive_partitions(card: Card) -> None:
    boot, *others = card.partitions
    assert (boot.start, boot.size, boot.type) == (MIB, 256 * MIB, "c")
    assert [each.type for each in others] == ["83"] * 3
    assert [each.size for each in others[:2]] == [768 * MIB] * 2
    for before, after in pairwise(card.partitions):
        assert after.start == before.start + before.size
    labels = [label(card.image, card.partitions[at]) for at in (0, 1, 3)]
    assert labels == ["BOOTFS", "system", "kit"]


def test_boot_partition_has_space_for_both_systems(card: Card) -> None:
    used = sum(each.stat().st_size for each in card.boot.rglob("*") if each.is_file())
    of_a_system = sum(each.stat().st_size for each in (card.boot / "a").iterdir())
    assert used + of_a_system < 240 * MIB


@pytest.mark.parametrize("board", FIRST_STAGES)
def test_boot_partition_contains_the_first_stages_of_each_board(card: Card, board: str) -> None:
    for name in FIRST_STAGES[board]:
        assert (card.boot / name).stat().st_size, name
    elf = (card.boot / next(each for each in FIRST_STAGES[board] if "elf" in each)).read_bytes()
    assert elf.startswith(b"\x7fELF")


@pytest.mark.parametrize("name", BOARDS)
def test_boot_partition_contains_the_device_tree_of_each_board(card: Card, name: str) -> None:
    tree = (card.boot / f"{name}.dtb").read_bytes()
    magic, size = struct.unpack_from(">II", tree)
    assert (magic, size) == (0xD00DFEED, len(tree))
    assert f"{BOARDS[name]}\0".encode() in tree


def test_firmware_configuration_starts_the_installed_kernel(card: Card) -> None:
    config = (card.boot / "config.txt").read_text()
    said = [line for line in config.splitlines() if line and not line.startswith("#")]
    assert said == [
        "arm_64bit=1",
        "upstream_kernel=1",
        "enable_uart=1",
        "include slot.txt",
    ]
    chosen = (card.boot / "slot.txt").read_text().splitlines()
    assert chosen == ["kernel=a/vmlinuz", "initramfs a/initrd.img", "cmdline=a/cmdline.txt"]
    kernel = (card.boot / "a/vmlinuz").read_bytes()
    # Linux' Documentation/arch/arm64/booting.rst, "Call the kernel image".
    assert kernel[56:60] == b"ARM\x64"
    (release,) = (card.system / "usr/lib/modules").iterdir()
    assert f"Linux version {release.name} ".encode() in kernel


def test_kernel_command_line_names_the_root_and_one_console(card: Card) -> None:
    (line,) = (card.boot / "a/cmdline.txt").read_text().splitlines()
    parameters = line.split()
    where = {"root=PARTUUID=6b697400-02", "kit.slot=a"}
    assert where | {"ro", "rootwait", "fsck.repair=yes"} <= set(parameters)
    # A device at the pins, such as a modem, gets no kernel messages.
    assert [each for each in parameters if each.startswith("console=")] == ["console=tty0"]


def test_initrd_contains_card_drivers_and_the_overlay_script(card: Card) -> None:
    there = card.system / "tmp/initrd.img"
    there.write_bytes((card.boot / "a/initrd.img").read_bytes())
    listing = in_the_system(card.system, "root", "lsinitramfs", "/tmp/initrd.img")
    names = subprocess.check_output(listing, text=True).splitlines()
    assert {"scripts/init-bottom/overlay", "scripts/init-premount/try-system"} <= {*names}
    assert "usr/sbin/kexec" in names
    modules = drivers(*names, *list_kernel_modules(card, "builtin"))
    # The card reader of the Pi 3 and Zero 2 W, that of the Pi 4, and the cards.
    assert {"overlay", "bcm2835", "sdhci-iproc", "mmc_block", "ext4", "vfat"} <= modules


def test_kernel_has_drivers_for_connected_devices(card: Card) -> None:
    modules = drivers(*list_kernel_modules(card, "builtin"), *list_kernel_modules(card, "dep"))
    assert {"ftdi_sio", "pl2303", "cp210x", "cdc-acm", "8250_bcm2835aux"} <= modules
    # Wired network of the Pi 3 B, 3 B+ and 4, USB of the 3 and the 4, and the watchdog.
    assert {"smsc95xx", "lan78xx", "genet", "dwc2", "xhci-pci", "bcm2835_wdt"} <= modules


def list_kernel_modules(card: Card, what: str) -> list[str]:
    """Return the kernel's modules: built in (`builtin`), or separate (`dep`)."""
    (release,) = (card.system / "usr/lib/modules").iterdir()
    lines = (release / f"modules.{what}").read_text().splitlines()
    return [line.partition(":")[0] for line in lines]


def drivers(*names: str) -> set[str]:
    return {Path(name).name.partition(".ko")[0] for name in names if ".ko" in name}


def test_writable_folders_are_mounted_from_the_data_partition(card: Card) -> None:
    lines = (card.system / "etc/fstab").read_text().splitlines()
    table = [line.split() for line in lines if line and not line.startswith("#")]
    assert [each[:3] for each in table[:2]] == [
        ["LABEL=BOOTFS", "/boot/firmware", "vfat"],
        ["PARTUUID=6b697400-04", "/var/lib/kit", "ext4"],
    ]
    assert {"noatime", "data=ordered"} <= set(table[1][3].split(","))
    for what, where, *_ in table[2:]:
        kept = card.folder / "kept" / Path(what).relative_to("/var/lib/kit")
        assert kept.is_dir(), what
        assert (card.system / where.removeprefix("/")).is_dir(), where


def test_expected_units_are_enabled_and_downloading_ones_masked(card: Card) -> None:
    units = card.system / "etc/systemd/system"
    assert {each for each in UNITS if not (units / each).is_symlink()} == set()
    assert {each for each in MASKED if str((units / each).readlink()) != "/dev/null"} == set()
    assert (units / "default.target").readlink().name == "multi-user.target"
    assert not (units / "multi-user.target.wants/fieldagent-hub.service").exists()


@pytest.mark.parametrize("path", OWNED)
def test_files_have_the_expected_owner_and_mode(card: Card, path: str) -> None:
    there = (card.folder / path).stat()
    assert (
        f"{there.st_mode & 0o7777:o} {'root' if there.st_uid == 0 else there.st_uid}" == OWNED[path]
    )


def test_card_contains_no_shared_secret_and_no_password(card: Card) -> None:
    assert not list((card.system / "etc/ssh").glob("ssh_host_*"))
    assert not list((card.folder / "kept/ssh").iterdir())
    assert (card.system / "etc/machine-id").read_bytes() == b""
    shadow = (card.system / "etc/shadow").read_text().splitlines()
    assert {line.split(":")[1][0] for line in shadow} <= {"*", "!"}
    assert re.search("^fieldagent:", (card.system / "etc/passwd").read_text(), re.MULTILINE)


def test_programs_are_built_for_aarch64(card: Card) -> None:
    for name in ("python3", "sh", "openssl", "gpsd"):
        (file,) = [
            each
            for each in (card.system / f"usr/{where}/{name}" for where in ("bin", "sbin"))
            if each.exists()
        ]
        head = file.resolve().read_bytes()[:20]
        assert (head[:4], struct.unpack_from("<H", head, 18)[0]) == (b"\x7fELF", AARCH64), name


def test_program_of_the_card_applies_settings_and_delivers(card: Card, tmp_path: Path) -> None:
    user = re.search("^fieldagent:.*", (card.system / "etc/passwd").read_text(), re.MULTILINE)
    assert user is not None
    uid, gid = map(int, user[0].split(":")[2:4])
    state = card.system / "var/lib/fieldagent"
    # systemd does this for the unit: its folder, and a port that the group dialout may open.
    os.chown(state, uid, gid)
    state.chmod(0o700)
    with own_network() as inside, sky(tmp_path) as sim:
        port = (tmp_path / "modem").resolve()
        os.chown(port, uid, gid)

        def there(user: str, *command: str) -> list[str]:
            return [*inside, *in_the_system(card.system, user, *command)]

        boot = card.system / "boot/firmware"
        (boot / "fieldagent.properties").write_text(SETTINGS.format(port=port, token=TOKEN))
        output = subprocess.check_output(there("root", "fieldagent", "provision"), text=True)
        assert "hub-address, hub-token, satellite-port" in output
        assert [each.name for each in boot.iterdir()] == ["fieldagent-result.txt"]
        settings = card.system / "etc/fieldagent/agent.properties"
        assert (settings.stat().st_mode & 0o7777, settings.stat().st_gid) == (0o640, gid)

        run = ("fieldagent", "run", "--config", "/etc/fieldagent/agent.properties")
        with Running(there("fieldagent", *run), "the local API answers at"):
            ask = [tool("curl", "curl"), "--fail", "--silent", "http://127.0.0.1:9091/api/health"]
            subprocess.run([*inside, *ask], check=True, stdout=subprocess.DEVNULL)
            send = ("fieldagent", "send", "message", "from the card", "--channel", "Satellite")
            assert "Delivered" in subprocess.check_output(there("root", *send), text=True)
        assert len([line for line in sim.output() if "from the card" in line]) == 1
