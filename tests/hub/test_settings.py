"""The settings of a hub's file, and the messages about wrong ones."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from fieldagent.hub.settings import load_settings
from fieldagent.system.properties import InvalidSettings

TILES = "map-tiles=https://tiles.example.org/{z}/{x}/{y}.png"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (TILES + "?key=a", ""),
        ("map-tiles=http://[::1]:8080/{x}/{y}/{z}", ""),
        ("map-tiles=https://tiles.example.org/{z}/{x}.png", "once each"),
        (TILES + "{x}", "once each"),
        (TILES + "{s}", "once each"),
        ("map-tiles=https://{z}.example.org/{x}/{y}", "once each in its path"),
        ("map-tiles=https://tiles.example.org; script-src */{z}/{x}/{y}", "once each"),
        ("map-tiles=https://me@tiles.example.org/{z}/{x}/{y}", "once each"),
        ("map-tiles=tiles.example.org/{z}/{x}/{y}", "must be a URL"),
        (
            "map-file=/var/alps.mbtiles\n" + TILES,
            "map-file and map-tiles cannot both be set",
        ),
    ],
)
def test_map_settings_are_validated(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "hub.properties"
    path.write_text(f"database={tmp_path}/hub.sqlite3\n{text}\n")
    with pytest.raises(InvalidSettings, match=fault) if fault else nullcontext():
        load_settings(path)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("console-address=https://hub.example.org\ntrusted-proxies=127.0.0.1", ""),
        ("console-address=https://hub.example.org:9443/\ntrusted-proxies=127.0.0.1", ""),
        ("console-address=https://hub.example.org", "console-address needs tls-certificate"),
        ("console-address=http://hub.example.org\ntrusted-proxies=127.0.0.1", "must be https://"),
        ("console-address=https://192.0.2.1\ntrusted-proxies=127.0.0.1", "and a name"),
        ("console-address=https://[::1]:9443\ntrusted-proxies=127.0.0.1", "and a name"),
        ("console-address=https://a@hub.example\ntrusted-proxies=127.0.0.1", "and a name"),
        ("console-address=https://hub.example/x\ntrusted-proxies=127.0.0.1", "and a name"),
    ],
)
def test_console_address_setting_is_validated(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "hub.properties"
    path.write_text(f"database={tmp_path}/hub.sqlite3\n{text}\n")
    with pytest.raises(InvalidSettings, match=fault) if fault else nullcontext():
        load_settings(path)
