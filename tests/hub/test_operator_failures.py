"""Each way in which an operator refuses an MT message: it is kept and tried again, and people can
see the reason.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent.hub.access import directory, imeis
from fieldagent.hub.access.caller import DISPATCHER, Caller
from fieldagent.hub.api import reading, standing
from fieldagent.hub.field import operator_calls, operator_handover
from fieldagent.hub.operator.contract import Verdict
from fieldagent.hub.operator.directip import DIRECTIP
from fieldagent.hub.operator.failures import (
    NEEDS_PERSON_RETRY_S,
    Failure,
    Scope,
    make_no_answer,
    make_not_set_up,
    make_unknown,
    make_unreachable,
)
from fieldagent.hub.operator.rockblock import ROCKBLOCK
from fieldagent.hub.records import operator_trouble, sos
from fieldagent.hub.records.due_receipts import owe_incident_update
from fieldagent.hub.records.sos import Sos
from fieldagent.hub.store.contract import Store
from fieldagent.hub.webhook import webhook_directory
from fieldagent.hub.webhook.webhook_directory import Webhook
from fieldagent.package.package import IncidentState, IncidentUpdate, Message
from fieldagent.wire.directip import Confirmation, encode_message, parse_mobile_terminated
from fieldagent.wire.envelope import Entry
from fieldagent.wire.outcome import Outcome
from tests.hub.claiming import claim
from tests.hub.field import GRACE, Field, collect, field_of, said
from tests.hub.test_journey import IMEI, folder, message_to, receiver
from tests.processes import PATIENCE, Hub, administer, free_port, hub, until

FAILURES = [
    *DIRECTIP.values(),
    *ROCKBLOCK.values(),
    make_unknown("-4711"),
    make_unreachable("127.0.0.1:1: connection refused"),
    make_no_answer("no answer within 30 s"),
    make_not_set_up("directip"),
]
ALL = Caller(1, "", 1, frozenset(), 2, "User", "Ben", DISPATCHER, may_push=False)


@pytest.mark.parametrize(
    "failure", [make_unreachable("127.0.0.1:1"), make_not_set_up("directip"), None]
)
async def test_answer_to_an_sos_is_sent_over_the_link_despite_satellite_failure(
    store: Store, failure: Failure | None
) -> None:
    """A person answers while the kit has no link. Then the link returns, while the operator still
    refuses the message, or the modem has no view of the sky.
    """
    async with field_of(store) as alps:
        await alps.sends(1, Entry(7, Message("leg broken"), int(alps.now), sos=True))
        (incident,) = await list_alarms(alps)
        await alps.store.commit(
            lambda db: owe_incident_update(db, incident, IncidentState.SEEN, "Olga", "", alps.now)
        )
        alps.sky.verdicts = [Verdict(Outcome.NOT_SENT, failure)] * 9 if failure else []
        await alps.satellite()
        assert alps.sky.calls
        words = []
        for _ in range(2):
            mailbox = alps.mailbox(1)
            await mailbox.record_hello(1)
            words += [
                entry.content.state
                for envelope in await collect(mailbox)
                for entry in envelope.entries
                if isinstance(entry.content, IncidentUpdate)
            ]
        assert words == [IncidentState.SEEN], "not at each link that is opened"
        # When the operator works again, the message costs nothing.
        alps.sky.verdicts, alps.now = [], alps.now + 2 * NEEDS_PERSON_RETRY_S
        await alps.satellite()
        taken = [imei for imei, _ in alps.sky.taken].count("300000000000001")
        assert taken == (0 if failure else 1)


async def read_delivery(alps: Field, place: int = 1) -> tuple[str, str]:
    """Return state and reason of the first or second delivery to Ben, as the pusher sees them."""
    items = await alps.rows("SELECT item FROM delivery WHERE device = 2 ORDER BY sequence")
    (item,) = items[place - 1]
    (delivery,) = await alps.store.read(
        lambda db: standing.list_device_standings(db, item, alps.now)
    )
    listed = await alps.store.read(partial(_deliveries, before=reading.END, now=alps.now))
    assert listed[-place]["reason"] == delivery["reason"]
    return delivery["state"], delivery["reason"]


def _deliveries(db: Any, before: int, now: float) -> list[dict[str, Any]]:
    return reading.list_deliveries(db, ALL, 2, None, before, 9, now)[0]


async def read_device_trouble(alps: Field) -> str | None:
    rows = await alps.store.read(lambda db: directory.list_devices(db, 1, alps.now))
    listed, _ = await alps.store.read(lambda db: reading.list_devices(db, ALL, 99, 9, alps.now))
    (row,) = [each["satelliteTrouble"] for each in rows if each["id"] == 2]
    assert [each["satelliteTrouble"] for each in listed if each["id"] == 2] == [row]
    assert row is None or isinstance(row, str)
    return row


async def list_alarms(alps: Field) -> list[Sos]:
    find = partial(sos.list_sos, workspace=1, state=None, before=99, limit=9)
    return [*await alps.store.read(find)]


async def fail_calls(alps: Field, failure: Failure, outcome: Outcome = Outcome.NOT_SENT) -> None:
    alps.sky.verdicts = [Verdict(outcome, failure)]
    await alps.satellite()


@pytest.mark.full
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: f"{failure.code}")
async def test_refused_mt_message_is_kept_retried_and_reported(
    store: Store, failure: Failure
) -> None:
    async with field_of(store) as alps:
        await alps.push(Message("to Ben"), target=2)
        alps.now += GRACE
        await fail_calls(alps, failure)
        bytes_ = alps.sky.calls[0]
        assert await read_delivery(alps) == ("waiting", failure.text)
        assert await read_device_trouble(alps) == failure.text
        labels = ("directip", failure.scope.value, failure.code)
        assert +await store.read(operator_trouble.count_figures) == {labels: 1}
        for times in range(1, 40):
            alps.now += max(failure.retry_after, operator_handover.BACKOFF[-1] * 1.3)
            await fail_calls(alps, failure)
            assert alps.sky.calls == [bytes_] * (times + 1)
        assert await read_delivery(alps) == ("waiting", failure.text)
        alarm = [(each.kind, each.device) for each in await list_alarms(alps)]
        assert alarm == ([("operator", 2)] if failure.scope is Scope.ACCOUNT else [])
        assert await store.commit(partial(operator_trouble.call_again, device=2)) == 1
        await alps.satellite()
        assert alps.sky.taken == [("300000000000002", bytes_)]
        assert await read_delivery(alps) == ("on its way", "")
        assert await read_device_trouble(alps) is None
        assert not +await store.read(operator_trouble.count_figures)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: f"{failure.code}")
async def test_message_behind_a_refused_one_is_sent_or_reports_the_same_reason(
    store: Store, failure: Failure
) -> None:
    async with field_of(store) as alps:
        await alps.push(Message("first"), target=2)
        alps.now += GRACE
        await fail_calls(alps, failure)
        await alps.push(Message("second"), target=2)
        alps.now += GRACE
        alps.sky.verdicts = []
        if failure.retry_after:
            await alps.satellite()
            goes_by = failure.scope is Scope.MESSAGE
            assert len(alps.sky.taken) == int(goes_by)
            expected = ("on its way", "") if goes_by else ("waiting", failure.text)
            assert await read_delivery(alps, 2) == expected
            assert await read_delivery(alps) == ("waiting", failure.text)
        assert sorted(text for _, text in said(await collect(alps.mailbox(2)))) == [
            "first",
            "second",
        ]


@pytest.mark.parametrize(
    "failure", [each for each in FAILURES if each.scope is not Scope.GATEWAY], ids=lambda f: f.code
)
def test_correctable_failure_is_retried_within_an_hour(failure: Failure) -> None:
    assert 0 < failure.retry_after <= NEEDS_PERSON_RETRY_S
    assert failure.text


async def test_operator_account_failure_raises_one_alarm_until_success(store: Store) -> None:
    async with field_of(store) as alps:
        hook = Webhook(0, "https://desk.example/")
        await store.commit(lambda db: webhook_directory.add_webhook(db, 1, hook, now=alps.now))
        await alps.push(Message("to Ben"), target=2)
        await alps.push(Message("to Cleo"), target=3)
        alps.now += GRACE
        alps.sky.verdicts = [Verdict(Outcome.NOT_SENT, ROCKBLOCK[13])] * 2
        await alps.satellite()
        (alarm,) = await list_alarms(alps)
        (post,) = await store.commit(lambda db: claim(db, alps.now))
        (event,) = json.loads(post.delivery.body)["payloads"][0]["events"]
        assert (event["alarm"], "sos" in event, event["operator"]) == ("operator", False, True)
        assert "no credits left" in event["content"] and "kit " in event["content"]
        alps.now += NEEDS_PERSON_RETRY_S * 2
        alps.sky.verdicts = [Verdict(Outcome.NOT_SENT, make_unreachable("away"))] * 2
        await alps.satellite()
        alps.now += NEEDS_PERSON_RETRY_S * 2
        alps.sky.verdicts = [Verdict(Outcome.NOT_SENT, ROCKBLOCK[13])]
        await alps.satellite()
        assert len(alps.sky.taken) == 1
        events = await alps.rows("SELECT event FROM sos_event WHERE sos = ? ORDER BY id", alarm.id)
        assert events == [("raised",), ("nobody reached",), ("heard",)]
        alps.now += NEEDS_PERSON_RETRY_S * 2
        await fail_calls(alps, ROCKBLOCK[10])
        assert len(await list_alarms(alps)) == 2


async def test_new_imei_or_hub_restart_triggers_a_retry(store: Store) -> None:
    async with field_of(store) as alps:
        await alps.push(Message("to Ben"), target=2)
        alps.now += GRACE
        await fail_calls(alps, DIRECTIP[-2])
        await alps.satellite()
        assert len(alps.sky.calls) == 1
        imei = "300000000000055"
        await store.commit(lambda db: imeis.set_imei(db, 2, imei, now=alps.now))
        await fail_calls(alps, DIRECTIP[-10])
        assert len(alps.sky.calls) == 2
        await store.commit(operator_trouble.call_again_after_start)
        await alps.satellite()
        assert [each for each, _ in alps.sky.taken] == [imei]


class Gateway:
    """It answers each MT message with one status."""

    def __init__(self) -> None:
        self.status = 0
        self.calls = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            with line:
                head = line.recv(3, socket.MSG_WAITALL)
                body = line.recv(int.from_bytes(head[1:], "big"), socket.MSG_WAITALL)
                asked = parse_mobile_terminated(body)
                answer = Confirmation(asked.client_id, asked.imei, 0, self.status)
                line.sendall(encode_message(answer))
                self.calls += 1

    def close(self) -> None:
        self._listener.close()


@contextmanager
def gateway() -> Iterator[Gateway]:
    running = Gateway()
    yield running
    running.close()


def get(running: Hub, path: str, proof: dict[str, str]) -> str:
    line = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    line.request("GET", path, headers=proof)
    text = line.getresponse().read().decode()
    line.close()
    return text


def test_operator_refusal_is_shown_to_pusher_and_administrator(tmp_path: Path) -> None:
    """In real processes, the operator refuses the hub's address. After the correction, the message
    is sent again by hand.
    """
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    administer(database, "user", "add", "Ada")
    administer(database, "device", "add", "kit", "--user", "Ada", "--imei", IMEI)
    with gateway() as operator, receiver() as hooked:
        operator.status = -10
        settings = {
            "database": database,
            "directip-listen": f"127.0.0.1:{free_port()}",
            "directip-gateway": f"127.0.0.1:{operator.port}",
            "satellite-grace": "0",
            "webhook-allow": "127.0.0.0/8",
        }
        with hub(folder(tmp_path / "hub"), settings) as running:
            administer(database, "webhook", "add", hooked.url, "--untried")
            line = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
            body = json.dumps(message_to(2, first, "hello"))
            line.request(
                "POST", "/api/package", body, {**proof, "Content-Type": "application/json"}
            )
            answer = line.getresponse()
            place = answer.getheader("Location") or ""
            assert (answer.status, answer.read()) == (200, b"")
            line.close()

            def standing_now() -> tuple[str, str]:
                (delivery,) = json.loads(get(running, place, proof))["devices"]
                return delivery["state"], delivery["reason"]

            until(lambda: standing_now() == ("waiting", DIRECTIP[-10].text))
            (row,) = administer(database, "device", "list")
            assert row["satelliteTrouble"] == DIRECTIP[-10].text
            labels = 'operator="directip",scope="account",code="-10"'
            sample = f"fieldagent_hub_satellite_messages_failing{{{labels}}} 1\n"
            assert sample in get(running, "/metrics", {})
            until(lambda: hooked.got)
            (event,) = hooked.got[0]["payloads"][0]["events"]
            assert event["operator"] is True and DIRECTIP[-10].text in event["content"]
            (alarm,) = administer(database, "alarm", "list")
            assert (alarm["kind"], alarm["state"]) == ("operator", "open")
            operator.status, before = 0, operator.calls
            assert administer(database, "device", "retry", "kit") == {"id": 1, "messages": 1}
            until(lambda: standing_now() == ("on its way", ""))
            assert operator.calls == before + 1
            assert sample.replace("} 1", "} 0") in get(running, "/metrics", {})


@dataclass
class Hanging:
    """An operator that takes the call and does not answer."""

    called: trio.Event = field(default_factory=trio.Event)

    async def send(self, imei: str, body: bytes, **how: Any) -> Verdict:
        self.called.set()
        await trio.sleep_forever()
        raise AssertionError


@dataclass
class Answering:
    """An operator that takes each message."""

    taken: list[str] = field(default_factory=list)
    all_taken: trio.Event = field(default_factory=trio.Event)

    async def send(self, imei: str, body: bytes, **how: Any) -> Verdict:
        self.taken.append(imei)
        if len(self.taken) == 2:
            self.all_taken.set()
        return Verdict(Outcome.SENT)


async def test_hanging_operator_does_not_block_others(store: Store) -> None:
    async with field_of(store) as alps, trio.open_nursery() as nursery:
        await store.commit(
            lambda db: db.execute("UPDATE device SET operator = 'rockblock' WHERE id <> 1") and None
        )
        hanging, answering = Hanging(), Answering()
        operators: Any = {"directip": hanging, "rockblock": answering}
        run = partial(operator_calls.run, store, operators, clock=alps.clock)
        nursery.start_soon(run)
        await alps.push(Message("to Ada"), target=1, sender=3)
        alps.now += GRACE
        await alps.push(Message("x"), target=1, sender=3)
        with trio.fail_after(PATIENCE):
            await hanging.called.wait()
        for number in (2, 3):
            await alps.push(Message(f"to {number}"), target=number, sender=1)
        alps.now += GRACE
        await alps.push(Message("x"), target=1, sender=3)
        with trio.fail_after(PATIENCE):
            await answering.all_taken.wait()
        nursery.cancel_scope.cancel()


async def test_answer_to_an_sos_is_retried_soon_after_any_failure(store: Store) -> None:
    async with field_of(store) as alps:
        await alps.sends(1, Entry(7, Message("leg broken"), int(alps.now), sos=True))
        (incident,) = await list_alarms(alps)
        await alps.store.commit(
            lambda db: owe_incident_update(db, incident, IncidentState.SEEN, "Olga", "", alps.now)
        )
        account = Failure("10", Scope.ACCOUNT, "no credits", NEEDS_PERSON_RETRY_S)
        alps.sky.verdicts = [Verdict(Outcome.NOT_SENT, account)] * 9
        for _ in range(5):
            calls = len(alps.sky.calls)
            await alps.satellite()
            assert len(alps.sky.calls) > calls
            alps.now += operator_handover.URGENT_RETRY_MAX_S
