"""`fieldagent setup` with a GSM modem: real processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.test_setup import begin, check_written
from tests.processes import MODULE, Running


def is_ready(status: Mapping[str, Any], port: str) -> bool:
    return str(status["channels"]["Cellular"].get("sms", "")).startswith("ready")


@pytest.mark.full
def test_agent_works_with_the_settings_that_setup_wrote(tmp_path: Path) -> None:
    begin(tmp_path)
    port = tmp_path / "modem"
    with Running([*MODULE, "simulate", "gsm", "--link", str(port)], "type `help`"):
        check_written(tmp_path, "gsm", port, is_ready, **{"sms-hub-number": "+41790000000"})
