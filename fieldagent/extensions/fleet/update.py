"""`fieldagent update`: replaces this program by a signed program, and rolls back if the new program
fails.

This module fetches and verifies the program, and checks that the program accepts the kit's
settings. It changes nothing that runs. `trial.py` does all further steps in a separate systemd
unit, which continues when this command or the user's connection ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fieldagent.agent.settings import load
from fieldagent.extensions.fleet import debian_packages, system_trial, trial, trial_journal
from fieldagent.extensions.fleet.debian_packages import PackageMissing
from fieldagent.extensions.fleet.fetching import ServerUnreachable, UpdateRefused, is_served
from fieldagent.extensions.fleet.settings_trial import SettingsPlace
from fieldagent.extensions.fleet.signed_file import (
    print_progress,
    read_signed_file,
    read_trusted_keys,
    verify_release,
)
from fieldagent.extensions.fleet.trial import Place, Trial
from fieldagent.extensions.fleet.update_order import UpdateOrder
from fieldagent.extensions.fleet.version_order import check_newer
from fieldagent.kit import kit_health, root_units
from fieldagent.system.exit_codes import ERROR, OK, TAKEN
from fieldagent.system.folder import replace_file
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.log_lines import print_failure
from fieldagent.system.minisign import NotSigned, TrustedKey
from fieldagent.system.program_delta import (
    NoDelta,
    apply_delta,
    get_contents,
    make_delta_name,
    rebuild_program,
)
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.signed_release import DELTA, PROGRAM, Release
from fieldagent.system.terminal import escape_lines
from fieldagent.wire.kit_note import ProgramOffer
from fieldagent.wire.signed_delta import SignedDelta

START_TIMEOUT_S = 120.0
"""Seconds within which the new program must print its version and check the kit."""
CHECK_INTERVAL_S = 0.5
"""Seconds between two checks of the progress."""


def begin_update(
    order: UpdateOrder,
    place: Place,
    offer: ProgramOffer | None = None,
    sent_delta: SignedDelta | None = None,
) -> Trial:
    """Begin an update and return its trial. `offer` is the hub's offer. `sent_delta` is the delta
    that the hub sent with the offer instead of a URL. Raises UpdateRefused if the program is
    refused, or if another change is on trial.
    """
    if place.trial.exists():
        version = trial.load_trial(place).version
        raise UpdateRefused(
            f"an update to {version} is in progress: `fieldagent update --last` shows it", TAKEN
        )
    if place.system.exists():
        raise UpdateRefused(
            "a system update is in progress: `fieldagent update --last` shows it", TAKEN
        )
    if SettingsPlace(place.folder).trial.exists():
        raise UpdateRefused(
            "settings from the hub are on trial: `fieldagent settings` shows them", TAKEN
        )
    root_units.make_folder(place.folder)
    programs = _find_programs(order, place, sent_delta)
    # Make the file readable, because each `check` command runs as the agent's user.
    replace_file(place.new, programs.new, mode=0o644)
    replace_file(place.previous, programs.now, mode=0o644)
    now, next_ = _read_version(place.previous), _read_version(place.new)
    if offer is not None and offer.version != next_:
        raise UpdateRefused(f"{programs.source} is {next_}, and {offer.version} was offered")
    if programs.signed_as not in ("", next_):
        raise UpdateRefused(f"{programs.source} is {next_}, and was signed as {programs.signed_as}")
    check_newer(now, next_, older_too=order.older)
    faults = [each for each in _find_faults(place.new, order.settings) if each]
    known_faults = set(_find_faults(place.previous, order.settings)) if faults else set()
    if new := [each for each in faults if each not in known_faults]:
        raise UpdateRefused(f"{next_} finds faults that {now} does not:\n" + "\n".join(new))
    try:
        settings = load(order.settings)
    except InvalidSettings as wrong:
        raise UpdateRefused(f"{wrong}\nCorrect the settings first") from None
    if obstacle := kit_health.find_stop_obstacle(settings.api_port):
        raise UpdateRefused(obstacle)
    offered_trial = Trial(
        version=next_,
        previous_version=now,
        program=str(order.program),
        settings=str(order.settings),
        channels=_fetch_channels(settings.api_port),
        journal_version=trial_journal.read_version(settings.state_directory),
        minutes=order.minutes,
        steady=order.steady,
        offer=0 if offer is None else offer.number,
        package=programs.package,
        previous_package=programs.previous_package,
    )
    place.result.unlink(missing_ok=True)
    trial.store_trial(place, offered_trial)
    _start_unit(place)
    print_progress(f"{now} → {next_}: {trial.UNIT} installs it, and rolls back if it does not work")
    return offered_trial


def _start_unit(place: Place) -> None:
    start = ["systemctl", "start", "--no-block", trial.UNIT]
    if subprocess.run(start, stdin=subprocess.DEVNULL).returncode != 0:
        place.trial.unlink()
        raise UpdateRefused(
            f"{trial.UNIT} cannot be started: run systemd/install of this version again,"
            " or `sudo apt install --reinstall fieldagent`"
        )


class Programs(NamedTuple):
    """The old and the new program, each as one file that Python can run."""

    source: str
    """Source of the new program: a file, a URL, or a version of packages."""
    new: bytes
    now: bytes
    package: str = ""
    """Version of the Debian packages with the new program; empty if the program is a file."""
    previous_package: str = ""
    signed_as: str = ""
    """Version in the signature. Empty for Debian packages, because apt verifies the list of
    packages."""


def _find_programs(order: UpdateOrder, place: Place, sent_delta: SignedDelta | None) -> Programs:
    program = order.program
    if program.is_file() and sent_delta is not None:
        installed = program.read_bytes()
        new, version = _build_from_delta(sent_delta, installed, order.key)
        return Programs(order.what or "the offered program", new, installed, signed_as=version)
    if program.is_file():
        address = order.what or load(order.settings).update_address
        if not address:
            raise UpdateRefused(
                "name the program, a file or an address: `fieldagent update FILE|URL`"
                " (or set update-address)"
            )
        installed = program.read_bytes()
        new, version = _verify_program(address, installed, order.key, place)
        return Programs(address, new, installed, signed_as=version)
    if not (program.parent / "__main__.py").exists():
        raise UpdateRefused(f"{program} is not there: `sudo systemd/install` installs the program")
    try:
        return _read_packaged_programs(order.what, place.packages)
    except PackageMissing as missing:
        raise UpdateRefused(str(missing)) from None


def _read_packaged_programs(version: str, folder: Path) -> Programs:
    """Return the programs in the packages. Raises PackageMissing if a package is missing or cannot
    be installed.
    """
    if version and ("/" in version or version.endswith((".deb", ".pyz"))):
        raise PackageMissing(
            "fieldagent is installed as Debian packages, which may only come from apt's"
            " repositories: name a version, or nothing (`build/repository` makes a repository,"
            " also on a USB stick)"
        )
    now = debian_packages.read_installed_version()
    next_ = version or debian_packages.find_newest_version()
    if not version and next_ == now:
        raise PackageMissing(
            f"apt has nothing newer than {now}: `sudo apt update` fetches its lists"
        )
    debian_packages.fetch(folder, next_)
    try:
        debian_packages.fetch(folder, now)
    except PackageMissing as missing:
        raise PackageMissing(
            f"{missing}. The rollback needs them: put them into {folder}, or"
            f" `sudo apt install {debian_packages.PACKAGE_NAMES[-1]}` updates without a rollback"
        ) from None
    debian_packages.remove_others(folder, now, next_)
    debian_packages.check_changes_nothing_else(folder, next_)
    new, before = (debian_packages.read_content(folder, each) for each in (next_, now))
    if debian_packages.UNIT not in new:
        raise PackageMissing(f"{next_} has no {trial.UNIT}, which could roll back to {now}")
    packed = debian_packages.pack_zipapp
    return Programs(next_, packed(new), packed(before), next_, now)


def _verify_program(source: str, now: bytes, key: Path, place: Place) -> tuple[bytes, str]:
    """Return the program and its signed version. If the builder provides a delta from the current
    program `now`, use the delta. Raises UpdateRefused if the file or its signature is missing or
    invalid.
    """
    keys = read_trusted_keys(key)
    delta = _find_by_delta(source, now, keys, place)
    content, release = delta or read_signed_file(source, PROGRAM, keys, place.part)
    return content, release.version


def _build_from_delta(sent_delta: SignedDelta, now: bytes, key: Path) -> tuple[bytes, str]:
    """Return the program that a received delta creates from the current program `now`, and its
    version. Raises UpdateRefused if the delta is not signed by a trusted key, or does not fit.
    """
    signature = sent_delta.signature.format_signature("by a command")
    try:
        release = verify_release(sent_delta.delta, signature, DELTA, read_trusted_keys(key))
        return rebuild_program(apply_delta(sent_delta.delta, get_contents(now))), release.version
    except (NotSigned, NoDelta) as wrong:
        raise UpdateRefused(f"the delta from the hub: {wrong}") from None


def _find_by_delta(
    source: str, now: bytes, keys: Sequence[TrustedKey], place: Place
) -> tuple[bytes, Release] | None:
    """Return the program that a delta at the source creates. Return None if there is no usable
    delta for the current program. The caller then uses the complete program. Raises
    ServerUnreachable.
    """
    try:
        running_contents = get_contents(now)
        delta_name = make_delta_name(source, running_contents)
        if not is_served(f"{delta_name}.minisig"):
            return None
        delta, release = read_signed_file(delta_name, DELTA, keys, place.part)
        program = rebuild_program(apply_delta(delta, running_contents))
    except ServerUnreachable:
        raise
    except (NoDelta, UpdateRefused) as why:
        print_progress(f"the whole program is fetched, because the delta cannot be used: {why}")
        return None
    print_progress(f"a delta of {len(delta):,} bytes was applied to the installed program")
    return program, release


def _read_version(program: Path) -> str:
    result = _run(program, "--version")
    version_words = result.stdout.split()
    if result.returncode != 0 or len(version_words) != 2 or version_words[0] != "fieldagent":
        last = (result.stderr.strip().splitlines() or ["it is not fieldagent"])[-1]
        raise UpdateRefused(f"the new program does not start here: {last}")
    return version_words[1]


def _find_faults(program: Path, settings: Path) -> list[str]:
    result = _run(program, "check", "--json", "--config", str(settings))
    try:
        findings = json.loads(result.stdout)["findings"]
        return [str(each["text"]) for each in findings if not each["good"]]
    except (ValueError, KeyError, TypeError):
        last = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
        return [f"its check of the settings fails: {last}"]


def _run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [sys.executable, program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise UpdateRefused(
            f"{program} {arguments[0]} did not end within {START_TIMEOUT_S:g} s"
        ) from None


def _fetch_channels(port: int) -> dict[str, str]:
    """Return the state of each channel that works. The result is empty if no agent is running."""
    channels = kit_health.fetch_working_channels(port)
    if channels is None:
        print_progress("no agent runs: the test shows whether the new one does")
    return channels or {}


def follow_update(place: Place, offered: Trial, *, as_json: bool) -> int:
    """Print the progress until the unit has ended, and return the exit code. If the unit takes too
    long, stop and return ERROR. If this command ends, the unit continues.
    """
    until = time.monotonic() + 60 * offered.minutes + 2 * kit_health.SILENCE_S
    phase = ""
    try:
        # The unit writes the result before it removes the trial, because power may fail in between.
        # So there may be both.
        while place.trial.exists() or not place.result.exists():
            if time.monotonic() > until:
                print_failure(f"{trial.UNIT} has not ended: `journalctl -u fieldagent-update`")
                return ERROR
            now = trial.read_phase(place) or phase
            if now != phase:
                print_progress(trial.PHASE_TEXTS[now])
            phase = now
            time.sleep(CHECK_INTERVAL_S)
    except KeyboardInterrupt:
        print_progress(
            "It continues in the background: see `fieldagent update --last` for the result."
        )
        raise
    return show_last(place, as_json=as_json)


def show_last(place: Place, *, as_json: bool) -> int:
    """Print the result of the last update, or the state of the current update. Return an exit
    code.
    """
    if as_json:
        return _print_last_as_json(place)
    _, now = _read_phase(place)
    if now:
        print(f"under way: {now}")
        return OK
    if (result := _read_result(place)) is None:
        print("nothing was updated yet")
        return OK
    if not result["why"]:
        print(f"{result['version']} runs (before: {result['previous_version']})")
        return OK
    outcome = f"did not work, and {result['previous_version']} runs again"
    if not result.get("starts", 1):
        outcome = f"was not started, and {result['previous_version']} continues"
    print_failure(f"{result['version']} {outcome}: {escape_lines(result['why'])}")
    return ERROR


def _read_phase(place: Place) -> tuple[str, str]:
    """Return the phase and its text. Both are empty if there is no trial."""
    try:
        phase = system_trial.load_trial(place).phase
    except FileNotFoundError:
        phase = trial.read_phase(place)
        return phase, trial.PHASE_TEXTS.get(phase, "")
    return phase, system_trial.PHASE_TEXTS[phase]


def _read_result(place: Place) -> dict[str, Any] | None:
    """Return the result, or None if the result is missing or cannot be read."""
    try:
        result: dict[str, Any] = json.loads(place.result.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return result


def _print_last_as_json(place: Place) -> int:
    """Print the result as JSON. It contains `phase` during a trial, and `why` after a rollback."""
    report = {"phase": _read_phase(place)[0] or None, "version": None, "before": None, "why": None}
    if not report["phase"] and (result := _read_result(place)) is not None:
        report |= {
            "version": result["version"],
            "before": result["previous_version"],
            "why": result["why"] or None,
        }
    print(json.dumps(report))
    return ERROR if report["why"] else OK
