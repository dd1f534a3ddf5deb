"""A small workspace in a separate store, without a running hub: members with devices, and their
items.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fieldagent.hub.access import secret
from fieldagent.hub.contract import Bearer, Device, OutgoingMessage
from fieldagent.hub.field import mobile_terminated, operator_calls, operator_handover
from fieldagent.hub.field.mailbox import IpMailbox
from fieldagent.hub.field.mobile_originated import MobileOriginatedReceiver
from fieldagent.hub.field.position_feed import PositionFeeds
from fieldagent.hub.operator.contract import NO_MODEM, FarModem, Verdict
from fieldagent.hub.records import ring_alerts
from fieldagent.hub.records.ledger import Posting, add_item
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Item, Message
from fieldagent.wire.envelope import Entry, Envelope, decode, derive_key, encode
from fieldagent.wire.outcome import Outcome
from tests.running import running

START = 1_790_000_000.0
GRACE = 60.0
MASTER = bytes(range(32))


@dataclass
class Sky:
    """The satellite operator: it accepts all messages, or answers as the test wants."""

    verdicts: list[Verdict] = field(default_factory=list)
    taken: list[tuple[str, bytes]] = field(default_factory=list)
    calls: list[bytes] = field(default_factory=list)
    rings: list[str] = field(default_factory=list)
    keeps: int = 0
    """Number of messages waiting for the modem that the operator reports after it has accepted a
    message."""

    async def send(
        self, imei: str, body: bytes, *, number: int, priority: bool, modem: FarModem = NO_MODEM
    ) -> Verdict:
        self.calls.append(body)
        verdict = (
            self.verdicts.pop(0) if self.verdicts else Verdict(Outcome.SENT, waiting=self.keeps)
        )
        if verdict.outcome is Outcome.SENT:
            self.taken.append((imei, body))
        return verdict

    async def ring(self, imei: str) -> Verdict:
        self.rings.append(imei)
        return self.verdicts.pop(0) if self.verdicts else Verdict(Outcome.SENT)


@dataclass
class Field:
    """Workspace 1 with three members: 1 Ada, 2 Ben, 3 Cleo. Their devices have the same numbers."""

    store: Store
    sky: Sky = field(default_factory=Sky)
    now: float = START

    def clock(self) -> float:
        return self.now

    def device(self, number: int) -> Device:
        return Device(number, 1, number, f"kit {number}", f"30000000000000{number}")

    def mobile_originated(self) -> MobileOriginatedReceiver:
        return MobileOriginatedReceiver(
            self.store,
            clock=self.clock,
            keys=_keys,
            grace=GRACE,
            time_to_live=86_400,
        )

    def feeds(self) -> PositionFeeds:
        return PositionFeeds(self.store, clock=self.clock, pause_min_s=0.0)

    def mailbox(
        self, number: int, log_pause: float = 0.0, feeds: PositionFeeds | None = None
    ) -> IpMailbox:
        return IpMailbox(
            self.store,
            self.device(number),
            self.mobile_originated(),
            clock=self.clock,
            log_pause=log_pause,
            feeds=feeds or self.feeds(),
        )

    async def sends(
        self,
        number: int,
        *entries: Entry,
        bearer: Bearer = Bearer.IP,
        key: bytes | None = None,
        origin: int = 0,
    ) -> None:
        body = encode(entries, origin=origin, key=key)
        await self.mobile_originated().take_in(self.device(number), body, bearer)

    async def push(self, item: Item, **how: Any) -> None:
        """Push an item as the push API does, by default from Ada."""
        how = {"sender": 1, "priority": 12, "time": int(self.now), **how}
        posting = Posting(workspace=1, item=item, **how)
        await self.store.commit(lambda db: add_item(db, posting, now=self.now, grace=GRACE))

    async def satellite(self) -> None:
        """Run one round of the satellite task."""
        store = self.store
        await store.commit(lambda db: mobile_terminated.pack_due_messages(db, self.now))
        for call in await store.commit(lambda db: operator_handover.claim_messages(db, self.now)):
            await operator_calls.carry_out(store, {"directip": self.sky}, call, clock=self.clock)
        for ring in await store.commit(lambda db: ring_alerts.claim_ring_alerts(db, self.now)):
            await operator_calls.ring_again(store, {"directip": self.sky}, ring)

    async def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return await self.store.read(lambda db: db.execute(sql, *parameters))


async def collect(mailbox: IpMailbox, capacity: int = 65_536) -> list[Envelope]:
    """Fetch and confirm all waiting mail, like a link."""
    envelopes: list[Envelope] = []
    while (outgoing := await mailbox.load(capacity)) is not None:
        bodies = outgoing.body if isinstance(outgoing.body, tuple) else (outgoing.body,)
        envelopes += map(decode, bodies)
        await mailbox.mark_stored(outgoing)
    return envelopes


def read(outgoing: OutgoingMessage) -> Envelope:
    assert isinstance(outgoing.body, bytes)
    return decode(outgoing.body)


def said(envelopes: list[Envelope]) -> list[tuple[int, str]]:
    """Return the sender and the text of each message in these envelopes, in order."""
    return [
        (envelope.origin, entry.content.content)
        for envelope in envelopes
        for entry in envelope.entries
        if isinstance(entry.content, Message)
    ]


async def _keys(device: Device) -> list[bytes]:
    return [derive_key(MASTER, "MO")] if device.id == 3 else []


@asynccontextmanager
async def field_of(store: Store) -> AsyncIterator[Field]:
    async with running(store):
        await store.commit(_settle_in)
        yield Field(store)


def _settle_in(db: Db) -> None:
    db.execute("INSERT INTO workspace (id, name, created) VALUES (1, 'Alps', 0)")
    for number, name in ((1, "Ada"), (2, "Ben"), (3, "Cleo")):
        db.execute(
            "INSERT INTO member (id, type, name, email, created) VALUES (?, 'User', ?, ?, 0)",
            number,
            name,
            f"{name.lower()}@example.org",
        )
        db.execute(
            "INSERT INTO membership (workspace, member, over_satellite) VALUES (1, ?, ?)",
            number,
            int(name == "Cleo"),
        )
        db.execute(
            "INSERT INTO device (id, workspace, member, name, imei, operator, air_key, created,"
            " relay, link_token) VALUES (?, 1, ?, ?, ?, 'directip', ?, 0, 1, ?)",
            number,
            number,
            f"kit {number}",
            f"30000000000000{number}",
            MASTER if number == 3 else None,
            secret.hash_for_lookup(f"token {number}"),
        )
    if db.for_update():  # PostgreSQL continues after the last number that it assigned itself
        db.execute("SELECT setval(pg_get_serial_sequence('device', 'id'), 3)")
