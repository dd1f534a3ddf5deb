"""Meshtastic's own firmware, built for Linux, if `MESHTASTICD_BIN` names it: neither Debian nor
PyPI has it. It runs without a radio (`-s`), so the tests cover the host's side.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from socket import create_connection

import pytest

from tests.extensions.people.test_auto import is_ready, mesh, people_kit
from tests.extensions.test_detection import told
from tests.hub.test_journey import folder
from tests.processes import free_port, until

BIN = os.environ.get("MESHTASTICD_BIN", "")
pytestmark = pytest.mark.skipif(not BIN, reason="MESHTASTICD_BIN names no firmware")


def answers(port: int) -> bool:
    try:
        create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


@contextmanager
def firmware(home: Path, port: int) -> Iterator[None]:
    """Run the firmware until the block ends. Its stored data stays in `home`."""
    home.mkdir(exist_ok=True)
    command = [*shlex.split(BIN), "-s", "-d", str(home), "-p", str(port), "-h", "77"]
    with (home / "log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        until(lambda: answers(port))
        yield
    finally:
        process.terminate()
        process.wait()


def test_real_firmware_is_identified_and_found_again_after_its_restart(tmp_path: Path) -> None:
    port = free_port()
    place = f"tcp://127.0.0.1:{port}"
    with firmware(tmp_path / "radio", port):
        _, finding = told(place)
        assert (finding["kind"], finding["why"]) == ("meshtastic", None)
        assert finding["firmware"] and finding["node"].startswith("!")
    with people_kit(folder(tmp_path / "kit"), place) as kit:
        for _ in range(2):
            with firmware(tmp_path / "radio", port):
                until(partial(is_ready, kit, "meshtastic"))
            until(lambda: mesh(kit)["state"] == "absent")
