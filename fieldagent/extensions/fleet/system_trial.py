"""Trial of a whole system (kernel, Debian and program) in the card's other slot.

    write    the unit fetches and writes pieces while the old system runs, and continues after a
             power cut
    boot     the boot loader must try the new system once
    watch    the new system has started: its agent must answer, and restore each channel that worked
    back     only if the watch fails: the loader starts the old system, with the old journal
    end      the unit stores the result for the agent

Each step can be repeated from its beginning, and is on disk before the next step begins. The old
program does all steps, even in the new system. If the new system does not reach `watch`, the loader
returns to the old system by itself. The old system then finds the trial in state `spent`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, field, replace
from pathlib import Path

from fieldagent.agent.settings import load
from fieldagent.extensions.fleet import trial_journal
from fieldagent.extensions.fleet.fetching import ServerUnreachable, UpdateRefused, fetch_file
from fieldagent.extensions.fleet.signed_file import (
    print_progress,
    read_signed_file,
    read_trusted_keys,
)
from fieldagent.extensions.fleet.system_slots import SystemSlots
from fieldagent.extensions.fleet.trial import Place, finish_trial, send_to_hub
from fieldagent.kit import kit_health, root_units
from fieldagent.kit.kit_health import HealthConditions
from fieldagent.kit.root_units import lock_folder
from fieldagent.system.exit_codes import ERROR, OK
from fieldagent.system.folder import replace_file, sync_folder
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.log_lines import print_failure
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.signed_release import SYSTEM
from fieldagent.system.system_image import (
    PIECE,
    Read,
    SystemImage,
    SystemPiece,
    UnreadableImage,
    decode_image,
    digest,
    make_pieces_folder,
    make_reader,
    read_around,
)
from fieldagent.system.wording import describe_reason
from fieldagent.system.zstd import ZstdFailed, unpack

UNIT = "fieldagent-system.service"
PHASE_TEXTS = {
    "write": "the new system is written",
    "boot": "the machine restarts with the new system",
    "watch": "the new system is on trial",
    "back": "it does not work: the machine restarts with the previous system",
    "end": "it has ended",
}
RETRY_PAUSES_S = (30.0, 120.0, 600.0)
"""Seconds before each further attempt to fetch a piece. The last value applies to all later
attempts."""
IGNORED_STARTS_MAX = 2
"""Largest number of starts in which the loader may ignore the trial."""
NEVER_STARTED = "the system did not start, or the power failed during its trial"


@dataclass(frozen=True, slots=True)
class SystemTrial:
    version: str
    previous_version: str
    what: str
    """Path or URL of the image."""
    slot: str
    settings: str
    key: str
    channels: dict[str, str] = field(default_factory=dict)
    """Channels that worked before the trial, each with its state."""
    journal_version: int = 0
    minutes: float = 15.0
    steady: float = 30.0
    phase: str = "write"
    written: int = 0
    """Number of pieces that have been written, out of `pieces`."""
    pieces: int = 0
    starts: int = 0
    why: str = ""
    """Reason for the rollback."""


def load_trial(place: Place) -> SystemTrial:
    """Return the current trial of a system. Raises OSError."""
    return root_units.read_trial(place.system, SystemTrial)


def store_trial(place: Place, trial: SystemTrial) -> None:
    """Write the trial to disk atomically, so that a power cut cannot damage it. Raises OSError."""
    replace_file(place.system, json.dumps(asdict(trial)).encode())


def continue_trial(place: Place, slots: SystemSlots) -> int:
    """Do the remaining steps, up to the next start of the machine. If OSError, UpdateRefused or
    InvalidSettings is raised, the next start of the unit repeats the steps. Meanwhile the agent
    continues to run.
    """
    while place.system.exists() and load_trial(place).phase == "write":
        # Writing may take hours, so allow other changes of the kit meanwhile.
        store_trial(place, _write_system(place, slots))
    if place.system.exists() and (trial := load_trial(place)).phase == "boot" and not trial.starts:
        # The command that began the trial made this check too, but only before the first piece was
        # written.
        kit_health.wait_until_safe_to_stop(load(Path(trial.settings)).api_port)
    with lock_folder(place.folder):
        try:
            return _run_steps(place, slots)
        except (OSError, UpdateRefused, InvalidSettings):
            kit_health.start_agent()
            raise


def _run_steps(place: Place, slots: SystemSlots) -> int:
    while place.system.exists():
        trial = load_trial(place)
        match trial.phase, slots.find_running() == trial.slot:
            case "boot", False:
                if (trial := _boot(slots, trial)).phase == "boot":
                    store_trial(place, trial)
                    return _start_anew()
            case "boot", True:
                trial = replace(trial, phase="watch")
            case "watch", True:
                trial = _watch_agent(slots, trial)
            case "watch", False:
                trial = replace(trial, phase="back", why=trial.why or NEVER_STARTED)
            case "back", True:
                # The new system must not write to the journal any more, because the old system
                # restores it.
                slots.clear(trial.slot)
                kit_health.call_systemctl("stop", kit_health.AGENT)
                return _start_anew()
            case "back", False:
                _roll_back(slots, trial)
                trial = replace(trial, phase="end")
            case _:
                _end_trial(place, trial)
                return ERROR if trial.why else OK
        store_trial(place, trial)
    return OK


def _start_anew() -> int:
    kit_health.call_systemctl("reboot")
    return OK


def _boot(slots: SystemSlots, trial: SystemTrial) -> SystemTrial:
    """Make the boot loader try the system at the next start. Return the changed trial. Its phase is
    `back` if the boot loader has already tried the system, or if this step fails.
    """
    state = slots.get_state(trial.slot)
    if state == "spent" or trial.starts >= IGNORED_STARTS_MAX:
        return replace(trial, phase="back", why=NEVER_STARTED)
    try:
        kit_health.call_systemctl("stop", kit_health.AGENT)
        trial_journal.copy_journal(_find_state_file(trial), trial.journal_version)
        if state == "absent":
            slots.arm(trial.slot)
    except OSError as failed:
        # A full disk stays full. Without a rollback, each start of the unit would stop the agent
        # again.
        return replace(trial, phase="back", why=describe_reason(failed))
    return replace(trial, starts=trial.starts + 1)


def _watch_agent(slots: SystemSlots, trial: SystemTrial) -> SystemTrial:
    conditions = HealthConditions(
        Path(trial.settings), trial.channels, trial.version, trial.minutes, trial.steady
    )
    kit_health.wait_for_start()
    failure = kit_health.start_watched(conditions, boots=1)
    if failure:
        print_failure(f"system {trial.version} does not work: {failure}")
        return replace(trial, phase="back", why=failure)
    slots.set_default_slot(trial.slot)
    return replace(trial, phase="end")


def _roll_back(slots: SystemSlots, trial: SystemTrial) -> None:
    kit_health.call_systemctl("stop", kit_health.AGENT)
    slots.clear(trial.slot)
    lost_text = trial_journal.restore_journal(
        _find_state_file(trial), trial.journal_version, trial.version
    )
    if lost_text:
        print_failure(lost_text)
    kit_health.call_systemctl("start", "--no-block", kit_health.AGENT)
    text = f"system {trial.version} did not work here, {trial.previous_version} runs again:"
    send_to_hub(Path(trial.settings), f"{text} {trial.why}{lost_text and f'; {lost_text}'}")


def _end_trial(place: Place, trial: SystemTrial) -> None:
    finish_trial(place, asdict(trial), _find_state_file(trial))
    for each in (place.image, place.part, place.system):
        each.unlink(missing_ok=True)
    sync_folder(place.folder)


def _find_state_file(trial: SystemTrial) -> Path:
    return load(Path(trial.settings)).state_directory


def _write_system(place: Place, slots: SystemSlots) -> SystemTrial:
    """Write the system and return the changed trial. If the system is refused or cannot be written,
    the trial ends. The running system is not changed.
    """
    trial = load_trial(place)
    try:
        _write_pieces(place, slots, trial)
        slots.copy_kernel(trial.slot)
    except (UpdateRefused, OSError) as refused:
        failure = describe_reason(refused)
        print_failure(f"system {trial.version} is not taken: {failure}")
        return replace(load_trial(place), phase="end", why=failure)
    return replace(load_trial(place), phase="boot")


def _write_pieces(place: Place, slots: SystemSlots, trial: SystemTrial) -> None:
    """Write the pieces of the new system image to the trial slot. Download only the pieces that
    neither slot contains. Raises UpdateRefused if a piece is missing or wrong, and OSError if the
    disk fails.
    """
    slots.clear(trial.slot)
    try:
        image = decode_image(place.image.read_bytes())
    except UnreadableImage as wrong:
        raise UpdateRefused(f"{place.image}: {wrong}") from None
    with (
        open_descriptor(slots.get_device(slots.find_running()), os.O_RDONLY) as running_device,
        open_descriptor(slots.get_device(trial.slot), os.O_RDWR) as trial_device,
    ):
        read_here, fetched_bytes = make_reader(running_device), 0
        for number, piece in enumerate(image.pieces):
            length = image.compute_length(number)
            if digest(make_reader(trial_device)(number * PIECE, length)) != piece.content:
                content = read_here(number * PIECE, length)
                if digest(content) != piece.content:
                    content, packed = _read_piece(place, trial, image, number, read_here)
                    fetched_bytes += packed
                os.pwrite(trial_device, content, number * PIECE)
                os.fdatasync(trial_device)
            store_trial(place, replace(trial, written=number + 1))
            print_progress(f"{number + 1} of {len(image.pieces)} pieces are written")
    print_progress(f"{fetched_bytes:,} bytes were fetched for it")


def _read_piece(
    place: Place, trial: SystemTrial, image: SystemImage, number: int, read_old: Read
) -> tuple[bytes, int]:
    """Return a piece and the number of bytes that were downloaded for it. Raises UpdateRefused if
    the piece differs from the signed list.
    """
    piece, before = image.pieces[number], read_around(read_old, image.before_size, number)
    for differs in (piece.is_difference, False):
        if differs != piece.is_difference:
            piece = _fetch_complete_piece(place, trial, number)
        packed = _fetch(place, trial, piece)
        try:
            content = unpack(packed, before if piece.is_difference else None)
        except ZstdFailed as why:
            print_progress(f"piece {number + 1}: {why}")
            continue
        if digest(content) == piece.content:
            return content, len(packed)
    raise UpdateRefused(f"piece {number + 1} of {trial.what} does not match its signed checksum")


def _fetch_complete_piece(place: Place, trial: SystemTrial, number: int) -> SystemPiece:
    """Return the piece `number` of the complete image instead of the difference. Raises
    UpdateRefused if the list of the complete image is missing or invalid.
    """
    content, _ = read_signed_file(
        trial.what, SYSTEM, read_trusted_keys(Path(trial.key)), place.part
    )
    try:
        return decode_image(content).pieces[number]
    except (UnreadableImage, IndexError) as wrong:
        raise UpdateRefused(f"{trial.what}: {wrong}") from None


def _fetch(place: Place, trial: SystemTrial, piece: SystemPiece) -> bytes:
    """Fetch a piece. If the server cannot be reached, wait for it without a time limit. Raises
    UpdateRefused if the file is missing at the server, or was changed.
    """
    name = f"{make_pieces_folder(trial.what)}/{piece.file}"
    failed_tries = 0
    while True:
        try:
            file = fetch_file(name, place.part)
        except UpdateRefused as why:
            if not isinstance(why, ServerUnreachable) and not _is_unplugged(name):
                raise
            pause = RETRY_PAUSES_S[min(failed_tries, len(RETRY_PAUSES_S) - 1)]
            print_failure(f"{why}; it is tried again in {pause:g} s")
            time.sleep(pause)
            failed_tries += 1
            continue
        if digest(file.content) == piece.file:
            return file.content
        # If the download has continued an earlier part, a power failure may have damaged that part.
        # Then download the whole file.
        if not file.is_continued:
            raise UpdateRefused(
                f"{name} is not the file that was signed: it was changed, or cut short"
            )


def _is_unplugged(name: str) -> bool:
    """Return True if the file is on a removable medium, such as a USB stick, that is not plugged
    in.
    """
    return name.startswith("/") and not Path(name).exists()


@contextmanager
def open_descriptor(path: Path, flags: int) -> Iterator[int]:
    """Open a file descriptor within the context. Raises OSError."""
    file = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)
