"""`fieldagent provision`: takes settings that a person has put on the card with a laptop.

A laptop with any system can write to a card's boot partition. So the file waits on the partition
for the first boot or a later boot. After a power failure at any point, the next boot completes the
work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from fieldagent.agent.settings import list_allowed_keys, parse
from fieldagent.system.exit_codes import IO_FAILED, OK, SETTINGS
from fieldagent.system.folder import rename_file, replace_file, sync_folder
from fieldagent.system.log_lines import print_failure
from fieldagent.system.properties import InvalidSettings, read, read_file
from fieldagent.system.wording import describe_reason

BOOT = (Path("/boot/firmware"), Path("/boot"))
"""Mount points of the boot partition: in Raspberry Pi OS, and in Debian."""
NAME = "fieldagent.properties"
NAMES = (NAME, f"{NAME}.txt")
"""Possible names of the file. Windows' Notepad adds the ending `.txt`, and Windows hides it."""
RESULT = "fieldagent-result.txt"
APPLIED_CARD_FILE = "fieldagent.taken"
AUTHORITY, UPDATE_KEY = "hub-ca.pem", "update.pub"
"""Other files to move from the card: the certificate of the hub's certificate authority, and the
public key that signs updates. The agent's user cannot read the card itself."""
GROUP = "fieldagent"
"""Group of the agent's systemd unit, which must read the settings."""


def provision(folders: Sequence[Path], target: Path, *, as_json: bool) -> int:
    """Move the settings of the first folder that contains a settings file, and the files beside it,
    to `target`. Return an exit code.
    """
    try:
        for folder in folders:
            erase(folder / APPLIED_CARD_FILE)
            _store_keys_of_card(folder, target.parent)
            for name in NAMES:
                if (folder / name).is_file():
                    return _apply_card(folder / name, target, as_json)
    except OSError as error:
        print_failure(f"the settings on the card were not applied: {describe_reason(error)}")
        return IO_FAILED
    _print_names(as_json, None, [])
    return OK


def _store_keys_of_card(card: Path, target: Path) -> None:
    for name in (AUTHORITY, UPDATE_KEY):
        if (card / name).is_file():
            target.mkdir(parents=True, exist_ok=True)
            replace_file(target / name, (card / name).read_bytes(), mode=0o644)
            (card / name).unlink()
            sync_folder(card)


def _print_names(as_json: bool, target: Path | None, names: Sequence[str]) -> None:
    """Print the names of the settings and of the file, but no values, because some are secret."""
    if as_json:
        print(json.dumps({"settings": None if target is None else str(target), "set": names}))
    elif target is None:
        print("the card has no new settings")
    else:
        print(f"{target}: {', '.join(names)}")


def _apply_card(card: Path, target: Path, as_json: bool) -> int:
    try:
        text = read_file(card, is_required=True)
        parse(text, card)
        _, pairs, _ = read(text, card, list_allowed_keys(text))
        if not pairs:
            raise InvalidSettings(card, ["it sets nothing"])
    except InvalidSettings as wrong:
        consequence = "Nothing was applied. The kit keeps its settings."
        advice = f"Correct {card.name} on the card, and start the kit again."
        print_failure(f"{wrong}\n{consequence} {advice}")
        replace_file(
            card.with_name(RESULT), "\n".join([consequence, *wrong.faults, advice, ""]).encode()
        )
        return SETTINGS
    write_settings_file(text, target)
    names = sorted(pairs)
    report = f"The kit has applied these settings: {', '.join(names)}."
    report += " The file itself was erased: it held keys.\n"
    # Write the result before the card's file is deleted. If power failed in between, this code
    # would not run again, and the result would still contain the errors of an earlier start.
    replace_file(card.with_name(RESULT), report.encode())
    rename_file(card, card.with_name(APPLIED_CARD_FILE))
    erase(card.with_name(APPLIED_CARD_FILE))
    _print_names(as_json, target, names)
    return OK


def write_settings_file(text: str, target: Path) -> None:
    """Write the settings file atomically. The first earlier file is kept as `.before`. Raises
    OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    before = target.read_bytes() if target.exists() else b""
    # After a power failure the new settings may already be in place. Then keep the earlier copy.
    if before and before != text.encode():
        replace_file(target.with_name(f"{target.name}.before"), before, mode=0o640, group=GROUP)
    replace_file(target, text.encode(), mode=0o640, group=GROUP)


def erase(path: Path) -> None:
    """Overwrite the file, then delete it, because a deleted file can be recovered from a card."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        file.write(b"#" * path.stat().st_size)
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    sync_folder(path.parent)


def read_card_text(pairs: Sequence[tuple[str, str]]) -> str:
    """Return the text that `provision` takes from a card. Raises InvalidSettings if the agent would
    refuse the settings.
    """
    text = "".join(f"{name}={value}\n" for name, value in pairs)
    parse(text, Path(NAME))
    return text


def write_card(folder: Path, text: str) -> Path:
    """Write the card's file into the folder and return its path. Raises OSError if writing fails,
    or if the file already exists; an existing file is not changed.
    """
    card = folder / NAME
    if card.exists():
        raise FileExistsError(f"{card} already exists: remove it, or use another folder")
    replace_file(card, text.encode())
    return card
