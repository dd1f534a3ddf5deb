"""A mailbox in memory for tests of links. Like a hub, it counts each incoming item once, by its
number.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any

import trio

from fieldagent.hub.contract import Device, OutgoingMessage, UnknownDevice
from fieldagent.hub.records.lease import Lease
from fieldagent.wire.envelope import Entry, Fragment, decode, encode
from fieldagent.wire.fragments import join

DEVICE = Device(id=7, workspace=1, member=42, name="kit 7")
TOKEN = "a-link-token"


@dataclass
class MemoryMailbox:
    device: Device = DEVICE
    waiting: deque[OutgoingMessage] = field(default_factory=deque)
    loaded: list[OutgoingMessage] = field(default_factory=list)
    delivered: list[bytes] = field(default_factory=list)
    journals: list[int] = field(default_factory=list)
    """Numbers of the agent's journals, by link."""
    reasons: list[str] = field(default_factory=list)
    copies: list[bytes] = field(default_factory=list)
    """All envelopes that arrived, including duplicates."""
    contents: list[Any] = field(default_factory=list)
    """Contents of items that arrived, each once."""
    to_tell: list[bytes] = field(default_factory=list)
    """Notes for the agent, before it connects."""
    notes: list[bytes] = field(default_factory=list)
    """Notes from agents."""
    before_disk: Callable[[], Any] | None = None
    """Awaited before an incoming message counts."""
    _seen: set[tuple[int, int, bytes]] = field(default_factory=set)
    _slices: dict[tuple[int, int], dict[int, bytes]] = field(default_factory=dict)
    _news: trio.Event = field(default_factory=trio.Event)
    _numbers: int = 0

    def put(self, body: bytes) -> None:
        self._numbers += 1
        self.waiting.append(OutgoingMessage(self._numbers, body))
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def record_hello(self, journal_number: int) -> None:
        await trio.lowlevel.checkpoint()
        self.journals.append(journal_number)

    def get_news(self) -> trio.Event:
        return self._news

    def compute_recheck_delay(self) -> float:
        return inf

    async def load(self, capacity: int) -> OutgoingMessage | None:
        await trio.lowlevel.checkpoint()
        if not self.waiting or len(self.waiting[0].body) > capacity:
            return None
        self.loaded.append(self.waiting.popleft())
        return self.loaded[-1]

    async def mark_stored(self, outgoing: OutgoingMessage) -> None:
        await trio.lowlevel.checkpoint()
        self.loaded.remove(outgoing)
        assert isinstance(outgoing.body, bytes)
        self.delivered.append(outgoing.body)

    async def return_message(
        self, outgoing: OutgoingMessage, *, reason: str, retry_after: float = 0.0
    ) -> None:
        await trio.lowlevel.checkpoint()
        self.loaded.remove(outgoing)
        self.reasons.append(reason)
        self.waiting.append(outgoing)
        self.waiting = deque(sorted(self.waiting, key=lambda waiting: waiting.number))
        self._wake()

    async def store_body(self, body: bytes) -> None:
        if self.before_disk is not None:
            await self.before_disk()
        await trio.lowlevel.checkpoint()
        self.copies.append(body)
        self._count(body, 0)

    async def next_note(self) -> bytes:
        while not self.to_tell:
            await trio.sleep_forever()
        return self.to_tell.pop()

    async def process_note(self, body: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.notes.append(body)

    def _count(self, body: bytes, origin: int) -> None:
        envelope = decode(body)
        for entry in envelope.entries:
            key = envelope.origin, entry.sequence, hashlib.sha256(encode([entry])).digest()
            if key not in self._seen:
                self._seen.add(key)
                self._keep(envelope.origin, entry)

    def _keep(self, origin: int, entry: Entry) -> None:
        content = entry.content
        if not isinstance(content, Fragment):
            self.contents.append(getattr(content, "content", content))
            return
        slices = self._slices.setdefault((entry.sequence, content.count), {})
        slices[content.index] = content.payload
        if len(slices) == content.count:
            self._count(join(slices), origin)


@dataclass
class MemoryHub:
    """A simulated hub with the functions that `hub.ip_link.Links` needs."""

    mailbox: MemoryMailbox = field(default_factory=MemoryMailbox)
    tokens: dict[str, Device] = field(default_factory=lambda: {TOKEN: DEVICE})
    asked: list[str] = field(default_factory=list)
    """Tokens that were used."""
    links: int = 0
    linked: list[Lease] = field(default_factory=list)
    """Leases of open links."""

    async def authenticate(self, token: str) -> Device:
        await trio.lowlevel.checkpoint()
        self.asked.append(token)
        if token not in self.tokens:
            raise UnknownDevice
        return self.tokens[token]

    @asynccontextmanager
    async def connected(self, device: Device) -> AsyncIterator[Lease]:
        for older in self.linked:
            older.lost.set()
        ours = Lease()
        self.links += 1
        self.linked.append(ours)
        try:
            yield ours
        finally:
            self.linked.remove(ours)
