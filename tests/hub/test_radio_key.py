"""A new radio-key for the kits of a workspace, as the hub does it. On both databases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count

import pytest

from fieldagent.hub.access import device_keys, revocation
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.field import radio_key
from fieldagent.hub.field.radio_key import LAST, RETRY_AFTER_S
from fieldagent.hub.records import audit, stations_in_range
from fieldagent.hub.records.commands import LIFETIME_S
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import CommandAnswer, CommandOutcome, Parcel
from fieldagent.wire import answer_text
from fieldagent.wire.command import RemoteCommand
from fieldagent.wire.envelope import Entry, decode, derive_key
from fieldagent.wire.parcel import DOWN, UP, unwrap, wrap
from fieldagent.wire.proof import derive_command_key, is_command_proved
from fieldagent.wire.sealed_key import open_key
from tests.hub.field import MASTER, Field, collect, field_of

ADA, BEN, CLEO = 1, 2, 3
NEW, NEWER = bytes([7] * 32), bytes([8] * 32)
NUMBERS = count(80_000_001)


async def begin_change(
    alps: Field, key: bytes = NEW, bearer: str = "ip", but: Sequence[int] = ()
) -> None:
    await alps.store.commit(
        lambda db: radio_key.begin_change(db, 1, key, bearer, left_out=but, now=alps.now)
    )


async def secrets_of(alps: Field, device: int) -> list[bytes]:
    return await alps.store.read(lambda db: device_keys.read_secrets(db, device))


async def fetch_commands(alps: Field, device: int) -> list[tuple[int, int, bytes | None]]:
    """Return each command from its link: number, step, and the key for this kit."""
    secrets = await secrets_of(alps, device)
    requests = []
    for envelope in await collect(alps.mailbox(device)):
        for entry in envelope.entries:
            command = entry.content
            if isinstance(command, RemoteCommand):
                assert is_command_proved(entry.sequence, command, map(derive_command_key, secrets))
                step, sealed = command.arguments
                assert isinstance(step, int) and isinstance(sealed, bytes)
                requests.append((entry.sequence, step, open_key(sealed, secrets)))
    return requests


async def send_answer(
    alps: Field, device: int, number: int, outcome: CommandOutcome = CommandOutcome.DONE
) -> None:
    body = answer_text.pack("not here" if outcome else "step taken")
    said = Entry(next(NUMBERS), CommandAnswer(number, outcome, body), int(alps.now))
    await alps.sends(device, said)


async def carry_out(alps: Field, *devices: int) -> list[int]:
    """Let these kits carry out their commands, and return the steps."""
    steps = []
    for device in devices:
        for number, step, key in await fetch_commands(alps, device):
            assert key is not None
            await send_answer(alps, device, number)
            steps.append(step)
    return steps


async def continue_changes(alps: Field) -> None:
    await alps.store.commit(lambda db: radio_key.continue_changes(db, alps.now))


async def describe_kits(alps: Field) -> dict[str, str]:
    key_change = await alps.store.read(lambda db: radio_key.describe_change(db, 1, alps.now))
    assert key_change is not None
    return {each["name"]: f"{each['step']} {each['state']}" for each in key_change["kits"]}


async def read_step(alps: Field) -> tuple[int, bool]:
    change = await alps.store.read(lambda db: radio_key.find_change(db, 1))
    assert change is not None
    return change.step, change.ended is not None


async def count_pending(alps: Field) -> float:
    return (await alps.store.read(radio_key.count_figures))["radio_key_kits_pending"]


async def test_key_change_starts_the_next_step_after_all_kits_confirm(store: Store) -> None:
    async with field_of(store) as alps:
        await begin_change(alps)
        for step in range(1, LAST + 1):
            assert await read_step(alps) == (step, False)
            assert await carry_out(alps, ADA, BEN) == [step, step]
            assert await fetch_commands(alps, ADA) == []
            assert await count_pending(alps) == 1
            assert await carry_out(alps, CLEO) == [step]
        assert await read_step(alps) == (LAST, True)
        assert await count_pending(alps) == 0
        assert await describe_kits(alps) == {f"kit {n}": "3 done" for n in (ADA, BEN, CLEO)}
        assert await fetch_commands(alps, ADA) == []
        lines = await alps.store.read(lambda db: audit.list_latest(db, 100))
        steps = [each["detail"] for each in lines if each["action"] == "radio-key step"]
        assert steps == ["all have it alone", "step 3 of 3", "step 2 of 3"]
        assert NEW.hex() not in str(lines)


async def test_new_radio_key_is_unreadable_for_a_revoked_kit(store: Store) -> None:
    async with field_of(store) as alps:
        await alps.store.commit(lambda db: revocation.revoke(db, BEN, "stolen", now=alps.now))
        await begin_change(alps)
        ((_, step, key),) = await fetch_commands(alps, ADA)
        assert (step, key) == (1, NEW)
        bodies = await alps.rows("SELECT device, body FROM command")
        assert {device for device, _ in bodies} == {ADA, CLEO}
        thief = await secrets_of(alps, BEN)
        for _, body in bodies:
            (entry,) = decode(bytes(body)).entries
            assert isinstance(entry.content, RemoteCommand)
            sealed = entry.content.arguments[1]
            assert isinstance(sealed, bytes) and open_key(sealed, thief) is None
        assert await fetch_commands(alps, BEN) == []


async def test_key_change_does_not_wait_for_a_revoked_kit(store: Store) -> None:
    async with field_of(store) as alps:
        await begin_change(alps)
        await carry_out(alps, ADA, BEN)
        assert await read_step(alps) == (1, False)
        await alps.store.commit(lambda db: revocation.revoke(db, CLEO, "", now=alps.now))
        assert await alps.store.read(radio_key.compute_next_due) <= alps.now
        await continue_changes(alps)
        assert await read_step(alps) == (2, False)
        # After its return, the kit catches up.
        for _ in range(2):
            await carry_out(alps, ADA, BEN)
        assert await read_step(alps) == (LAST, True)
        await alps.store.commit(lambda db: revocation.restore(db, CLEO, now=alps.now))
        await continue_changes(alps)
        assert await carry_out(alps, CLEO) == [LAST]
        assert (await describe_kits(alps))["kit 3"] == "3 done"


async def test_key_change_waits_for_an_absent_kit_until_excluded(store: Store) -> None:
    async with field_of(store) as alps:
        await begin_change(alps)
        await carry_out(alps, ADA, BEN)
        alps.now += LIFETIME_S + 1
        assert await carry_out(alps, ADA, BEN) == []
        await continue_changes(alps)
        assert await read_step(alps) == (1, False)
        await alps.store.commit(lambda db: radio_key.leave_out(db, CLEO, now=alps.now))
        for step in (2, 3):
            assert await carry_out(alps, ADA, BEN) == [step, step]
        assert await read_step(alps) == (LAST, True)
        assert await describe_kits(alps) == {
            "kit 1": "3 done",
            "kit 2": "3 done",
            "kit 3": "0 left out",
        }
        alps.now += 30 * 86_400
        await continue_changes(alps)
        # An earlier request may come too: it is older and is not sent again.
        assert await carry_out(alps, CLEO) == [LAST]
        assert (await describe_kits(alps))["kit 3"] == "3 done"
        assert await count_pending(alps) == 0


async def test_refused_key_command_is_repeated_after_a_pause(store: Store) -> None:
    async with field_of(store) as alps:
        assert await alps.store.read(radio_key.compute_next_due) == float("inf")
        await begin_change(alps)
        assert await alps.store.read(radio_key.compute_next_due) == alps.now + LIFETIME_S
        ((number, *_),) = await fetch_commands(alps, ADA)
        await send_answer(alps, ADA, number, CommandOutcome.REFUSED)
        assert (await describe_kits(alps))["kit 1"] == "0 refused"
        assert await alps.store.read(radio_key.compute_next_due) == alps.now + RETRY_AFTER_S
        await continue_changes(alps)
        assert await fetch_commands(alps, ADA) == []
        alps.now += RETRY_AFTER_S
        await continue_changes(alps)
        assert [step for _, step, _ in await fetch_commands(alps, ADA)] == [1]


async def test_second_key_change_restarts_at_the_first_step(store: Store) -> None:
    async with field_of(store) as alps:
        await begin_change(alps)
        await carry_out(alps, ADA, BEN, CLEO)
        await fetch_commands(alps, ADA)
        alps.now += 10
        await begin_change(alps, NEWER)
        assert await read_step(alps) == (1, False)
        assert [(step, key) for _, step, key in await fetch_commands(alps, ADA)] == [(1, NEWER)]


async def test_late_answer_about_an_earlier_key_is_ignored(store: Store) -> None:
    async with field_of(store) as alps:
        await begin_change(alps)
        ((number, *_),) = await fetch_commands(alps, ADA)
        alps.now += 10
        await begin_change(alps, NEWER)
        await send_answer(alps, ADA, number)
        assert (await describe_kits(alps))["kit 1"] == "0 asked"


async def test_key_command_uses_satellite_once_per_step_if_agreed(store: Store) -> None:
    async with field_of(store) as alps:
        price = await alps.store.read(
            lambda db: radio_key.compute_price(db, 1, "", steps=LAST, excluded=(), now=alps.now)
        )
        assert (price.kits, price.linked, price.by_satellite) == (3, 0, 3)
        await begin_change(alps, bearer="")
        await alps.satellite()
        assert len(alps.sky.taken) == 3
        (body,) = [body for imei, body in alps.sky.taken if imei == "300000000000003"]
        (entry,) = decode(body, keys=[derive_key(MASTER, "MT")]).entries
        # Two credits to the kit, and at most two for each answer.
        assert len(body) <= 100
        assert price.credits == LAST * 3 * 4
        assert isinstance(entry.content, RemoteCommand)
        alps.now += LIFETIME_S + 1
        await continue_changes(alps)
        await alps.satellite()
        assert len(alps.sky.taken) == 3


async def test_key_command_is_not_sent_over_satellite_without_agreement(store: Store) -> None:
    async with field_of(store) as alps:
        await begin_change(alps, bearer="ip")
        await alps.satellite()
        assert alps.sky.taken == []
        await alps.store.commit(lambda db: radio_key.ask_again(db, CLEO, "", now=alps.now))
        await alps.satellite()
        assert len(alps.sky.taken) == 1


async def fetch_parcels(alps: Field, device: int, carrier: int) -> list[Entry]:
    mailbox = alps.mailbox(carrier)
    await mailbox.record_hello(5)
    heard = await alps.store.commit(
        lambda db: stations_in_range.store_neighbours(db, carrier, {device: 1})
    )
    mailbox._devices_in_range = heard
    secrets = await secrets_of(alps, device)
    return [
        entry
        for envelope in await collect(mailbox)
        for each in envelope.entries
        if isinstance(each.content, Parcel) and each.content.station == device
        for entry in unwrap(each.content.body, secrets, DOWN).entries
    ]


async def test_key_command_and_answer_are_relayed_as_parcels(store: Store) -> None:
    async with field_of(store) as alps:
        await begin_change(alps)
        (entry,) = await fetch_parcels(alps, BEN, ADA)
        assert isinstance(entry.content, RemoteCommand)
        # The same neighbour has it on disk by now.
        assert await fetch_parcels(alps, BEN, ADA) == []
        secrets = await secrets_of(alps, BEN)
        body = answer_text.pack("step 1 of 3")
        said = Entry(0, CommandAnswer(entry.sequence, CommandOutcome.DONE, body), int(alps.now))
        parcel = Entry(9, Parcel(wrap([said], secrets[0], UP)), int(alps.now))
        for origin in (BEN, BEN):
            await alps.sends(ADA, parcel, origin=origin)
        assert (await describe_kits(alps))["kit 2"] == "1 done"
        rows = await alps.rows("SELECT way, answered IS NULL FROM command WHERE device = 2")
        assert [way for way, _ in rows] == ["radio"]
        assert await alps.rows("SELECT reason FROM dead_letter") == []


async def test_invalid_key_change_requests_are_rejected_with_the_reason(store: Store) -> None:
    async with field_of(store) as alps:
        with pytest.raises(Refused, match="no radio-key is being changed"):
            await alps.store.commit(lambda db: radio_key.leave_out(db, ADA, now=alps.now))
        with pytest.raises(Refused, match="does not get a key"):
            await alps.store.commit(lambda db: radio_key.ask_again(db, ADA, "", now=alps.now))
        for device in (ADA, BEN, CLEO):
            revoke = partial(revocation.revoke, device=device, reason="", now=alps.now)
            await alps.store.commit(revoke)
        with pytest.raises(Refused, match="no kit of this workspace is enabled"):
            await begin_change(alps)
