"""Notes of a kit, whole, longer than allowed, of a later version, and damaged."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_note import WORDS_MAX, KitReport, UpdateReport, decode

TEXT = st.text(max_size=60)


@given(st.none() | st.builds(UpdateReport, TEXT, TEXT, TEXT))
def test_what_is_told_is_what_is_read(update: UpdateReport | None) -> None:
    assert decode(KitReport(update).encode()) == KitReport(update)


def test_a_long_reason_is_cut() -> None:
    found = decode(KitReport(UpdateReport("2", "1", "x" * 9_000)).encode())
    assert isinstance(found, KitReport) and found.update is not None
    assert len(found.update.why) < WORDS_MAX + 9


@pytest.mark.parametrize(
    ("items", "read"),
    [([9, "later"], None), ([0], KitReport()), ([0, None, None, "later"], KitReport())],
)
def test_what_a_later_version_says_is_skipped(items: list[Any], read: KitReport | None) -> None:
    assert decode(cbor2.dumps(items)) == read


@pytest.mark.parametrize("items", [{}, [], ["0"], [True], [0, 7], [0, ["2", "1"]], [0, [2, 1, ""]]])
def test_damage_is_told(items: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(cbor2.dumps(items))


@given(st.binary(max_size=80))
def test_garbage_is_told(body: bytes) -> None:
    with suppress(RemoteProtocolError):
        decode(body)
