"""Runs a bridge in only one process of the hub. The process must renew its claim, otherwise another
process takes over.

Each bridge has a row in the table `bridge`. The row contains the process that holds the bridge, the
end of its claim, the identity of this hub at the server, and the last item that was processed.
"""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import NoReturn

import trio

from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.bridge.contract import BridgeHost
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.persist import skip_if_unavailable
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)

IDENTITY_PREFIX = "FA-"
"""Prefix of the identities that a hub uses at third-party servers."""
TENURE_S = 30.0
"""Seconds for which a process holds a bridge if it does not renew its claim."""
RENEW_INTERVAL_S = 10.0
"""Seconds between two renewals."""


class BridgePost(NamedTuple):
    """A bridge of one workspace, which at most one process runs at a time."""

    name: str
    workspace: str
    """Id or name of the workspace."""
    setting: str
    """Name of the setting that names the workspace."""


async def run_exclusively(
    host: BridgeHost, post: BridgePost, work: Callable[[str, int], Awaitable[None]]
) -> NoReturn:
    """Run `work` while no other process runs it, until cancelled. The arguments of `work` are this
    hub's identity at the server and the workspace's id.
    """
    holder = uuid.uuid4().hex
    take = partial(claim_bridge, name=post.name, holder=holder, alone=not host.store.shared)
    watch = _HolderWatch()
    while True:
        identity, workspace = "", None
        with skip_if_unavailable():
            silent_tenure = watch.find_silent(
                await host.store.read(partial(read_tenure, name=post.name))
            )
            identity = await host.store.commit(
                partial(take, now=host.clock(), silent=silent_tenure)
            )
            if identity:
                workspace = await _find_workspace(host, post)
        if workspace is None:
            await trio.sleep(RENEW_INTERVAL_S)
            continue
        try:
            async with trio.open_nursery() as nursery:
                if host.store.shared:
                    nursery.start_soon(_renew, host, post.name, holder, nursery.cancel_scope)
                await work(identity, workspace)
                nursery.cancel_scope.cancel()
        finally:
            host.note_link(False)


class BridgeTenure(NamedTuple):
    """Process that holds a bridge, as stored in the row of the bridge."""

    holder: str = ""
    until: float = 0.0


class _HolderWatch:
    """Detects a process that no longer renews its claim. It measures with this process's monotonic
    clock, because the other process may have stored the end of its claim with a fast clock.
    """

    def __init__(self) -> None:
        self._last_tenure = BridgeTenure()
        self._since = -inf

    def find_silent(self, now: BridgeTenure) -> BridgeTenure | None:
        """Return the holder if its row has not changed for `TENURE_S` seconds, otherwise None."""
        if now != self._last_tenure:
            self._last_tenure, self._since = now, trio.current_time()
        return now if trio.current_time() - self._since > TENURE_S else None


async def _find_workspace(host: BridgeHost, post: BridgePost) -> int | None:
    try:
        return await host.store.read(lambda db: directory.find_workspace(db, post.workspace))
    except Refused as refused:
        log.error("%s: %s", post.setting, refused)
        return None


async def _renew(host: BridgeHost, name: str, holder: str, scope: trio.CancelScope) -> None:
    """Renew the claim. If the renewal fails, stop the work before another process may take over."""
    renewed_at = trio.current_time()
    try:
        while trio.current_time() - renewed_at < TENURE_S - RENEW_INTERVAL_S:
            await trio.sleep(RENEW_INTERVAL_S)
            held_by = ""
            with skip_if_unavailable():
                held_by = await host.store.commit(
                    lambda db: claim_bridge(db, name, holder, host.clock())
                )
            renewed_at = trio.current_time() if held_by else renewed_at
        scope.cancel()
    finally:
        with trio.move_on_after(1.0, shield=True), skip_if_unavailable():
            await host.store.commit(lambda db: release_tenure(db, name, holder))


def read_tenure(db: Db, name: str) -> BridgeTenure:
    """Return the process that holds a bridge, and the end of its claim."""
    rows = db.execute("SELECT holder, until FROM bridge WHERE name = ?", name)
    for holder, until in rows:
        return BridgeTenure(str(holder), float(until))
    return BridgeTenure()


def claim_bridge(
    db: Db,
    name: str,
    holder: str,
    now: float,
    *,
    alone: bool = False,
    silent: BridgeTenure | None = None,
) -> str:
    """Claim a bridge for this process, which must renew its claim within `TENURE_S` seconds. Return
    this hub's identity at the server, or an empty string if another process holds the bridge.

    A new bridge starts after the last item and the last event that exist now. `alone` is True if
    only one process can use the database. `silent` is a claim that is no longer renewed, and can be
    taken over.
    """
    ended_tenure = silent or BridgeTenure()
    db.execute(
        "INSERT INTO bridge (name, identity, place, happened) SELECT ?, ?, (SELECT"
        " coalesce(max(id), 0) FROM item), (SELECT coalesce(max(id), 0) FROM sos_event)"
        " WHERE true ON CONFLICT (name) DO NOTHING",
        *(name, f"{IDENTITY_PREFIX}{secrets.token_hex(4)}"),
    )
    rows = db.execute(
        "UPDATE bridge SET holder = ?, until = ? WHERE name = ? AND (holder = ? OR until <= ?"
        " OR (holder = ? AND until = ?)) RETURNING identity",
        *(holder, now + TENURE_S, name, holder, inf if alone else now, *ended_tenure),
    )
    return str(rows[0][0]) if rows else ""


def release_tenure(db: Db, name: str, holder: str) -> None:
    """Release a bridge if this process holds it. Another process can then claim it immediately."""
    db.execute("UPDATE bridge SET until = 0 WHERE name = ? AND holder = ?", name, holder)


def read_place(db: Db, name: str) -> int:
    """Return the id of the last item that the bridge has processed."""
    ((number,),) = db.execute("SELECT place FROM bridge WHERE name = ?", name)
    return int(number)


def store_place(db: Db, name: str, up_to: int) -> None:
    """Store the id of the last item that the bridge has processed. A lower id changes nothing."""
    db.execute("UPDATE bridge SET place = ? WHERE name = ? AND place < ?", up_to, name, up_to)
