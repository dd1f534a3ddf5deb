"""A hub that shared the agent's user is updated by its package under a real systemd: it continues
as its own user with its data, and the package prints the remaining steps.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shipping.board import BOOT, Board, Failed
from tests.shipping.debian import repacked

pytestmark = [pytest.mark.full, pytest.mark.machine]

COMMON = {
    "usr/lib/sysusers.d/fieldagent.conf": ("u fieldagent-hub ", "# "),
    "usr/lib/tmpfiles.d/fieldagent.conf": ("root fieldagent-hub -", "root fieldagent -"),
}
HUB = {
    "usr/lib/systemd/system/fieldagent-hub.service": (
        "User=fieldagent-hub\nGroup=fieldagent-hub",
        "User=fieldagent\nGroup=fieldagent",
    ),
    "DEBIAN/postinst": (
        '/usr/share/fieldagent/own-user "$settings"',
        'chgrp fieldagent "$settings"',
    ),
}
"""Lines of the packages from the time when agent and hub shared a user."""
SETTINGS = """\
listen=127.0.0.1
port=9443
tls-certificate=/etc/ssl/hub.pem
tls-key=/etc/ssl/hub.key
"""
CERTIFICATE = """\
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
    -keyout /etc/ssl/hub.key -out /etc/ssl/hub.pem
chgrp fieldagent /etc/ssl/hub.key
chmod 640 /etc/ssl/hub.key
"""
AS = "setpriv --reuid={0} --regid={0} --clear-groups"
STATE = "/var/lib/fieldagent-hub"
HEALTHY = """python3 -c '
import ssl, urllib.request
trusting = ssl._create_unverified_context()
urllib.request.urlopen("https://localhost:9443/healthz", context=trusting)'"""
RUNS_AS = "ps -o user:20= -p $(systemctl show -P MainPID fieldagent-hub)"


@pytest.fixture
def board(image: Path, packages: list[Path], tmp_path: Path) -> Iterator[Board]:
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        made = Board(Path(folder), image, None)
        try:
            for package in packages:
                if package.name.startswith("fieldagent-common"):
                    repacked(package, made.share, "0.0.1", COMMON)
                elif package.name.startswith("fieldagent-hub"):
                    repacked(package, made.share, "0.0.1", HUB)
                (made.share / package.name).write_bytes(package.read_bytes())
            made.boot()
            yield made
        finally:
            made.close()


def test_updated_hub_package_moves_the_hub_to_its_own_user(board: Board) -> None:
    install = "dpkg --force-depends -i"
    board.run(f"{install} /mnt/fieldagent-common_0.0.1_all.deb /mnt/fieldagent-hub_0.0.1_all.deb")
    board.run(CERTIFICATE)
    board.run(f"cat >/etc/fieldagent/hub.properties <<'END'\n{SETTINGS}END")
    board.run("systemctl enable --now fieldagent-hub || ! journalctl -n 30 -u fieldagent-hub", BOOT)
    board.until(HEALTHY)
    assert "fieldagent" in board.run(RUNS_AS).split()
    hub = f"{AS.format('fieldagent')} fieldagent hub"
    board.run(f"{hub} init Alps --database {STATE}/hub.sqlite3")

    output = board.run(
        f"{install} $(ls /mnt/fieldagent-common_*.deb /mnt/fieldagent-hub_*.deb | grep -v 0.0.1)"
    )
    assert "the hub runs as a system user of its own now" in output
    assert "it cannot read tls-key=/etc/ssl/hub.key" in output
    assert "tls-certificate" not in output and "PostgreSQL" not in output
    assert "640 root:fieldagent-hub" in board.run(
        "stat -c '%a %U:%G' /etc/fieldagent/hub.properties"
    )
    (remedy,) = (line for line in output.splitlines() if "sudo chgrp" in line)
    board.run(remedy.replace("sudo ", ""))
    board.run("systemctl restart fieldagent-hub")
    board.until(HEALTHY)
    assert "fieldagent-hub" in board.run(RUNS_AS).split()
    assert "700 fieldagent-hub:fieldagent-hub" in board.run(f"stat -c '%a %U:%G' {STATE}")
    own = f"{AS.format('fieldagent-hub')} fieldagent hub"
    listed = board.run(f"{own} workspace list --json --database {STATE}/hub.sqlite3")
    assert "Alps" in listed
    for path in (f"{STATE}/hub.sqlite3", "/etc/fieldagent/hub.properties", "/etc/ssl/hub.key"):
        with pytest.raises(Failed):
            board.run(f"{AS.format('fieldagent')} cat {path} >/dev/null")
    # The second time it prints nothing.
    again = board.run(f"{install} $(ls /mnt/fieldagent-hub_*.deb | grep -v 0.0.1)")
    assert "user of its own" not in again
