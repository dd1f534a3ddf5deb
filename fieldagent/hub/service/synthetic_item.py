"""Synthetic items: once a minute, the hub sends a test item to itself. The item is pushed, stored,
and sent to a webhook that the hub itself receives.

The item uses HTTP over a separate loopback port. The server, authentication, intake and webhooks
are the same as for all items. The access log and the metrics ignore the item. If an address is set,
the hub pushes the item to this address like any other client. Such a push also tests everything in
front of the hub. The hub then counts and logs the item.

Each hub process sends its own item, because each process can hang. Any process may send the item to
the webhook, so the result is read from the store. The hub processes of a database share a
workspace with a user, a key, a token and a webhook. The items themselves are deleted.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import field
from functools import partial

import trio

from fieldagent.http import client
from fieldagent.http.client import Opener, RequestFailed
from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route, make_router
from fieldagent.http.server import serve
from fieldagent.hub.access import secret
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.directory import SYNTHETIC, insert_row
from fieldagent.hub.api.push_api import HubApi
from fieldagent.hub.records.audit import HUB, PUSH, write_line
from fieldagent.hub.store.contract import ANY_WRITE_TOPIC, Db, Store
from fieldagent.hub.unavailable import make_patient
from fieldagent.store.group import StoreFull, StoreUnavailable
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.supervisor import Note
from fieldagent.webhook import signature
from fieldagent.webhook.signature import PREFIX

log = logging.getLogger(__name__)

LEFT_OVER_AFTER_S = 600.0
"""Seconds after which an item is considered a leftover of a hub process that was killed."""

PUSHES_PER_MINUTE = 600
"""Largest number of pushes per minute. Each hub process makes one."""


class OwnRows(NamedTuple):
    """Rows that the items of this database use."""

    workspace: int
    member: int
    webhook: int
    secret: str
    """Signing secret of the synthetic webhook."""

    @property
    def key(self) -> str:
        """Return the API key of the synthetic user."""
        return self._compute_proof("key")

    @property
    def token(self) -> str:
        """Return the token of the synthetic user."""
        return self._compute_proof("token")

    def _compute_proof(self, prefix: str) -> str:
        # Derive the key and the token from the secret in the database, so that each hub process
        # knows them without a file.
        return (
            f"{prefix}_{hmac.digest(self.secret.encode(), prefix.encode(), hashlib.sha256).hex()}"
        )


class BegunItem(NamedTuple):
    own: OwnRows
    line: int
    """Id of the last audit line before the item was pushed."""


class PostState(NamedTuple):
    """State of an item's delivery to the webhook."""

    state: str
    attempts: int
    claimed_until: float
    reason: str


def begin_item(db: Db, url: str, now: float) -> BegunItem | None:
    """Create missing rows and begin an item. Return None if some of the rows were deleted."""
    own = _find_own(db) or _make(db, url, now) or _find_own(db)
    if own is None:
        return None
    # An outage must not disable this webhook permanently.
    db.execute(
        "UPDATE webhook SET disabled = NULL, failing_since = NULL, reason = '' WHERE id = ?"
        " AND disabled IS NOT NULL",
        own.webhook,
    )
    ((line,),) = db.execute("SELECT coalesce(max(id), 0) FROM audit")
    return BegunItem(own, line)


def _find_own(db: Db) -> OwnRows | None:
    rows = db.execute(
        "SELECT workspace.id, member, webhook.id, secrets FROM workspace"
        " JOIN membership ON membership.workspace = workspace.id"
        " JOIN webhook ON webhook.workspace = workspace.id WHERE workspace.name = ?"
        " ORDER BY member, webhook.id LIMIT 1",
        SYNTHETIC,
    )
    return OwnRows(*rows[0]) if rows else None


def _make(db: Db, url: str, now: float) -> OwnRows | None:
    """Create the rows. Return None if another hub process has just created them."""
    new_rows = db.execute(
        "INSERT INTO workspace (name, created) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
        " RETURNING id",
        *(SYNTHETIC, now),
    )
    if not new_rows:
        return None
    workspace = new_rows[0][0]
    signing = f"{PREFIX}{base64.b64encode(secrets.token_bytes(32)).decode()}"
    member = insert_row(db, "member", type="Integration", name=SYNTHETIC, created=now)
    db.execute("INSERT INTO membership (workspace, member) VALUES (?, ?)", workspace, member)
    webhook = insert_row(db, "webhook", workspace=workspace, url=url, secrets=signing, created=now)
    own = OwnRows(workspace, member, webhook, signing)
    for kind, proof, columns in (
        (
            "key",
            own.key,
            {"workspace": workspace, "scopes": "message", "per_minute": PUSHES_PER_MINUTE},
        ),
        ("token", own.token, {"member": member}),
    ):
        lookup = secret.hash_for_lookup(proof)
        insert_row(
            db, "credential", kind=kind, name=SYNTHETIC, lookup=lookup, created=now, **columns
        )
    write_line(db, workspace, HUB, "workspace add", f"{workspace} {SYNTHETIC}", now)
    return own


def add_delivery(db: Db, own_rows: OwnRows, request_id: str, now: float) -> bool:
    """Create the delivery of the item to the webhook, as for items of kits. Return False if there
    is no such item.
    """
    rows = db.execute(
        "INSERT INTO webhook_delivery (webhook, item, sender, state, not_before)"
        " SELECT ?, id, sender, 'waiting', ? FROM item WHERE request_id = ? AND workspace = ?"
        " RETURNING item",
        *(own_rows.webhook, now, request_id, own_rows.workspace),
    )
    db.announce("webhooks")
    return bool(rows)


def read_post_state(db: Db, own_rows: OwnRows, request_id: str) -> PostState | None:
    """Return the state of the item's delivery to the synthetic webhook, or None if there is no such
    delivery.
    """
    rows = db.execute(
        "SELECT state, attempts, claimed_until, reason FROM webhook_delivery WHERE webhook = ?"
        " AND item = (SELECT id FROM item WHERE request_id = ?)",
        *(own_rows.webhook, request_id),
    )
    return PostState(*rows[0]) if rows else None


def delete_item(db: Db, begun: BegunItem, request_id: str, now: float) -> None:
    """Delete the item and its audit line. Also delete leftovers of hub processes that were
    killed.
    """
    workspace = begun.own.workspace
    db.execute(
        "DELETE FROM item WHERE workspace = ? AND (request_id = ? OR accepted < ?)",
        *(workspace, request_id, now - LEFT_OVER_AFTER_S),
    )
    db.execute(
        f"DELETE FROM audit WHERE id > ? AND workspace = ? AND action = '{PUSH}'",
        *(begun.line, workspace),
    )


ITEM_INTERVAL_S = 60.0
"""Seconds between two items."""
ITEM_TIMEOUT_S = 30.0
"""Seconds after which the hub gives up an item that has not arrived."""
LIFETIME_S = 60
"""Seconds after which an unsent item expires."""
CHECK_INTERVAL_S = 1.0
"""Seconds between two checks for the result. The notification of another hub process's commit can
arrive late."""
HOST = "synthetic-item.invalid"
"""Reserved host name that no name server resolves (RFC 6761, section 6.4). Only `make_opener`
handles this name."""
URL = f"http://{HOST}/received"
RECREATE_TEXT = (
    f"run `fieldagent hub workspace delete '{SYNTHETIC}' --yes`, and the hub creates it again"
)


class ItemStopped(Exception):
    """Error: the item was not completed. `stage` is push, store or hook. `why` is a text for
    people.
    """

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"{stage}: {reason}")
        self.stage = stage
        self.why = reason


@dataclass(slots=True)
class _Progress:
    """Progress of one synthetic item: its stage (push, store or hook) and its ids."""

    stage: str = "store"
    begun: BegunItem | None = None
    request_id: str = ""


@dataclass(slots=True)
class SyntheticItems:
    """Sends synthetic items. `time_to_live` is in seconds, as for any push."""

    store: Store
    clock: Callable[[], float]
    time_to_live: float
    note_fault: Note
    address: str = ""
    """https://NAME to which clients push. If empty, items are pushed to the loopback port."""
    since: float = field(default_factory=time.monotonic)
    """Time (time.monotonic) when the last complete item began. If there was none, the time when
    this hub started."""
    reason: str | None = None
    """Reason why the last item was not completed, as in the log. Empty if it was completed. None
    before the first item."""
    secret: str = ""
    port: int = 0

    def compute_age(self) -> float:
        """Return the seconds since the last complete item."""
        return time.monotonic() - self.since

    async def run(self) -> None:
        """Send one item each minute until cancelled."""
        listeners = open_listeners(0, ["127.0.0.1"])
        self.port = get_port(listeners)
        router = make_patient(make_router(self._make_routes()))
        serving = partial(
            serve, router, listeners, stop_event=trio.Event(), note_fault=self.note_fault
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(serving)
            while True:
                started_at = trio.current_time()
                await self._send_one()
                await waits.sleep(started_at + ITEM_INTERVAL_S - trio.current_time())

    def make_opener(self, public: Opener) -> Opener:
        """Return a function that opens connections. For the host of synthetic items, it connects to
        this hub's own receiver. For other hosts, it calls `public`.
        """

        async def open_stream(host: str, port: int) -> trio.SocketStream:
            if host != HOST:
                return await public(host, port)
            if not self.port:
                raise RequestFailed(
                    "another hub of this database has synthetic-item=on: set it at this one, too"
                )
            return await trio.open_tcp_stream("127.0.0.1", self.port)

        return open_stream

    def _make_routes(self) -> list[Route]:
        received = Route("POST", "/received", self._receive)
        if self.address:
            return [received]
        api = HubApi(
            self.store,
            Authentication(self.store, clock=self.clock),
            clock=self.clock,
            grace=0.0,
            time_to_live=self.time_to_live,
        )
        return [Route("POST", "/api/package", api.push, judge=api.judge), received]

    async def _receive(self, request: Request) -> Response:
        """Accept a request that the synthetic webhook has signed."""
        id_, moment, signed = (
            request.headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")
        )
        if self.secret and moment.isascii() and moment.isdigit() and len(moment) < 19:
            signature_headers = signature.make_headers(
                id_, request.body, now=int(moment), secrets=[self.secret]
            )
            if hmac.compare_digest(
                dict(signature_headers)["webhook-signature"].encode(), signed.encode()
            ):
                return Response(204)
        raise Problem(401, "this post is not a synthetic item of this database")

    async def _send_one(self) -> None:
        started_at, progress = time.monotonic(), _Progress()
        stopped: ItemStopped | None = None
        with trio.move_on_after(ITEM_TIMEOUT_S) as scope:
            try:
                await self._send_item(progress)
            except ItemStopped as found:
                stopped = found
        if scope.cancelled_caught:
            stopped = ItemStopped(progress.stage, await self._find_reason(progress))
        self._report(stopped, started_at)
        with trio.move_on_after(ITEM_TIMEOUT_S):
            await self._clear(progress)

    async def _send_item(self, progress: _Progress) -> None:
        """Push an item, and wait until the webhook has accepted it. Raises ItemStopped."""
        try:
            # Also test a write to the store. On a full disk, this small item may fit although
            # larger items do not.
            await self.store.prove()
            progress.begun = await self.store.commit(lambda db: begin_item(db, URL, self.clock()))
            if progress.begun is None:
                raise ItemStopped(
                    "push",
                    f"the workspace of synthetic items has no user or webhook: {RECREATE_TEXT}",
                )
            own = progress.begun.own
            self.secret = own.secret
            progress.stage = "push"
            progress.request_id = id_ = await self._push(progress.begun)
            progress.stage = "store"
            if not await self.store.commit(lambda db: add_delivery(db, own, id_, self.clock())):
                raise ItemStopped("store", "the item was accepted, but is not in the database")
            progress.stage = "hook"
            while True:
                any_write = self.store.get_event(ANY_WRITE_TOPIC)
                push_state = await self.store.read(lambda db: read_post_state(db, own, id_))
                if push_state is None:
                    raise ItemStopped(
                        "store", "the item was stored, but is no longer in the database"
                    )
                if push_state.state == "handed":
                    return
                if push_state.state == "dead":
                    raise ItemStopped("hook", push_state.reason)
                with trio.move_on_after(CHECK_INTERVAL_S):
                    await any_write.wait()
        except (StoreUnavailable, StoreFull) as error:
            raise ItemStopped("store", str(error)) from None

    async def _push(self, begun_item: BegunItem) -> str:
        """Push the item, and return its requestId. Raises ItemStopped."""
        own = begun_item.own
        body = {
            "sourceUserId": own.member,
            "workspaceId": own.workspace,
            "targetUserId": own.member,
            "timeToLive": LIFETIME_S,
            "message": {"content": SYNTHETIC},
        }
        proof = (("x-api-key", own.key), ("Authorization", f"Bearer {own.token}"))
        address = self.address or f"http://127.0.0.1:{self.port}"
        try:
            reply = await client.request(
                "POST",
                f"{address}/api/package",
                headers=(*proof, ("Content-Type", "application/json")),
                body=json.dumps(body).encode(),
                deadline=ITEM_TIMEOUT_S,
            )
        except RequestFailed as failure:
            raise ItemStopped("push", self._add_address(failure.reason)) from None
        if reply.status == 200 and (location := reply.headers.get("location")):
            return location.rpartition("/")[2]
        try:
            reason = json.loads(reply.body)["detail"]
        except (ValueError, KeyError, TypeError):
            # The response comes from a proxy, so the cause of a 503 may not be the database.
            raise ItemStopped("push", self._add_address(f"answered {reply.status}")) from None
        # The hub responds with 503 or 507 if the database did not accept the item.
        stage = "store" if reply.status in (503, 507) else "push"
        reason = f"{reason}: {RECREATE_TEXT}" if reply.status in (401, 403) else reason
        raise ItemStopped(stage, self._add_address(reason))

    def _add_address(self, reason: str) -> str:
        return f"{self.address}: {reason}" if self.address else reason

    async def _find_reason(self, progress: _Progress) -> str:
        """Return the reason why the item was not complete within `ITEM_TIMEOUT_S`."""
        late = f"no progress for {ITEM_TIMEOUT_S:g} s"
        begun_item, id_, push_state = progress.begun, progress.request_id, None
        if progress.stage != "hook" or begun_item is None:
            return late
        with trio.move_on_after(CHECK_INTERVAL_S):
            try:
                push_state = await self.store.read(
                    lambda db: read_post_state(db, begun_item.own, id_)
                )
            except StoreUnavailable:
                return late
        if push_state is None:
            return late
        if push_state.reason:
            return f"{late}: {push_state.reason}"
        if push_state.claimed_until > self.clock():
            return f"{late}: a hub has begun to post it"
        return f"{late}: no hub has begun to post it"

    def _report(self, stop_error: ItemStopped | None, began: float) -> None:
        if stop_error is None:
            if self.reason != "":
                log.info("synthetic items are complete again: pushed, stored and posted")
            self.since, self.reason = began, ""
        elif (text := str(stop_error)) != self.reason:
            self.reason = text
            log.error(
                "the synthetic item of this minute stopped at %s: %s; the last complete one is"
                " %.0f s old",
                *(stop_error.stage, stop_error.why, self.compute_age()),
            )

    async def _clear(self, progress: _Progress) -> None:
        begun_item, id_ = progress.begun, progress.request_id
        if begun_item is None:
            return
        try:
            await self.store.commit(lambda db: delete_item(db, begun_item, id_, self.clock()))
        except (StoreUnavailable, StoreFull) as error:
            log.debug("a synthetic item will be removed later: %s", error)
