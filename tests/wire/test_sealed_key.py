"""A new radio-key that only one kit can open."""

from __future__ import annotations

import pytest

from fieldagent.wire.command import SEALED_KEY_BYTES
from fieldagent.wire.sealed_key import open_key, seal_key

KEY, MINE, OTHER = (bytes([number] * 32) for number in (1, 2, 3))


def test_sealed_key_opens_only_with_the_shared_secret() -> None:
    sealed = seal_key(KEY, MINE)
    assert len(sealed) == SEALED_KEY_BYTES
    assert open_key(sealed, [OTHER, MINE]) == KEY
    assert open_key(sealed, [OTHER]) is None
    assert open_key(sealed, []) is None
    assert KEY not in sealed


@pytest.mark.parametrize("at", range(SEALED_KEY_BYTES))
def test_altered_sealed_key_does_not_open(at: int) -> None:
    sealed = bytearray(seal_key(KEY, MINE))
    sealed[at] ^= 1
    assert open_key(bytes(sealed), [MINE]) is None


def test_key_of_another_length_does_not_open() -> None:
    assert open_key(seal_key(KEY[:-1], MINE), [MINE]) is None
