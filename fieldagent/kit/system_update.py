"""`fieldagent update NAME.system`: a whole signed system is written beside the one that runs, tried
once, and left again where it does not work.

Here its signature is verified, and whether it is for this card; what follows is `system_trial`'s,
in a unit of its own.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from fieldagent import __version__
from fieldagent.agent.settings import load
from fieldagent.kit import kit_health, root_units, system_trial, trial_journal
from fieldagent.kit.fetching import NotTaken, is_served
from fieldagent.kit.settings_trial import SettingsPlace
from fieldagent.kit.signed_file import keys_in, signed_file, tell
from fieldagent.kit.system_slots import Slots
from fieldagent.kit.system_trial import SystemTrial
from fieldagent.kit.trial import Place
from fieldagent.kit.update_order import UpdateOrder
from fieldagent.kit.version_order import check_newer
from fieldagent.system.exit_codes import TAKEN
from fieldagent.system.folder import put_file, sync_folder
from fieldagent.system.minisign import TrustedKey
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.signed_release import SYSTEM
from fieldagent.system.system_image import (
    SystemImage,
    SystemName,
    UnreadableImage,
    delta_name,
    read_image,
    write_image,
)

LOOK = 0.5


def begin(order: UpdateOrder, place: Place, slots: Slots) -> SystemTrial:
    """Have a system written and tried. Another that is only being written gives way, once this one
    may be taken. Raises NotTaken, OSError."""
    now, slot = slots.about(), slots.other()
    _check_nothing_else(place)
    root_units.make(place.folder)
    under_way = place.system.exists()
    if under_way:
        # Both fetch into the same file.
        kit_health.systemctl("stop", system_trial.UNIT)
    try:
        # It may have come further meanwhile.
        _check_nothing_else(place)
        image, trial = _may_be_taken(order, place, slots, now, slot)
    except BaseException:
        # Also where whoever gave the order gives it up.
        if under_way:
            _start_unit()
        raise
    # From here to the last line nothing is under way: a power cut mixes no two systems.
    place.system.unlink(missing_ok=True)
    sync_folder(place.folder)
    # It takes the steps: it is known to work.
    put_file(place.previous, order.program.read_bytes(), mode=0o644)
    put_file(place.image, write_image(image))
    place.result.unlink(missing_ok=True)
    system_trial.write(place, trial)
    if not _start_unit():
        place.system.unlink()
        raise NotTaken(f"{system_trial.UNIT} cannot be started: its message is above")
    tell(
        f"{now.version} → {trial.version}: {system_trial.UNIT} writes it, starts it, and goes back"
        " if it does not work"
    )
    return trial


def _start_unit() -> bool:
    start = ["systemctl", "start", "--no-block", system_trial.UNIT]
    return subprocess.run(start, stdin=subprocess.DEVNULL).returncode == 0


def _may_be_taken(
    order: UpdateOrder, place: Place, slots: Slots, now: SystemName, slot: str
) -> tuple[SystemImage, SystemTrial]:
    """Raises NotTaken, OSError."""
    what, keys = order.what, keys_in(order.key)
    image = _image(what, keys, place, now.id)
    if image.name.board != now.board:
        raise NotTaken(f"{what} is for {image.name.board}, and this is {now.board}")
    for version in (now.version, __version__):
        # The program of the card's system may have been updated alone since.
        check_newer(version, image.name.version, older_too=order.older)
    with system_trial.opened(slots.device(slot), os.O_RDONLY) as device:
        capacity = os.lseek(device, 0, os.SEEK_END)
    if image.size > capacity:
        raise NotTaken(f"{what} has {image.size:,} bytes, and this card has room for {capacity:,}")
    try:
        settings = load(order.settings)
    except InvalidSettings as wrong:
        raise NotTaken(f"{wrong}\nCorrect the settings first") from None
    if why := kit_health.unsafe_to_stop(settings.api_port):
        raise NotTaken(why)
    return image, SystemTrial(
        version=image.name.version,
        previous_version=now.version,
        what=_absolute(what),
        slot=slot,
        settings=str(order.settings),
        key=str(order.key),
        channels=kit_health.working_channels(settings.api_port) or {},
        journal_version=trial_journal.version(settings.state_directory),
        minutes=order.minutes,
        steady=order.steady,
        pieces=len(image.pieces),
    )


def _absolute(what: str) -> str:
    return what if what.startswith(("https://", "http://")) else str(Path(what).absolute())


def _check_nothing_else(place: Place) -> None:
    """Raises NotTaken, OSError."""
    if place.trial.exists() or SettingsPlace(place.folder).trial.exists():
        raise NotTaken("another change is on trial; `fieldagent update --last`", TAKEN)
    if not place.system.exists():
        return
    under_way = system_trial.read(place)
    if under_way.phase != "write":
        raise NotTaken(f"system {under_way.version} is on trial; `fieldagent update --last`", TAKEN)


def _image(what: str, keys: list[TrustedKey], place: Place, now: str) -> SystemImage:
    """The difference from the system that runs, where there is one. Raises NotTaken."""
    delta = delta_name(what, now)
    name = delta if is_served(f"{delta}.minisig") else what
    content, release = signed_file(name, SYSTEM, keys, place.part)
    try:
        image = read_image(content)
    except UnreadableImage as wrong:
        raise NotTaken(f"{name}: {wrong}") from None
    if image.name.version != release.version:
        raise NotTaken(f"{name} is {image.name.version}, and was signed as {release.version}")
    return image


def follow(place: Place) -> None:
    """Tell how it goes until the machine starts anew, which the unit has it do; or until it has
    ended before."""
    last = ""
    try:
        while place.system.exists():
            under_way = system_trial.read(place)
            words = system_trial.IN_WORDS[under_way.phase]
            if under_way.phase == "write":
                words += f": {under_way.written} of {under_way.pieces} pieces"
            if words != last:
                tell(words)
            last = words
            time.sleep(LOOK)
    except FileNotFoundError:
        pass
    except KeyboardInterrupt:
        tell("It goes on without you: `fieldagent update --last` tells how it ended.")
        raise
