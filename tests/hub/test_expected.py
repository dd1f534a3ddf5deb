"""The expected time until a push is on a kit's disk, from the times of earlier pushes."""

from __future__ import annotations

from typing import Any

from fieldagent.hub.field.cost import list_costs_and_forecast
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Store
from fieldagent.package.forecast import PACKAGES_MIN
from fieldagent.package.package import SOS_PRIORITY, Message
from tests.hub.field import Field, collect, field_of

BEN = 2


async def read_expected(alps: Field) -> dict[str, Any] | None:
    posting = Posting(1, 1, Message("come down"), int(alps.now), 12, target=BEN)
    (row,) = await alps.store.read(lambda db: list_costs_and_forecast(db, posting, alps.now))
    figures: dict[str, Any] | None = row["expected"]
    return figures


async def test_expected_time_is_shown_after_enough_arrivals(store: Store) -> None:
    async with field_of(store) as alps:
        for number in range(PACKAGES_MIN):
            assert await read_expected(alps) is None
            await alps.push(Message(f"number {number}"), target=BEN)
            alps.now += 60
            await collect(alps.mailbox(BEN))
        figures = {
            "samples": PACKAGES_MIN,
            "median": 60.0,
            "p90": 60.0,
            "share": 1.0,
            "longest": 60.0,
        }
        assert await read_expected(alps) == figures
        # An SOS goes before all others, so its time says nothing about them.
        await alps.push(Message("help"), sos=True, priority=SOS_PRIORITY)
        alps.now += 3600
        assert await read_expected(alps) == figures


async def test_expected_time_of_a_silent_kit_counts_waiting_pushes(store: Store) -> None:
    async with field_of(store) as alps:
        for number in range(PACKAGES_MIN):
            await alps.push(Message(f"number {number}"), target=BEN)
            alps.now += 60
            await collect(alps.mailbox(BEN))
        for number in range(PACKAGES_MIN):
            await alps.push(Message(f"silent {number}"), target=BEN)
        alps.now += 7200
        figures = await read_expected(alps)
        assert figures is not None
        assert (figures["samples"], figures["median"], figures["p90"]) == (
            2 * PACKAGES_MIN,
            60.0,
            None,
        )
        assert figures["share"] == 0.5
