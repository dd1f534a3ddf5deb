"""Commands at the hub: sent over the link and over satellite, limited by the budget, and answered
once. On both databases.
"""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace

import pytest
import trio

from fieldagent.hub.access.directory import Refused
from fieldagent.hub.contract import Bearer
from fieldagent.hub.field import command_sending
from fieldagent.hub.field.command_sending import compute_cost
from fieldagent.hub.operator.contract import Verdict
from fieldagent.hub.operator.directip import DIRECTIP
from fieldagent.hub.records import audit, commands
from fieldagent.hub.records.commands import LIFETIME_S, CommandToSend
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import CommandAnswer, CommandOutcome
from fieldagent.wire import answer_text
from fieldagent.wire.command import VERB_BY_NAME, VERBS, RemoteCommand, Verb
from fieldagent.wire.envelope import Entry, decode, derive_key, encode
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.proof import derive_command_key, prove_command
from tests.hub.field import GRACE, MASTER, START, Field, collect, field_of
from tests.postgres import new_database
from tests.processes import PATIENCE, until
from tests.wire.test_command import written

KIT = 3
KEY = derive_command_key(MASTER)
MO, MT = derive_key(MASTER, "MO"), derive_key(MASTER, "MT")
STATUS = RemoteCommand(1)


async def give(alps: Field, bearer: str = "", command: RemoteCommand = STATUS) -> int:
    def enter(db: Db) -> int:
        number = commands.compute_next_number(db, KIT, alps.now)
        order = CommandToSend(1, KIT, number, prove_command(number, command, KEY), bearer, "1")
        commands.store_command(db, order, alps.now, GRACE)
        return number

    return await alps.store.commit(enter)


async def read_state(alps: Field, number: int) -> str:
    rows = await alps.store.read(lambda db: commands.list_commands(db, KIT, alps.now, limit=50))
    return str(next(each["state"] for each in rows if each["number"] == number))


def make_answer(number: int, sequence: int = 70_000_001) -> Entry:
    body = answer_text.pack("OK")
    return Entry(sequence, CommandAnswer(number, CommandOutcome.DONE, body), int(START))


async def fetch_over_link(alps: Field) -> list[int]:
    envelopes = await collect(alps.mailbox(KIT))
    entries = [entry for envelope in envelopes for entry in envelope.entries]
    return [each.sequence for each in entries if isinstance(each.content, RemoteCommand)]


async def send_over_satellite(alps: Field) -> list[int]:
    await alps.satellite()
    taken, alps.sky.taken = alps.sky.taken, []
    entries = [entry for _, body in taken for entry in decode(body, keys=[MT]).entries]
    return [each.sequence for each in entries if isinstance(each.content, RemoteCommand)]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
async def test_estimated_command_size_equals_the_sent_bytes(store: Store, verb: Verb) -> None:
    async with field_of(store) as alps:
        command = prove_command(0, written(verb), b"")
        price = await store.read(lambda db: compute_cost(db, KIT, int(START), command, START))
        assert price.is_reachable and not price.linked and price.fits
        await give(alps, "satellite", written(verb))
        await alps.satellite()
        ((_, body),) = alps.sky.taken
        assert len(body) == price.bytes_down
        assert price.credits >= 2


async def test_command_over_the_link_is_sent_once_and_its_answer_recorded(store: Store) -> None:
    async with field_of(store) as alps:
        number = await give(alps, "ip")
        assert await read_state(alps, number) == "waiting"
        assert await send_over_satellite(alps) == []
        assert await fetch_over_link(alps) == [number]
        assert await read_state(alps, number) == "stored"
        assert await fetch_over_link(alps) == []
        await alps.sends(KIT, make_answer(number))
        assert await read_state(alps, number) == "answered"
        lines = await store.read(lambda db: audit.list_latest(db, 10, 1))
        assert [each["action"] for each in lines] == ["command answered", "command"]
        # A repeated answer, or one to an unknown command, changes nothing.
        await alps.sends(KIT, make_answer(number))
        await alps.sends(KIT, make_answer(number + 1, 70_000_002))
        assert len(await store.read(lambda db: audit.list_latest(db, 10, 1))) == 2
        ((reason,),) = await alps.rows("SELECT reason FROM dead_letter")
        assert "for which the hub does not wait" in reason


async def test_command_over_any_channel_uses_satellite_after_the_grace(store: Store) -> None:
    async with field_of(store) as alps:
        number = await give(alps, "", RemoteCommand(2))
        assert await send_over_satellite(alps) == []
        alps.now += GRACE
        assert await send_over_satellite(alps) == [number]
        assert await read_state(alps, number) == "packed"
        # The hub does not know if the modem has the command. The kit recognises the second copy.
        assert await fetch_over_link(alps) == [number]
        assert await send_over_satellite(alps) == []
        await alps.sends(KIT, make_answer(number), bearer=Bearer.SATELLITE, key=MO)
        rows = await store.read(lambda db: commands.list_commands(db, KIT, alps.now, limit=1))
        assert rows[0]["answeredBy"] == "satellite" and rows[0]["answer"] == "OK"


async def test_refused_satellite_command_is_not_sent_after_delivery_over_the_link(
    store: Store,
) -> None:
    async with field_of(store) as alps:
        alps.sky.verdicts = [Verdict(Outcome.NOT_SENT, DIRECTIP[-5])]
        number = await give(alps, "", RemoteCommand(2))
        alps.now += GRACE
        assert await send_over_satellite(alps) == []
        assert await fetch_over_link(alps) == [number]
        alps.now += 9999
        assert await send_over_satellite(alps) == []
        assert len(alps.sky.calls) == 1


async def test_expired_command_is_not_sent_over_satellite(store: Store) -> None:
    async with field_of(store) as alps:
        alps.sky.verdicts = [Verdict(Outcome.NOT_SENT, DIRECTIP[-5])]
        number = await give(alps, "satellite")
        assert await send_over_satellite(alps) == []
        alps.now += LIFETIME_S
        assert await read_state(alps, number) == "expired"
        assert await send_over_satellite(alps) == []


async def test_command_without_credits_waits_for_the_next_day(store: Store) -> None:
    async with field_of(store) as alps:
        await store.commit(lambda db: db.execute("UPDATE device SET credits_per_day = 1"))
        first, second = await give(alps, "satellite"), await give(alps, "satellite")
        assert await send_over_satellite(alps) == [first]
        rows = await store.read(lambda db: commands.list_commands(db, KIT, alps.now, limit=1))
        assert (rows[0]["number"], rows[0]["reason"]) == (second, "no credits left today")
        alps.now += 86_400
        assert await send_over_satellite(alps) == [second]


async def test_old_command_expires_and_command_numbers_only_increase(store: Store) -> None:
    async with field_of(store) as alps:
        number = await give(alps)
        alps.now += LIFETIME_S
        assert await send_over_satellite(alps) == await fetch_over_link(alps) == []
        assert await read_state(alps, number) == "expired"
        # The hub's clock was set back, but its numbers were not.
        alps.now = START - 1_000
        assert await give(alps) == number + 1
        await store.commit(lambda db: commands.delete_old_commands(db, before=START + LIFETIME_S))
        assert await give(alps) == number + 2


async def test_command_answer_of_another_device_is_ignored(store: Store) -> None:
    async with field_of(store) as alps:
        number = await give(alps)
        await store.commit(lambda db: db.execute("UPDATE device SET relay = 1"))
        await alps.sends(1, make_answer(number), origin=KIT)
        await alps.sends(1, make_answer(number))
        assert await read_state(alps, number) == "waiting"


@pytest.mark.parametrize("column", ["body", "number", "outcome"])
async def test_damaged_command_does_not_block_others(store: Store, column: str) -> None:
    """The kit's other commands are still sent over the link, and satellite messages to all kits."""
    async with field_of(store) as alps:
        damaged = await give(alps)
        alps.now += 1
        whole = await give(alps, command=RemoteCommand(2, (200,)))

        def damage(db: Db) -> None:
            if column == "outcome":
                sql = "UPDATE command SET outcome = 77, state = 'answered' WHERE number = ?"
                db.execute(sql, damaged)
                return
            body = encode([Entry(damaged + 5, STATUS)]) if column == "number" else b"\xff\x00"
            db.execute("UPDATE command SET body = ? WHERE number = ?", body, damaged)

        await store.commit(damage)
        assert await fetch_over_link(alps) == [whole]
        rows = await store.read(lambda db: commands.list_commands(db, KIT, alps.now, limit=9))
        assert [each["number"] for each in rows] == [whole, damaged]
        assert [each["command"] for each in rows] == ["log 200", "status"]
        if column == "outcome":
            return
        assert rows[1]["reason"] == "damaged in the hub's database"
        await store.commit(lambda db: db.execute("UPDATE command SET state = 'waiting'"))
        await alps.store.commit(lambda db: db.execute("UPDATE command SET satellite_from = 0"))
        assert whole in await send_over_satellite(alps)
        assert await read_state(alps, damaged) == "expired"


@pytest.mark.parametrize("verb", ["status", "set"])
async def test_concurrent_commands_of_two_hubs_get_different_numbers(
    postgres: str, verb: str
) -> None:
    """The other hub has assigned the next number, which is invisible before its commit."""
    address = new_database(postgres)
    here, there = open_store(address), open_store(address)
    begun = threading.Event()
    command = written(VERB_BY_NAME[verb])
    with closing(here), closing(there):
        async with field_of(here) as alps:
            number = await here.read(lambda db: commands.compute_next_number(db, KIT, alps.now))
            order = CommandToSend(1, KIT, number, command, "", "1")

            def give_first(db: Db) -> int:
                new_number = command_sending.store_command(
                    db, replace(order, command=STATUS), GRACE, alps.now
                )
                begun.set()
                waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
                until(lambda: db.execute(waiting) != [(0,)])
                return new_number

            def give_next(db: Db) -> int:
                return command_sending.store_command(db, order, GRACE, alps.now)

            numbers: list[int] = []

            def first() -> None:
                numbers.append(here.run_once(give_first))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, first)
                await trio.to_thread.run_sync(begun.wait, PATIENCE)
                if verb == "set":
                    with pytest.raises(Refused, match="send yours again"):
                        await trio.to_thread.run_sync(there.run_once, give_next)
                else:
                    numbers.append(await trio.to_thread.run_sync(there.run_once, give_next))
            assert sorted(numbers) == [number, number + 1][: len(numbers)]
            assert await alps.rows("SELECT count(*) FROM command") == [(len(numbers),)]
