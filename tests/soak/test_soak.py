"""A minute of the soak wherever tests run, two in CI, hours of it in the long tests.

SOAK_MINUTES names another length for those. `python -m tests.soak` prints the same table.
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
BRIEFLY, IN_CI = 45, 120
"""Seconds."""
HURRY = 6.0
"""How many times the faults then: in so short a time each is to come. The rarest is the restart of
the database, every ten seconds on average."""


def _run(home: Path, seconds: float, hurry: float) -> None:
    with server() as database:
        findings = trio.run(partial(soak, home, database, seconds=seconds, kits=3, hurry=hurry))
    summary = report(findings)
    print(summary)
    assert not findings.wrong, summary
    posted = findings.ledger.delivered
    assert all(posted.get(channel) for channel in ("Satellite", "Cellular", "Radio")), summary
    assert len(findings.ledger.faults.keys() - {HILLS}) == 7 or seconds < 60, summary


def test_a_while_of_faults(tmp_path: Path) -> None:
    _run(tmp_path, IN_CI if os.environ.get("CI") else BRIEFLY, HURRY)


@pytest.mark.soak
def test_hours_of_faults(tmp_path: Path) -> None:
    _run(tmp_path, 60 * MINUTES, 1.0)
