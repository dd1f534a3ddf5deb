"""systemd-boot, the loader of a PC's card, which starts one of its two systems.

The loader selects the entry with the highest version among the entries that may be tried, and
counts the attempts in their names (systemd.io/AUTOMATIC_BOOT_ASSESSMENT):

    system-a.conf         it works: kept
    system-b+1.conf       armed: to be tried once
    system-b+0-1.conf     spent: was tried, and is not started while there is another

The loader itself renames an armed entry to a spent one before it starts the kernel. So even if the
new system hangs, the next start is of the other system.
"""

from __future__ import annotations

import re
from pathlib import Path

from fieldagent.system.folder import replace_file, sync_folder

TRIAL = "kit.trial"
"""Word in the kernel's command line of a system on trial. The system's units check this word."""


class SystemdBoot:
    TEMPLATE_FILE = "entry.conf"
    """Name of the file in a system that contains its entry for the boot loader."""

    def __init__(self, boot: Path) -> None:
        self._entries = boot / "loader/entries"

    def is_in_use(self) -> bool:
        """Return True if this boot loader starts the card."""
        return self._entries.is_dir()

    def clear(self, slot: str) -> None:
        """Remove the slot's entries, so that the loader no longer finds the slot. Raises
        OSError.
        """
        for each in self._list_entries(slot):
            each.unlink()
        sync_folder(self._entries)

    def arm(self, slot: str, boot_text: str) -> None:
        """Let the loader try the slot once, at the next start. `boot_text` is the slot's entry for
        the loader. Raises OSError.
        """
        entry = boot_text.replace("@TURN@", self._switch_entry())
        tried = re.sub("(?m)^options .*", rf"\g<0> {TRIAL}", entry)
        replace_file(self._entries / f"system-{slot}+1.conf", tried.encode())

    def get_state(self, slot: str) -> str:
        """Return the state of the slot: `absent`, `armed`, `spent` or `kept`. Raises OSError."""
        names = [each.name.removeprefix(f"system-{slot}") for each in self._list_entries(slot)]
        if ".conf" in names:
            return "kept"
        if not names:
            return "absent"
        return "armed" if any(name.startswith("+1") for name in names) else "spent"

    def set_default_slot(self, slot: str) -> None:
        """Let the loader start the slot from now on. Raises OSError."""
        tried = [each for each in self._list_entries(slot) if "+" in each.name]
        if tried:
            entry = tried[0].read_text().replace(f" {TRIAL}", "")
            replace_file(self._entries / f"system-{slot}.conf", entry.encode())
        for each in tried:
            each.unlink()
        sync_folder(self._entries)

    def _list_entries(self, slot: str) -> list[Path]:
        return [*self._entries.glob(f"system-{slot}.conf"), *self._entries.glob(f"system-{slot}+*")]

    def _switch_entry(self) -> str:
        entry_texts = (each.read_text() for each in self._entries.glob("system-*.conf"))
        turns = [
            int(turn) for text in entry_texts for turn in re.findall(r"(?m)^version (\d+)$", text)
        ]
        return str(max(turns, default=0) + 1)
