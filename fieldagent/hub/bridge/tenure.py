"""Keeps a bridge to one process of the hub: whoever holds it says so again, or another takes over.

A row of `bridge` is a bridge: who holds it until when, how this hub is told from others there, and
up to which items all have been looked at.
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
from fieldagent.hub.store.persist import told_once
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)

IDENTITY_PREFIX = "FA-"
"""The beginning of each identity of a hub at a third party's server."""
HOLDS = 30.0
"""Seconds for which a process holds a bridge without saying that it lives."""
RENEW = 10.0
"""Seconds between two words that this process holds it."""


class BridgePost(NamedTuple):
    """A bridge that one process is to hold, for one workspace."""

    name: str
    workspace: str
    """Its number or name."""
    setting: str
    """What that is called in the settings."""


async def hold_and_work(
    host: BridgeHost, post: BridgePost, work: Callable[[str, int], Awaitable[None]]
) -> NoReturn:
    """Do `work`, with this hub's identity there and the number of the workspace, where and while no
    other process does; until cancelled."""
    holder = uuid.uuid4().hex
    take = partial(hold, name=post.name, holder=holder, alone=not host.store.shared)
    watch = _Watch()
    while True:
        identity, workspace = "", None
        with told_once():
            silent = watch.silent(await host.store.read(partial(standing, name=post.name)))
            identity = await host.store.commit(partial(take, now=host.clock(), silent=silent))
            if identity:
                workspace = await _workspace(host, post)
        if workspace is None:
            await trio.sleep(RENEW)
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
    """What the row of a bridge says."""

    holder: str = ""
    until: float = 0.0


class _Watch:
    """Tells by this process's own time whether whoever holds a bridge still says so: the clock by
    which they said until when may have been ahead."""

    def __init__(self) -> None:
        self._known = BridgeTenure()
        self._since = -inf

    def silent(self, now: BridgeTenure) -> BridgeTenure | None:
        """Return it where it has been the same for so long that nobody says it any more."""
        if now != self._known:
            self._known, self._since = now, trio.current_time()
        return now if trio.current_time() - self._since > HOLDS else None


async def _workspace(host: BridgeHost, post: BridgePost) -> int | None:
    try:
        return await host.store.read(lambda db: directory.workspace_of(db, post.workspace))
    except Refused as refused:
        log.error("%s: %s", post.setting, refused)
        return None


async def _renew(host: BridgeHost, name: str, holder: str, scope: trio.CancelScope) -> None:
    """While this process cannot say that it lives, another may take over: it stops before that."""
    said = trio.current_time()
    try:
        while trio.current_time() - said < HOLDS - RENEW:
            await trio.sleep(RENEW)
            held = ""
            with told_once():
                held = await host.store.commit(lambda db: hold(db, name, holder, host.clock()))
            said = trio.current_time() if held else said
        scope.cancel()
    finally:
        with trio.move_on_after(1.0, shield=True), told_once():
            await host.store.commit(lambda db: let_go(db, name, holder))


def standing(db: Db, name: str) -> BridgeTenure:
    """Return who holds a bridge, and until when."""
    rows = db.execute("SELECT holder, until FROM bridge WHERE name = ?", name)
    for holder, until in rows:
        return BridgeTenure(str(holder), float(until))
    return BridgeTenure()


def hold(
    db: Db,
    name: str,
    holder: str,
    now: float,
    *,
    alone: bool = False,
    silent: BridgeTenure | None = None,
) -> str:
    """Hold a bridge for this process, which says so again before HOLDS; return this hub's identity
    there, or nothing where another holds it. It begins with what comes from now on. `alone`: nobody
    else can. `silent`: who said that, and has said nothing since, holds it no more."""
    gone = silent or BridgeTenure()
    db.execute(
        "INSERT INTO bridge (name, identity, place, happened) SELECT ?, ?, (SELECT"
        " coalesce(max(id), 0) FROM item), (SELECT coalesce(max(id), 0) FROM sos_event)"
        " WHERE true ON CONFLICT (name) DO NOTHING",
        *(name, f"{IDENTITY_PREFIX}{secrets.token_hex(4)}"),
    )
    rows = db.execute(
        "UPDATE bridge SET holder = ?, until = ? WHERE name = ? AND (holder = ? OR until <= ?"
        " OR (holder = ? AND until = ?)) RETURNING identity",
        *(holder, now + HOLDS, name, holder, inf if alone else now, *gone),
    )
    return str(rows[0][0]) if rows else ""


def let_go(db: Db, name: str, holder: str) -> None:
    """Give a bridge up, if this process holds it: another takes it at once."""
    db.execute("UPDATE bridge SET until = 0 WHERE name = ? AND holder = ?", name, holder)


def place(db: Db, name: str) -> int:
    """Return up to which item all have been looked at."""
    ((number,),) = db.execute("SELECT place FROM bridge WHERE name = ?", name)
    return int(number)


def keep_place(db: Db, name: str, up_to: int) -> None:
    """Write down how far a bridge has passed items on; a lower number changes nothing."""
    db.execute("UPDATE bridge SET place = ? WHERE name = ? AND place < ?", up_to, name, up_to)
