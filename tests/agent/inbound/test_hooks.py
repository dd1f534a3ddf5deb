"""Settings, journal, dispatch and real hooks together, including a kill and a full disk."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.inbound.hooks import Hook, make_hooks, run_hook
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal import inbound
from fieldagent.agent.journal.inbound import Received, UnacceptedPayloadList, UnacceptedPayloads
from fieldagent.agent.journal.journal import FULL_PAUSE_S, Journal, Operation
from fieldagent.agent.settings import parse
from fieldagent.store.group import StoreFailed, StoreFull
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult
from tests.agent.inbound.spooling import of, spooled


async def arrive(journal: Journal, inbox: Inbox, *names: str) -> None:
    rows = [Received(name, "ada", f'{{"requestId":"{name}"}}', 0.0) for name in names]

    def store(db: sqlite3.Connection) -> None:
        for row in rows:
            inbound.store_payload(db, row, inbox.hooks)

    await journal.commit(store)
    inbox.wake()


async def test_script_and_webhook_get_every_payload(tmp_path: Path) -> None:
    settings = parse(
        "inbound-hook = cat\nwebhook-address = http://127.0.0.1:1/\n", tmp_path / "a", {}
    )
    printed: list[str] = []
    three = trio.Event()

    def emit(line: str) -> None:
        printed.append(line)
        if len(printed) == 3:
            three.set()

    hooks = make_hooks(settings, emit)
    assert [hook.name for hook in hooks] == ["script", "webhook"]
    journal = Journal(tmp_path / "journal.sqlite3")
    inbox = Inbox(journal, ["script", "webhook"], clock=lambda: 0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        for hook in hooks:
            nursery.start_soon(run_hook, hook, journal, inbox)
        await arrive(journal, inbox, "a", "b", "c")
        await three.wait()
        while not inbound.list_payloads(journal, 9)[-1]["hooks"]["webhook"]["reason"]:
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert printed == ['{"requestId":"a"}', '{"requestId":"b"}', '{"requestId":"c"}']
    stands = inbound.list_payloads(journal, 9)[-1]["hooks"]["webhook"]
    assert stands == {"state": "waiting", "attempts": 1, "reason": "connection refused"}
    journal.close()


def test_only_webhook_is_probed_after_failure(tmp_path: Path) -> None:
    """A script that asks for a repetition has seen the payload and chooses the time."""
    text = "inbound-hook=cat\nwebhook-address=http://127.0.0.1:9/\n"
    hooks = make_hooks(parse(text, tmp_path / "a", {}), print)
    assert {hook.name: hook.probes for hook in hooks} == {"script": False, "webhook": True}


def test_settings_without_hooks_make_no_hooks(tmp_path: Path) -> None:
    assert make_hooks(parse("", tmp_path / "a", {}), print) == []


async def test_end_of_gone_webhook_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def gone(delivery: Delivery) -> HandoverResult:
        return HandoverResult(HandoverOutcome.GONE, "410 Gone")

    journal = Journal(tmp_path / "journal.sqlite3")
    inbox = Inbox(journal, ["webhook"], clock=lambda: 0.0)
    hook = Hook("webhook", gone)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        await arrive(journal, inbox, "a")
        await run_hook(hook, journal, inbox)
        nursery.cancel_scope.cancel()
    assert hook.end_reason == "410 Gone"
    assert "the webhook is not used any more: 410 Gone" in caplog.text
    journal.close()


async def test_payload_is_handed_over_once_on_full_disk(
    tmp_path: Path, clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    async def hook(delivery: Delivery) -> HandoverResult:
        calls.append(delivery.request_id)
        return HandoverResult(HandoverOutcome.HANDED)

    full = True

    async with spooled(tmp_path) as s:
        await s.arrive(*of("ada", "ab"))
        commit = s.journal.commit

        async def refused(operation: Operation[None]) -> None:
            if full:
                raise StoreFull("the disk is full")
            await commit(operation)

        monkeypatch.setattr(s.journal, "commit", refused)
        s.start(hook)  # type: ignore[arg-type]
        await trio.sleep(600)
        assert calls == ["a"]
        full = False
        await trio.sleep(2 * FULL_PAUSE_S)
        assert calls == ["a", "b"]
        assert set(s.states().values()) == {"handed"}


async def test_hook_stops_when_journal_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)

    async def hook(delivery: Delivery) -> HandoverResult:
        return HandoverResult(HandoverOutcome.HANDED)

    async def failed(operation: Operation[None]) -> None:
        raise StoreFailed("the journal cannot be written")

    journal = Journal(tmp_path / "journal.sqlite3")
    inbox = Inbox(journal, ["script"], clock=lambda: 0.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        await arrive(journal, inbox, "a")
        monkeypatch.setattr(journal, "commit", failed)
        await run_hook(Hook("script", hook), journal, inbox)
        nursery.cancel_scope.cancel()
    assert "the script stops" in caplog.text
    journal.close()


async def test_list_of_unaccepted_payloads_is_cached_until_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "journal.sqlite3")
    inbox = Inbox(journal, ["script"], clock=lambda: 0.0)
    looks = 0
    read = journal.read

    def counted(sql: str, *parameters: object) -> list[object]:
        nonlocal looks
        looks += 1
        return read(sql, *parameters)

    monkeypatch.setattr(journal, "read", counted)
    left_overs = UnacceptedPayloadList(journal)
    steps: list[tuple[Operation[Any], list[UnacceptedPayloads]]] = [
        (
            inbound.postpone("script", "a", 5.0, "busy"),
            [UnacceptedPayloads("script", "waiting", 2, "busy")],
        ),
        (inbound.mark_handed_over("script", "a", 1.0), []),
        (inbound.mark_dead("script", "b", "bad"), [UnacceptedPayloads("script", "dead", 1, "bad")]),
    ]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        await arrive(journal, inbox, "a", "b")
        assert left_overs.list_payloads() == []
        for operation, left in steps:
            await journal.commit(operation)
            before = looks
            assert [left_overs.list_payloads() for _ in range(3)] == [left] * 3
            assert looks == before + 1
        nursery.cancel_scope.cancel()
    journal.close()
