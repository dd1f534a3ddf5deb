"""Fences from databases of earlier releases are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kept.leave import hub_says
from tests.processes import hub
from tests.test_kept import KEPT, LONG, put, said


@pytest.mark.parametrize("kept", KEPT, ids=lambda each: each.name)
def test_fences_of_earlier_releases_are_read(kept: Path, tmp_path: Path) -> None:
    database = str(put(kept, "hub.sqlite3", tmp_path / "hub.sqlite3"))
    before = said(kept, "sqlite")
    with hub(tmp_path, {"database": database, "keep-days": LONG}) as running:
        assert hub_says(running, before["proof"])["fences"] == before["hub"]["fences"] != []
