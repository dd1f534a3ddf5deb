"""The two system partitions (slots) of an SD card.

This module selects the system that the boot loader starts: the working system, or the other system
for a single trial (`systemd_boot`, `pi_boot`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from fieldagent.extensions.fleet.fetching import UpdateRefused
from fieldagent.extensions.fleet.pi_boot import PiBoot
from fieldagent.extensions.fleet.systemd_boot import SystemdBoot
from fieldagent.system.folder import replace_file
from fieldagent.system.system_image import SystemName, UnreadableImage, parse_system_name

PARTITIONS = {"a": "6b697400-02", "b": "6b697400-03"}
"""PARTUUIDs of the slots, which `build/image` assigns."""
SLOT = "/usr/lib/kit/slot"
"""Folder in a system that contains the files for the boot loader: kernel, initrd, description of
the board, and command line."""
NO_SLOTS_REASON = (
    "this card has one system, which cannot be replaced as it runs: write a card of the newer image"
    " (docs/how-to/update-system.md)"
)


class SystemSlots:
    def __init__(self, root: Path = Path("/")) -> None:
        self._boot = root / "boot/firmware"
        self._state_folder = root / "var/lib/kit"
        self._devices = root / "dev/disk/by-partuuid"
        self._system_file = root / "usr/lib/kit/system.json"
        self._command_line = root / "proc/cmdline"
        self._loaders = SystemdBoot(self._boot), PiBoot(self._boot)

    def find_running(self) -> str:
        """Return the slot of the running system. Raises UpdateRefused if the card has only one
        system.
        """
        match = re.search(r"(?:^|\s)kit\.slot=([ab])\b", self._command_line.read_text())
        if match is None:
            raise UpdateRefused(NO_SLOTS_REASON)
        try:
            self._make_loader()
        except OSError as none:
            raise UpdateRefused(str(none)) from None
        return match[1]

    def find_other(self) -> str:
        """Return the slot of the other system. Raises UpdateRefused if the card has only one
        system.
        """
        return "b" if self.find_running() == "a" else "a"

    def read_name(self) -> SystemName:
        """Return the description of the running system. Raises UpdateRefused if the system has no
        description, because its card has only one system.
        """
        try:
            return parse_system_name(self._system_file.read_bytes())
        except FileNotFoundError:
            raise UpdateRefused(NO_SLOTS_REASON) from None
        except UnreadableImage as wrong:
            raise UpdateRefused(f"{self._system_file}: {wrong}") from None

    def get_device(self, slot: str) -> Path:
        """Return the path of the partition of slot `a` or `b`. The partition need not exist."""
        return self._devices / PARTITIONS[slot]

    def clear(self, slot: str) -> None:
        """Make the boot loader forget the slot, and remove the slot's own program. Raises
        OSError.
        """
        self._make_loader().clear(slot)
        shutil.rmtree(self._state_folder / f"program-{slot}", ignore_errors=True)

    def copy_kernel(self, slot: str) -> None:
        """Copy the slot's kernel and other files to the boot loader's folder. Raises OSError."""
        folder, words_name = self._boot / slot, self._make_loader().TEMPLATE_FILE
        folder.mkdir(exist_ok=True)
        names = [each for each in self._list_files(slot) if each != words_name]
        for name in names:
            # Remove the old files first, because there is no space for both.
            (folder / name).unlink(missing_ok=True)
        for name in names:
            replace_file(folder / name, self._read_file(slot, name))

    def arm(self, slot: str) -> None:
        """Make the boot loader try the slot once, at the next start. Raises OSError."""
        loader = self._make_loader()
        boot_text = self._read_file(slot, loader.TEMPLATE_FILE).decode()
        for word_name, value in {"SLOT": slot, "ROOT": PARTITIONS[slot]}.items():
            boot_text = boot_text.replace(f"@{word_name}@", value)
        loader.arm(slot, boot_text)

    def get_state(self, slot: str) -> str:
        """Return the state of the slot: `absent`, `armed`, `spent` or `kept`. Raises OSError."""
        return self._make_loader().get_state(slot)

    def set_default_slot(self, slot: str) -> None:
        """Make the boot loader start the slot from now on. Raises OSError."""
        self._make_loader().set_default_slot(slot)

    def _make_loader(self) -> SystemdBoot | PiBoot:
        for loader in self._loaders:
            if loader.is_in_use():
                return loader
        raise OSError(f"{self._boot} has no loader: is it mounted?")

    def _list_files(self, slot: str) -> list[str]:
        """Return the names of the boot loader's files in a system that is not mounted. Raises
        OSError.
        """
        listing = self._run_debugfs(slot, f"ls -p {SLOT}", SLOT).decode().splitlines()
        # debugfs prints lines of the form /inode/mode/user/group/name/size/.
        names = [line.split("/")[5] for line in listing if line.startswith("/")]
        return [each for each in names if each not in (".", "..", "")]

    def _read_file(self, slot: str, name: str) -> bytes:
        """Return the content of a file in a system that is not mounted. Raises OSError."""
        return self._run_debugfs(slot, f"cat {SLOT}/{name}", name)

    def _run_debugfs(self, slot: str, request: str, what: str) -> bytes:
        debugfs_command = ["debugfs", "-R", request, str(self.get_device(slot))]
        result = subprocess.run(
            debugfs_command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},
        )
        # The program prints its own version first, and always exits with 0.
        complaints = result.stderr.decode(errors="replace").strip().splitlines()[1:]
        if complaints or not result.stdout:
            raise OSError(
                f"{what} of system {slot} cannot be read: {' '.join(complaints) or 'empty'}"
            )
        return result.stdout
