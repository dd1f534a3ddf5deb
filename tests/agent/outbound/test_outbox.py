"""A Package from acceptance to its end, with restarts in between. The test plays the channel."""

from __future__ import annotations

import shutil
import sqlite3
from base64 import b64encode
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.journal import incident, outbound
from fieldagent.agent.journal.incident import HeardIncident
from fieldagent.agent.journal.journal import DELETED_ROWS_MAX
from fieldagent.agent.journal.records import Segment
from fieldagent.agent.outbound.budget import compute_sos_reserve
from fieldagent.agent.outbound.ending import AgentStopping
from fieldagent.agent.outbound.intake import Conflict
from fieldagent.agent.outbound.package_state import PackageState, UnknownPackage
from fieldagent.agent.outbound.packing import SOS_ALONE_TRIES
from fieldagent.package.package import Channel, IncidentState, IncidentUpdate, Message, Status
from fieldagent.package.payload import Identity
from fieldagent.package.reading import read_package
from fieldagent.store.group import StoreFull
from fieldagent.wire.credit import CREDIT_BYTES
from fieldagent.wire.envelope import (
    Entry,
    Fragment,
    Introduction,
    Receipt,
    Report,
    compute_item_digest,
    decode,
    encode,
)
from fieldagent.wire.fragments import join
from fieldagent.wire.outcome import Outcome
from tests.kit import START, kit
from tests.processes import PATIENCE


async def test_package_is_delivered_once_channel_has_sent_item(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        id_ = await k.post()
        assert k.status(id_) is None
        (entry,) = await k.send()
        assert entry.content == Message("hello")
        assert k.status(id_) is Status.DELIVERED
        assert len(k.outbox) == 0
        assert k.outbox.budget.get_spent().credits == 1


async def test_callers_wait_for_outcome_of_package(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        accepted = await k.intake.accept(read_package({"message": {"content": "x"}}))
        answers: list[PackageState] = []

        async def caller() -> None:
            answers.append(await k.endings.wait_for_outcome(accepted.sequence))

        async with trio.open_nursery() as callers:
            callers.start_soon(caller)
            callers.start_soon(caller)
            await trio.testing.wait_all_tasks_blocked()
            await k.send()
        assert [answer.status for answer in answers] == [Status.DELIVERED] * 2


async def test_sos_is_sent_alone_twice_and_then_with_other_items(tmp_path: Path) -> None:
    """The first two tries contain no other entries, because each byte makes success less likely."""
    notes = [Message(f"note {number}") for number in range(4)]
    async with kit(tmp_path) as k:
        for note in notes:
            await k.post(message={"content": note.content})
        await k.post(message={"content": "help"}, priority=100)
        await k.post(message={"content": "here"}, priority=100)
        for others in ([], [], notes):
            transmission = k.load()
            assert transmission.urgent
            contents = [entry.content for entry in decode(transmission.body).entries]
            assert contents == [Message("help"), Message("here"), *others]
            await k.outbox.settle(transmission, Outcome.NOT_SENT, reason="no signal")


async def test_first_transmission_of_sos_ignores_spent_budget(tmp_path: Path, clock: Any) -> None:
    """The budget limits only its repetitions."""
    async with kit(tmp_path, credits_per_day=1) as k:
        await k.post()
        await k.send()
        first = await k.post(message={"content": "help"}, priority=100)
        again = await k.post(message={"content": "hurt " * 20}, priority=100)
        with trio.fail_after(1):
            await k.outbox.wait_until_ready(urgent=True)
        assert len(await k.send()) == 2
        assert (k.status(first), k.status(again)) == (Status.DELIVERED, Status.DELIVERED)
        later = await k.post(message={"content": "more"}, priority=100)
        assert "the budget of today is spent" in k.outbox.describe_hold()
        await k.outbox.wait_until_ready(urgent=True)
        assert trio.current_time() > 3600, "on the next day"
        assert len(await k.send()) == 1
        assert k.status(later) is Status.DELIVERED


@pytest.mark.parametrize(
    ("limit", "wanted", "kept"),
    [(None, None, 0), (None, 5, 0), (100, None, 10), (8, None, 4), (100, 0, 0), (8, 20, 8)],
)
def test_sos_reserve_is_computed_from_settings(
    limit: int | None, wanted: int | None, kept: int
) -> None:
    assert compute_sos_reserve(limit, wanted) == kept


async def test_smaller_package_is_sent_while_larger_package_waits(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        payload = b64encode(bytes(200)).decode()
        await k.post(data={"payload": payload})
        large = await k.post(data={"payload": payload})
        small = await k.post(message={"content": "c" * 20})
        assert len(await k.send()) == 2
        assert (k.status(large), k.status(small)) == (None, Status.DELIVERED)


@pytest.mark.parametrize("limit", [None, 10])
async def test_package_with_too_many_fragments_fails_and_blocks_no_other(
    tmp_path: Path, limit: int | None
) -> None:
    """A request for the cost is limited in the same way."""
    async with kit(tmp_path, credits_per_day=limit) as k:
        payload = b64encode(bytes(range(256)) * 390).decode()
        id_ = await k.post(data={"payload": payload})
        small = await k.post()
        await k.outbox.wait_until_ready()
        await k.send()
        assert (k.status(id_), k.status(small)) == (Status.ERROR, Status.DELIVERED)
        assert k.reason(id_) == "too large: 99861 bytes need more than 255 fragments"


async def test_fragments_continue_after_sos_and_restart(tmp_path: Path) -> None:
    payload = bytes(range(256)) * 4
    async with kit(tmp_path) as k:
        id_ = await k.post(data={"payload": b64encode(payload).decode()})
        slices: dict[int, bytes] = {}

        async def send_fragment() -> int:
            entry, *named = await k.send()
            # The open incident is named if it costs nothing.
            assert all(isinstance(each.content, IncidentUpdate) for each in named)
            assert isinstance(entry.content, Fragment)
            slices[entry.content.index] = entry.content.payload
            return entry.content.count

        count = await send_fragment()
        sos = await k.post(message={"content": "help"}, priority=100)
        (between,) = await k.send()
        assert between.sos
        assert (k.status(sos), k.status(id_)) == (Status.DELIVERED, None)
    async with kit(tmp_path) as k:
        while len(slices) < count:
            await send_fragment()
        assert k.status(id_) is Status.DELIVERED
        (whole,) = decode(join(slices)).entries
        assert getattr(whole.content, "payload", None) == payload


async def test_only_fragments_that_peer_misses_are_repeated(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        id_ = await k.post(message={"content": "x" * 1500})
        sent: list[Entry] = []
        while k.status(id_) is None:
            sent += await k.send()
        arrived = frozenset({0, 2, 4})
        digest = k.digest_of_fragments(sent[0].sequence, len(sent), arrived)
        report = Entry(sent[0].sequence, Report(len(sent), arrived, digest))
        await k.reception.receive(encode([report]))
        again = [*await k.send(), *await k.send()]
        assert again == [sent[1], sent[3]]
        assert k.outbox.load(340) is None
        assert k.status(id_) is Status.DELIVERED


async def test_newer_package_collapses_waiting_package(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        older = await k.post(collapseKey=7)
        newer = await k.post(collapseKey=7, message={"content": "newer"})
        assert k.status(older) is Status.COLLAPSED
        (entry,) = await k.send()
        assert entry.content == Message("newer")
        assert k.status(newer) is Status.DELIVERED


async def test_package_is_not_sent_while_being_replaced(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        older = await k.post(collapseKey=7)
        commits = k.journal.commits
        another = sqlite3.connect(k.journal.path, isolation_level=None)
        async with trio.open_nursery() as nursery:
            # The journal waits for another program, so that the moment lasts.
            another.execute("BEGIN IMMEDIATE")
            nursery.start_soon(partial(k.post, collapseKey=7))
            await trio.testing.wait_all_tasks_blocked()
            assert k.outbox.load(340) is None
            # If two Packages arrive at one moment, the second waits for the first and replaces it.
            nursery.start_soon(partial(k.post, collapseKey=7, message={"content": "newest"}))
            await trio.testing.wait_all_tasks_blocked()
            another.close()
        assert k.journal.commits - commits == 2
        assert [k.status(id_) for id_ in (older, older + 1)] == [Status.COLLAPSED] * 2
        (entry,) = await k.send()
        assert entry.content == Message("newest")


async def test_older_package_is_sent_if_replacement_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kit(tmp_path) as k:
        older = await k.post(collapseKey=7)

        async def full(*_: Any) -> None:
            raise StoreFull("as a test")

        with monkeypatch.context() as patch:
            patch.setattr(k.journal, "commit", full)
            with pytest.raises(StoreFull):
                await k.post(collapseKey=7, message={"content": "newer"})
        (entry,) = await k.send()
        assert entry.content == Message("hello")
        assert k.status(older) is Status.DELIVERED


@pytest.mark.parametrize("arrives", [True, False])
async def test_older_package_is_not_sent_after_delivered_replacement(
    tmp_path: Path, arrives: bool
) -> None:
    async with kit(tmp_path) as k:
        older = await k.post(collapseKey=7)
        first = k.load()
        newer = await k.post(collapseKey=7, message={"content": "newer"})
        second = k.load()
        await k.outbox.settle(second, Outcome.SENT if arrives else Outcome.REFUSED)
        await k.outbox.settle(first, Outcome.NOT_SENT)
        assert k.status(newer) is (Status.DELIVERED if arrives else Status.ERROR)
        if arrives:
            assert k.status(older) is Status.COLLAPSED
            assert k.reason(older) == "replaced by a newer Package"
            assert k.outbox.load(340) is None
        else:
            (entry,) = await k.send()
            assert entry.content == Message("hello")


async def test_package_in_transmission_collapses_only_if_not_sent(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        for outcome, expected in [
            (Outcome.SENT, Status.DELIVERED),
            (Outcome.NOT_SENT, Status.COLLAPSED),
        ]:
            older = await k.post(collapseKey=7)
            transmission = k.load()
            await k.post(collapseKey=7)
            assert k.status(older) is None
            await k.outbox.settle(transmission, outcome)
            assert k.status(older) is expected
            await k.send()


async def test_new_id_is_rejected_while_package_is_being_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id is already assigned while the first Package is being written to the disk."""
    async with kit(tmp_path) as k:
        commit, disk, refused = k.journal.commit_on_disk, trio.Event(), list[str]()

        async def slow(operation: Any) -> Any:
            await disk.wait()
            return await commit(operation)

        async def take_it() -> None:
            try:
                await k.post(id=1, message={"content": "another"})
            except Conflict as conflict:
                refused.append(str(conflict))

        monkeypatch.setattr(k.journal, "commit_on_disk", slow)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(k.post)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(take_it)
            await trio.testing.wait_all_tasks_blocked()
            disk.set()
        assert [each.startswith("Package 1 is pending") for each in refused] == [True]


async def test_cancel_removes_waiting_package(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        id_ = await k.post()
        assert (await k.cancellation.cancel(id_)).status is Status.CANCELED
        assert k.outbox.load(340) is None
        with pytest.raises(UnknownPackage):
            await k.cancellation.cancel(4711)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(Outcome.SENT, Status.DELIVERED), (Outcome.NOT_SENT, Status.CANCELED)],
)
async def test_cancel_waits_for_end_of_session(
    tmp_path: Path, outcome: Outcome, expected: Status
) -> None:
    async with kit(tmp_path) as k:
        id_ = await k.post()
        transmission = k.load()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(k.cancellation.cancel, id_)
            await trio.testing.wait_all_tasks_blocked()
            await k.outbox.settle(transmission, outcome)
        assert k.status(id_) is expected


async def test_clearing_queue_returns_number_of_packages(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        ids = [await k.post() for _ in range(3)]
        assert await k.cancellation.clear(Channel.RADIO) == 0
        assert await k.cancellation.clear() == 3
        assert {k.status(id_) for id_ in ids} == {Status.CANCELED}


async def test_unsent_package_waits_for_retry_time(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path) as k:
        await k.post()
        await k.send(Outcome.NOT_SENT, reason="no signal", retry_after=30)
        assert k.outbox.load(340) is None
        began = trio.current_time()
        await k.outbox.wait_until_ready()
        assert trio.current_time() - began == pytest.approx(30, abs=1)
        assert k.load().attempts == 1


async def test_sos_does_not_wait_for_retry_of_other_package(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path) as k:
        await k.post()
        await k.send(Outcome.NOT_SENT, retry_after=300)
        with trio.move_on_after(100) as scope:
            await k.outbox.wait_until_ready(urgent=True)
        assert scope.cancelled_caught
        await k.post(message={"content": "help"}, priority=100)
        with trio.fail_after(1):
            await k.outbox.wait_until_ready(urgent=True)
        assert k.load().urgent


async def test_ordinary_package_expires_and_sos_does_not(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path) as k:
        plain = await k.post(timeToLive=60)
        sos = await k.post(priority=100, timeToLive=60)
        off = await k.post(incident={"number": 5, "state": "called off"}, priority=99)
        outcome = await k.endings.wait_for_outcome(outbound.find_by_id(k.journal, plain).sequence)  # type: ignore[union-attr]
        assert (outcome.status, k.reason(plain)) == (Status.ERROR, "expired")
        await trio.sleep(80_000)
        assert k.status(sos) is k.status(off) is None


async def test_refused_transmission_fails_only_unsendable_package(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        ids = [await k.post(), await k.post()]
        assert len(await k.send(Outcome.REFUSED, reason="too long for the gateway")) == 2
        assert len(await k.send(Outcome.REFUSED, reason="too long for the gateway")) == 1
        assert len(await k.send()) == 1
        assert [k.status(id_) for id_ in ids] == [Status.ERROR, Status.DELIVERED]
        assert k.reason(ids[0]) == "too long for the gateway"


async def test_delivery_over_unconfigured_channel_fails(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        assert k.status(await k.post(channels=["Radio"])) is Status.ERROR
        both = await k.post(channels=["Radio", "Satellite"])
        assert k.status(both) is None
        await k.send()
        assert k.status(both) is Status.DELIVERED


async def test_restart_resumes_queue_in_order_of_priority(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        low, high = await k.post(priority=5), await k.post(priority=50)
    async with kit(tmp_path) as k:
        assert len(k.outbox) == 2
        entries = await k.send()
        assert [entry.sequence for entry in entries] == [k.sequence(high), k.sequence(low)]
    async with kit(tmp_path) as k:
        assert k.outbox.load(340) is None
        assert await k.post() == 3


async def test_intent_survives_crash_and_package_is_not_loaded_again(
    tmp_path: Path,
) -> None:
    async with kit(tmp_path) as k:
        id_ = await k.post()
        transmission = k.load()
        await k.outbox.record_intent(transmission, modem="300", at_modem=41)
    for outcome in (Outcome.DOUBTFUL, Outcome.SENT):
        async with kit(tmp_path) as k:
            intent = k.outbox.get_unsettled()
            assert intent is not None
            assert (intent.transmission.body, intent.at_modem) == (transmission.body, 41)
            assert k.outbox.load(340) is None
            await k.outbox.settle(intent.transmission, outcome)
            assert k.status(id_) is (Status.DELIVERED if outcome is Outcome.SENT else None)
    async with kit(tmp_path) as k:
        assert k.outbox.get_unsettled() is None


@pytest.mark.parametrize("size", [5, 600])
async def test_power_cut_after_any_commit_sends_no_package_twice(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, cuts = tmp_path / "live", list[Path]()
    live.mkdir()
    async with kit(live) as k:
        document: dict[str, Any] = {"message": {"content": "x" * size}}
        id_ = await k.post(**document)
        for _ in range(k.cost(read_package(document), k.outbox.channel).parts - 1):
            await k.send()
        transmission = k.load()
        await k.outbox.record_intent(transmission, modem="300", at_modem=41)
        commit = k.journal.commit

        async def commit_and_cut(operation: Any) -> Any:
            result = await commit(operation)
            cuts.append(Path(shutil.copytree(live, tmp_path / f"cut-{len(cuts)}")))
            return result

        monkeypatch.setattr(k.journal, "commit", commit_and_cut)
        await k.outbox.settle(transmission, Outcome.SENT)
        assert k.status(id_) is Status.DELIVERED
    assert cuts
    for cut in cuts:
        async with kit(cut) as k:
            assert k.outbox.get_unsettled() or k.status(id_) is Status.DELIVERED


async def test_package_with_all_fragments_sent_by_older_version_is_delivered(
    tmp_path: Path,
) -> None:
    async with kit(tmp_path) as k:
        document: dict[str, Any] = {"message": {"content": "x" * 600}}
        id_ = await k.post(**document)
        parts = k.cost(read_package(document), k.outbox.channel).parts
        segments = [Segment(k.sequence(), position, parts) for position in range(parts)]
        await k.journal.commit(outbound.record_sent(Channel.SATELLITE, segments))
        await k.send()
        assert k.status(id_) is Status.DELIVERED


async def test_budget_keeps_reserve_for_sos(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path, credits_per_day=10, reserve=4) as k:
        await k.post(message={"content": "x" * 280})
        await k.send()
        waits = await k.post(message={"content": "y"})
        with trio.move_on_after(600) as scope:
            await k.outbox.wait_until_ready()
        assert scope.cancelled_caught
        await k.post(message={"content": "help"}, priority=100)
        await k.outbox.wait_until_ready(urgent=True)
        assert k.load().urgent
        assert k.status(waits) is None


async def test_sos_on_reserve_contains_no_other_items(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path, credits_per_day=20, reserve=14) as k:
        await k.post(message={"content": "0123456789" * 28})
        await k.send()
        waits = [await k.post(message={"content": f"report {n} " * 15}) for n in range(8)]
        for _ in range(3):
            sos = await k.post(message={"content": "help"}, priority=100)
            transmission = k.load()
            await k.outbox.record_intent(transmission, modem="300", at_modem=1)
            await k.outbox.settle(transmission, Outcome.SENT)
            assert k.status(sos) is Status.DELIVERED
            assert len(transmission.body) <= CREDIT_BYTES, "the SOS costs more than one credit"
        assert [k.status(each) for each in waits] == [None] * 8


async def test_answer_to_sos_is_fetched_with_half_of_reserve(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path, credits_per_day=10, reserve=4) as k:
        await k.post(message={"content": "0123456789" * 28})
        await k.send()
        assert k.outbox.compute_allowance(mailbox=True) == 0
        await k.post(message={"content": "help"}, priority=100)
        await k.send()
        assert k.outbox.budget.get_spent().credits == 7
        assert k.outbox.compute_allowance(mailbox=True) == 1
        await k.outbox.spend(1)
        assert k.outbox.compute_allowance(mailbox=True) == 0
        assert k.outbox.compute_allowance(urgent=True) == 2


@pytest.mark.parametrize(
    ("word", "hours", "left"),
    [(None, 0, 2), (IncidentState.SEEN, 0, 0), (None, 25, 0)],
    ids=["no answer", "seen", "too old"],
)
async def test_answer_to_relayed_sos_is_fetched_with_reserve(
    tmp_path: Path, clock: Any, word: IncidentState | None, hours: int, left: int
) -> None:
    """The sender of the SOS gets the answer only through this kit, and before midnight."""
    async with kit(tmp_path, credits_per_day=10, reserve=4) as k:
        await k.post(message={"content": "0123456789" * 28})
        await k.send()
        carried = k.standing(await k.post(message={"content": "help"})).sequence
        came = START - hours * 3600
        heard = HeardIncident(4, 7, IncidentState.OPEN, came, came, "help")

        def bring(db: sqlite3.Connection) -> None:
            incident.store_heard_incident(db, heard)
            outbound.mark_relayed(db, carried, 4, 9, 2)
            if word is not None:
                said = IncidentUpdate(7, word, 4, "Olga")
                incident.record_update(db, said, came, 0.0, is_proved=True, counts=True)

        await k.journal.persist(bring)
        assert k.outbox.compute_allowance(mailbox=True) == left


async def test_other_item_is_sent_with_sos_if_cost_stays_equal(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path, credits_per_day=10, reserve=4) as k:
        await k.post(message={"content": "0123456789" * 28})
        await k.send()
        rides = await k.post(message={"content": "y"})
        await k.post(message={"content": "help"}, priority=100)
        for _ in range(SOS_ALONE_TRIES):
            await k.send(Outcome.NOT_SENT, reason="no signal")
        before = k.outbox.budget.get_spent().credits
        assert len(await k.send()) == 2
        assert k.status(rides) is Status.DELIVERED
        assert k.outbox.budget.get_spent().credits == before + 1


async def test_next_day_has_new_budget(tmp_path: Path, clock: Any) -> None:
    async with kit(tmp_path, credits_per_day=1) as k:
        await k.post()
        await k.send()
        await k.post(timeToLive=2**31 - 1)
        await k.outbox.wait_until_ready()
        assert 3600 < trio.current_time() <= 86_400


async def test_same_id_joins_package_and_other_body_conflicts(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        assert await k.post(id=5) == await k.post(id=5) == 5
        assert len(k.outbox) == 1
        with pytest.raises(Conflict, match="is pending with another body"):
            await k.post(id=5, message={"content": "other"})
        await k.send()
        await k.post(id=5, message={"content": "other"})
        assert k.status(5) is None
        assert await k.post() == 6


async def test_concurrent_posts_with_same_id_create_one_package(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        async with trio.open_nursery() as callers:
            for _ in range(8):
                callers.start_soon(lambda: k.post(id=5, key="same"))
        assert len(k.outbox) == 1


async def test_idempotency_key_survives_restart(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        first = await k.post(key="k1")
        await k.send()
    async with kit(tmp_path) as k:
        assert await k.post(key="k1") == first
        assert len(k.outbox) == 0
        with pytest.raises(Conflict, match="another body"):
            await k.post(key="k1", message={"content": "other"})


async def test_stop_releases_waiting_caller_and_keeps_package(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        accepted = await k.intake.accept(read_package({"message": {"content": "x"}}))
        k.endings.stop()
        with pytest.raises(AgentStopping, match="kept"):
            await k.endings.wait_for_outcome(accepted.sequence)
    async with kit(tmp_path) as k:
        assert len(k.outbox) == 1


ENDED_AT_ONE_MOMENT = (
    "UPDATE leg SET status = 'Canceled', ended = 7.0",
    "UPDATE package SET status = 'Canceled', ended = 7.0",
)


async def test_ended_packages_are_deleted_by_age_and_count(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        ids = [await k.post() for _ in range(6)]
        await k.send()
        waiting = await k.post()
        await k.journal.commit(outbound.forget(end_time=0, keep_count=2))
        kept = [id_ for id_ in ids if outbound.find_by_id(k.journal, id_)]
        assert len(kept) == 2
        await k.journal.commit(outbound.forget(end_time=1e12, keep_count=100))
        assert not any(outbound.find_by_id(k.journal, id_) for id_ in ids)
        assert k.status(waiting) is None


async def test_ended_packages_are_deleted_in_batches_oldest_first(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        for _ in range(450):
            await k.post()
        await k.journal.commit(lambda db: [db.execute(each) for each in ENDED_AT_ONE_MOMENT])
        forgotten: list[int] = []
        first: list[tuple[int]] = []
        while not forgotten or forgotten[-1]:
            forgotten.append(await k.journal.commit(outbound.forget(end_time=0, keep_count=20)))
            first += k.journal.read("SELECT min(id) FROM package")
        assert forgotten == [DELETED_ROWS_MAX, DELETED_ROWS_MAX, 30, 0]
        assert first == [(201,), (401,), (431,), (431,)]


async def test_report_of_missing_fragments_is_sent_alone_or_with_package(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        report = Entry(77, Report(5, frozenset({0, 3}), b"1234"), 1_790_000_000)
        k.outbox.report(0, report)
        with trio.fail_after(PATIENCE):
            await k.outbox.wait_until_ready()
        assert await k.send() == [report]
        assert k.outbox.load(340) is None
        await k.post()
        k.outbox.report(0, report)
        assert (await k.send(Outcome.NOT_SENT))[-1].content == report.content
        assert (await k.send())[-1].content == report.content
        assert len(k.outbox) == 0


async def test_receipt_of_each_recipient_is_stored_once(tmp_path: Path) -> None:
    ada = Identity("42", "Ada", "User", "ada@example.org", "7")
    async with kit(tmp_path) as k:
        id_ = await k.post()
        (entry,) = await k.send()
        entries = [
            Entry(3, Introduction(ada)),
            Entry(entry.sequence, Receipt(3, compute_item_digest(entry)), 1_790_000_100),
            Entry(entry.sequence, Receipt(9, compute_item_digest(entry)), 1_790_000_200),
            Entry(entry.sequence + 77, Receipt(3, compute_item_digest(entry)), 1_790_000_200),
        ]
        await k.reception.receive(encode(entries))
        late = Entry(entry.sequence, Receipt(3, compute_item_digest(entry)), 1_790_000_999)
        await k.reception.receive(encode([late]))
        known = k.receipts(id_)
        assert [(each.by.name, each.by.id, each.at) for each in known] == [
            ("Ada", "42", 1_790_000_100),
            ("", "9", 1_790_000_200),
        ]


# Several transmissions at once, on the channel's conditions.


async def test_transmissions_are_settled_in_any_order(tmp_path: Path) -> None:
    async with kit(tmp_path, Channel.CELLULAR) as k:
        ids = [await k.post(message={"content": str(n) * 3000}) for n in range(3)]
        first, second, third = k.load(65_536), k.load(65_536), k.load(65_536)
        assert k.outbox.load(65_536) is None
        await k.outbox.settle(third, Outcome.SENT)
        await k.outbox.settle(first, Outcome.NOT_SENT)
        assert [k.status(id_) for id_ in ids] == [None, None, Status.DELIVERED]
        assert k.load(65_536).body == first.body
        await k.outbox.settle(second, Outcome.SENT)
        assert k.status(ids[1]) is Status.DELIVERED


async def test_settled_transmission_keeps_intent_of_other(tmp_path: Path) -> None:
    async with kit(tmp_path, Channel.CELLULAR) as k:
        await k.post(message={"content": "a" * 5000})
        await k.post(message={"content": "b" * 5000})
        first, second = k.load(65_536), k.load(65_536)
        await k.outbox.record_intent(first, modem="300", at_modem=1)
        await k.outbox.settle(second, Outcome.SENT)
        intent = k.outbox.get_unsettled()
        assert intent is not None
        assert intent.transmission == first


async def test_cellular_transmission_is_small_and_costs_no_credit(tmp_path: Path) -> None:
    async with kit(tmp_path, Channel.CELLULAR) as k:
        for number in range(100):
            await k.post(message={"content": f"{number:03}" * 100})
        transmission = k.load(65_536)
        assert 3_500 < len(transmission.body) <= 4_096
        await k.outbox.settle(transmission, Outcome.SENT)
        assert (k.outbox.budget.get_spent().bytes, k.outbox.budget.get_spent().credits) == (
            len(transmission.body),
            0,
        )


async def test_large_cellular_package_is_sent_alone_and_whole(tmp_path: Path) -> None:
    async with kit(tmp_path, Channel.CELLULAR) as k:
        await k.post(message={"content": "x" * 60_000})
        await k.post(message={"content": "small"})
        assert len(decode(k.load(65_536).body).entries) == 1
        assert len(decode(k.load(65_536).body).entries) == 1


def arriving(number: int, text: str = "hello", *, sos: bool = False) -> bytes:
    return encode([Entry(number, Message(text), 1_790_000_000, sos)], origin=7)


def receipts_in(entries: list[Entry]) -> list[int]:
    return [entry.sequence for entry in entries if isinstance(entry.content, Receipt)]


async def test_receipts_are_sent_with_next_message_if_cost_stays_equal(
    tmp_path: Path,
) -> None:
    async with kit(tmp_path) as k:
        await k.reception.receive(arriving(5))
        await k.reception.receive(arriving(6))
        assert k.outbox.load(340) is None
        await k.post(message={"content": "x" * 30})
        assert receipts_in(await k.send()) == []
        await k.post(message={"content": "y"})
        assert receipts_in(await k.send()) == [5, 6]
        await k.post(message={"content": "z"})
        assert receipts_in(await k.send()) == []


async def test_receipt_of_sos_is_sent_at_once_and_repeated_if_lost(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with kit(tmp_path) as k:
        await k.reception.receive(arriving(5))
        await k.reception.receive(arriving(6, "help", sos=True))
        with trio.fail_after(1):
            await k.outbox.wait_until_ready()
        assert receipts_in(await k.send(Outcome.NOT_SENT)) == [6, 5]
    async with kit(tmp_path) as k:  # the debt survives a restart
        assert receipts_in(await k.send()) == [6, 5]
        assert k.outbox.load(340) is None
        await k.reception.receive(arriving(6, "help", sos=True))
        assert receipts_in(await k.send()) == [6]


async def test_receipts_at_once_option_sends_each_receipt_immediately(tmp_path: Path) -> None:
    async with kit(tmp_path, receipts_at_once=True) as k:
        await k.reception.receive(arriving(5))
        assert receipts_in(await k.send()) == [5]


async def test_cellular_outbox_sends_no_receipts(tmp_path: Path) -> None:
    async with kit(tmp_path, Channel.CELLULAR) as k:
        await k.reception.receive(arriving(5, sos=True))
        assert k.outbox.load(65_536) is None


async def test_own_ids_skip_posted_id_at_end_of_range(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        assert await k.post(id=7) == 7
        assert await k.post(id=2**31 - 1) == 2**31 - 1
        assert await k.post() == 8
    async with kit(tmp_path) as k:
        assert await k.post() == 9


# A driver that failed.


@pytest.mark.parametrize("got_as_far_as", ["loading", "taking", "asking"])
async def test_packages_of_failed_driver_are_retried_with_growing_waits(
    tmp_path: Path, clock: Any, got_as_far_as: str
) -> None:
    """The driver fails at each place. A Package that causes failures must not stop the others."""
    async with kit(tmp_path) as k:
        ids = [await k.post(message={"content": text}) for text in ("one", "two", "three")]
        queue = k.queues[Channel.SATELLITE]
        waited = []
        for _ in range(4):
            began = trio.current_time()
            await k.outbox.wait_until_ready()
            waited.append(trio.current_time() - began)
            if got_as_far_as == "loading":
                assert k.load() is not None
            elif got_as_far_as == "taking":
                assert queue.pop_due(trio.current_time(), includes_bursts=False) is not None
            await k.outbox.requeue_lost()
        assert waited == sorted(waited)
        assert len(k.outbox) == 3
        contents = []
        for _ in ids:
            await k.outbox.wait_until_ready()
            contents += [entry.content for entry in await k.send()]
        assert {*contents} == {Message("one"), Message("two"), Message("three")}
        assert [k.status(id_) for id_ in ids] == [Status.DELIVERED] * 3
        assert any("the driver failed" in line.detail for line in k.history(ids[0]))


@pytest.mark.parametrize("departed", [True, False])
async def test_cancel_ends_when_driver_fails(tmp_path: Path, clock: Any, departed: bool) -> None:
    async with kit(tmp_path) as k:
        id_ = await k.post()
        if departed:
            k.load()
        else:
            k.queues[Channel.SATELLITE].pop_due(trio.current_time(), includes_bursts=False)
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(k.cancellation.cancel, id_)
                await trio.testing.wait_all_tasks_blocked()
                await k.outbox.requeue_lost()
        assert k.status(id_) is Status.CANCELED
        assert len(k.outbox) == 0


async def test_intent_survives_driver_failure(tmp_path: Path) -> None:
    """The modem's number decides, independent of the driver."""
    async with kit(tmp_path) as k:
        id_ = await k.post()
        transmission = k.load()
        await k.outbox.record_intent(transmission, modem="300", at_modem=7)
        await k.outbox.requeue_lost()
        left = k.outbox.get_unsettled()
        assert left is not None
        assert (left.transmission, left.at_modem) == (transmission, 7)
        assert k.outbox.load(340) is None
    async with kit(tmp_path) as k:
        left = k.outbox.get_unsettled()
        assert left is not None
        assert left.at_modem == 7
        await k.outbox.settle(left.transmission, Outcome.SENT)
        assert k.status(id_) is Status.DELIVERED


async def test_id_is_never_reused(tmp_path: Path) -> None:
    """The next id is new even after a restart and after all Packages were deleted."""
    async with kit(tmp_path) as k:
        await k.post(id=41)
        last = await k.post()
        assert last == 42
        while k.status(last) is None:
            await k.send()
        await k.journal.commit(outbound.forget(end_time=START + 1e9, keep_count=0))
        assert outbound.find_by_id(k.journal, last) is None
    async with kit(tmp_path) as k:
        await k.journal.commit(outbound.forget(end_time=START + 1e9, keep_count=0))
        assert await k.post() == 43


async def test_half_collapsed_package_of_earlier_version_is_ended(
    tmp_path: Path,
) -> None:
    async with kit(tmp_path) as k:
        older = await k.post(collapseKey=7)
        await k.post(collapseKey=7, message={"content": "newer"})

        def reopen(db: sqlite3.Connection) -> None:
            db.execute("UPDATE leg SET status = NULL, ended = NULL WHERE status = 'Collapsed'")
            db.execute("UPDATE package SET status = NULL, ended = NULL")

        await k.journal.commit(reopen)
    async with kit(tmp_path) as k:
        assert k.status(older) is Status.COLLAPSED
        (entry,) = await k.send()
        assert entry.content == Message("newer")
        assert k.outbox.load(340) is None


@pytest.mark.parametrize("channel", [Channel.SATELLITE, Channel.CELLULAR, Channel.RADIO])
async def test_text_is_compressed_on_satellite_and_radio_except_in_sos(
    tmp_path: Path, channel: Channel
) -> None:
    text = "Bridge on route 7 is out, take the north track past the old mill"
    async with kit(tmp_path, channel) as k:
        package = read_package({"message": {"content": text}})
        sizes = {}
        for priority in (12, 100):
            cost = k.cost(replace(package, priority=priority), channel).bytes
            await k.post(message={"content": text}, priority=priority)
            transmission = k.load()
            envelope = decode(transmission.body)
            assert [e.content for e in envelope.entries if isinstance(e.content, Message)] == [
                Message(text)
            ]
            assert envelope.is_packed is (channel is not Channel.CELLULAR and priority == 12)
            sizes[priority] = len(transmission.body)
            if channel is not Channel.RADIO:
                assert cost == len(transmission.body), "the cost request is wrong"
            await k.outbox.record_intent(transmission, modem="300", at_modem=1)
            await k.outbox.settle(transmission, Outcome.SENT)
        assert (sizes[12] <= 50) is (channel is not Channel.CELLULAR)


async def test_long_text_is_packed_into_one_message_or_fragmented_unpacked(
    tmp_path: Path,
) -> None:
    sentence = "The bridge is out and we walk back to the camp before the night. "
    async with kit(tmp_path) as k:
        await k.post(message={"content": sentence * 9})
        (entry,) = await k.send()
        assert entry.content == Message(sentence * 9)
        await k.post(message={"content": sentence * 20})
        slices = {}
        while len(k.outbox):
            entry, *named = await k.send()
            # The open incident is named if it costs nothing.
            assert all(isinstance(each.content, IncidentUpdate) for each in named)
            assert isinstance(entry.content, Fragment)
            slices[entry.content.index] = entry.content.payload
        whole = decode(join(slices))
        assert whole.entries[0].content == Message(sentence * 20)
        assert not whole.is_packed
