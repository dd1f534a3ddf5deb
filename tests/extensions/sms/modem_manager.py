"""Debian's ModemManager on a separate bus, with the simulated modem behind it.

The daemon accepts a port that is a socket in the abstract namespace, where its own tests put their
modems. Here it leads to the simulated modem's pty.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.processes import until

DAEMON = shutil.which("ModemManager", path=f"{os.environ['PATH']}:/usr/sbin")
MISSING = [each for each in ("mmcli", "dbus-daemon", "dbus-send") if shutil.which(each) is None]
MISSING += [] if DAEMON else ["ModemManager"]
BUS = """<busconfig><type>session</type><listen>unix:path={path}</listen>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/>
<allow own="*"/></policy></busconfig>
"""
TEST_MODE = (
    *("--test-session", "--test-enable", "--test-no-udev", "--test-no-suspend-resume"),
    *("--test-no-qrtr", "--no-auto-scan"),
)


@contextmanager
def modem_manager(home: Path, port: Path) -> Iterator[dict[str, str]]:
    """Run it with the enabled modem at `port`, and yield the environment of its clients."""
    assert DAEMON is not None, "ModemManager is missing: apt-get install modemmanager"
    bus = home / "bus"
    settings = home / "bus.conf"
    settings.write_text(BUS.format(path=bus))
    address = f"unix:path={bus}"
    named = {"DBUS_SYSTEM_BUS_ADDRESS": address, "DBUS_SESSION_BUS_ADDRESS": address}
    environment = {**os.environ, **named}

    def ask(*command: str) -> str:
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        return result.stdout

    daemons = [["dbus-daemon", f"--config-file={settings}", "--nofork"], [DAEMON, *TEST_MODE]]
    running: list[subprocess.Popen[bytes]] = []
    name = f"abstract:fieldagent-{os.getpid()}"
    with _at(name, port), (home / "modem-manager.log").open("wb") as log:
        try:
            for command in daemons:
                each = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
                running.append(each)
                until(bus.exists)
            until(lambda: "method return" in ask(*_CALL, "org.freedesktop.DBus.Peer.Ping"))
            ask(*_CALL, _PROFILE, "string:kit", "string:generic", f"array:string:{name}")
            until(lambda: "/Modem/" in ask("mmcli", "-L"))
            until(lambda: "success" in ask("mmcli", "-m", "any", "-e"))
            yield environment
        finally:
            for each in reversed(running):
                each.terminate()
                each.wait()


_CALL = (
    *("dbus-send", "--session", "--print-reply", "--dest=org.freedesktop.ModemManager1"),
    "/org/freedesktop/ModemManager1",
)
_PROFILE = "org.freedesktop.ModemManager1.Test.SetProfile"


@contextmanager
def _at(name: str, port: Path) -> Iterator[None]:
    """Connect each client of that socket with the serial line, one at a time."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen()
        thread = threading.Thread(target=_serve, args=(server, port), daemon=True)
        thread.start()
        try:
            yield
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def _serve(server: socket.socket, port: Path) -> None:
    with suppress(OSError):
        while True:
            line, _ = server.accept()
            device = os.open(port, os.O_RDWR | os.O_NOCTTY)
            tty.setraw(device)
            with line, suppress(OSError):
                _join(line, device)
            os.close(device)


def _join(line: socket.socket, device: int) -> None:
    while True:
        ready, _, _ = select.select([line.fileno(), device], [], [])
        if line.fileno() in ready:
            data = line.recv(4096)
            if not data:
                return
            os.write(device, data)
        if device in ready:
            line.sendall(os.read(device, 4096))
