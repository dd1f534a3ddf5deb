"""The owner of a link: the newest permitted one, in any process."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio

from fieldagent.hub.access import directory
from fieldagent.hub.contract import Device, UnknownDevice
from fieldagent.hub.records import alarm, lease
from fieldagent.hub.records.lease import Leases
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.store.group import StoreFull, StoreUnavailable
from tests.hub.field import Field, field_of
from tests.processes import PATIENCE
from tests.running import running


async def test_newer_link_takes_over_the_lease_across_processes(database: str) -> None:
    one, other = open_store(database), open_store(database)
    try:
        async with field_of(one) as alps, running(other):
            device = alps.device(1)
            async with Leases(one, "a", clock=alps.clock).hold_lease(device) as lease_of_a:
                assert await one.read(lambda db: lease.count_linked(db, alps.now)) == 1
                async with Leases(other, "b", clock=alps.clock).hold_lease(device) as ours:
                    with trio.fail_after(PATIENCE):
                        await lease_of_a.lost.wait()
                    assert not ours.lost.is_set()
            assert await one.read(lambda db: lease.count_linked(db, alps.now)) == 0
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize("how", ["disabled", "another token"])
async def test_device_without_permission_loses_its_link(store: Store, how: str) -> None:
    async with field_of(store) as alps:
        token = await store.commit(lambda db: directory.make_link_token(db, 1, now=alps.now))
        device = await store.read(lambda db: directory.find_device_of_token(db, token))
        async with Leases(store, "a", clock=alps.clock).hold_lease(device) as ours:
            change = (
                partial(directory.set_disabled, table="device", id_=1, when=alps.now, now=alps.now)
                if how == "disabled"
                else partial(directory.make_link_token, device=1, now=alps.now)
            )
            await store.commit(change)
            with trio.fail_after(PATIENCE):
                await ours.lost.wait()
            assert not ours.stranded
        with pytest.raises(UnknownDevice):
            await store.read(lambda db: directory.find_device_of_token(db, token))


async def hold_two_links(store: Store, alps: Field, nursery: trio.Nursery) -> Leases:
    """Link two devices to one process."""
    leases = Leases(store, "a", clock=alps.clock)
    for number in (1, 2):
        await nursery.start(_hold, leases, alps.device(number))
    return leases


async def _hold(
    leases: Leases, device: Device, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    async with leases.hold_lease(device):
        task_status.started()
        await trio.sleep_forever()


async def count_linked(store: Store, now: float) -> int:
    return await store.read(lambda db: lease.count_linked(db, now))


async def test_leases_of_a_silent_process_expire(store: Store) -> None:
    if not store.shared:
        pytest.skip("a file is of one process, whose leases last as long as it")
    async with field_of(store) as alps, trio.open_nursery() as nursery:
        await hold_two_links(store, alps, nursery)
        assert await count_linked(store, alps.now + lease.LEASE_S - 1) == 2
        assert await count_linked(store, alps.now + lease.LEASE_S) == 0
        nursery.cancel_scope.cancel()


async def test_process_renews_the_leases_of_all_its_links(store: Store) -> None:
    async with field_of(store) as alps, trio.open_nursery() as nursery:
        leases = await hold_two_links(store, alps, nursery)
        alps.now += 20
        before = await store.read(lambda db: db.execute("SELECT * FROM lease ORDER BY device"))
        nursery.start_soon(leases.run)
        with trio.fail_after(PATIENCE):
            while await count_linked(store, alps.now + lease.LEASE_S - 1) != 2:
                await trio.sleep(0.01)
        after = await store.read(lambda db: db.execute("SELECT * FROM lease ORDER BY device"))
        assert before == after
        nursery.cancel_scope.cancel()
    assert not await count_linked(store, 0.0)


@pytest.mark.parametrize("trouble", [StoreUnavailable("away"), StoreFull("full")])
@pytest.mark.parametrize("when", ["as it begins", "as it ends"])
async def test_link_that_ends_during_a_write_failure_is_removed_later(
    store: Store, monkeypatch: pytest.MonkeyPatch, trouble: Exception, when: str
) -> None:
    """Another link of the process continues and renews its lease."""
    monkeypatch.setattr(lease, "LEASE_S", 0.03)
    async with field_of(store) as alps, trio.open_nursery() as nursery:
        leases = Leases(store, "a", clock=alps.clock)
        nursery.start_soon(leases.run)

        async def stored_or_not(operation: Any) -> Any:
            if when == "as it begins":
                await commit(operation)
            raise trouble

        commit = store.commit
        async with leases.hold_lease(alps.device(2)):
            with monkeypatch.context() as away:
                if when == "as it begins":
                    away.setattr(store, "commit", stored_or_not)
                with suppress(type(trouble)):
                    async with leases.hold_lease(alps.device(1)):
                        away.setattr(store, "commit", stored_or_not)
                assert when == "as it begins" or await count_linked(store, alps.now) == 2
            with trio.fail_after(PATIENCE):
                while await count_linked(store, alps.now) != 1:
                    await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("trouble", [StoreUnavailable("away"), StoreFull("full")])
async def test_console_closed_during_a_write_failure_is_removed_later(
    store: Store, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    """No person is reached there, so contacts with a delay get the message immediately."""
    monkeypatch.setattr(lease, "LEASE_S", 0.03)

    async def refuse(operation: Any) -> Any:
        raise trouble

    async with field_of(store) as alps, trio.open_nursery() as nursery:
        await store.commit(lambda db: directory.set_role(db, 1, 2, "dispatcher", now=alps.now))
        leases = Leases(store, "a", clock=alps.clock)
        nursery.start_soon(leases.run)
        with monkeypatch.context() as away:
            async with leases.hold_console(1, 2):
                away.setattr(store, "commit", refuse)
        with trio.fail_after(PATIENCE):
            while await store.read(lambda db: alarm.compute_reachable_until(db, 1, "sos")) > (
                alps.now + lease.CONSOLE_RETURN_S
            ):
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


async def test_lease_of_a_dead_process_with_a_fast_clock_is_removed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not store.shared:
        pytest.skip("a file is of one process")
    monkeypatch.setattr(lease, "LEASE_S", 0.03)
    async with field_of(store) as alps, trio.open_nursery() as nursery:
        ahead = alps.now + 86_400

        def leave(db: Db) -> None:
            db.execute("INSERT INTO process VALUES ('dead', ?)", ahead)
            db.execute("INSERT INTO lease VALUES (3, 'dead', 1)")

        await store.commit(leave)
        assert await count_linked(store, alps.now) == 1
        nursery.start_soon(Leases(store, "b", clock=alps.clock).run)
        with trio.fail_after(PATIENCE):
            while await count_linked(store, alps.now):
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


async def test_lease_of_a_killed_process_in_a_file_is_removed(store: Store) -> None:
    if store.shared:
        pytest.skip("others may have links there")
    async with field_of(store) as alps, trio.open_nursery() as nursery:
        await store.commit(lambda db: db.execute("INSERT INTO process VALUES ('dead', 9e99)"))
        await store.commit(lambda db: db.execute("INSERT INTO lease VALUES (3, 'dead', 1)"))
        leases = await hold_two_links(store, alps, nursery)
        nursery.start_soon(leases.run)
        with trio.fail_after(PATIENCE):
            while await count_linked(store, alps.now) != 2:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
