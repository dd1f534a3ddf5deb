"""The two systems of a card, and which of them its boot loader starts.

systemd-boot takes the entry of the highest version among those that may be tried, and counts the
tries in their names (systemd.io/AUTOMATIC_BOOT_ASSESSMENT):

    system-a.conf         it works: kept
    system-b+1.conf       armed: to be tried once
    system-b+0-1.conf     spent: was tried, and is started no more while there is another

The loader itself renames the armed to the spent one, before the kernel has begun. Whatever is dead
in there, the next start is of the other system.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from fieldagent.kit.fetching import NotTaken
from fieldagent.system.folder import put_file, sync_folder
from fieldagent.system.system_image import SystemName, UnreadableImage, read_name

PARTITIONS = {"a": "6b697400-02", "b": "6b697400-03"}
"""PARTUUIDs, as `build/image` makes them."""
BOOTED = ("vmlinuz", "initrd.img")
ENTRY = "entry.conf"
"""The three are in the system's /usr/lib/kit/slot."""
TRIAL = "kit.trial"
"""A word to the kernel of a system that is tried; its units look for it."""
NONE = (
    "this card has one system, which cannot be replaced as it runs: write a card of the newer image"
    " (docs/operating.md, A whole system)"
)


class Slots:
    def __init__(self, root: Path = Path("/")) -> None:
        self._boot = root / "boot/firmware"
        self._entries = self._boot / "loader/entries"
        self._kept = root / "var/lib/kit"
        self._devices = root / "dev/disk/by-partuuid"
        self._about = root / "usr/lib/kit/system.json"
        self._words = root / "proc/cmdline"

    def running(self) -> str:
        """Return the slot whose system runs. Raises NotTaken where there are no two."""
        found = re.search(r"(?:^|\s)kit\.slot=([ab])\b", self._words.read_text())
        if found is None:
            raise NotTaken(NONE)
        if not self._entries.is_dir():
            raise NotTaken(f"{self._entries} is not there: is {self._boot} mounted?")
        return found[1]

    def other(self) -> str:
        """Return the slot whose system does not run. Raises NotTaken."""
        return "b" if self.running() == "a" else "a"

    def about(self) -> SystemName:
        """Return what runs says of itself. Raises NotTaken."""
        try:
            return read_name(self._about.read_bytes())
        except FileNotFoundError:
            raise NotTaken(NONE) from None
        except UnreadableImage as wrong:
            raise NotTaken(f"{self._about}: {wrong}") from None

    def device(self, slot: str) -> Path:
        """Return the partition of slot `a` or `b`; it need not be there."""
        return self._devices / PARTITIONS[slot]

    def clear(self, slot: str) -> None:
        """Remove the slot's entries, so that the loader does not find it any more, and what it had
        of its own."""
        for each in self._of(slot):
            each.unlink()
        sync_folder(self._entries)
        shutil.rmtree(self._kept / f"program-{slot}", ignore_errors=True)

    def put_kernel(self, slot: str) -> None:
        """Put it where the loader can read it. Raises OSError."""
        folder = self._boot / slot
        folder.mkdir(exist_ok=True)
        for name in BOOTED:
            # Both have no room there beside what they replace.
            (folder / name).unlink(missing_ok=True)
            put_file(folder / name, self._file(slot, name))

    def arm(self, slot: str) -> None:
        """Let the loader try the slot at the next start, once. Raises OSError."""
        entry = self._file(slot, ENTRY).decode()
        for word, value in {"SLOT": slot, "ROOT": PARTITIONS[slot], "TURN": self._turn()}.items():
            entry = entry.replace(f"@{word}@", value)
        tried = re.sub("(?m)^options .*", rf"\g<0> {TRIAL}", entry)
        put_file(self._entries / f"system-{slot}+1.conf", tried.encode())

    def state(self, slot: str) -> str:
        """Return `absent`, `armed`, `spent` or `kept`."""
        names = [each.name.removeprefix(f"system-{slot}") for each in self._of(slot)]
        if ".conf" in names:
            return "kept"
        if not names:
            return "absent"
        return "armed" if any(name.startswith("+1") for name in names) else "spent"

    def keep(self, slot: str) -> None:
        """Let the loader start the slot from now on. Raises OSError."""
        tried = [each for each in self._of(slot) if "+" in each.name]
        if tried:
            entry = tried[0].read_text().replace(f" {TRIAL}", "")
            put_file(self._entries / f"system-{slot}.conf", entry.encode())
        for each in tried:
            each.unlink()
        sync_folder(self._entries)

    def _of(self, slot: str) -> list[Path]:
        return [*self._entries.glob(f"system-{slot}.conf"), *self._entries.glob(f"system-{slot}+*")]

    def _turn(self) -> str:
        said = (each.read_text() for each in self._entries.glob("system-*.conf"))
        found = [int(turn) for text in said for turn in re.findall(r"(?m)^version (\d+)$", text)]
        return str(max(found, default=0) + 1)

    def _file(self, slot: str, name: str) -> bytes:
        """Out of a system that is not mounted. Raises OSError."""
        asked = ["debugfs", "-R", f"cat /usr/lib/kit/slot/{name}", str(self.device(slot))]
        done = subprocess.run(
            asked,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},
        )
        # It begins with its own version, and always ends well.
        told = done.stderr.decode(errors="replace").strip().splitlines()[1:]
        if told or not done.stdout:
            raise OSError(f"{name} of system {slot} cannot be read: {' '.join(told) or 'empty'}")
        return done.stdout
