"""How much is tried at every change, and how much at length: the pages say what the tests do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import test_power_cuts
from tests.agent import test_disk_faults
from tests.agent.channels import test_satellite_soak
from tests.agent.journal import test_damage
from tests.hub import test_disk_faults as test_disk_faults_of_the_hub
from tests.models import test_models
from tests.simulation import test_seeds
from tests.soak import test_soak

DOCS = Path(__file__).parents[1] / "docs"
AT_EVERY_CHANGE = "at every change"
FAULTS = len(test_disk_faults.SOME) + len(test_disk_faults_of_the_hub.SOME)


def spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ") if number >= 10_000 else str(number)


SAID = {
    "reliability.md": [
        f"{test_power_cuts.STATES} of each program at every change,"
        f" {spaced(test_power_cuts.STATES_LONG)} in the long tests",
        f"{test_satellite_soak.FEW} messages at every change,"
        f" {spaced(test_satellite_soak.MANY)} in the long tests",
        f"{len(test_seeds.FEW)} seeds at every change, {len(test_seeds.MANY)} in the long tests",
        f"{test_soak.BRIEFLY} s of it at every change, {test_soak.IN_CI} s in CI,"
        f" {test_soak.MINUTES:g} minutes in the long tests",
        f"{FAULTS} of them at every change",
        f"{test_damage.FLIPS} at every change, {test_damage.MANY_FLIPS} in the long tests",
    ],
    "proofs.md": [
        f"{len(test_models.WALKS)} runs a model at every change,"
        f" {len(test_models.LONG_WALKS)} in the long tests",
    ],
}


def sentences(page: Path) -> str:
    return " ".join(page.read_text().split())


@pytest.mark.parametrize(("page", "text"), [(p, each) for p, all_ in SAID.items() for each in all_])
def test_a_page_says_how_much(page: str, text: str) -> None:
    assert text in sentences(DOCS / page)


def test_no_page_says_another_number() -> None:
    """Whatever number stands before those words is one of those above."""
    for page in DOCS.glob("**/*.md"):
        for match in re.finditer(rf"\d[\w ]* {AT_EVERY_CHANGE}", sentences(page)):
            assert any(text.startswith(match[0]) for text in SAID.get(page.name, ())), match[0]
