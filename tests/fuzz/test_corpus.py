"""What the fuzzer has found worth keeping, its failures among it, through each decoder again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.decoders import DECODERS

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", DECODERS)
def test_every_input_that_was_kept_is_read_or_refused(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        DECODERS[name](path.read_bytes())


def test_no_input_is_kept_for_a_decoder_that_is_not_there() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(DECODERS)
