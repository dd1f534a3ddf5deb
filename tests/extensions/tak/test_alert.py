"""A 911 alert of a TAK phone at the hub: it rings, once, until a person has closed it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import trio

from fieldagent.extensions.tak import cot
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.bridge import alert_intake, service
from fieldagent.extensions.tak.bridge.door import ALERT_AGAIN_S, EventAdmission, ReceivedEvent
from fieldagent.extensions.tak.bridge.intake import TakIntake
from fieldagent.extensions.tak.bridge.inward import TakInbox
from fieldagent.extensions.tak.bridge.users import UserLink
from fieldagent.extensions.tak.cot import NOWHERE, CotPoint
from fieldagent.extensions.tak.events import TakUnit
from fieldagent.hub.bridge.contract import BridgeHost
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.records import sos
from fieldagent.hub.store.contract import Store
from tests.extensions.tak.test_budget import BRAVO, CLEO, RULES, mountain
from tests.hub.field import Field

SPOT = CotPoint(46.5, 8.1)
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@asynccontextmanager
async def bridge(store: Store) -> AsyncIterator[tuple[Field, Any]]:
    """Yield the field, and a function that sends an event at the server."""
    async with mountain(store) as alps, trio.open_nursery() as nursery:
        unit = TakUnit(f"FA-1-{CLEO}", "Cleo")
        put, get = trio.open_memory_channel[ReceivedEvent](9)
        became: list[ItemResult] = []
        host = BridgeHost(store, {}, alps.clock, Mock(side_effect=became.append), Mock())
        inbox = TakInbox(1, RULES)
        intake = TakIntake(host, inbox, {CLEO: UserLink(unit)}, {}, Mock(), get)
        door = EventAdmission(Mock(), alps.clock, markers=False)
        nursery.start_soon(intake.run)

        async def say(raw: bytes) -> ItemResult | None:
            event = door.admit_alert(raw, alps.now)
            if event is None:
                return None
            became.clear()
            put.send_nowait(ReceivedEvent(CLEO, event.type, event))
            with trio.fail_after(30):
                while not became:
                    await trio.sleep(0.01)
            return became[-1]

        yield alps, say
        nursery.cancel_scope.cancel()


def alert(who: TakUnit = BRAVO, point: CotPoint = SPOT, *, cancels: bool = False) -> bytes:
    return cot.encode(tak.make_alert(who, point, NOW, cancels=cancels)).replace(
        b"_flow-tags_", b"x"
    )


async def incidents(alps: Field) -> list[tuple[Any, ...]]:
    return await alps.rows(
        "SELECT sos.kind, sos.state, device.name, item.body FROM sos JOIN device"
        " ON device.id = sos.device JOIN item ON item.id = sos.item ORDER BY sos.id"
    )


async def test_tak_alert_rings_once_until_closed_by_a_person(store: Store) -> None:
    async with bridge(store) as (alps, say):
        assert await say(alert()) is ItemResult.TAKEN
        ((kind, state, name, body),) = await incidents(alps)
        assert (kind, state, name) == ("sos", "open", BRAVO.callsign)
        assert "46.5" in str(body) and BRAVO.callsign in str(body)
        for _ in range(3):
            alps.now += ALERT_AGAIN_S
            await say(alert())
        assert len(await incidents(alps)) == 1
        # An unproved sender cannot end it.
        await say(alert(cancels=True))
        assert [state for _, state, *_ in await incidents(alps)] == ["open"]
        notes = await alps.rows("SELECT detail FROM sos_event WHERE event = 'note'")
        assert notes == [(f"{BRAVO.callsign} has cancelled the 911 alert on the phone",)]
        alps.now += ALERT_AGAIN_S
        await say(alert())
        await store.commit(lambda db: sos.set_closed(db, 1, alps.now))
        alps.now += ALERT_AGAIN_S
        await say(alert())
        assert len(await incidents(alps)) == 1, "the same alert, which the phone repeats"
        await say(alert(cancels=True))
        alps.now += ALERT_AGAIN_S
        await say(alert())
        assert len(await incidents(alps)) == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'lat="46.500000"', b'lat="here"'),
        (b'time="2026', b'time="soon'),
        (b'stale="', b'stole="'),
        (b'type="b-a-o-tbl"', b'type="b-a-o-opn"'),
        (b"<emergency", b"<emergent"),
        (b"</emergency", b"</emergent"),
    ],
)
async def test_alert_is_raised_despite_unreadable_attributes(
    store: Store, old: bytes, new: bytes
) -> None:
    raw = alert()
    if b"emergency" in old:
        old, new = b"emergency", b"emergent"
    assert old in raw
    async with bridge(store) as (alps, say):
        await say(raw.replace(old, new))
        assert len(await incidents(alps)) == 1


async def test_many_phones_share_a_device_and_keep_their_names(store: Store) -> None:
    async with bridge(store) as (alps, say):
        await say(alert(point=NOWHERE))
        add = partial(alert_intake.accept_alert, workspace=1, member=None, now=alps.now)
        for number in range(alert_intake.PHONES_MAX + 5):
            who = TakUnit(f"P-{number}", f"P{number}")
            read = tak.read_alert(cot.decode(alert(who)))
            assert read is not None
            await store.commit(partial(add, alert=read))
        count = await alps.rows("SELECT count(*) FROM tracker")
        assert count == [(alert_intake.PHONES_MAX + 1,)]


def test_alert_heard_by_several_connections_is_raised_once() -> None:
    """Each user's connection hears the same alert."""
    made = service._Bridge(Mock(clock=lambda: 1_000.0), Mock(), RULES, "1", 1)
    made._listening_member = CLEO
    took: list[Any] = []
    made._put = Mock(send_nowait=took.append)
    for member in (CLEO, CLEO + 1):
        made._filter_event(member, UserLink(TakUnit("FA-1-3", "Cleo")), tak.ALERT, alert())
    assert len(took) == 1
