"""Selects the system that a Raspberry Pi starts. The boot loader is the Pi's firmware. It starts
the system that `slot.txt` names, and does not count attempts.

The firmware takes the kernel, the initrd and the kernel's command line from the folder `a` or `b`
(raspberrypi.com/documentation/computers/config_txt.html: kernel, initramfs, cmdline). For a trial,
the kernel of the working system starts the new system by kexec
(build/boards/arm64/initramfs-tools). When a trial is armed, the next start uses that kernel with
another command line, `try.txt`. Before the kexec, the working system restores the normal command
line and writes `tried` into the folder of the new system. So even if the new system hangs, the next
start is of the working system.
"""

from __future__ import annotations

import re
from pathlib import Path

from fieldagent.system.folder import replace_file, sync_folder

TRY = "try.txt"
TRIED_FILE = "tried"
ONE_PROCESSOR = "nr_cpus=1"
"""Parameter for a kernel that starts another kernel by kexec. It limits the first kernel to one
processor, because a kernel cannot hand over more. On a Pi 3, other processors would wait in a loop
of the firmware (arch/arm64/kernel/smp.c, cpus_are_stuck_in_kernel)."""


class PiBoot:
    TEMPLATE_FILE = "cmdline.txt"
    """Name of the file in a system that contains the kernel's command line for this boot loader."""

    def __init__(self, boot: Path) -> None:
        self._boot = boot
        self._choice = boot / "slot.txt"

    def is_in_use(self) -> bool:
        """Return True if this boot loader starts the card."""
        return self._choice.is_file()

    def clear(self, slot: str) -> None:
        """Cancel a trial of the slot. Raises OSError."""
        if self.get_state(slot) == "armed":
            self._choose(self._find_kept())
        (self._boot / slot / TRIED_FILE).unlink(missing_ok=True)

    def arm(self, slot: str, boot_text: str) -> None:
        """Schedule one trial of the slot at the next start. `boot_text` is the kernel's command
        line for the slot. Raises OSError.
        """
        kept_entry = self._find_kept()
        replace_file(self._boot / slot / self.TEMPLATE_FILE, boot_text.encode())
        (self._boot / slot / TRIED_FILE).unlink(missing_ok=True)
        own = (self._boot / kept_entry / self.TEMPLATE_FILE).read_text().strip()
        trial_text = f"{own} {ONE_PROCESSOR} kit.try={slot}\n"
        replace_file(self._boot / kept_entry / TRY, trial_text.encode())
        self._choose(kept_entry, TRY)

    def get_state(self, slot: str) -> str:
        """Return the state of the slot: `absent`, `armed`, `spent` or `kept`. Raises OSError."""
        if self._find_kept() == slot:
            return "kept"
        if TRY in self._choice.read_text():
            return "armed"
        return "spent" if (self._boot / slot / TRIED_FILE).exists() else "absent"

    def set_default_slot(self, slot: str) -> None:
        """Make the firmware start the slot from now on. Raises OSError."""
        self._choose(slot)
        (self._boot / slot / TRIED_FILE).unlink(missing_ok=True)
        sync_folder(self._boot / slot)

    def _find_kept(self) -> str:
        match = re.match("kernel=([ab])/", self._choice.read_text())
        if match is None:
            raise OSError(f"{self._choice} names no system: write the newer image to the card")
        return match[1]

    def _choose(self, slot: str, boot_text: str = TEMPLATE_FILE) -> None:
        lines = f"kernel={slot}/vmlinuz\ninitramfs {slot}/initrd.img\ncmdline={slot}/{boot_text}\n"
        replace_file(self._choice, lines.encode())
