"""zbar, an independent program, reads the QR code on the terminal."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.machine import tool
from tests.processes import MODULE, PATIENCE, administer

_ROW = re.compile("\x1b\\[40;37;1m([█▀▄ ]+)\x1b\\[0m")
_HALVES = {"█": (1, 1), "▀": (1, 0), "▄": (0, 1), " ": (0, 0)}
SIZE = 4
"""Pixels of a module's side."""
ADDRESS = "https://hub.example.org"


def read_qr_code(shown: str, folder: Path) -> str:
    tool("qrencode", "qrencode")
    lines: list[bytes] = []
    for characters in _ROW.findall(shown):
        for half in (0, 1):
            row = b"".join(bytes(SIZE * [255 * _HALVES[each][half]]) for each in characters)
            lines += SIZE * [row]
    picture = folder / "code.pgm"
    picture.write_bytes(f"P5 {len(lines[0])} {len(lines)} 255\n".encode() + b"".join(lines))
    command = [tool("zbarimg", "zbar-tools"), "--quiet", "--raw", "-Sbinary", str(picture)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def fieldagent(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MODULE, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **environment},
    )


def page(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    properties = folder / "agent.properties"
    properties.write_text(f"state-directory={folder / 'state'}\npage-listen=127.0.0.0/8\n")
    return fieldagent("page", "--config", str(properties), "--qr", **environment)


def test_qr_code_contains_the_address_of_the_kits_page(tmp_path: Path) -> None:
    result = page(tmp_path)
    assert result.returncode == 0
    address = result.stdout.splitlines()[0]
    assert address.startswith("https://127.0.0.1:")
    assert read_qr_code(result.stdout, tmp_path) == address


def add(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    database = str(folder / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "ada")
    command = ["hub", "device", "add", "kit", "--user", "ada", "--qr", "--database", database]
    return fieldagent(*command, *arguments)


def test_qr_code_contains_the_settings_of_a_new_kit(tmp_path: Path) -> None:
    result = add(tmp_path, "--tagged", "--address", ADDRESS)
    assert result.returncode == 0
    token, key = (
        re.search(rf"{name}\W+([\w-]+)", result.stdout + result.stderr)
        for name in ("hub-token", "satellite-key")
    )
    assert token and key
    settings = f"hub-address={ADDRESS}\nhub-token={token[1]}\nsatellite-key={key[1]}\n"
    assert read_qr_code(result.stdout, tmp_path) == settings


@pytest.mark.parametrize(
    ("arguments", "why"),
    [([], "--address is missing"), (["--address", "nowhere"], "hub-address")],
)
def test_device_is_not_added_with_faulty_arguments(
    tmp_path: Path, arguments: list[str], why: str
) -> None:
    result = add(tmp_path, *arguments)
    assert (result.returncode == 0, why in result.stderr) == (False, True)
    assert administer(str(tmp_path / "hub.sqlite3"), "device", "list") == []


def test_page_address_is_printed_without_qrencode(
    tmp_path: Path,
) -> None:
    only = tmp_path / "bin"
    only.mkdir()
    (only / "openssl").symlink_to(tool("openssl", "openssl"))
    result = page(tmp_path, PATH=str(only))
    assert (result.returncode, result.stdout.startswith("https://127.0.0.1:")) == (0, True)
    assert "apt-get install qrencode" in result.stderr
