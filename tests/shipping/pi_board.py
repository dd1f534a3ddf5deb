"""A Raspberry Pi 3 B that QEMU emulates: its processor, card reader, UART and USB. QEMU stands for
the first stages, which are Raspberry Pi's own: it starts the kernel that they would, as the card's
`config.txt` and `cmdline.txt` say."""

from __future__ import annotations

import os
from pathlib import Path

from tests.machine import tool
from tests.shipping.board import Board

TREE = "bcm2837-rpi-3-b.dtb"
CARD = 2 << 30
"""Bytes: QEMU's card reader takes powers of two alone."""
TTY = "ttyS1"
"""The small UART, on which nothing of the card's says anything: the other is a Pi 3's Bluetooth."""
SHELL = (
    f"systemd.debug_shell=1 systemd.default_debug_tty={TTY}"
    " systemd.default_device_timeout_sec=600 mitigations=off"
    # QEMU ends at what it has of the watchdog; and one processor does, as of the other board.
    " module_blacklist=bcm2835_wdt maxcpus=1"
)


class PiBoard(Board):
    """One card of a Pi, which is started and cut off as often as one likes. It shares nothing with
    this machine but the card and the modem."""

    def __init__(self, folder: Path, card: Path, modem: Path) -> None:
        os.truncate(card, CARD)
        super().__init__(folder, card, modem, shell=SHELL)

    def _open_shells(self) -> None:
        """The boot loader is QEMU, and is told at each start."""

    def _mount_share(self) -> None:
        """It has no virtio."""

    def _command(self) -> list[str]:
        told = dict(
            line.replace("initramfs ", "initramfs=").split("=", 1)
            for line in self.read("::/config.txt").splitlines()
            if line and not line.startswith("#")
        )
        first = {"-kernel": told["kernel"], "-initrd": told["initramfs"], "-dtb": TREE}
        for name in first.values():
            (self._folder / name).write_bytes(self._mtool("mtype", f"::/{name}"))
        assert self._modem is not None
        devices = [
            ("-append", f"{self.read('::/cmdline.txt').strip()} {self._shell}"),
            ("-drive", f"if=sd,format=raw,cache=writethrough,file={self.card}"),
            # The large UART first, as the board has them.
            ("-serial", "null"),
            ("-chardev", f"socket,id=console,path={self._console},server=on,wait=off"),
            ("-serial", "chardev:console"),
            ("-chardev", f"serial,id=modem,path={self._modem.resolve()}"),
            ("-device", "usb-serial,chardev=modem"),
            *((option, str(self._folder / name)) for option, name in first.items()),
        ]
        return [
            *("nice", tool("qemu-system-aarch64", "qemu-system-arm"), "-machine", "raspi3b"),
            *("-accel", "tcg", "-no-reboot", "-display", "none", "-monitor", "none"),
            *(each for device in devices for each in device),
        ]
