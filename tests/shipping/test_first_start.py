"""Power fails in the first start of a kit, and after the next one people can log in and the agent
runs.

The test records the file operations of the real scripts and commands of a first start. For each
moment it computes states that ext4 may leave (`tests/crash.py`), and runs the same programs again
on them. `test_image.py` tests the card itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests import crash, disk
from tests.machine import tool
from tests.processes import MODULE
from tests.shipping.conftest import ROOT

CUTS = 100
SCRIPT = ROOT / "build/card/usr/lib/kit/ssh-host-key"
BEFORE = "satellite-port=/dev/ttyUSB9\n"
ON_CARD = "satellite-port=/dev/ttyUSB0\nsatellite-credits-per-day=20\n"
KEY, SETTINGS, CERTIFICATE = "ssh_host_ed25519_key", "agent.properties", "certificate.pem"
MAKE_CERTIFICATE = """
import sys
from pathlib import Path
from fieldagent.system.own_certificate import provide_own_certificate
provide_own_certificate(Path(sys.argv[1]))
"""


def start(folder: Path, **environment: str) -> None:
    """Run the programs of a first start, with card, settings and keys in one folder."""
    card = ["provision", "--card", str(folder), "--config", str(folder / SETTINGS)]
    certificate = [sys.executable, "-c", MAKE_CERTIFICATE, str(folder / CERTIFICATE)]
    for command in ([str(SCRIPT), str(folder)], [*MODULE, *card], certificate):
        done = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stderr)


def public(key: Path) -> str:
    command = [tool("ssh-keygen", "openssh-client"), "-y", "-P", "", "-f", str(key)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def first_start(tmp_path: Path, disk_library: Path) -> Iterator[tuple[dict[str, bytes], Path]]:
    tool("openssl", "openssl")
    tool("ssh-keygen", "openssh-client")
    folder = tmp_path / "kit"
    folder.mkdir()
    (folder / SETTINGS).write_text(BEFORE)
    (folder / "fieldagent.properties").write_text(ON_CARD)
    before = {str(path): path.read_bytes() for path in folder.iterdir()}
    start(folder, **disk.recorded(disk_library, folder, tmp_path / "record"))
    yield before, tmp_path / "record"


@pytest.mark.full
def test_power_cut_at_any_moment_of_the_first_start_is_recovered(
    first_start: tuple[dict[str, bytes], Path], tmp_path: Path
) -> None:
    before, record = first_start
    random = Random(1)
    state = crash.Disk(before)
    calls = [*disk.calls(record)]
    assert {KEY, SETTINGS, CERTIFICATE} <= {Path(call.data.decode()).name for call in calls
                                            if call.name == "rename"}  # fmt: skip
    cuts = 0
    for _ in crash.failures(state, calls, CUTS, random):
        folder = tmp_path / "left"
        folder.mkdir()
        state.fail(folder, random)
        for path in folder.iterdir():
            path.chmod(0o600)
        known = read_public_or_empty(folder / KEY)
        start(folder)
        assert public(folder / KEY)
        assert known in ("", public(folder / KEY)), "who has seen the kit knows it again"
        assert (folder / SETTINGS).read_text() == ON_CARD
        kept = folder / f"{SETTINGS}.before"
        assert kept.read_text() == BEFORE
        assert "BEGIN CERTIFICATE" in (folder / CERTIFICATE).read_text()
        shutil.rmtree(folder)
        cuts += 1
    assert cuts == CUTS


def read_public_or_empty(key: Path) -> str:
    try:
        return public(key) if key.exists() else ""
    except subprocess.CalledProcessError:
        return ""


UNREADABLE = {
    "empty": b"",
    "zeros": bytes(400),
    "half": b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5v",
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_unreadable_ssh_host_key_is_generated_again(tmp_path: Path, content: bytes) -> None:
    """This also holds for an unreadable temporary key, because ssh-keygen gets no answers."""
    for name in (KEY, f"{KEY}.new", f"{KEY}.new.pub"):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o600)
    for _ in range(2):
        subprocess.run([SCRIPT, tmp_path], check=True, stdin=subprocess.DEVNULL)
    made = public(tmp_path / KEY)
    subprocess.run([SCRIPT, tmp_path], check=True, stdin=subprocess.DEVNULL)
    assert public(tmp_path / KEY) == made
    assert [path.name for path in tmp_path.iterdir()] == [KEY]


def test_sshd_starts_after_its_host_key_exists() -> None:
    unit = (ROOT / "build/card/etc/systemd/system/ssh.service.d/kit.conf").read_text()
    assert "ExecStartPre=/usr/lib/kit/ssh-host-key /var/lib/kit/ssh\n" in unit
    listed = (ROOT / "build/card/etc/ssh/sshd_config.d/kit.conf").read_text()
    assert f"HostKey /var/lib/kit/ssh/{KEY}\n" in listed
