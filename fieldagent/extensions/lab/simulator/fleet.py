"""Many emulated kits on IP links to one hub. Each kit sends positions at a fixed interval.

An emulated kit consists only of an agent's link. This link uses the real protocol of the IP link.
Like an agent, it sends pings, connects again, and repeats unconfirmed items. An emulated kit has no
journal.
"""

from __future__ import annotations

import random as randomness
import ssl
import time
from dataclasses import replace
from math import ceil, inf
from typing import Any

import trio

from fieldagent.agent.channels.cellular import (
    ATTEMPT_TIMEOUT_S,
    ORDERLY_PAUSE_MAX_S,
    PAUSE_MAX,
    PAUSE_SHARE_RANGE,
    LinkPace,
)
from fieldagent.agent.channels.connecting import Unreachable, open_stream, trust
from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.channels.hub_connection import HubAddress, TokenRefused, open_web_socket
from fieldagent.extensions.lab.simulator.fleet_figures import FleetFigures
from fieldagent.http.link_session import LinkEnd, LinkSession
from fieldagent.package.package import Location
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import EPOCH, Entry, decode, encode
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.keepalive import Keepalive
from fieldagent.wire.link import Close

CONCURRENT_CONNECTS_MAX = 150
"""Largest number of simultaneous connection attempts. Each real kit has its own processor, but all
emulated kits share one."""
POSITIONS_PER_MESSAGE_MAX = 20
"""Largest number of positions in one message. Several positions wait, for example, after a time
without a link."""
FINAL_CLOSE_CODES = {Close.POLICY, Close.REVOKED, Close.REPLACED, Close.NO_COMMON_VERSION}
"""Close codes after which an emulated kit does not connect again. The kit's device no longer
exists, or another kit uses the same token."""
CHECK_S = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    every: float = inf
    """Seconds between two positions of a kit. If infinite, the kits send nothing. It is at least 1,
    because item numbers start at the current time in seconds, so that two runs never use the same
    numbers."""
    connect_rate: float = inf
    """Largest number of first connections per second."""
    sources: tuple[str, ...] = ()
    """Addresses of this machine from which the kits connect, in turn."""


class Silence:
    """Source of items for a link that sends and stores nothing."""

    async def accept_hello(self, journal_number: int) -> None: ...
    async def wait_for_next(self, *, urgent: bool) -> Any:
        await trio.sleep_forever()

    async def mark_stored(self, item: Any) -> None: ...
    async def return_unsent(self, items: list[Any], reason: str) -> None: ...
    async def store_body(self, body: bytes) -> None: ...
    async def wait_for_next_note(self) -> bytes:
        await trio.sleep_forever()

    async def process_note(self, body: bytes) -> None: ...


class Positions(NamedTuple):
    """A message with the positions of one kit."""

    body: bytes
    due: tuple[float, ...]
    """Time on trio's clock when each item was created."""


class EmulatedKit(Silence):
    """Creates one emulated kit's positions, and counts the unconfirmed positions."""

    __slots__ = (
        "_due",
        "_figures",
        "_fleet",
        "_number",
        "_sequence",
        "_unsent_positions",
        "unconfirmed",
    )

    def __init__(self, fleet: Fleet, number: int, first_due: float) -> None:
        self._fleet = fleet
        self._figures = fleet.figures
        self._number = number
        self._sequence = int(time.time()) - EPOCH
        self._due = first_due
        self._unsent_positions: list[Positions] = []
        self.unconfirmed = 0
        """Number of items that were sent and that the hub has not confirmed."""

    async def wait_for_next(self, *, urgent: bool) -> Positions:
        if urgent:
            await trio.sleep_forever()
        if self._unsent_positions:
            await trio.lowlevel.checkpoint()
            message = self._unsent_positions.pop(0)
            self._figures.sent_again += len(message.due)
            return message
        await trio.sleep_until(self._due)
        if self._due >= self._fleet.until:
            await trio.sleep_forever()
        return self._make()

    def _make(self) -> Positions:
        plan, now = self._fleet.plan, trio.current_time()
        unix_offset = time.time() - now
        entries: list[Entry] = []
        due: list[float] = []
        while (
            self._due <= now
            and self._due < self._fleet.until
            and len(due) < POSITIONS_PER_MESSAGE_MAX
        ):
            location = Location(
                46.0 + self._number % 1000 * 1e-3, 7.0 + self._sequence % 10_000 * 1e-4
            )
            entries.append(Entry(self._sequence, location, int(unix_offset + self._due)))
            due.append(self._due)
            self._sequence += 1
            self._due += plan.every
        self.unconfirmed += len(due)
        self._figures.sent += len(due)
        return Positions(encode(entries), tuple(due))

    async def mark_stored(self, item: Positions) -> None:
        self.unconfirmed -= len(item.due)
        self._figures.confirm(item.due, trio.current_time())

    async def return_unsent(self, items: list[Positions], reason: str) -> None:
        self._unsent_positions[:0] = items

    async def store_body(self, body: bytes) -> None:
        try:
            kinds = [type(entry.content).__name__ for entry in decode(body).entries]
        except RemoteProtocolError:
            kinds = ["unreadable"]
        self._figures.count_message(len(body), kinds)

    async def process_note(self, body: bytes) -> None:
        self._figures.count_message(len(body), ["Note"])

    def count_waiting(self) -> int:
        """Return the number of positions that are due and have not been sent."""
        last = min(trio.current_time(), self._fleet.until)
        return max(0, ceil((last - self._due) / self._fleet.plan.every))

    def stop_positions(self) -> None:
        """Stop the creation of positions for this kit."""
        self._due = inf


class Fleet:
    def __init__(
        self, hub: HubAddress, tokens: list[str], plan: Plan, figures: FleetFigures | None = None
    ) -> None:
        """Create the fleet. All kits use the address in `hub`. The token in `hub` is not used."""
        self.plan = plan
        self.figures = figures or FleetFigures()
        self.until = inf
        """Time on trio's clock from which no new positions are created."""
        self.living: set[EmulatedKit] = set()
        """Kits that are running and have not given up."""
        self._hub = hub
        self._tokens = tokens
        self._random = randomness.Random()
        self._coming = trio.CapacityLimiter(CONCURRENT_CONNECTS_MAX)

    async def run(self) -> None:
        """Run all kits until the last kit has given up. Raises Unreachable if the trusted
        certificates cannot be read.
        """
        context, started_at = trust(self._hub.server), trio.current_time()
        async with trio.open_nursery() as nursery:
            for index, token in enumerate(self._tokens):
                await trio.sleep_until(started_at + index / self.plan.connect_rate)
                nursery.start_soon(self._run_kit, index, token, context)

    def stop(self) -> None:
        """Stop the creation of positions for all kits."""
        self.until = trio.current_time()

    async def wait_until_settled(self) -> None:
        """Wait until the hub has confirmed all positions of the living kits."""
        while any(kit.unconfirmed or kit.count_waiting() for kit in self.living):
            await trio.sleep(CHECK_S)

    def count_waiting(self) -> int:
        """Return the number of positions that are due and that the living kits have not sent."""
        return sum(kit.count_waiting() for kit in self.living)

    async def _run_kit(self, place: int, token: str, context: ssl.SSLContext | None) -> None:
        """Run one kit until the hub refuses it permanently."""
        sources = self.plan.sources
        source = sources[place % len(sources)] if sources else None
        hub = replace(self._hub, token=token, source=source)
        first = trio.current_time() + self._random.random() * self.plan.every
        kit = EmulatedKit(self, place, inf if self.plan.every == inf else first)
        pace, keepalive = LinkPace(), Keepalive(None)
        self.living.add(kit)
        while True:
            pace.requested_wait = None
            try:
                link_end = await self._link(hub, context, kit, pace, keepalive)
            except Unreachable as trouble:
                keepalive.record_missed()
                self.figures.refused[trouble.reason] += 1
                pace.requested_wait = trouble.again
                if isinstance(trouble, TokenRefused):
                    break
            else:
                self.figures.lost[_describe_error(link_end)] += 1
                if link_end.code in FINAL_CLOSE_CODES:
                    break
                if pace.is_back_soon(link_end):
                    pace.requested_wait = ORDERLY_PAUSE_MAX_S
            await waits.sleep(self._random.uniform(*PAUSE_SHARE_RANGE) * pace.count_try())
        kit.stop_positions()
        self.living.discard(kit)
        self.figures.given_up += 1

    async def _link(
        self,
        hub: HubAddress,
        context: ssl.SSLContext | None,
        kit: EmulatedKit,
        pace: LinkPace,
        keepalive: Keepalive,
    ) -> LinkEnd:
        """Try to connect once. If this succeeds, run the link until it ends. Raises Unreachable if
        the hub does not answer or refuses the link.
        """
        stream: trio.abc.Stream | None = None
        opened = inf

        def record_open() -> None:
            nonlocal opened
            opened = trio.current_time()
            keepalive.record_reached(opened)
            self.figures.open_one()

        try:
            async with self._coming:
                with trio.move_on_after(ATTEMPT_TIMEOUT_S) as opening:
                    stream = await open_stream(hub.server, context)
                    socket = await open_web_socket(hub, stream)
            if opening.cancelled_caught:
                text = f"{hub.server.host} does not answer within {ATTEMPT_TIMEOUT_S:g} s"
                raise Unreachable(LinkState.NO_SERVICE, text)
            session = LinkSession(socket, kit, keepalive=keepalive, on_open=record_open)
            link_end = await session.run()
            if session.acknowledged or trio.current_time() - opened > PAUSE_MAX:
                pace.attempts = 0
            return link_end
        finally:
            if opened < inf:
                self.figures.open -= 1
            if stream is not None:
                await trio.aclose_forcefully(stream)


def _describe_error(end: LinkEnd) -> str:
    if end.code == Close.REPLACED:
        return "another calls with the same token: a real kit, or a second fleet"
    if end.code == Close.POLICY:
        return "the hub ended the link for good: its device was disabled or deleted"
    return end.reason or f"the hub ended the link ({end.code})"
