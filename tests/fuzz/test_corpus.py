"""Runs each decoder with the kept inputs of the fuzzer, including its failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.decoders import all_decoders

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", all_decoders())
def test_every_stored_fuzzer_input_is_read_or_refused(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        all_decoders()[name](path.read_bytes())
