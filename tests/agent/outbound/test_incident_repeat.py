"""An incident from its start until a person has it or it is over."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.inbound.incident_news import IncidentNews
from fieldagent.agent.journal import history, inbound, incident, on_air, outbound
from fieldagent.agent.outbound.cancel import Cancellation, call_off
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.incident_status import describe_incident, describe_incidents
from fieldagent.agent.outbound.package_state import get_package_state
from fieldagent.agent.outbound.repeats import (
    INCIDENT_CHECK_INTERVAL_S,
    list_repeated,
    run_incident_repeats,
)
from fieldagent.package.package import (
    Channel,
    IncidentState,
    IncidentUpdate,
    Message,
    Status,
)
from fieldagent.package.payload import Identity
from fieldagent.wire.envelope import Entry, Receipt, derive_key, encode
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.proof import derive_proof_key, prove_update
from tests.cut import PowerCut
from tests.kit import START, Kit, kit

REPEAT = 600.0
MASTER = bytes(range(32))
MT_KEY = derive_key(MASTER, "MT")
NEWS = IncidentNews(7, [derive_proof_key(MASTER)])
OTHER_PROOF_KEY = derive_proof_key(bytes(32))


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """The tests wait for no pty, and the journal stops the clock while its thread works."""
    return trio.testing.MockClock(autojump_threshold=0)


@asynccontextmanager
async def in_distress(path: Path, repeat: float = REPEAT) -> AsyncIterator[Kit]:
    async with kit(path, also=[Channel.CELLULAR], keys=[MT_KEY], incidents=NEWS) as k:
        clock = k.journal.clock.now
        going = partial(
            run_incident_repeats, interval_s=repeat, end_condition="person", clock=clock
        )
        k.nursery.start_soon(going, k.journal, k.queues)
        yield k


def receipt(k: Kit, key: bytes | None = MT_KEY) -> bytes:
    """Return the hub's receipt for the kit's first Package."""
    now, sequence = int(START + trio.current_time()), k.sequence()
    return encode([Entry(sequence, Receipt(digest=k.digest(sequence)), now)], key=key)


async def sent_at(k: Kit) -> float:
    await k.outbox.wait_until_ready()
    (entry,) = await k.send()
    assert (entry.content, entry.sos) == (Message("help"), True)
    return trio.current_time()


async def test_sos_is_repeated_at_interval_until_confirmed(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        id_ = await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        times = [await sent_at(k) for _ in range(4)]
        assert k.status(id_) is Status.DELIVERED
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert all(REPEAT <= gap <= REPEAT + 2 * INCIDENT_CHECK_INTERVAL_S for gap in gaps)
        await k.reception.receive(receipt(k))
        with trio.move_on_after(3 * REPEAT) as waited:
            await k.outbox.wait_until_ready()
        assert waited.cancelled_caught
        open_incident = incident.find_open(k.journal)
        assert open_incident is not None and open_incident.state == "open"


async def test_waiting_repeat_is_withdrawn_when_sos_is_confirmed(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        await sent_at(k)
        await k.outbox.wait_until_ready()
        await k.reception.receive(receipt(k))
        await trio.sleep(2 * INCIDENT_CHECK_INTERVAL_S)
        assert len(k.outbox) == 0


async def test_repeats_of_sos_survive_restart(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        await sent_at(k)
    async with in_distress(tmp_path) as k:
        await sent_at(k)


@pytest.mark.parametrize("jump", [-7 * 86_400.0, 7 * 86_400.0])
async def test_repeats_of_sos_survive_clock_change(
    tmp_path: Path, clock: trio.testing.MockClock, jump: float
) -> None:
    set_by = 0.0
    async with kit(tmp_path) as k:
        going = partial(
            run_incident_repeats,
            interval_s=REPEAT,
            end_condition="person",
            clock=lambda: START + trio.current_time() + set_by,
        )
        k.nursery.start_soon(going, k.journal, k.queues)
        await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        first = await sent_at(k)
        await trio.sleep(REPEAT / 2)
        set_by = jump
        assert REPEAT <= await sent_at(k) - first <= REPEAT + 2 * INCIDENT_CHECK_INTERVAL_S


@pytest.mark.parametrize("priority", [11, 99])
async def test_ordinary_package_is_not_repeated(
    tmp_path: Path, clock: trio.testing.MockClock, priority: int
) -> None:
    async with in_distress(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=priority)
        await k.send()
        await trio.sleep(3 * REPEAT)
        assert len(k.outbox) == 0


async def test_incident_stays_open_if_canceled_sos_may_have_left(tmp_path: Path) -> None:
    """Only the call-off of the SOS informs a receiver that may have the SOS."""
    async with in_distress(tmp_path) as k:
        id_ = await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        in_session = k.load()
        await k.outbox.settle(in_session, Outcome.DOUBTFUL, reason="no answer")
        await k.outbox.settle(in_session, Outcome.NOT_SENT, reason="no service")
        assert (await k.cancellation.cancel(id_)).status is Status.CANCELED
        assert incident.find_open(k.journal) is not None


async def test_item_that_joins_during_call_off_is_canceled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, a position is committed just before the end of the incident."""
    end = Cancellation._end

    async with in_distress(tmp_path) as k:

        async def joined_before(cancellation: Cancellation, number: int) -> None:
            await k.post(location={"latitude": 46.5, "longitude": 8}, priority=100)
            await end(cancellation, number)

        monkeypatch.setattr(Cancellation, "_end", joined_before)
        await k.post(message={"content": "help"}, priority=100)
        await k.cancellation.call_off(number := k.sequence())
        standings = [
            get_package_state(k.journal, each) for each in incident.list_items(k.journal, number)
        ]
        assert [each.status for each in standings] == [Status.CANCELED] * 2
        assert k.outbox.load(340) is None


async def test_called_off_sos_is_withdrawn_and_not_repeated(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=100)
        await k.send(channel=Channel.CELLULAR)
        assert await k.cancellation.call_off(k.sequence()) == []
        standing = k.standing(1)
        assert standing.deliveries[Channel.CELLULAR].status is Status.DELIVERED
        assert standing.deliveries[Channel.SATELLITE].status is Status.CANCELED
        assert k.declared() == []
        await trio.sleep(3 * REPEAT)
        assert [len(outbox) for outbox in k.outboxes.values()] == [0, 0]


async def call_off_of(k: Kit) -> bool:
    return await call_off(k.journal, k.cancellation, k.intake, [], k.sequence())


async def test_call_off_is_stored_while_session_continues(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    """Power may fail before the session ends. The caller gets an answer immediately."""
    async with in_distress(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        in_session = k.load()
        with trio.fail_after(20):
            assert await call_off_of(k)
        word = outbound.read_kept_package(k.journal, k.sequence() + 1)
        assert word is not None
        assert word.package.item == IncidentUpdate(k.sequence(), IncidentState.CALLED_OFF)
        await k.outbox.settle(in_session, Outcome.SENT)
        (said,) = await k.send()
        assert said.content == word.package.item


@pytest.mark.parametrize("left", [True, False], ids=["sent", "in-session"])
async def test_power_cut_in_call_off_keeps_end_and_update_together(
    tmp_path: Path, clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, *, left: bool
) -> None:
    """If the kit ended it silently, the hub would continue to ring."""
    async with in_distress(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        if left:
            await k.send()
        else:
            k.load()
        commits = 0

        def counted(commit: Any) -> Any:
            async def cut(*arguments: Any, **named: Any) -> Any:
                nonlocal commits
                result = await commit(*arguments, **named)
                commits += 1
                if commits == 1:
                    raise PowerCut
                return result

            return cut

        for name in ("commit", "commit_urgent", "persist"):
            monkeypatch.setattr(k.journal, name, counted(getattr(k.journal, name)))
        with pytest.raises(PowerCut):
            await call_off_of(k)
        word = outbound.read_kept_package(k.journal, k.sequence() + 1)
        assert incident.find_open(k.journal) is None and word is not None
        assert word.package.item == IncidentUpdate(k.sequence(), IncidentState.CALLED_OFF)


async def test_call_off_of_unsent_sos_sends_no_update(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    answers = []
    async with in_distress(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        in_session = k.load()
        async with trio.open_nursery() as nursery:

            async def end() -> None:
                answers.append(await call_off_of(k))

            nursery.start_soon(end)
            await trio.sleep(1)
            await k.outbox.settle(in_session, Outcome.NOT_SENT, reason="no service")
        assert answers == [False]
        assert k.outbox.load(340) is None


async def test_sos_in_session_is_not_retried_after_call_off(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        id_ = await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        in_session = k.load()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(k.cancellation.call_off, k.sequence())
            await trio.sleep(1)
            await k.outbox.settle(in_session, Outcome.NOT_SENT, reason="no service")
        assert k.status(id_) is Status.CANCELED
        assert len(k.outbox) == 0


async def test_history_lists_events_in_order_and_counts_repeats(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        id_ = await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        for _ in range(3):
            await trio.sleep(10)
            await k.send(Outcome.NOT_SENT, reason="no service")
        await trio.sleep(10)
        await k.send()
        await trio.sleep(10)
        await k.reception.receive(receipt(k))
        story = k.history(id_)
        assert [(line.event, line.detail, line.times) for line in story] == [
            ("accepted", "", 1),
            ("not sent", "no service", 3),
            ("sent", "22 bytes, 1 credit", 1),
            ("Delivered", "", 1),
            ("answered", "Delivered", 1),
            ("confirmed", "stored by the hub", 1),
        ]


async def test_late_receipt_of_expired_package_is_stored(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with kit(tmp_path) as k:
        id_ = await k.post(timeToLive=60)
        await trio.sleep(120)
        assert (k.status(id_), k.reason(id_)) == (Status.ERROR, "expired")
        await k.reception.receive(receipt(k))
        standing = k.standing(id_)
        assert standing.status is Status.ERROR
        assert [storage.by.id for storage in k.receipts(id_)] == ["0"]


def words(k: Kit, says: IncidentState, key: bytes | None) -> dict[str, bytes]:
    """Return the same news from the hub and from others."""
    word = IncidentUpdate(k.sequence(), says, 7, by="Olga")
    proved = prove_update(word, derive_proof_key(MASTER))
    forged = prove_update(word, OTHER_PROOF_KEY)
    now = int(START + trio.current_time())
    return {
        "tagged": encode([Entry(0, word, now)], key=MT_KEY),
        "proved, carried by another": encode([Entry(5, proved, now)]),
        "forged": encode([Entry(5, forged, now)]),
        "without a proof": encode([Entry(5, word, now)]),
    }


ON_AIR = (Channel.RADIO, Channel.SATELLITE)
GOES_ON: dict[str, tuple[set[Channel], str]] = {
    "nothing": ({*ON_AIR}, "open"),
    "a neighbour's Ack": ({*ON_AIR}, "open"),
    "a neighbour that says it relayed it to the hub": ({*ON_AIR}, "open"),
    "the hub's receipt, tagged": ({Channel.RADIO}, "open"),
    "the hub's receipt, unproved": ({*ON_AIR}, "open"),
    "seen: tagged": ({Channel.SATELLITE}, "seen"),
    "seen: proved, carried by another": ({Channel.SATELLITE}, "seen"),
    "seen: forged": ({*ON_AIR}, "open"),
    "seen: without a proof": ({*ON_AIR}, "open"),
    "closed: tagged": (set(), "closed"),
    "closed: proved, carried by another": (set(), "closed"),
    "closed: forged": ({*ON_AIR}, "open"),
    "closed: without a proof": ({*ON_AIR}, "open"),
    "called off here": (set(), "called off"),
    "called off: forged": ({*ON_AIR}, "open"),
    "called off: without a proof": ({*ON_AIR}, "open"),
}
"""The news, the channels on which the SOS then continues, and its state."""


@pytest.mark.parametrize("said", GOES_ON)
async def test_only_proved_news_from_hub_ends_repeats(
    said: str, tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with kit(tmp_path, also=[Channel.RADIO], keys=[MT_KEY], incidents=NEWS) as k:
        await k.post(message={"content": "help"}, priority=100)
        await k.send()
        await k.send(channel=Channel.RADIO)
        await _apply_news(k, said)
        going = {channel for _, channel in list_repeated(k.journal, "person")}
        last_incident = incident.find_last(k.journal)
        assert last_incident is not None
        assert (going, last_incident.state) == GOES_ON[said]
        doubted = [
            step
            for step in describe_incident(k.journal, last_incident)["steps"]
            if step.get("unauthenticated")
        ]
        assert bool(doubted) == any(each in said for each in ("forged", "without", "relayed"))


async def test_history_shows_names_of_stations_introduced_later(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with kit(tmp_path, Channel.RADIO, keys=[MT_KEY], incidents=NEWS) as k:
        await k.post(message={"content": "help"}, priority=100)
        number = k.sequence()
        text = on_air.describe_stop(3, [5, 14])

        def note(db: sqlite3.Connection) -> None:
            assert on_air.record_stop(db, number, text, START)
            assert not on_air.record_stop(db, number, text, START + 1)

        def told() -> list[str]:
            own = incident.find_last(k.journal)
            assert own is not None
            steps = [
                step["text"]
                for step in describe_incident(k.journal, own)["steps"]
                if "text" in step
            ]
            package = outbound.find_by_sequence(k.journal, number)
            assert package is not None
            story = history.list_lines(k.journal, package, [])
            lines = [line.detail for line in story if line.channel is Channel.RADIO]
            assert steps == lines
            return lines

        await k.journal.persist(note)
        await k.note_relayed(number)
        assert told() == [text, "station 5 did"]
        for station, name in ((3, "Ada"), (5, "Ben's kit")):
            who = Identity(str(station), name, "Device")
            await k.journal.persist(partial(inbound.store_identity, origin=-station, person=who))
        assert told() == [
            "Ada has it and may not pass it on (radio-hops);"
            " Ben's kit, station 14 have not confirmed it there",
            "Ben's kit did",
        ]


async def _apply_news(k: Kit, said: str) -> None:
    number = k.sequence()
    if ": " in said:
        what, how = said.split(": ")
        body = words(k, IncidentState(what), MT_KEY)[how]
        await k.hear(body, tagged=how == "tagged")
    elif said.startswith("a neighbour"):
        await k.journal.persist(lambda db: outbound.store_receipt(db, number, -5, START))
        if "relayed" in said:
            await k.note_relayed(number)
    elif "tagged" in said:
        await k.hear(receipt(k), tagged=True)
    elif "receipt" in said:
        await k.journal.persist(
            lambda db: outbound.store_receipt(db, number, 0, START, is_proved=False)
        )
    elif said == "called off here":
        await k.cancellation.call_off(number)


async def test_receipt_of_hub_ends_radio_repeats_with_sos_until_hub(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with kit(tmp_path, also=[Channel.RADIO], keys=[MT_KEY], incidents=NEWS) as k:
        await k.post(message={"content": "help"}, priority=100)
        await k.send()
        await k.send(channel=Channel.RADIO)
        assert len(list_repeated(k.journal, "hub")) == 2
        await k.hear(receipt(k), tagged=True)
        assert list_repeated(k.journal, "hub") == {}


async def test_sos_items_join_open_incident_and_refer_to_first_item(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with kit(tmp_path, keys=[MT_KEY], incidents=NEWS) as k:
        await k.post(message={"content": "help"}, priority=100)
        await k.post(message={"content": "hello"})
        await k.post(location={"latitude": 1.0, "longitude": 2.0}, priority=100)
        await k.post(message={"content": "worse"}, priority=120)
        first = k.sequence()
        assert incident.list_items(k.journal, first) == [first, first + 2, first + 3]
        entries = []
        while len(k.outbox):
            entries += await k.send()
        backs = {entry.sequence - first: entry.items_back for entry in entries if entry.sos}
        assert backs == {0: 0, 2: 2, 3: 3}
        await k.cancellation.call_off(first)
        await k.post(message={"content": "again"}, priority=100)
        assert incident.list_items(k.journal, first + 4) == [first + 4]


@pytest.mark.parametrize("state", ["in no queue yet", "waits", "left", "no channel"])
async def test_next_try_of_sos_is_none_only_without_channel(
    tmp_path: Path, clock: trio.testing.MockClock, state: str
) -> None:
    async with kit(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=100)
        if state == "left":
            await k.send()
        queues: dict[Channel, ChannelQueue] = dict(k.queues)
        if state == "in no queue yet":
            queues = {channel: ChannelQueue(channel) for channel in queues}
        elif state == "no channel":
            queues = {}
        status = describe_incidents(
            k.journal, queues, k.outboxes, interval_s=REPEAT, end_condition="person"
        )
        assert (status["incident"]["nextTry"] is None) == (state == "no channel")


PAUSES = [30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 900.0]
"""Seconds until a refused SOS is retried."""


async def test_refused_sos_is_retried_less_and_less_often(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        id_ = await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        k.outbox.link.state = LinkState.READY
        gaps = []
        for _ in PAUSES:
            await k.send(Outcome.REFUSED, reason="too many segments")
            assert k.status(id_) is None
            status = describe_incidents(
                k.journal, k.queues, k.outboxes, interval_s=REPEAT, end_condition="person"
            )
            began = trio.current_time()
            assert status["incident"]["nextTry"] > k.journal.clock.date(k.journal.clock.now())
            await k.outbox.wait_until_ready()
            gaps.append(trio.current_time() - began)
        assert gaps == pytest.approx(PAUSES)
        await k.send()
        assert k.status(id_) is Status.DELIVERED


async def test_refused_sos_is_retried_after_restart(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        await k.send(Outcome.REFUSED)
    async with in_distress(tmp_path) as k:
        await sent_at(k)


@pytest.mark.parametrize("back", [False, True], ids=["in flight", "waits"])
async def test_refused_sos_is_not_retried_after_end_of_incident(
    tmp_path: Path, clock: trio.testing.MockClock, back: bool
) -> None:
    async with in_distress(tmp_path) as k:
        id_ = await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        transmission = k.load()
        if back:
            await k.outbox.settle(transmission, Outcome.REFUSED)
        word = words(k, IncidentState.CLOSED, MT_KEY)["tagged"]
        await k.reception.receive(word)
        if back:
            await k.outbox.wait_until_ready()
            transmission = k.load()
        await k.outbox.settle(transmission, Outcome.REFUSED)
        assert (k.status(id_), len(k.outbox)) == (Status.ERROR, 0)


async def test_refused_incident_update_is_retried(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with in_distress(tmp_path) as k:
        await k.post(message={"content": "help"}, priority=100, channels=["Satellite"])
        await k.send()
        assert await call_off_of(k)
        await check_refused_item_is_retried(k)


async def check_refused_item_is_retried(k: Kit) -> None:
    """Check that the only item in the queue is sent again after the gateway has refused it."""
    await k.send(Outcome.REFUSED)
    assert len(k.outbox) == 1
    await k.outbox.wait_until_ready()
    await k.send()
    assert len(k.outbox) == 0
