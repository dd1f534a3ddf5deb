"""An SOS from a radio with an unproved owner rings and is sent as a separate incident.

It uses a small budget, so that the kit's own people keep theirs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fieldagent.agent.api.sos import IncidentApi
from fieldagent.agent.assembly import Parts
from fieldagent.agent.inbound.incident_news import IncidentNews
from fieldagent.agent.journal import incident
from fieldagent.agent.outbound import others_sos
from fieldagent.agent.outbound.incident_status import describe_incidents, list_heard_incidents
from fieldagent.extensions.people.desk import Desk
from fieldagent.extensions.people.toll import HandheldLimits
from fieldagent.http.message import Request
from fieldagent.package.package import Channel, IncidentState, IncidentUpdate, Message, Status
from fieldagent.wire.envelope import Entry, UnauthenticatedMark, derive_key, encode
from tests import kit as kits
from tests.extensions.people.test_desk import ADA, EVE, SETTINGS, Bench, bench
from tests.kit import Kit

LIMIT, RESERVE = 20, 10
MT_KEY = derive_key(bytes(32), "MT")
STATION = "n0call-9"
SENDERS: dict[str, tuple[str, str, Mapping[str, Any]]] = {
    "a radio that the kit does not know": (EVE, "", {}),
    "one that the settings believe": (STATION, "unproved", {"sos": {STATION}}),
}
"""The handle, the warning beside the names of its route, and the settings."""


@asynccontextmanager
async def camp(
    path: Path, caveat: str = "", also: tuple[Channel, ...] = (), **changed: Any
) -> AsyncIterator[Bench]:
    """Yield a kit with a satellite budget."""
    how: dict[str, Any] = {
        "credits_per_day": LIMIT,
        "reserve": RESERVE,
        "incidents": IncidentNews(7),
    }
    how["keys"] = [MT_KEY]
    async with kits.kit(path, also=also, **how) as kit:
        common = (kit.journal, kit.intake, kit.cancellation, kit.inbox)
        toll = HandheldLimits(kit.journal, kit.outboxes)
        settings = SETTINGS._replace(**changed)
        yield Bench(kit, Desk(*common, toll, settings, [], caveat))


def get_spent_credits(k: Kit) -> int:
    return k.outbox.budget.get_spent().credits


async def send_while_possible(k: Kit) -> list[str]:
    """Send over satellite as much as the budget allows, and return the sent content."""
    said: list[str] = []
    while k.outbox._is_ready(urgent=False):
        entries = await k.send()
        said += [e.content.content for e in entries if isinstance(e.content, Message)]
    return said


@pytest.mark.parametrize("sender", SENDERS)
@pytest.mark.parametrize("count", [5, 40])
async def test_unproved_senders_never_spend_the_reserve_of_the_kits_own_sos(
    tmp_path: Path, sender: str, count: int
) -> None:
    handle, caveat, changed = SENDERS[sender]
    async with camp(tmp_path, caveat, **changed) as there:
        k = there.kit
        for number in range(count):
            name = handle if sender.startswith("one") else f"!{number:08x}"
            await there.say(f"SOS x{number} " + "y" * 60, name)
        await send_while_possible(k)
        assert 0 < get_spent_credits(k) <= others_sos.CREDITS_PER_DAY
        own = await k.post(message={"content": "leg broken"}, priority=100)
        assert await send_while_possible(k) == ["leg broken"]
        assert k.status(own) is Status.DELIVERED


async def test_kits_own_sos_is_sent_first_even_without_credits(tmp_path: Path) -> None:
    async with camp(tmp_path) as there:
        k = there.kit
        await k.outbox.spend(LIMIT)
        await there.say("SOS x", EVE)
        assert await send_while_possible(k) == [], "others leave the reserve alone"
        await k.post(message={"content": "leg broken"}, priority=100)
        assert await send_while_possible(k) == ["leg broken"]


async def test_unproved_sos_without_credits_uses_only_free_channels(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with camp(tmp_path, also=(Channel.RADIO,)) as there:
        for number in range(9):
            await there.say("SOS " + "y" * 100, f"!{number:08x}")
        last = there.packages()[-1]
        assert last.sos and last.channels == frozenset([Channel.RADIO])
        assert there.answers()[-1].startswith("Your SOS is stored on this kit and rings here.")
        assert "uses only other channels" in caplog.text
        assert len(list_heard_incidents(there.kit.journal)) == 9, "each rings"


async def test_unproved_sos_without_any_affordable_channel_keeps_its_text(tmp_path: Path) -> None:
    """A stored Package without a channel is not a damaged one."""
    async with camp(tmp_path) as there:
        for number in range(9):
            await there.say(f"SOS leg {number} broken" + "y" * 100, f"!{number:08x}")
        last = there.packages()[-1]
        assert last.channels == frozenset()
        assert isinstance(last.item, Message)
        assert "leg 8 broken" in last.item.content


@pytest.mark.parametrize(
    ("channel", "is_marked"),
    [(Channel.SATELLITE, True), (Channel.CELLULAR, True), (Channel.RADIO, False)],
)
async def test_unproved_sos_is_marked_for_the_hub(
    tmp_path: Path, channel: Channel, is_marked: bool
) -> None:
    async with camp(tmp_path, also=(Channel.CELLULAR, Channel.RADIO)) as there:
        await there.say("SOS x", EVE)
        item, *marks = await there.kit.send(channel=channel)
        assert item.sos and isinstance(item.content, Message)
        assert [each.content for each in marks] == [UnauthenticatedMark()] * is_marked
        await there.kit.post(message={"content": "leg broken"}, priority=100)
        (own,) = await there.kit.send(channel=channel)
        assert own.content == Message("leg broken"), "the kit's own SOS has no mark"


async def test_mark_of_an_unproved_sos_is_left_out_if_it_would_cost_a_credit(
    tmp_path: Path,
) -> None:
    marked = set()
    for letters in range(0, 50, 5):
        (home := tmp_path / str(letters)).mkdir()
        async with camp(home) as there:
            await there.say("SOS " + "y" * letters, EVE)
            item, *marks = await there.kit.send()
            tariff = there.kit.queues[Channel.SATELLITE].limits.tariff
            assert get_spent_credits(there.kit) == tariff.compute_units(len(encode([item])))
            marked.add(bool(marks))
    assert marked == {True, False}


@pytest.mark.parametrize("sender", SENDERS)
async def test_unproved_sender_opens_a_separate_incident(tmp_path: Path, sender: str) -> None:
    handle, caveat, changed = SENDERS[sender]
    async with bench(tmp_path, caveat, **changed) as there:
        k = there.kit
        await there.say("SOS x", handle)
        await there.say("SOS y", handle)
        await k.post(message={"content": "leg broken"}, priority=100)
        own = incident.find_open(k.journal)
        theirs = incident.find_open_of_handheld(k.journal, handle)
        assert own is not None and theirs is not None and own.number != theirs.number
        assert len(incident.list_items(k.journal, theirs.number)) == 2
        assert len(incident.list_items(k.journal, own.number)) == 1
        status = describe_incidents(
            k.journal, k.queues, k.outboxes, interval_s=600, end_condition="person"
        )
        assert (status["active"], status["incident"]["number"]) == (1, own.number)
        (heard,) = status["heard"]
        assert (heard["state"], heard["number"]) == ("open", theirs.number), "it rings"
        assert "x" in heard["text"]
        await there.say("SOS CANCEL", handle)
        assert incident.find_open_of_handheld(k.journal, handle) is None
        assert incident.find_open(k.journal) == own


async def test_known_person_joins_the_kits_incident(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        await there.kit.post(message={"content": "leg broken"}, priority=100)
        await there.say("SOS me too", ADA)
        own = incident.find_open(there.kit.journal)
        assert own is not None and len(incident.list_items(there.kit.journal, own.number)) == 2
        assert list_heard_incidents(there.kit.journal) == []


@pytest.mark.parametrize("by", ["the hub", "a person at the kit"])
async def test_end_of_an_unproved_sos_does_not_end_the_kits_own(tmp_path: Path, by: str) -> None:
    async with camp(tmp_path) as there:
        k = there.kit
        await there.say("SOS x", EVE)
        await k.post(message={"content": "leg broken"}, priority=100)
        theirs = incident.find_open_of_handheld(k.journal, EVE)
        assert theirs is not None
        if by == "the hub":
            word = IncidentUpdate(theirs.number, IncidentState.CLOSED, 7, "Olga")
            at = int(k.journal.clock.date(k.journal.clock.now()))
            await k.hear(encode([Entry(0, word, at)], key=MT_KEY), tagged=True)
        else:
            await k.cancellation.call_off(theirs.number)
        assert incident.find_open_of_handheld(k.journal, EVE) is None
        assert incident.find_open(k.journal) is not None


async def test_unproved_incident_keeps_its_sender_after_a_restart(tmp_path: Path) -> None:
    async with camp(tmp_path) as there:
        await there.say("SOS x", EVE)
        await there.kit.post(message={"content": "leg broken"}, priority=100)
    async with camp(tmp_path) as there:
        await there.say("SOS y", EVE, number=99)
        theirs = incident.find_open_of_handheld(there.kit.journal, EVE)
        assert theirs is not None
        assert len(incident.list_items(there.kit.journal, theirs.number)) == 2
        first, *_ = await send_while_possible(there.kit)
        assert first == "leg broken", "the kit's own goes first"


async def test_acknowledged_unproved_sos_stops_ringing_on_the_kit(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        k = there.kit
        await there.say("SOS x", EVE)
        (heard,) = list_heard_incidents(k.journal)
        parts = SimpleNamespace(journal=k.journal, intake=k.intake, incident_status=dict)
        body = b'{"by": "Ben"}'
        take = Request("POST", "/", (), {"content-length": str(len(body))}, body)
        api = IncidentApi(cast(Parts, parts))
        answer = await api.record_seen(take, str(heard["station"]), str(heard["number"]))
        assert answer.status == 202
        (heard,) = list_heard_incidents(k.journal)
        assert (heard["state"], heard["steps"][0]["by"]) == ("seen", "Ben")
