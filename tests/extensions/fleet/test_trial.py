"""Power fails at each step of an update: the programs stay complete, with the matching journal. The
steps are real. systemd and the agent's answers are simulated.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fieldagent.extensions.fleet import debian_packages, trial, trial_journal, update
from fieldagent.extensions.fleet.debian_packages import NotInstalled
from fieldagent.extensions.fleet.trial import Place, Trial
from fieldagent.kit import kit_health, root_units
from fieldagent.system.folder import sync_folder
from tests.cut import PowerCut, cut_at, cut_everywhere

OLD, NEW = b"the program before\n", b"the new program\n"
HALF = b"what dpkg leaves in the middle\n"


class Kit:
    """A kit. `works` is True if the new program works, and `packages` if it comes as Debian
    packages.
    """

    def __init__(self, folder: Path, *, works: bool, packages: bool = False) -> None:
        self.works, self.runs = works, True
        self.accepted = False
        """True if the new program has accepted a Package."""
        self.place = Place(folder / "update")
        root_units.make_folder(self.place.folder)
        self.program = folder / "fieldagent.pyz"
        self.program.write_bytes(OLD)
        self.place.new.write_bytes(NEW)
        self.place.previous.write_bytes(OLD)
        self.settings = folder / "agent.properties"
        self.settings.write_text(f"state-directory={folder}\n")
        self.journal = folder / "journal.sqlite3"
        with closing(sqlite3.connect(self.journal)) as db:
            db.executescript(
                "PRAGMA journal_mode=WAL;"
                "CREATE TABLE package (number INTEGER PRIMARY KEY AUTOINCREMENT, text UNIQUE);"
                "INSERT INTO package (text) VALUES ('SOS'); PRAGMA user_version=13;"
            )
        offered = Trial(
            "2", "1", str(self.program), str(self.settings), {}, 13, minutes=0, steady=0
        )
        if packages:
            offered = replace(offered, package="2", previous_package="1")
        trial.store_trial(self.place, offered)

    def install(self, _: Path, version: str) -> None:
        """Install like dpkg: each file separately, over any existing file."""
        self.program.write_bytes(HALF)
        sync_folder(self.program.parent)
        self.program.write_bytes(NEW if version == "2" else OLD)
        sync_folder(self.program.parent)

    def systemctl(self, *words: str) -> None:
        """Start and stop the agent. The new program upgrades the journal to its version."""
        self.runs = words[0] == "start"
        if words[0] == "start" and self.program.read_bytes() == NEW:
            with closing(sqlite3.connect(self.journal)) as db:
                db.execute("PRAGMA user_version=14")
                db.execute("INSERT OR IGNORE INTO package (text) VALUES ('on trial')")
                db.commit()
            self.accepted = True

    def status(self, _: Path) -> dict[str, Any] | None:
        new = self.program.read_bytes() == NEW
        if self.program.read_bytes() == HALF or (new and not self.works):
            return None
        channels = {"Cellular": {"configured": False}}
        return {"version": "2" if new else "1", "uptime": 60.0, "channels": channels}

    def expected(self, version: int) -> list[Any]:
        """Return all accepted texts of both programs, in a journal of that version."""
        return [("SOS",), *([("on trial",)] if self.accepted else []), (version,)]

    def rows(self) -> list[Any]:
        with closing(sqlite3.connect(self.journal)) as db:
            return [
                *db.execute("SELECT text FROM package ORDER BY number"),
                *db.execute("PRAGMA user_version"),
            ]


PACKAGES = pytest.mark.parametrize("packages", [False, True], ids=["zipapp", "packages"])


def cut_trial(kit: Kit, step: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Run a trial until power fails at that call, and return the calls."""
    monkeypatch.setattr(debian_packages, "install", kit.install)
    monkeypatch.setattr(kit_health, "call_systemctl", kit.systemctl)
    monkeypatch.setattr(kit_health, "fetch_status", kit.status)
    files = ((os, "fsync"), (os, "link"), (Path, "rename"), (Path, "unlink"))
    with cut_at(step, *files, (kit_health, "call_systemctl")) as made:
        trial.continue_trial(kit.place)
    return made


@PACKAGES
@pytest.mark.parametrize("works", [True, False], ids=["program works", "program fails"])
def test_power_cut_at_any_step_leaves_a_complete_program_and_journal(
    tmp_path: Path, works: bool, packages: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(home: Path, step: int) -> list[int]:
        kit = Kit(home, works=works, packages=packages)
        made = cut_trial(kit, step, monkeypatch)
        assert kit.program.read_bytes() in (OLD, NEW, HALF)[: 3 if packages else 2]
        # The next boot of the kit starts with the program that is there.
        kit.systemctl("start")
        trial.continue_trial(kit.place)
        assert not kit.place.trial.exists()
        assert kit.place.result.exists()
        assert kit.program.read_bytes() == (NEW if works else OLD)
        assert kit.rows() == kit.expected(14 if works else 13)
        assert not [*kit.journal.parent.glob("*.before*")]
        return made

    assert cut_everywhere(tmp_path, run) > 20


@PACKAGES
def test_program_that_fails_after_a_power_cut_is_rolled_back_completely(
    tmp_path: Path, packages: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds at each step, also at the last: files for the rollback are not removed earlier."""

    def run(home: Path, step: int) -> list[int]:
        kit = Kit(home, works=True, packages=packages)
        made = cut_trial(kit, step, monkeypatch)
        ended = trial.read_phase(kit.place) in ("", "end")
        kit.works = False
        kit.systemctl("start")
        trial.continue_trial(kit.place)
        assert kit.program.read_bytes() == (NEW if ended else OLD)
        assert kit.rows() == kit.expected(14 if ended else 13)
        assert not [*kit.journal.parent.glob("*.before*")]
        return made

    assert cut_everywhere(tmp_path, run) > 20


@pytest.mark.parametrize("place", ["journal.sqlite3.restored", "journal.sqlite3.of-2"])
def test_rollback_follows_no_symlink_of_the_agents_user(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = Kit(tmp_path, works=False)
    monkeypatch.setattr(kit_health, "call_systemctl", kit.systemctl)
    monkeypatch.setattr(kit_health, "fetch_status", kit.status)
    (tmp_path / "roots").write_bytes(b"root's")
    (tmp_path / place).symlink_to(tmp_path / "roots")
    assert trial.continue_trial(kit.place) == 1
    assert (tmp_path / "roots").read_bytes() == b"root's"
    assert kit.rows() == kit.expected(13)


def test_disk_failure_leaves_the_agent_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier program runs, and the next start continues."""
    kit = Kit(tmp_path, works=True)
    monkeypatch.setattr(kit_health, "call_systemctl", kit.systemctl)
    monkeypatch.setattr(kit_health, "fetch_status", kit.status)

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as failing, pytest.raises(OSError, match="full"):
        failing.setattr(trial_journal, "copy_whole", full)
        trial.continue_trial(kit.place)
    assert kit.runs
    assert kit.program.read_bytes() == OLD
    assert trial.continue_trial(kit.place) == 0
    assert kit.program.read_bytes() == NEW


def test_failed_package_installation_is_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If dpkg cannot restore the earlier packages either, the agent starts nevertheless, and the
    next start of the kit continues.
    """
    kit = Kit(tmp_path, works=True, packages=True)
    monkeypatch.setattr(kit_health, "call_systemctl", kit.systemctl)
    monkeypatch.setattr(kit_health, "fetch_status", kit.status)

    def fails(_: Path, version: str) -> None:
        kit.program.write_bytes(HALF)
        raise NotInstalled(f"dpkg cannot install it: {version} is cursed")

    with monkeypatch.context() as failing, pytest.raises(NotInstalled, match="1 is cursed"):
        failing.setattr(debian_packages, "install", fails)
        trial.continue_trial(kit.place)
    assert kit.runs
    monkeypatch.setattr(debian_packages, "install", kit.install)
    assert trial.continue_trial(kit.place) == 1
    assert kit.program.read_bytes() == OLD
    assert "2 is cursed" in kit.place.result.read_text()


def test_program_is_rolled_back_after_repeated_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = Kit(tmp_path, works=True)
    monkeypatch.setattr(kit_health, "call_systemctl", kit.systemctl)

    def dies(_: Path) -> None:
        raise PowerCut

    monkeypatch.setattr(kit_health, "fetch_status", dies)
    for _ in range(kit_health.BOOTS):
        with pytest.raises(PowerCut):
            trial.continue_trial(kit.place)
    monkeypatch.setattr(kit_health, "fetch_status", kit.status)
    assert trial.continue_trial(kit.place) == 1
    assert kit.program.read_bytes() == OLD
    assert "was started 3 times" in kit.place.result.read_text()


def test_waiting_command_reports_the_result_after_the_trial_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk may be slow between the result and the end of the trial."""
    kit = Kit(tmp_path, works=True)
    offered = trial.load_trial(kit.place)
    kit.place.result.write_text('{"version": "2", "previous_version": "1", "why": ""}')
    monkeypatch.setattr(update, "CHECK_INTERVAL_S", 0.0)
    looked = iter(range(3))

    def phase(place: Place) -> str:
        if next(looked, None) is None:
            place.trial.unlink(missing_ok=True)
            return ""
        return "watch"

    monkeypatch.setattr(trial, "read_phase", phase)
    assert update.follow_update(kit.place, offered, as_json=False) == 0
    assert capsys.readouterr().out == "2 runs (before: 1)\n"


@pytest.mark.parametrize("content", [b"", bytes(300), b"{}", b"[1]"])
def test_unreadable_trial_file_is_set_aside_and_the_agent_starts(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current program stays, the agent runs, and the next update can start."""
    kit = Kit(tmp_path, works=True)
    monkeypatch.setattr(kit_health, "call_systemctl", kit.systemctl)
    kit.runs = False
    kit.place.trial.write_bytes(content)
    with pytest.raises(OSError, match=r"kept as trial\.json\.unreadable"):
        trial.continue_trial(kit.place)
    assert kit.runs
    assert trial.continue_trial(kit.place) == 0
    assert kit.program.read_bytes() == OLD
