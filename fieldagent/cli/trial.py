"""A new program is on trial: the part of an update that outlives whoever ordered it, and the power.

    switch   the agent stops, its journal is copied, the new program is put in place
    watch    the agent must answer, and bring up each channel that worked before
    back     only where it does not: the program before, and its journal where the new one's is
             of a later version, which that cannot read

Each step can be taken again from its beginning, and is on disk before the next begins. The program
before takes them all: it is known to work. Nothing here sends anything, but for the reason of a way
back, which costs no credit.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from dataclasses import asdict, field, replace
from pathlib import Path

from fieldagent.agent import outcomes
from fieldagent.agent.settings import load
from fieldagent.cli import debian_packages, kit_health
from fieldagent.cli.debian_packages import NotInstalled
from fieldagent.cli.exit_codes import ERROR, OK
from fieldagent.cli.kit_health import Wanted
from fieldagent.cli.local_http import CallFailed, call
from fieldagent.cli.log_lines import complain
from fieldagent.cli.root_units import alone
from fieldagent.store.sqlite import copy_whole
from fieldagent.system.folder import put_file, sync_folder
from fieldagent.system.lazy_dataclass import dataclass

UNIT = "fieldagent-update.service"
IN_WORDS = {
    "switch": "the new program is put in place",
    "watch": "the new program is on trial",
    "back": "it does not work: the program before is put back",
}


class Place:
    """The folder of an update: root's alone. The agent reads how it ended, for the hub."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.new = folder / "new.pyz"
        self.previous = folder / "previous.pyz"
        """Which takes the steps."""
        self.packages = folder / "packages"
        """Of both versions, where the program came as Debian packages."""
        self.trial = folder / "trial.json"
        self.result = folder / outcomes.UPDATE
        self.offered = folder / outcomes.PROGRAM
        """What came of what the hub has offered."""
        self.journal = folder / "journal.sqlite3"

    def tell(self, offer: int, state: str, why: str = "") -> None:
        """Of what the hub has offered; nothing of what came by hand."""
        if offer:
            outcomes.leave(self.offered, offer, state, why)


@dataclass(frozen=True, slots=True)
class Trial:
    version: str
    previous_version: str
    program: str
    """The file that is put in place, where no packages are installed."""
    settings: str
    channels: dict[str, str] = field(default_factory=dict)
    """Those that worked, each with its state."""
    journal_version: int = 0
    """Of the journal before; 0 where there was none."""
    minutes: float = 15.0
    """In which all must work again."""
    steady: float = 30.0
    """Seconds that the agent must have run in one piece."""
    phase: str = "switch"
    boots: int = 0
    why: str = ""
    """Why it goes back."""
    offer: int = 0
    """Number of the hub's; 0 where none of its brought this."""
    package: str = ""
    """Version of the packages that are installed; empty where a file is put in place."""
    previous_package: str = ""


def read(place: Place) -> Trial:
    return Trial(**json.loads(place.trial.read_bytes()))


def write(place: Place, trial: Trial) -> None:
    put_file(place.trial, json.dumps(asdict(trial)).encode())


def phase(place: Place) -> str:
    """Empty where nothing is on trial."""
    try:
        return read(place).phase
    except FileNotFoundError:
        return ""


def go_on(place: Place) -> int:
    """Take the steps that are left. Raises OSError: at the next start they are taken again, and the
    agent goes on meanwhile, with the program that is there."""
    with alone(place.folder):
        try:
            if not place.trial.exists():
                _clean(place)
            return _take_steps(place)
        except OSError:
            kit_health.leave_at_work()
            raise


def _take_steps(place: Place) -> int:
    while place.trial.exists():
        trial = read(place)
        match trial.phase:
            case "switch":
                place.tell(trial.offer, "trial")
                write(place, _switched(place, trial))
            case "watch":
                trial = replace(trial, boots=trial.boots + 1)
                write(place, trial)
                why = kit_health.watched(_wanted(trial), trial.boots)
                if not why:
                    _end(place, trial)
                    return OK
                complain(f"{trial.version} does not work: {why}")
                write(place, replace(trial, phase="back", why=why))
            case _:
                _go_back(place, trial)
                _end(place, trial)
                return ERROR
    return OK


def _wanted(trial: Trial) -> Wanted:
    return Wanted(Path(trial.settings), trial.channels, trial.version, trial.minutes, trial.steady)


def _switched(place: Place, trial: Trial) -> Trial:
    kit_health.systemctl("stop", kit_health.AGENT)
    journal = _journal(trial)
    # Where power failed below, the new program may have begun: the copy of before is kept.
    if journal.exists() and journal_version(journal.parent) == trial.journal_version:
        _copy(journal, place.journal)
    try:
        _put(place, trial, place.new, trial.package)
    except NotInstalled as failed:
        return replace(trial, phase="back", why=str(failed))
    return replace(trial, phase="watch")


def _put(place: Place, trial: Trial, program: Path, package: str) -> None:
    if package:
        debian_packages.install(place.packages, package)
    else:
        put_file(Path(trial.program), program.read_bytes(), mode=0o644)


def _go_back(place: Place, trial: Trial) -> None:
    kit_health.systemctl("stop", kit_health.AGENT)
    _put(place, trial, place.previous, trial.previous_package)
    journal = _journal(trial)
    lost = ""
    if trial.journal_version and journal_version(journal.parent) > trial.journal_version:
        kept = _restore(place.journal, journal, trial)
        lost = f"; what was accepted meanwhile is in {kept}"
    kit_health.systemctl("start", "--no-block", kit_health.AGENT)
    _tell_the_hub(trial, lost)


def _tell_the_hub(trial: Trial, lost: str) -> None:
    """As a message of this kit's, over IP alone; it waits there like any other."""
    began = time.monotonic()
    while (status := kit_health.status(Path(trial.settings))) is None:
        if time.monotonic() - began > kit_health.SILENT:
            complain(
                f"{trial.previous_version} does not answer: `journalctl -u {kit_health.AGENT}`"
            )
            return
        time.sleep(kit_health.LOOK)
    if not status["channels"]["Cellular"]["configured"]:
        return
    text = f"fieldagent {trial.version} did not work here, {trial.previous_version} runs again:"
    body = {"message": {"content": f"{text} {trial.why}{lost}"}, "channels": ["Cellular"]}
    port = load(Path(trial.settings)).api_port
    try:
        call(port, "POST", "/api/package/async", body, timeout=kit_health.ANSWERS)
    except CallFailed as failed:
        complain(f"the hub was not told: {failed}")


def _end(place: Place, trial: Trial) -> None:
    put_file(place.result, json.dumps(asdict(trial)).encode(), mode=0o644)
    place.tell(trial.offer, "back" if trial.why else "taken", trial.why)
    # First, as the way back needs the others for as long as it is there.
    place.trial.unlink(missing_ok=True)
    sync_folder(place.folder)
    _clean(place)


def _clean(place: Place) -> None:
    for each in (place.new, place.journal):
        each.unlink(missing_ok=True)


def _journal(trial: Trial) -> Path:
    return load(Path(trial.settings)).state_directory / "journal.sqlite3"


def journal_version(folder: Path) -> int:
    """0 where there is none. Raises OSError."""
    journal = folder / "journal.sqlite3"
    if not journal.exists():
        return 0
    with closing(_opened(journal)) as reader:
        try:
            ((version,),) = reader.execute("PRAGMA user_version")
        except sqlite3.Error as error:
            raise OSError(f"{journal}: {error}") from None
    return int(version)


def _opened(journal: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{journal.absolute().as_uri()}?mode=rw", uri=True)


def _copy(journal: Path, target: Path) -> None:
    """By SQLite, with what is still in its log. Raises OSError."""
    made = target.with_name(f"{target.name}.new")
    try:
        with closing(_opened(journal)) as source:
            copy_whole(source, made)
    except sqlite3.Error as error:
        raise OSError(f"{journal} cannot be copied: {error}") from None
    made.rename(target)
    sync_folder(target.parent)


def _restore(copy: Path, journal: Path, trial: Trial) -> Path:
    """The present one's name, from now on."""
    kept = journal.with_name(f"{journal.name}.of-{trial.version}")
    owner = journal.stat()
    with closing(_opened(journal)) as writer:
        # All of it into the one file: its log would be taken for the other's.
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    made = journal.with_name(f"{journal.name}.restored")
    made.unlink(missing_ok=True)
    # The folder is the agent's user's, who may have laid a link there: O_EXCL follows none.
    file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(copy.read_bytes())
        os.fchown(file, owner.st_uid, owner.st_gid)
        os.fchmod(file, owner.st_mode & 0o777)
        stream.flush()
        os.fsync(file)
    kept.unlink(missing_ok=True)
    os.link(journal, kept)
    made.rename(journal)
    sync_folder(journal.parent)
    return kept
