"""`fieldagent reboot`: the conditions under which root's unit reboots the machine on the agent's
request.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fieldagent.agent.outcomes import REBOOT
from fieldagent.extensions.fleet import reboot
from fieldagent.kit import kit_health
from fieldagent.system.elapsed_time import BOOT
from fieldagent.system.exit_codes import IO_FAILED, OK, REFUSED


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the recorded calls of systemctl."""
    words: list[str] = []
    monkeypatch.setattr(kit_health, "call_systemctl", lambda *command: words.extend(command))
    return words


def process_reboot_request(home: Path) -> int:
    settings = home / "agent.properties"
    settings.write_text(f"state-directory={home}\nsatellite-port=/dev/null\n")
    return reboot.process_request(settings)


def test_reboot_request_reboots_the_machine_once(tmp_path: Path, systemd: list[str]) -> None:
    (tmp_path / REBOOT).write_text(BOOT.read_text().strip())
    assert process_reboot_request(tmp_path) == OK
    assert systemd == ["reboot"]
    # The path unit no longer sees it, also after the next boot.
    assert not (tmp_path / REBOOT).exists()
    assert process_reboot_request(tmp_path) == REFUSED
    assert systemd == ["reboot"]


def test_reboot_request_of_another_boot_is_refused(
    tmp_path: Path, systemd: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for left in (b"", b"another-boot", os.urandom(60)):
        (tmp_path / REBOOT).write_bytes(left)
        assert process_reboot_request(tmp_path) == REFUSED
        assert "has already restarted since" in capsys.readouterr().err
        assert not (tmp_path / REBOOT).exists()
    assert systemd == []


def test_symlink_as_reboot_request_is_refused(tmp_path: Path, systemd: list[str]) -> None:
    (tmp_path / REBOOT).symlink_to(BOOT)
    assert process_reboot_request(tmp_path) == REFUSED
    assert systemd == []


def test_failed_systemctl_reboot_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*words: str) -> None:
        raise OSError("`systemctl reboot` failed: its message is above")

    monkeypatch.setattr(kit_health, "call_systemctl", refuse)
    (tmp_path / REBOOT).write_text(BOOT.read_text())
    assert process_reboot_request(tmp_path) == IO_FAILED
    assert "the machine stays up" in capsys.readouterr().err
