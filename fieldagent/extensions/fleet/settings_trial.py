"""Trial of settings that arrived over the link. Root's unit does these steps, and a power failure
does no harm at any time.

    offer    the unit verifies the agent's offer: the operator's signature, this kit, a new number,
             and settings that may be set remotely and are valid together
    switch   the unit keeps the old file and puts the new file in its place
    watch    the agent must answer, be linked to the hub, and restore each channel
    back     only if the watch fails: the unit restores the old file, unless a person has changed
             the file meanwhile

Each step can be repeated from its beginning, and is on disk before the next step begins. An offer
is removed when its trial is on disk, or when the reason for its refusal is recorded.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field, replace
from pathlib import Path

from fieldagent.agent import outcomes
from fieldagent.agent.from_afar import NotForThisKit, change_settings
from fieldagent.agent.outcomes import OFFER
from fieldagent.agent.settings import Settings, get_channels, load
from fieldagent.kit import kit_health
from fieldagent.kit.kit_health import HealthConditions
from fieldagent.kit.provision import GROUP
from fieldagent.kit.root_units import lock_folder, read_offer, read_trial, remove_offer
from fieldagent.package.package import Channel
from fieldagent.system.exit_codes import ERROR, OK, REFUSED
from fieldagent.system.folder import replace_file, sync_folder
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.log_lines import print_failure
from fieldagent.system.minisign import NotSigned, parse_keys, parse_signature, verify
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.text_files import read_text_file
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_note import SettingsOffer, decode
from fieldagent.wire.settings_change import NotAChange, SettingsChange, parse_change


@dataclass(frozen=True, slots=True)
class SettingsTrial:
    number: int
    settings: str
    """Path of the settings file that is replaced."""
    channels: dict[str, str] = field(default_factory=dict)
    """Channels that must work again. Each has its state before the trial."""
    minutes: float = 15.0
    steady: float = 30.0
    phase: str = "switch"
    boots: int = 0
    why: str = ""
    """Reason for the rollback."""


class SettingsPlace:
    """Folder of root for trials of settings. Updates use the same folder. Only one change runs at a
    time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trial = folder / outcomes.SETTINGS_TRIAL
        self.new = folder / "settings-new.properties"
        self.before = folder / "settings-before.properties"
        self.number = folder / "settings-number"
        """File that contains the number of the last trial. Only higher numbers are accepted."""
        self.result = folder / outcomes.SETTINGS


def continue_trial(
    place: SettingsPlace, settings: Path, key: Path, *, minutes: float, steady: float
) -> int:
    """Complete a trial, and then process the agent's offer. If OSError is raised, the next start of
    the unit repeats the steps. Meanwhile the agent continues to run.
    """
    with lock_folder(place.folder):
        try:
            ended_trial = _run_steps(place)
            _remove_files(place)
            offer_file = load(settings).state_directory / OFFER
            if (offer := read_offer(offer_file)) is None:
                return ended_trial
            refused = _begin(place, offer, settings, key, minutes=minutes, steady=steady)
            remove_offer(offer_file)
            return REFUSED if refused else _run_steps(place)
        except OSError:
            kit_health.start_agent()
            raise


def _begin(
    place: SettingsPlace,
    offer: bytes,
    settings: Path,
    key: Path,
    *,
    minutes: float,
    steady: float,
) -> str:
    """Begin a trial and return an empty text. If the offer is refused, record the reason and return
    it.
    """
    number = 0
    try:
        offered_change = _offer(offer)
        text, signature = offered_change.text, offered_change.signature
        number = parse_change(text).number
        change = _verify(text, signature, key)
        if change.number == (last := _read_last_number(place)):
            print_failure(again := f"settings {last} were already processed: nothing is done")
            return again
        if change.number < last:
            raise NotForThisKit(f"later settings were already processed, number {last}")
        if obstacle := kit_health.find_stop_obstacle(load(settings).api_port):
            raise NotForThisKit(obstacle)
        before = read_text_file(settings)
        after, changed_pairs = change_settings(before, change, settings)
    except (NotForThisKit, NotAChange, NotSigned, InvalidSettings, UnicodeDecodeError) as wrong:
        print_failure(f"settings {number or ''} were refused, nothing was changed: {wrong}")
        outcomes.write_outcome(place.result, number, "refused", str(wrong))
        return str(wrong)
    replace_file(place.before, before.encode())
    replace_file(place.new, after.encode())
    channels = _find_required_channels(changed_pairs, by_satellite=offered_change.by_satellite)
    trial = SettingsTrial(change.number, str(settings), channels, minutes=minutes, steady=steady)
    _write(place, trial)
    return ""


def _offer(offer: bytes) -> SettingsOffer:
    try:
        note = decode(offer)
    except RemoteProtocolError as error:
        raise NotAChange(str(error)) from None
    if not isinstance(note, SettingsOffer):
        raise NotAChange("the agent's file is not an offer")
    return note


def _verify(text: str, signature: str, key: Path) -> SettingsChange:
    try:
        keys = parse_keys(read_text_file(key))
    except FileNotFoundError:
        raise NotSigned(f"{key} does not exist: put the operator's minisign key in it") from None
    verify(text.encode(), parse_signature(signature), keys)
    return parse_change(text)


def _read_last_number(place: SettingsPlace) -> int:
    try:
        return int(place.number.read_text())
    except (FileNotFoundError, ValueError):
        # The file may be missing or damaged, but an old number must not be accepted again.
        outcome = outcomes.read_offer_report(place.result)
        return 0 if outcome is None or outcome.state == "refused" else outcome.number


def _find_required_channels(new_settings: Settings, *, by_satellite: bool) -> dict[str, str]:
    """Return the channels that work now and remain configured. The link to the hub is always
    included, with one exception. If a command over satellite brought the settings and the link does
    not work, the satellite modem is included instead.
    """
    kept = get_channels(new_settings) - {Channel.CELLULAR}
    now = kit_health.fetch_working_channels(new_settings.api_port) or {}
    channels_again = {name: now[name] for name in now if name in kept}
    if by_satellite and "Cellular" not in now:
        return {"Satellite": "no service"} | channels_again
    return channels_again | {"Cellular": "ready"}


def _run_steps(place: SettingsPlace) -> int:
    while place.trial.exists():
        trial = read_trial(place.trial, SettingsTrial)
        match trial.phase:
            case "switch":
                outcomes.write_outcome(place.result, trial.number, "trial")
                _switch(place, trial)
                _write(place, replace(trial, phase="watch"))
            case "watch":
                trial = replace(trial, boots=trial.boots + 1)
                _write(place, trial)
                failure = _watch_agent(trial)
                if not failure:
                    _end_trial(place, trial)
                    return OK
                print_failure(f"settings {trial.number} are rolled back: {failure}")
                _write(place, replace(trial, phase="back", why=failure))
            case _:
                _roll_back(place, trial)
                _end_trial(place, trial)
                return ERROR
    return OK


def _switch(place: SettingsPlace, trial: SettingsTrial) -> None:
    settings = Path(trial.settings)
    replace_file(
        settings.with_name(f"{settings.name}.before"),
        place.before.read_bytes(),
        mode=0o640,
        group=GROUP,
    )
    replace_file(settings, place.new.read_bytes(), mode=0o640, group=GROUP)
    kit_health.call_systemctl("stop", kit_health.AGENT)


def _watch_agent(trial: SettingsTrial) -> str:
    conditions = HealthConditions(
        Path(trial.settings), trial.channels, minutes=trial.minutes, steady=trial.steady
    )
    try:
        return kit_health.start_watched(conditions, trial.boots)
    except InvalidSettings as wrong:
        return str(wrong)


def _roll_back(place: SettingsPlace, trial: SettingsTrial) -> None:
    settings = Path(trial.settings)
    if settings.read_bytes() == place.new.read_bytes():
        replace_file(settings, place.before.read_bytes(), mode=0o640, group=GROUP)
    else:
        print_failure(f"{settings} was changed in the meantime, and is kept")
    kit_health.call_systemctl("stop", kit_health.AGENT)
    kit_health.call_systemctl("start", "--no-block", kit_health.AGENT)


def _end_trial(place: SettingsPlace, trial: SettingsTrial) -> None:
    replace_file(place.number, str(trial.number).encode())
    outcomes.write_outcome(place.result, trial.number, "back" if trial.why else "taken", trial.why)
    # Remove the trial first, because a rollback needs the other files.
    place.trial.unlink(missing_ok=True)
    sync_folder(place.folder)
    _remove_files(place)


def _remove_files(place: SettingsPlace) -> None:
    for each in (place.new, place.before):
        each.unlink(missing_ok=True)


def _write(place: SettingsPlace, trial: SettingsTrial) -> None:
    replace_file(place.trial, json.dumps(asdict(trial)).encode())
