"""A bridge to a folder: each item of a kit becomes a JSON file, and JSON files become items for
kits. The example of docs/how-to/add-a-bridge.md.

Python must find this module. In `hub.properties`:

    extensions=folder_bridge:EXTENSION
    board-folder=/srv/board
    board-workspace=Alps
    board-user=7

An item becomes NUMBER.item. A file ANYTHING.push has the body of `POST /api/package`, without
`sourceUserId` and `workspaceId`. The bridge removes it, or renames it to ANYTHING.refused. After a
power cut, it may read a file twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import trio

from fieldagent.http.problem import Problem
from fieldagent.hub.access.people import find_carriers
from fieldagent.hub.access.push import parse_push_document
from fieldagent.hub.api import reading
from fieldagent.hub.api.event_stream import UNSETTLED_S, Follower
from fieldagent.hub.api.push_api import make_posting
from fieldagent.hub.bridge import spending, tenure
from fieldagent.hub.bridge.contract import BridgeHost, BridgeKind, Own
from fieldagent.hub.bridge.spending import Allowance
from fieldagent.hub.bridge.tenure import BridgePost
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.store.contract import Db
from fieldagent.hub.store.persist import persist, skip_if_unavailable
from fieldagent.package.package import SOS_PRIORITY
from fieldagent.package.reading import InvalidPackage
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.system.extension import Extension
from fieldagent.system.folder import replace_file
from fieldagent.system.properties import Key, make_integer_reader, read_absolute_path, read_text

log = logging.getLogger(__name__)

NAME = "board"
POLL_S = 1.0
"""Seconds between two searches for new files."""
LIFE_S = 604_800.0
"""Seconds that an item waits for its kit."""
UNPAID = Allowance(False, 0, "waits for a link: a folder pays for nothing", "")


async def run(host: BridgeHost) -> None:
    """Run the bridge until cancelled, in one process of the hub at a time."""
    post = BridgePost(NAME, host.own["board-workspace"], "board-workspace")
    await tenure.run_exclusively(host, post, partial(work, host))


async def work(host: BridgeHost, identity: str, workspace: int) -> NoReturn:
    """Pass items in both directions until cancelled. An OSError ends the function, and the hub
    starts it again later.
    """
    while True:
        with skip_if_unavailable():  # After an outage of the database, begin at the stored place.
            place = await host.store.read(partial(tenure.read_place, name=NAME))
            follower = Follower(place, UNSETTLED_S if host.store.shared else 0.0)
            while True:
                await publish(host, follower, workspace)
                await take_in(host, workspace)
                await trio.sleep(POLL_S)
        await trio.sleep(POLL_S)


async def publish(host: BridgeHost, follower: Follower, workspace: int) -> None:
    """Write the new items that the user may see, then store the place of the last one."""
    folder: Path = host.own["board-folder"]
    user: int = host.own["board-user"]
    rows = await host.store.read(
        lambda db: reading.list_next_items(db, workspace, user, follower.place, follower.capacity)
    )
    fresh = [*follower.select_fresh(rows, host.clock())]
    for item in reversed(await host.store.read(partial(reading.list_items, numbers=fresh))):
        if item.device is not None:  # Only kits' items have a device, not those of bridges.
            body = json.dumps(item.encode()).encode()
            await trio.to_thread.run_sync(replace_file, folder / f"{item.number}.item", body)
    host.note_link(True)
    await persist(host.store, partial(tenure.store_place, name=NAME, up_to=follower.place))


async def take_in(host: BridgeHost, workspace: int) -> None:
    """Add each file as an item, and remove it once its item is on disk."""
    folder: Path = host.own["board-folder"]
    for file in await trio.to_thread.run_sync(lambda: sorted(folder.glob("*.push"))):
        body, now = await trio.to_thread.run_sync(file.read_bytes), host.clock()
        try:
            ours = {"sourceUserId": str(host.own["board-user"]), "workspaceId": str(workspace)}
            await host.store.commit(partial(add_item, body=body, ours=ours, now=now))
        except (NotJson, InvalidPackage, Problem) as refused:
            log.warning("%s is refused: %s", file, refused)
            host.note_events(ItemResult.REFUSED)
            await trio.to_thread.run_sync(file.replace, file.with_suffix(".refused"))
        else:
            host.note_events(ItemResult.TAKEN)
            await trio.to_thread.run_sync(file.unlink)


def add_item(db: Db, body: bytes, ours: dict[str, str], now: float) -> None:
    """Add the item of a file. Raises NotJson, InvalidPackage or Problem."""
    document = load_document(body)
    push = parse_push_document({**document, **ours} if isinstance(document, dict) else document)
    members = find_carriers(db, [push])
    if any(
        (push.workspace, each) not in members for each in (push.source, push.target or push.source)
    ):
        raise Problem(403, "board-user or targetUserId is not a user of the workspace")
    if push.priority >= SOS_PRIORITY:
        raise Problem(403, "a folder cannot raise an SOS")
    posting = make_posting(db, push, members, now, LIFE_S)
    if isinstance(posting, Problem):
        raise posting
    spending.add_item_within(db, posting, UNPAID, now)


def _work(host: BridgeHost) -> Callable[[], Awaitable[None]] | None:
    return None if host.own["board-folder"] is None else partial(run, host)


def _faults(own: Own) -> list[str]:
    named = [name for name in ("board-folder", "board-workspace", "board-user") if own[name]]
    return [] if len(named) in (0, 3) else [f"{named[0]} needs all three settings of the board"]


KIND = BridgeKind(
    NAME,
    "the board",
    keys=(
        Key("board-folder", read_absolute_path, None, "folder of the files, .item and .push"),
        Key("board-workspace", read_text, None, "number or name of the workspace for the board"),
        Key(
            "board-user",
            make_integer_reader(1, 1_000_000, "number of a user"),
            None,
            "number of the user who sends the items of the files and whose items become files",
        ),
    ),
    work=_work,
    examples={"board-folder": "/srv/board", "board-workspace": "Alps", "board-user": "7"},
    faults=_faults,
)
EXTENSION = Extension("a board", bridges={NAME: f"{__name__}:KIND"})
