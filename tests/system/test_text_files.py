"""Text files by people, also with an editor's byte order mark."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldagent.agent import settings as agent_settings
from fieldagent.hub import settings as hub_settings
from fieldagent.system.text_files import read_first_line, read_text_file

MARK = b"\xef\xbb\xbf"
WITH_MARK = MARK + b"api-port=9191\r\nsatellite-port=/dev/ttyUSB0\r\n"


def test_byte_order_mark_is_not_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "agent.properties"
    path.write_bytes(WITH_MARK)
    settings = agent_settings.load(path)
    assert settings.api_port == 9191
    path.write_bytes(MARK + b"port=8091\r\n")
    assert hub_settings.load_settings(path).port == 8091


@pytest.mark.parametrize("mark", [b"", MARK])
def test_byte_order_mark_is_not_part_of_a_password(tmp_path: Path, mark: bytes) -> None:
    path = tmp_path / "password"
    path.write_bytes(mark + "Straße\r\nsecond line".encode())
    assert read_first_line(path) == "Straße"
    assert read_text_file(path) == "Straße\nsecond line"
