"""The internal cost of a message: reads of its row, encodings, commits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent.agent.outbound import cancel, packing, piggyback
from fieldagent.agent.outbound.intake import RESUME_BATCH, Resume
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry, encode
from fieldagent.wire.outcome import Outcome
from tests.kit import START, Kit, kit

KEY = bytes(range(32))


def counted(k: Kit, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count reads of a Package's row and encodings from now on."""
    counts: Counter[str] = Counter()
    read = k.journal.read

    def counted_read(sql: str, *parameters: Any) -> list[Any]:
        counts["reads"] += "FROM package" in sql
        return read(sql, *parameters)

    def counted_encode(*entries: Any, **how: Any) -> bytes:
        counts["encodings"] += 1
        return encode(*entries, **how)

    monkeypatch.setattr(k.journal, "read", counted_read)
    for module in (piggyback, packing):
        monkeypatch.setattr(module, "encode", counted_encode)
    return counts


@pytest.mark.parametrize(
    ("how", "encodings"), [({}, 1), ({"key": KEY}, 2)], ids=["plain", "tagged"]
)
@pytest.mark.parametrize("budget", [None, 10])
async def test_small_message_costs_one_read_and_few_encodings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: dict[str, Any],
    encodings: int,
    budget: int | None,
) -> None:
    async with kit(tmp_path, credits_per_day=budget, **how) as k:
        await k.post()
        counts = counted(k, monkeypatch)
        await k.outbox.wait_until_ready()
        transmission = k.load()
        assert counts == {"reads": 1, "encodings": encodings}
        before = k.journal.commits
        await k.outbox.record_intent(transmission, modem="300", at_modem=1)
        await k.outbox.settle(transmission, Outcome.SENT)
        assert k.journal.commits - before == 2, "one for the intent, one for the end and the cost"


async def test_received_message_and_cost_are_stored_in_one_commit(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        before = k.journal.commits
        await k.reception.receive(encode([Entry(7, Message("to the kit"), int(START))]))
        assert k.journal.commits - before == 1
        assert k.outbox.budget.get_spent().credits == 1


async def test_start_reads_one_batch_of_queue_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, steps = [], []
    for count in (2 * RESUME_BATCH, 4 * RESUME_BATCH):
        async with kit(tmp_path / str(count)) as k:
            for _ in range(count):
                await k.post()
        async with kit(tmp_path / str(count)) as k:
            for queue in k.queues.values():
                for sequence in queue.list_waiting():
                    queue.finish(sequence)
            reads = counted(k, monkeypatch)
            resumed = trio.Event()
            resume = Resume(k.journal, k.queues, k.intake, k.endings, resumed)
            resume.begin()
            begun.append(reads["reads"])
            assert not resumed.is_set()
            await resume.run()
            steps.append(reads["reads"])
            assert len(k.outbox) == count
    assert begun[0] == begun[1] == RESUME_BATCH
    assert steps == [2 * RESUME_BATCH, 4 * RESUME_BATCH], "each Package is read once"


async def test_long_queue_is_cleared_in_batches(tmp_path: Path) -> None:
    async with kit(tmp_path) as k:
        for _ in range(3 * cancel.CANCEL_BATCH + 1):
            await k.post()
        before = k.journal.commits
        assert await k.cancellation.clear() == 3 * cancel.CANCEL_BATCH + 1
        assert k.journal.commits - before == 4


async def test_packages_that_end_together_need_one_update_statement(tmp_path: Path) -> None:
    counts = []
    for count in (1, 30):
        async with kit(tmp_path / str(count)) as k:
            for _ in range(count):
                await k.post()
            statements: list[str] = []
            # For channel deliveries, the list would also contain the triggers, with the text of
            # their cause.
            k.journal._files.writer.set_trace_callback(statements.append)
            await k.cancellation.clear()
            k.journal._files.writer.set_trace_callback(None)
            counts.append(sum(sql.startswith("UPDATE package") for sql in statements))
            rows = k.journal.read("SELECT status, count(*) FROM package GROUP BY status")
            assert rows == [("Canceled", count)]
    assert counts == [1, 1]
