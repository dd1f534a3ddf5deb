"""`fieldagent update NAME.system`: writes a signed system beside the running system and tries it
once. If the new system fails, the old system runs again.

This module verifies the signature and checks that the system is for this card. `system_trial` does
all further steps in a separate systemd unit.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from fieldagent import __version__
from fieldagent.agent.settings import load
from fieldagent.extensions.fleet import system_trial, trial_journal
from fieldagent.extensions.fleet.fetching import UpdateRefused, is_served
from fieldagent.extensions.fleet.settings_trial import SettingsPlace
from fieldagent.extensions.fleet.signed_file import (
    print_progress,
    read_signed_file,
    read_trusted_keys,
)
from fieldagent.extensions.fleet.system_slots import SystemSlots
from fieldagent.extensions.fleet.system_trial import SystemTrial
from fieldagent.extensions.fleet.trial import Place
from fieldagent.extensions.fleet.update_order import UpdateOrder
from fieldagent.extensions.fleet.version_order import check_newer
from fieldagent.kit import kit_health, root_units
from fieldagent.system.exit_codes import TAKEN
from fieldagent.system.folder import replace_file, sync_folder
from fieldagent.system.minisign import TrustedKey
from fieldagent.system.progress import Progress
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.signed_release import SYSTEM
from fieldagent.system.system_image import (
    SystemImage,
    SystemName,
    UnreadableImage,
    decode_image,
    encode_image,
    make_delta_name,
)

PROGRESS_CHECK_S = 0.5


def begin_system_update(order: UpdateOrder, place: Place, slots: SystemSlots) -> SystemTrial:
    """Begin to write and try a system. If another system is still being written, the new system
    replaces it after it has been accepted. Raises UpdateRefused if the system is refused.
    """
    now, slot = slots.read_name(), slots.find_other()
    _check_nothing_else(place)
    root_units.make_folder(place.folder)
    is_under_way = place.system.exists()
    if is_under_way:
        # Stop the other download, because both use the same file.
        kit_health.call_systemctl("stop", system_trial.UNIT)
    try:
        # The other trial may have advanced before it was stopped, so check again.
        _check_nothing_else(place)
        image, trial = _prepare_trial(order, place, slots, now, slot)
    except BaseException:
        # Restart the other download even if the user interrupts the command.
        if is_under_way:
            _start_unit()
        raise
    # From here to the last line, no trial is on disk, so that a power failure cannot mix two
    # systems.
    place.system.unlink(missing_ok=True)
    sync_folder(place.folder)
    # Copy the current program, which does all further steps because it is known to work.
    replace_file(place.previous, order.program.read_bytes(), mode=0o644)
    replace_file(place.image, encode_image(image))
    place.result.unlink(missing_ok=True)
    system_trial.store_trial(place, trial)
    if not _start_unit():
        place.system.unlink()
        raise UpdateRefused(f"{system_trial.UNIT} cannot be started: its message is above")
    print_progress(
        f"{now.version} → {trial.version}: {system_trial.UNIT} writes it, starts it, and rolls"
        " back if it does not work"
    )
    return trial


def _start_unit() -> bool:
    start = ["systemctl", "start", "--no-block", system_trial.UNIT]
    return subprocess.run(start, stdin=subprocess.DEVNULL).returncode == 0


def _prepare_trial(
    order: UpdateOrder, place: Place, slots: SystemSlots, now: SystemName, slot: str
) -> tuple[SystemImage, SystemTrial]:
    """Return the image and its trial. Raises UpdateRefused if the image is not signed, not newer,
    or for another board.
    """
    address, keys = order.what, read_trusted_keys(order.key)
    image = _read_image(address, keys, place, now.id)
    if image.name.board != now.board:
        raise UpdateRefused(f"{address} is for {image.name.board}, and this is {now.board}")
    for version in (now.version, __version__):
        # The program on the card may have been updated separately, so its version counts too.
        check_newer(version, image.name.version, older_too=order.older)
    with system_trial.open_descriptor(slots.get_device(slot), os.O_RDONLY) as device:
        capacity = os.lseek(device, 0, os.SEEK_END)
    if image.size > capacity:
        raise UpdateRefused(
            f"{address} has {image.size:,} bytes, and this card has room for {capacity:,}"
        )
    try:
        settings = load(order.settings)
    except InvalidSettings as wrong:
        raise UpdateRefused(f"{wrong}\nCorrect the settings first") from None
    if obstacle := kit_health.find_stop_obstacle(settings.api_port):
        raise UpdateRefused(obstacle)
    return image, SystemTrial(
        version=image.name.version,
        previous_version=now.version,
        what=_make_absolute(address),
        slot=slot,
        settings=str(order.settings),
        key=str(order.key),
        channels=kit_health.fetch_working_channels(settings.api_port) or {},
        journal_version=trial_journal.read_version(settings.state_directory),
        minutes=order.minutes,
        steady=order.steady,
        pieces=len(image.pieces),
    )


def _make_absolute(source: str) -> str:
    return source if source.startswith(("https://", "http://")) else str(Path(source).absolute())


def _check_nothing_else(place: Place) -> None:
    """Check that no other change is on trial. Raises UpdateRefused if another change is on
    trial.
    """
    if place.trial.exists() or SettingsPlace(place.folder).trial.exists():
        raise UpdateRefused(
            "another change is on trial: `fieldagent update --last` shows it", TAKEN
        )
    if not place.system.exists():
        return
    running_trial = system_trial.load_trial(place)
    if running_trial.phase != "write":
        raise UpdateRefused(
            f"system {running_trial.version} is on trial: `fieldagent update --last` shows it",
            TAKEN,
        )


def _read_image(source: str, keys: list[TrustedKey], place: Place, now: str) -> SystemImage:
    """Return the signed list of the image's pieces. If the builder provides a list for the running
    system, whose pieces are differences, return that list. Raises UpdateRefused if a list is
    invalid.
    """
    delta = make_delta_name(source, now)
    name = delta if is_served(f"{delta}.minisig") else source
    content, release = read_signed_file(name, SYSTEM, keys, place.part)
    try:
        image = decode_image(content)
    except UnreadableImage as wrong:
        raise UpdateRefused(f"{name}: {wrong}") from None
    if image.name.version != release.version:
        raise UpdateRefused(f"{name} is {image.name.version}, and was signed as {release.version}")
    return image


def follow_trial(place: Place) -> None:
    """Print the progress of the system update until its systemd unit reboots the machine or the
    trial ends.
    """
    phase = ""
    try:
        with Progress("writing", "pieces") as progress:
            while place.system.exists():
                running_trial = system_trial.load_trial(place)
                if running_trial.phase != phase:
                    print_progress(system_trial.PHASE_TEXTS[running_trial.phase])
                phase = running_trial.phase
                if phase == "write":
                    progress.show(running_trial.written, running_trial.pieces)
                time.sleep(PROGRESS_CHECK_S)
    except FileNotFoundError:
        pass
    except KeyboardInterrupt:
        print_progress(
            "It continues in the background: see `fieldagent update --last` for the result."
        )
        raise
