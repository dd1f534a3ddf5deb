"""A Pi's firmware, which starts the system that `slot.txt` names, and counts no tries.

Of the folder `a` or `b` it takes kernel, initrd and the words for them
(raspberrypi.com/documentation/computers/config_txt.html: kernel, initramfs, cmdline). What is to be
tried is started by the kernel of the system that works (build/boards/arm64/initramfs-tools), by
kexec: armed, the next start is of that kernel with other words, `try.txt`; before it hands over it
takes those away again and writes `tried` into the folder of the other. Whatever is dead in there,
the next start is of the system that works.
"""

from __future__ import annotations

import re
from pathlib import Path

from fieldagent.system.folder import put_file, sync_folder

TRY = "try.txt"
TRIED = "tried"
ONE_PROCESSOR = "nr_cpus=1"
"""Linux hands no others over: a Pi 3's wait in a loop of the firmware's once they are left
(arch/arm64/kernel/smp.c, cpus_are_stuck_in_kernel)."""


class PiBoot:
    WORDS = "cmdline.txt"
    """What a system has for its loader."""

    def __init__(self, boot: Path) -> None:
        self._boot = boot
        self._choice = boot / "slot.txt"

    def is_there(self) -> bool:
        """Return whether this loader starts the card."""
        return self._choice.is_file()

    def clear(self, slot: str) -> None:
        """Have the slot tried no more. Raises OSError."""
        if self.state(slot) == "armed":
            self._choose(self._kept())
        (self._boot / slot / TRIED).unlink(missing_ok=True)

    def arm(self, slot: str, words: str) -> None:
        """Have the slot tried at the next start, once. Raises OSError."""
        kept = self._kept()
        put_file(self._boot / slot / self.WORDS, words.encode())
        (self._boot / slot / TRIED).unlink(missing_ok=True)
        own = (self._boot / kept / self.WORDS).read_text().strip()
        other_words = f"{own} {ONE_PROCESSOR} kit.try={slot}\n"
        put_file(self._boot / kept / TRY, other_words.encode())
        self._choose(kept, TRY)

    def state(self, slot: str) -> str:
        """Return `absent`, `armed`, `spent` or `kept`. Raises OSError."""
        if self._kept() == slot:
            return "kept"
        if TRY in self._choice.read_text():
            return "armed"
        return "spent" if (self._boot / slot / TRIED).exists() else "absent"

    def keep(self, slot: str) -> None:
        """Have the slot started from now on. Raises OSError."""
        self._choose(slot)
        (self._boot / slot / TRIED).unlink(missing_ok=True)
        sync_folder(self._boot / slot)

    def _kept(self) -> str:
        match = re.match("kernel=([ab])/", self._choice.read_text())
        if match is None:
            raise OSError(f"{self._choice} names no system: write a card of the newer image")
        return match[1]

    def _choose(self, slot: str, words: str = WORDS) -> None:
        lines = f"kernel={slot}/vmlinuz\ninitramfs {slot}/initrd.img\ncmdline={slot}/{words}\n"
        put_file(self._choice, lines.encode())
