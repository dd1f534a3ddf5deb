"""Each model in this folder: its claims hold in all runs, each of its seeded faults is found, and
the code does the same.

`NAME.pml` belongs to `NAME.py`, whose `walk` carries out the steps of a trace with the real
classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from tests.models import spin

WALKS = range(1, 7)
"""Seeds."""
LONG_WALKS = range(1_000, 1_400)
HOLDS = "errors: 0"


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(0.0, autojump_threshold=0)


@pytest.mark.full
@pytest.mark.parametrize("model", spin.MODELS)
@pytest.mark.parametrize("cycles", [False, True], ids=["claims", "progress"])
def test_claims_hold_in_every_run_of_the_model(tmp_path: Path, model: str, cycles: bool) -> None:
    said = spin.check(model, tmp_path, cycles=cycles)
    assert HOLDS in said and "max search depth" not in said, said


@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "fault"), [(model, fault) for model in spin.MODELS for fault in spin.faults(model)]
)
async def test_seeded_fault_violates_a_claim_and_is_absent_from_the_code(
    tmp_path: Path, model: str, fault: str, clock: Any
) -> None:
    said = spin.check(model, tmp_path, fault, cycles=True)
    assert "assertion violated" in said or "non-progress cycle" in said, said
    parted = False
    try:
        await take(model, spin.trail(model, tmp_path, fault), tmp_path)
    except* AssertionError:
        parted = True
    assert parted, "the code does what the broken model does"


@pytest.mark.parametrize("model", spin.MODELS)
def test_each_model_has_a_seeded_fault(model: str) -> None:
    assert spin.faults(model)


@pytest.mark.parametrize("seed", WALKS)
@pytest.mark.parametrize("model", spin.MODELS)
async def test_code_follows_random_walks_of_the_model(
    tmp_path: Path, model: str, seed: int, clock: Any
) -> None:
    await take(model, spin.walk(model, seed), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("model", spin.MODELS)
async def test_code_follows_long_random_walks_of_the_model(
    tmp_path: Path, model: str, clock: Any
) -> None:
    for seed in LONG_WALKS:
        place = tmp_path / str(seed)
        place.mkdir()
        await take(model, spin.walk(model, seed), place)


async def take(model: str, steps: Sequence[spin.Step], place: Path) -> None:
    assert steps, "the model traces nothing"
    await import_module(f"tests.models.{model}").walk(steps, place)
