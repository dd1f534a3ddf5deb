"""Items from the hub over a neighbour: only this kit can open them, and they are confirmed and
never doubled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from fieldagent.agent.inbound.reception import Inbox, ReceivedMessage
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import StoredPackage
from fieldagent.extensions.radio.mesh.parcels import Parcels
from fieldagent.package.package import Channel, Message, Parcel
from fieldagent.wire.envelope import Entry, Receipt, compute_item_digest, encode
from fieldagent.wire.parcel import DOWN, UP, unwrap, wrap
from tests.running import running

SECRET, OTHER, USER = bytes(range(32)), bytes(32), 9
ITEM = Entry(7, Message("turn back"), 1_790_000_000)


@asynccontextmanager
async def kit(path: Path) -> AsyncIterator[tuple[Journal, Inbox]]:
    journal = Journal(path / "journal.sqlite3")
    with closing(journal):
        async with running(journal):
            yield journal, Inbox(journal, ["script"], clock=journal.clock.now)


async def take_in(
    journal: Journal, parcels: Parcels, body: bytes
) -> tuple[ReceivedMessage, list[StoredPackage]]:
    now = journal.clock.now()
    return await journal.persist(lambda db: parcels.store_parcel(db, Parcel(body, 2), now, 0.0))


async def test_parcel_with_known_item_is_confirmed_and_not_delivered_again(
    tmp_path: Path,
) -> None:
    async with kit(tmp_path) as (journal, inbox):
        by_ip = encode([ITEM], origin=USER)
        taken = await inbox.store_message(
            by_ip, lambda db: None, channel=Channel.CELLULAR, receipt_channel=None, is_tagged=False
        )
        assert len(taken.payloads) == 1
        body = wrap([ITEM], SECRET, DOWN, origin=USER)
        again, (answer,) = await take_in(journal, Parcels(inbox, [SECRET]), body)
        assert (again.payloads, again.duplicates) == ([], 1)
        sent = answer.package
        assert isinstance(sent.item, Parcel) and sent.item.station == 0
        assert sent.channels == frozenset({Channel.RADIO})
        (receipt,) = unwrap(sent.item.body, [SECRET], UP).entries
        assert (receipt.sequence, receipt.content) == (7, Receipt(digest=compute_item_digest(ITEM)))


@pytest.mark.parametrize(
    ("body", "secrets"),
    [
        (wrap([ITEM], OTHER, DOWN, origin=USER), [SECRET]),
        (wrap([ITEM], SECRET, UP, origin=USER), [SECRET]),
        (encode([ITEM], origin=USER), [SECRET]),
        (encode([ITEM], origin=USER), []),
        (wrap([ITEM], b"", DOWN, origin=USER), []),
        (b"garbage", [SECRET]),
    ],
    ids=["other secret", "sent back", "no tag", "no secret", "empty secret", "garbage"],
)
async def test_unproved_parcel_is_ignored_and_not_confirmed(
    tmp_path: Path, body: bytes, secrets: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async with kit(tmp_path) as (journal, inbox):
        taken, answers = await take_in(journal, Parcels(inbox, secrets), body)
        assert (taken.payloads, answers) == ([], [])
        assert "an item from the hub through a neighbour cannot be used" in caplog.text


async def test_nested_parcel_is_not_opened(tmp_path: Path) -> None:
    async with kit(tmp_path) as (journal, inbox):
        inner = Entry(8, Parcel(wrap([ITEM], SECRET, DOWN, origin=USER), 2), ITEM.time)
        body = wrap([inner], SECRET, DOWN, origin=USER)
        taken, _ = await take_in(journal, Parcels(inbox, [SECRET]), body)
        assert taken.payloads == []
