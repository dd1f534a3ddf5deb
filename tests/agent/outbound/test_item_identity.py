"""The check that a peer's news about a number concerns the Package with this number."""

from __future__ import annotations

import pytest

from fieldagent.agent.journal.records import StoredPackage
from fieldagent.agent.outbound.item_identity import is_report_about, make_entry
from fieldagent.package.package import Message, Package
from fieldagent.wire.envelope import Ack, Report, compute_fragments_digest, encode
from fieldagent.wire.fragments import cut_into_fragments, split

ROOM = 120
PACKAGE = Package(Message("x" * 500))
KNOWN = StoredPackage(9, 1, PACKAGE, b"", None, 1_790_000_000.0, None, None, None)


def digest(count: int, arrived: set[int]) -> bytes:
    segments = cut_into_fragments(encode([make_entry(KNOWN)]), count)
    return compute_fragments_digest(
        segment.payload for segment in segments if segment.index in arrived
    )


@pytest.mark.parametrize("count", [3, 6, 23, 40])
def test_report_about_fragments_of_any_size_is_matched_by_digest(count: int) -> None:
    """A kit whose packets were larger yesterday gets news about those fragments today."""
    arrived = frozenset({0, count - 1})
    good = Ack(7, count, arrived, digest=digest(count, {0, count - 1}))
    assert is_report_about(KNOWN, good)
    assert not is_report_about(KNOWN, Ack(7, count, arrived, digest=b"none"))
    assert not is_report_about(KNOWN, Ack(7, count, frozenset({0}), digest=good.digest))


def test_report_with_other_fragment_count_is_rejected() -> None:
    ours = len(split(encode([make_entry(KNOWN)]), ROOM))
    for count in (ours - 1, ours, ours + 1):
        report = Report(count, frozenset({0}), digest(count, {0}))
        assert is_report_about(KNOWN, report, ROOM) is (count == ours)
