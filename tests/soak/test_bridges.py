"""TAK, MQTT and discovery while each process is killed and restarted.

SOAK_MINUTES sets another length. `python -m tests.soak.bridges` prints the same table.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.extensions.mqtt.brokers import needs_mosquitto
from tests.soak.bridges import live, report

MINUTES = float(os.environ.get("SOAK_MINUTES", "4"))


@pytest.mark.soak
@needs_mosquitto
@pytest.mark.parametrize("seed", [1, 2])
def test_bridges_lose_nothing_while_processes_are_killed(tmp_path: Path, seed: int) -> None:
    soak = live(tmp_path, seed=seed, seconds=60 * MINUTES)
    summary = report(soak)
    print(summary)
    assert not soak.ledger.wrong, summary
    ticks = [tick for chat in soak.ledger.chats.values() for tick in chat.ticks]
    assert {"b-t-f-d", "b-t-f-r"} <= {*ticks}, summary
    assert soak.ledger.delivered, summary
    assert sum(soak.faults.values()) > 10 * MINUTES / 2, summary
