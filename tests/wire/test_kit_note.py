"""Notes of a kit: complete, too long, of a later version, and damaged."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire.backup_note import (
    PAGE,
    BackupSummary,
    Copies,
    Copy,
    Direction,
    HeldItem,
    Inventory,
    InventoryRequest,
    InventoryRow,
    ItemRequest,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_note import (
    REASON_MAX,
    Directory,
    DirectoryEntry,
    HasDirectory,
    KitReport,
    ModemReport,
    Offer,
    OfferReport,
    ProgramOffer,
    SettingsOffer,
    StationsInRange,
    UpdateReport,
    decode,
)

TEXT = st.text(max_size=60)
RADIO = KitReport(modems=(ModemReport("radio", 3, None),))
DAMAGED_MODEMS: list[Any] = [
    "radio",
    [["radio", 3]],
    [["radio", 6, None]],
    [["radio", True, None]],
    [["radio", None, 101]],
    [["radio", 3, None]] * 9,
]
REPORTS = st.builds(OfferReport, st.integers(0, 2**40), TEXT, TEXT)


LISTED = st.builds(
    DirectoryEntry,
    st.sampled_from(["user", "group", "device"]),
    st.integers(0, 2**32),
    TEXT,
    st.lists(TEXT, max_size=2).map(tuple),
    st.lists(st.integers(0, 2**32), max_size=3).map(tuple),
)
DIGEST = st.binary(max_size=4)
HELD = st.builds(HeldItem, st.integers(0, 2**40), DIGEST)
ROW = st.builds(InventoryRow, *[st.integers(0, 2**40)] * 3, DIGEST, st.integers(0, 2**40))
NOTES = st.one_of(
    st.builds(
        KitReport, st.none() | st.builds(UpdateReport, TEXT, TEXT, TEXT), st.none() | REPORTS
    ),
    st.builds(
        KitReport, st.none(), st.none(), st.none() | REPORTS, st.sampled_from(["zipapp", "package"])
    ),
    st.builds(
        KitReport,
        installed=st.sampled_from(["", "zipapp"]),
        modems=st.lists(
            st.builds(
                ModemReport, TEXT, st.none() | st.integers(0, 5), st.none() | st.integers(0, 100)
            ),
            max_size=3,
        ).map(tuple),
    ),
    st.builds(SettingsOffer, TEXT, TEXT),
    st.builds(
        StationsInRange, st.dictionaries(st.integers(1, 2**40), st.integers(0, 255), max_size=64)
    ),
    st.builds(HasDirectory, st.integers(0, 2**40)),
    st.builds(Directory, st.integers(1, 2**40), st.integers(0, 2**32), st.lists(LISTED).map(tuple)),
    st.builds(BackupSummary, HELD, st.integers(0, 2**20), HELD),
    st.builds(InventoryRequest, st.sampled_from(Direction), st.integers(0, 2**40)),
    st.builds(
        Inventory,
        st.sampled_from(Direction),
        st.integers(0, 2**40),
        st.lists(ROW, max_size=3).map(tuple),
        st.tuples(st.integers(0, 2**32), st.integers(0, 2**32)),
    ),
    st.builds(ItemRequest, st.sampled_from(Direction), st.lists(st.integers(0, 2**40)).map(tuple)),
    st.builds(
        Copies,
        st.sampled_from(Direction),
        st.lists(st.builds(Copy, st.integers(0, 2**40), st.binary(), TEXT)).map(tuple),
    ),
    st.builds(ProgramOffer, st.integers(1, 2**40), TEXT, st.just("https://example.org/9.pyz")),
)


@given(NOTES)
def test_note_survives_encoding(note: KitReport | Offer) -> None:
    assert decode(note.encode()) == note


def test_long_reason_is_truncated() -> None:
    report = decode(KitReport(UpdateReport("2", "1", "x" * 9_000)).encode())
    assert isinstance(report, KitReport) and report.update is not None
    assert len(report.update.reason) < REASON_MAX + 9


@pytest.mark.parametrize(
    ("items", "read"),
    [
        ([99, "later"], None),
        ([0], KitReport()),
        ([0, None, None, None, "x", None, "later"], KitReport(installed="x")),
        ([0, None, None, None, "", [["radio", 3, None, "later"]]], RADIO),
    ],
)
def test_members_of_a_later_version_are_skipped(items: list[Any], read: KitReport | None) -> None:
    assert decode(cbor2.dumps(items)) == read


@pytest.mark.parametrize(
    "items",
    [
        {},
        [],
        ["0"],
        [True],
        [0, 7],
        [0, ["2", "1"]],
        [0, [2, 1, ""]],
        [0, None, ["7", "taken", ""]],
        [1, "text"],
        [1, "x" * 20_000, ""],
        [0, None, None, "later"],
        *([0, None, None, None, "", modems] for modems in DAMAGED_MODEMS),
        *(
            [5, heard]
            for heard in (None, 7, [[0, 1]], [[7]], [[7, 256]], [[True, 1]], [[7, 1]] * 65)
        ),
        [6, 1, b"", 0, 1],
        [6, -1, b"", 0, 1, b""],
        [6, 1, b"12345", 0, 1, b""],
        [7, 2, 0],
        [7, 0, -1],
        [8, 0, 0, [[1, 0, 1, b""]], 0, 0],
        [8, 0, 0, [], 0],
        [8, 0, 0, [[1, 0, 1, b"", 0]] * (PAGE + 1), 0, 0],
        [9, 0, [True]],
        [9, 0, [1] * (PAGE + 1)],
        [10, 1, [[1, "body", ""]]],
        [10, 1, [[1, b""]]],
        [2, 7, "9.0.0"],
        [2, 0, "9.0.0", "https://example.org/9.pyz"],
        [2, True, "9.0.0", "https://example.org/9.pyz"],
        [2, 7, "9.0.0", "file:///etc/shadow"],
        [2, 7, "9.0.0", "/etc/shadow"],
        [2, 7, "9.0.0", "https://example.org/a b"],
        [2, 7, "9.0.0", "https://example.org/a\nb"],
        [2, 7, "9.0.0", "https://example.org/" + "x" * 2_000],
    ],
)
def test_damaged_note_raises(items: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(cbor2.dumps(items))


@given(st.binary(max_size=80))
def test_random_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(RemoteProtocolError):
        decode(body)
