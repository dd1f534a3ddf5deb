"""A Raspberry Pi 3 B emulated by QEMU: its processor, card reader, UART and USB. QEMU replaces the
first boot stages, which belong to Raspberry Pi: it starts the same kernel with the same
parameters, from the card's `config.txt` and its includes.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.machine import tool
from tests.shipping.board import Board

TREE = "bcm2837-rpi-3-b.dtb"
CARD = 4 << 30
"""Bytes: QEMU's card reader accepts only powers of two."""
TTY = "ttyS1"
"""The small UART, which the card does not use. The other one is a Pi 3's Bluetooth."""
SHELL = (
    f"systemd.debug_shell=1 systemd.default_debug_tty={TTY}"
    " systemd.default_device_timeout_sec=600 mitigations=off"
    # QEMU ends if its watchdog is started. A processor that is not started waits in a loop and
    # keeps one of this machine's busy, so all four are started.
    " systemd.watchdog_device=/dev/none"
)


class PiBoard(Board):
    """An emulated Pi with one card. It can be booted, and its power cut, any number of times. It
    shares only the card and the modem with this machine.
    """

    def __init__(self, folder: Path, card: Path, modem: Path) -> None:
        os.truncate(card, CARD)
        super().__init__(folder, card, modem, shell=SHELL)

    def _open_shells(self) -> None:
        """Add the shell, also to a system that the kit has written since, and to the entry that
        tries one.
        """
        folders = [each for each in self.files() if each in ("::/a/", "::/b/")]
        for name in (name for folder in folders for name in self.files(folder)):
            if name.endswith(".txt") and self._shell not in (words := self.read(name).strip()):
                self.write(name, f"{words} {self._shell}\n".encode())

    def _mount_share(self) -> None:
        """Do nothing, because the board has no virtio."""

    def _command(self) -> list[str]:
        settings = self._told("config.txt")
        first = {"-kernel": settings["kernel"], "-initrd": settings["initramfs"], "-dtb": TREE}
        for option, name in first.items():
            (self._folder / option).write_bytes(self._mtool("mtype", f"::/{name}"))
        assert self._modem is not None
        devices = [
            ("-append", self.read(f"::/{settings['cmdline']}").strip()),
            ("-drive", f"if=sd,format=raw,cache=writethrough,file={self.card}"),
            # The large UART first, in the board's order.
            ("-serial", "null"),
            ("-chardev", f"socket,id=console,path={self._console},server=on,wait=off"),
            ("-serial", "chardev:console"),
            ("-chardev", f"serial,id=modem,path={self._modem.resolve()}"),
            ("-device", "usb-serial,chardev=modem"),
            *((option, str(self._folder / option)) for option in first),
        ]
        return [
            *("nice", tool("qemu-system-aarch64", "qemu-system-arm"), "-machine", "raspi3b"),
            *("-accel", "tcg", "-no-reboot", "-display", "none", "-monitor", "none"),
            *(each for device in devices for each in device),
        ]

    def _told(self, file: str) -> dict[str, str]:
        """Return the settings in `file` of the boot partition. If a setting occurs twice, the last
        value counts.
        """
        settings: dict[str, str] = {}
        for line in self.read(f"::/{file}").splitlines():
            if line.startswith("include "):
                settings |= self._told(line.removeprefix("include "))
            elif line and not line.startswith("#"):
                name, value = line.replace("initramfs ", "initramfs=").split("=", 1)
                settings[name] = value
        return settings
