"""What dpkg and apt are asked for, and what is made of their answers, where no Debian is needed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fieldagent.cli import debian_packages
from fieldagent.cli.debian_packages import NotAtHand, NotInstalled

OURS = "fieldagent-common 2 installed\\nfieldagent 2 {}\\n"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that stand in for Debian's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(debian_packages, "LOCK", tmp_path / "lock-frontend")
    return folder


def put(tools: Path, name: str, script: str) -> None:
    (tools / name).write_text(f"#!/bin/sh\n{script}\n")
    (tools / name).chmod(0o755)


@pytest.mark.parametrize("state", ["installed", "triggers-pending"])
def test_what_is_installed(tools: Path, state: str) -> None:
    purged = "fieldagent-hub  not-installed\\n"
    put(tools, "dpkg-query", f"printf '{OURS.format(state)}{purged}'; exit 1")
    assert debian_packages.installed() == "2"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (OURS.format("half-configured"), "not installed whole"),
        ("fieldagent-common 2 installed\\nfieldagent 1 installed\\n", "in one version"),
        ("", "apt --fix-broken install"),
        (OURS.format("installed") + "fieldagent-hub 2 installed\\n", "apt install. updates both"),
    ],
    ids=["interrupted", "two versions", "none", "a hub"],
)
def test_what_no_update_begins_with(tools: Path, rows: str, told: str) -> None:
    put(tools, "dpkg-query", f"printf '{rows}'")
    with pytest.raises(NotAtHand, match=told):
        debian_packages.installed()


def test_what_would_change_others_is_left_to_apt(tools: Path, tmp_path: Path) -> None:
    """No way back brings their versions of before."""
    ours = "Inst fieldagent-common [1] (2)\\nInst fieldagent [1] (2)\\nConf fieldagent (2)\\n"
    put(tools, "apt-get", f"printf '{ours}'")
    debian_packages.change_alone(tmp_path, "2")
    put(tools, "apt-get", f"printf '{ours}Inst python3 (3.14)\\nRemv gpsd [3]\\n'")
    with pytest.raises(NotAtHand, match="2 changes gpsd, python3 too"):
        debian_packages.change_alone(tmp_path, "2")


HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "wb")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_dpkg_waits_until_another_apt_has_ended(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tools, "dpkg", f'echo "$DPKG_FRONTEND_LOCKED $*" >>{tmp_path}/asked')
    hold = [sys.executable, "-c", HOLD, str(debian_packages.LOCK)]
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"

        def sleep(_: float) -> None:
            assert not (tmp_path / "asked").exists()
            other.communicate()

        monkeypatch.setattr(time, "sleep", sleep)
        debian_packages.install(tmp_path, "2")
        assert other.poll() == 0
    common, agent = debian_packages.files(tmp_path, "2")
    asked = (tmp_path / "asked").read_text()
    assert asked == f"true --install {common} {agent}\ntrue --configure --pending\n"


def test_the_first_of_dpkgs_errors_is_told(tools: Path, tmp_path: Path) -> None:
    said = "dpkg: warning: x\ndpkg: error processing package a:\n script\n failed\ndpkg: more"
    put(tools, "dpkg", f"echo '{said}' >&2; exit 1")
    with pytest.raises(NotInstalled, match=r"it: dpkg: error processing package a: script failed$"):
        debian_packages.install(tmp_path, "2")


def test_what_waits_too_long_for_another_apt_changes_nothing(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tools, "dpkg", f"touch {tmp_path}/asked")
    monkeypatch.setattr(debian_packages, "LOCKED", -1.0)
    hold = [sys.executable, "-c", HOLD, str(debian_packages.LOCK)]
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(OSError, match="another apt has held"):
            debian_packages.install(tmp_path, "2")
        other.communicate()
    assert not (tmp_path / "asked").exists()
