"""Ten minutes of the soak in `tests/run full`, two hours in `tests/run soak`.

SOAK_MINUTES sets another length for the latter. `python -m tests.soak` prints the same table.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.postgres import server
from tests.soak.__main__ import report, soak
from tests.soak.faults import HILLS

MINUTES = float(os.environ.get("SOAK_MINUTES", "120"))
TEN_MINUTES_S = 600.0
HURRY = 6.0
"""The factor of faults in ten minutes: each kind must occur. The rarest is a restart of the
database, every ten seconds on average."""


def _run(home: Path, seconds: float, hurry: float) -> None:
    with server() as database:
        findings = trio.run(partial(soak, home, database, seconds=seconds, kits=3, hurry=hurry))
    summary = report(findings)
    print(summary)
    assert not findings.wrong, summary
    posted = findings.ledger.delivered
    assert all(posted.get(channel) for channel in ("Satellite", "Cellular", "Radio")), summary
    assert len(findings.ledger.faults.keys() - {HILLS}) == 7, summary


@pytest.mark.full
def test_messages_arrive_once_in_ten_minutes_of_faults(tmp_path: Path) -> None:
    _run(tmp_path, TEN_MINUTES_S, HURRY)


@pytest.mark.soak
def test_messages_arrive_once_in_hours_of_faults(tmp_path: Path) -> None:
    _run(tmp_path, 60 * MINUTES, 1.0)
