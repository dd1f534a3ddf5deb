"""The agent finds a 9704 with an unusual line speed at the port, and reports it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldagent.extensions.imt.agent.recognition import PROBE
from tests.agent.channels.test_line_speed import check_found, check_told
from tests.breaking import Put
from tests.processes import imt_sky

MODEM = "fieldagent.extensions.imt.agent.modem"
QUICK = Put(f"{MODEM}:ANSWER_TIMEOUT_S", 1.0), Put(f"{MODEM}:QUIET_MAX_S", 1.0)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "baud"), [("imt", 115_200), ("auto", 460_800)])
def test_modem_at_another_line_speed_is_found(tmp_path: Path, kind: str, baud: int) -> None:
    check_found(tmp_path, kind, imt_sky, baud, *QUICK)


@pytest.mark.full
def test_check_reports_the_line_speed(tmp_path: Path) -> None:
    check_told(tmp_path, "imt", imt_sky, 115_200)


def test_default_line_speed_is_tried_first() -> None:
    assert PROBE.speeds[0] == 230_400
