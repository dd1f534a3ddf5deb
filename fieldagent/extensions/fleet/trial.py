"""Trial of a new program. This part of an update continues after the end of the command, and after
a power failure.

    switch   the agent stops, its journal is copied, and the new program is put in place
    watch    the agent must answer, and restore each channel that worked before
    back     only if the watch fails: the old program is restored. If the new program has upgraded
             the journal, the old journal is restored too, with everything accepted meanwhile
    end      the result is stored for the agent, and the files for a rollback are removed

Each step can be repeated from its beginning, and is on disk before the next step begins. The old
program does all steps, because it is known to work. This module sends nothing except the reason for
a rollback, which costs no credit.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from fieldagent.agent import outcomes
from fieldagent.agent.settings import load
from fieldagent.extensions.fleet import debian_packages, trial_journal
from fieldagent.extensions.fleet.debian_packages import NotInstalled
from fieldagent.kit import kit_health, root_units
from fieldagent.kit.kit_health import HealthConditions
from fieldagent.kit.local_http import CallFailed, call
from fieldagent.kit.root_units import lock_folder
from fieldagent.system.exit_codes import ERROR, OK
from fieldagent.system.folder import replace_file, sync_folder
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.log_lines import print_failure
from fieldagent.system.properties import InvalidSettings

UNIT = "fieldagent-update.service"
PHASE_TEXTS = {
    "switch": "the new program is put in place",
    "watch": "the new program is on trial",
    "back": "it does not work: the previous program is restored",
    "end": "it has ended: the files for the rollback are removed",
}


class Place:
    """Folder of an update. Only root can write in it. The agent reads the result and reports it to
    the hub.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.new = folder / "new.pyz"
        self.previous = folder / "previous.pyz"
        """Old program, which does the steps of the trial."""
        self.part = folder / "part"
        """Part of an interrupted download."""
        self.packages = folder / "packages"
        """Packages of both versions, if the program is installed as Debian packages."""
        self.trial = folder / outcomes.UPDATE_TRIAL
        self.system = folder / outcomes.SYSTEM_TRIAL
        """Trial of a whole system. `image` contains the list of its pieces."""
        self.image = folder / "system.image"
        self.result = folder / outcomes.UPDATE
        self.offered = folder / outcomes.PROGRAM
        """Result of the hub's last offer."""

    def record_result(self, offer: int, state: str, reason: str = "") -> None:
        """Record the result of the hub's offer. For a manual update, do nothing."""
        if offer:
            outcomes.write_outcome(self.offered, offer, state, reason)


@dataclass(frozen=True, slots=True)
class Trial:
    version: str
    previous_version: str
    program: str
    """File to replace if the program is not installed as packages."""
    settings: str
    channels: dict[str, str] = field(default_factory=dict)
    """Channels that worked before the trial, each with its state."""
    journal_version: int = 0
    """Version of the journal before the update; 0 if there was no journal."""
    minutes: float = 15.0
    """Minutes within which all channels must work again."""
    steady: float = 30.0
    """Seconds for which the agent must have run without a restart."""
    phase: str = "switch"
    boots: int = 0
    why: str = ""
    """Reason for the rollback."""
    offer: int = 0
    """Number of the hub's offer; 0 for a manual update."""
    package: str = ""
    """Version of the packages to install; empty if the update is a file."""
    previous_package: str = ""


def load_trial(place: Place) -> Trial:
    """Return the current trial. Raises OSError."""
    return root_units.read_trial(place.trial, Trial)


def store_trial(place: Place, trial: Trial) -> None:
    """Write the trial to disk atomically, so that a power cut cannot damage it. Raises OSError."""
    replace_file(place.trial, json.dumps(asdict(trial)).encode())


def read_phase(place: Place) -> str:
    """Return the phase of the trial, or an empty text if there is no trial."""
    try:
        return load_trial(place).phase
    except FileNotFoundError:
        return ""


def continue_trial(place: Place) -> int:
    """Do the remaining steps. If OSError or InvalidSettings is raised, the next start of the unit
    repeats the steps. Meanwhile the agent continues to run with the current program.
    """
    with lock_folder(place.folder):
        try:
            return _run_steps(place)
        except (OSError, InvalidSettings):
            kit_health.start_agent()
            raise


def _run_steps(place: Place) -> int:
    while place.trial.exists():
        trial = load_trial(place)
        match trial.phase:
            case "switch":
                place.record_result(trial.offer, "trial")
                store_trial(place, _switch(place, trial))
            case "watch":
                trial = replace(trial, boots=trial.boots + 1)
                store_trial(place, trial)
                failure = kit_health.start_watched(_read_wanted(trial), trial.boots)
                if failure:
                    print_failure(f"{trial.version} does not work: {failure}")
                store_trial(place, replace(trial, phase="back" if failure else "end", why=failure))
            case "back":
                _roll_back(place, trial)
                store_trial(place, replace(trial, phase="end"))
            case _:
                _end_trial(place, trial)
                return ERROR if trial.why else OK
    return OK


def _read_wanted(trial: Trial) -> HealthConditions:
    return HealthConditions(
        Path(trial.settings), trial.channels, trial.version, trial.minutes, trial.steady
    )


def _switch(place: Place, trial: Trial) -> Trial:
    kit_health.call_systemctl("stop", kit_health.AGENT)
    trial_journal.copy_journal(_find_state_file(trial), trial.journal_version)
    try:
        _install_program(place, trial, place.new, trial.package)
    except NotInstalled as failed:
        return replace(trial, phase="back", why=str(failed))
    return replace(trial, phase="watch")


def _install_program(place: Place, trial: Trial, program: Path, package: str) -> None:
    if package:
        debian_packages.install(place.packages, package)
    else:
        replace_file(Path(trial.program), program.read_bytes(), mode=0o644)


def _roll_back(place: Place, trial: Trial) -> None:
    kit_health.call_systemctl("stop", kit_health.AGENT)
    _install_program(place, trial, place.previous, trial.previous_package)
    lost_text = trial_journal.restore_journal(
        _find_state_file(trial), trial.journal_version, trial.version
    )
    if lost_text:
        print_failure(lost_text)
    kit_health.call_systemctl("start", "--no-block", kit_health.AGENT)
    text = f"fieldagent {trial.version} did not work here, {trial.previous_version} runs again:"
    send_to_hub(Path(trial.settings), f"{text} {trial.why}{lost_text and f'; {lost_text}'}")


def send_to_hub(settings: Path, text: str) -> None:
    """Send the hub a message from this kit, only over IP. The message waits in the queue like any
    other message. If no agent responds, or the kit has no IP link, send nothing.
    """
    started_at = time.monotonic()
    while (status := kit_health.fetch_status(settings)) is None:
        if time.monotonic() - started_at > kit_health.SILENCE_S:
            print_failure(f"no agent answers: `journalctl -u {kit_health.AGENT}`")
            return
        time.sleep(kit_health.CHECK_INTERVAL_S)
    if not status["channels"]["Cellular"]["configured"]:
        return
    body = {"message": {"content": text}, "channels": ["Cellular"]}
    port = load(settings).api_port
    try:
        call(port, "POST", "/api/package/async", body, timeout=kit_health.ANSWER_TIMEOUT_S)
    except CallFailed as failed:
        print_failure(f"the hub was not notified: {failed}")


def finish_trial(place: Place, result: dict[str, Any], state: Path) -> None:
    """Write the result for the agent, and remove the files for a rollback. Raises OSError."""
    replace_file(place.result, json.dumps(result).encode(), mode=0o644)
    kit_health.restart_others()
    trial_journal.forget(state)


def _end_trial(place: Place, trial: Trial) -> None:
    finish_trial(place, asdict(trial), _find_state_file(trial))
    place.record_result(trial.offer, "back" if trial.why else "taken", trial.why)
    place.new.unlink(missing_ok=True)
    place.trial.unlink()
    sync_folder(place.folder)


def _find_state_file(trial: Trial) -> Path:
    return load(Path(trial.settings)).state_directory
