"""Whose link it is: the newest one's, of those that may have one, in whichever process."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from fieldagent.hub import directory, lease
from fieldagent.hub.contract import Unknown
from fieldagent.hub.store.contract import Store
from fieldagent.hub.store.opening import open_store
from tests.hub.field import field_of
from tests.processes import PATIENCE


async def test_a_newer_link_takes_the_lease_also_in_another_process(database: str) -> None:
    one, other = open_store(database), open_store(database)
    try:
        async with field_of(one) as alps, trio.open_nursery() as nursery:
            nursery.start_soon(other.run)
            device = alps.device(1)
            async with lease.held(one, "a", device, clock=alps.clock) as lease_of_a:
                assert await one.read(lambda db: lease.linked(db, alps.now)) == 1
                async with lease.held(other, "b", device, clock=alps.clock) as ours:
                    with trio.fail_after(PATIENCE):
                        await lease_of_a.lost.wait()
                    assert not ours.lost.is_set()
            assert await one.read(lambda db: lease.linked(db, alps.now)) == 0
            nursery.cancel_scope.cancel()
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize("how", ["disabled", "another token"])
async def test_a_device_that_may_no_more_loses_its_link(store: Store, how: str) -> None:
    async with field_of(store) as alps:
        token = await store.commit(lambda db: directory.new_link_token(db, 1, now=alps.now))
        device = await store.read(lambda db: directory.device_of_token(db, token))
        async with lease.held(store, "a", device, clock=alps.clock) as ours:
            change = (
                partial(directory.set_disabled, table="device", id_=1, when=alps.now, now=alps.now)
                if how == "disabled"
                else partial(directory.new_link_token, device=1, now=alps.now)
            )
            await store.commit(change)
            with trio.fail_after(PATIENCE):
                await ours.lost.wait()
            assert not ours.stranded
        with pytest.raises(Unknown):
            await store.read(lambda db: directory.device_of_token(db, token))


async def test_a_lease_that_nobody_renews_runs_out(store: Store) -> None:
    async with field_of(store) as alps:
        await store.commit(lambda db: lease._take(db, "a", 1, alps.now))
        assert await store.read(lambda db: lease.linked(db, alps.now + lease.LEASE - 1)) == 1
        assert await store.read(lambda db: lease.linked(db, alps.now + lease.LEASE)) == 0
