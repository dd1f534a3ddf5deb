"""Keeps one IP link to the hub, for as long as the agent runs.

The link is judged by what the hub acknowledges, never by what a socket or an interface says of
itself. What was in flight when a link ended goes first over the next: the identical bytes, of which
the hub knows what it has.
"""

from __future__ import annotations

import logging
import random as randomness
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import field
from math import inf
from typing import NoReturn

import trio

from fieldagent.agent.channels.connecting import Unreachable, open_stream
from fieldagent.agent.channels.contract import (
    ChannelLink,
    LinkState,
    Outbox,
    Reception,
    Transmission,
)
from fieldagent.agent.channels.hub_connection import REVOKED_WORDS, HubAddress, open_web_socket
from fieldagent.agent.channels.ip_turn import IP_CARRIAGE, IpTurn
from fieldagent.agent.channels.kit_notes import KitNotes
from fieldagent.agent.channels.recorded_link import RecordedSocket
from fieldagent.http.date import read_date
from fieldagent.http.link_session import LinkEnd, LinkSession
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.keepalive import Keepalive
from fieldagent.wire.link import BODY_BYTES, Close
from fieldagent.wire.outcome import Outcome

log = logging.getLogger(__name__)

ATTEMPT_MAX = 60.0
"""Seconds from the look-up of the name to the hub's answer."""
PAUSE_FIRST, PAUSE_MAX = 4.0, 60.0
"""Seconds between two attempts: at random up to the first, which doubles, up to the last. A
thousand agents do not come back to a hub at one moment."""
SHARE = (0.05, 1.0)
"""Of the longest pause: the random one is between them."""
SOON = 4.0
"""The same after a link that the hub ended in order: it stops, and another hub is there, or its
database is away for a moment."""
SOON_TRIES = 5
"""So often in a row: a hub that ends every link in order is in no order."""
URGENT_PAUSE = 3.0
"""Seconds after which an SOS tries again, however long the pause would be."""

_IN_ORDER = {Close.GOING_AWAY, Close.TRY_AGAIN}
_FAULTS = {
    Close.REPLACED: "another agent uses this token: give each kit its own",
    Close.NO_COMMON_VERSION: "the hub and this agent are too far apart: update the older one",
    Close.POLICY: "the hub ended the link for good: is the device disabled, its token revoked?",
    Close.REVOKED: REVOKED_WORDS,
}


@dataclass(slots=True)
class _OutboxPost:
    """The outbox as an end of a link uses it."""

    outbox: Outbox
    reception: Reception
    notes: KitNotes
    again: deque[Transmission] = field(default_factory=deque)
    """What the last link left unacknowledged, SOS first."""

    async def greeted(self, journal: int) -> None:
        self.notes.begin()

    async def next(self, *, urgent: bool) -> Transmission:
        if self.again and (self.again[0].urgent or not (urgent or await self._urgent_waits())):
            return self.again.popleft()
        while True:
            await self.outbox.ready(urgent=urgent)
            await self.outbox.fix_dates()
            transmission = self.outbox.load(BODY_BYTES)
            if transmission is not None:
                return transmission
            await trio.sleep(1)

    async def _urgent_waits(self) -> bool:
        with trio.CancelScope(deadline=-inf) as at_once:
            await self.outbox.ready(urgent=True)
        return not at_once.cancelled_caught

    async def stored(self, item: Transmission) -> None:
        await self.outbox.settle(item, Outcome.SENT)

    async def returned(self, items: list[Transmission], reason: str) -> None:
        waiting = sorted([*items, *self.again], key=lambda item: not item.urgent)
        self.again.clear()
        self.again.extend(waiting)

    async def take_in(self, body: bytes) -> None:
        await self.reception.receive(body)

    async def next_note(self) -> bytes:
        return await self.notes.next()

    async def take_note(self, body: bytes) -> None:
        await self.notes.take_in(body)


async def no_healing_since(dead_since: float | None) -> bool:
    """Leave the modem as it is, and say that nothing was done."""
    return False


async def run(
    hub: HubAddress,
    outbox: Outbox,
    reception: Reception,
    link: ChannelLink,
    notes: KitNotes,
    *,
    random: randomness.Random,
    ping: float | None = None,
    heal: Callable[[float | None], Awaitable[bool]] = no_healing_since,
    journal: int = 0,
    progress: Callable[[], None] = lambda: None,
    turn: IpTurn | None = None,
) -> NoReturn:
    """Link to the hub for ever. `ping` is in seconds, 0 for never, None as the path bears it;
    `journal` is the number of ours; `progress` is called at least once in two minutes; `turn` shows
    another bearer whether there is a link; `heal` takes the step that is due where the hub has not
    been reached since then."""
    turn = IpTurn() if turn is None else turn
    # Of a run that failed: its outbox has given that back.
    turn.left.clear()
    post = _OutboxPost(outbox, reception, notes, turn.left)
    await CellularDriver(
        hub, post, link, random, Keepalive(ping), heal, journal, progress, turn
    ).work()


@dataclass(slots=True)
class LinkPace:
    """How long the pause before the next attempt may be."""

    tries: int = 0
    """In a row, that no steady link came of."""
    wish: float | None = None
    """Seconds after which the hub itself wants to be asked again."""

    def count_try(self) -> float:
        """Count a try, and return how many seconds the pause before the next lasts at most."""
        self.tries += 1
        if self.wish is not None:
            return min(PAUSE_MAX, max(1.0, self.wish))
        return float(min(PAUSE_MAX, PAUSE_FIRST * 2 ** min(self.tries - 1, 10)))

    def comes_soon(self, ended: LinkEnd) -> bool:
        """Return whether the hub ended the link in order, so that SOON is its wish."""
        return ended.by_peer and ended.code in _IN_ORDER and self.tries < SOON_TRIES


@dataclass(slots=True)
class CellularDriver:
    hub: HubAddress
    post: _OutboxPost
    link: ChannelLink
    random: randomness.Random
    keepalive: Keepalive
    heal: Callable[[float | None], Awaitable[bool]]
    journal: int
    progress: Callable[[], None]
    turn: IpTurn
    pace: LinkPace = field(default_factory=LinkPace)
    dead_since: float = field(default_factory=trio.current_time)
    """When the hub last said something."""

    def __post_init__(self) -> None:
        self.link.facts["hub"] = self.hub.address

    async def work(self) -> NoReturn:
        """Connect, serve the link until it ends, rest as long as the pace asks, and begin again;
        failures to connect show on the channel's link and are not raised."""
        while True:
            self.progress()
            self.pace.wish = None
            try:
                ended = await self._link()
                self._judge(ended)
                if ended.code not in _IN_ORDER:
                    await self.link.recorder.fault(self.link.reason)
            except Unreachable as trouble:
                self.keepalive.missed()
                self._show(trouble.state, trouble.reason)
                self._note_wish(trouble.again)
            self.progress()
            await self._rest()
            await self._recover()

    async def _link(self) -> LinkEnd:
        """One attempt and, if the hub is reached, its link until that ends. Raises Unreachable."""
        opening = trio.CancelScope(deadline=trio.current_time() + ATTEMPT_MAX)
        with opening:
            stream = await open_stream(self.hub.server)
            try:
                socket = await open_web_socket(self.hub, stream)
                opening.deadline = inf
                if (unix := read_date(socket.date)) is not None:
                    self.link.tell_time(unix)
                return await self._exchange(
                    LinkSession(
                        RecordedSocket(socket, self.link.recorder, self.hub.address),
                        self.post,
                        keepalive=self.keepalive,
                        journal=self.journal,
                        opened=self._opened,
                        progress=self._look_at_link,
                    )
                )
            finally:
                await trio.aclose_forcefully(stream)
        text = f"{self.hub.server.host} does not answer within {ATTEMPT_MAX:g} s"
        raise Unreachable(LinkState.NO_SERVICE, text)

    async def _exchange(self, exchange: LinkSession[Transmission]) -> LinkEnd:
        began = trio.current_time()
        try:
            return await exchange.run()
        finally:
            self.turn.note(linked=False)
            self.dead_since = trio.current_time()
            if exchange.acknowledged or self.dead_since - began > PAUSE_MAX:
                self.pace.tries = 0

    def _opened(self) -> None:
        self.post.outbox.fit(IP_CARRIAGE)
        self.turn.note(linked=True)
        before = self.keepalive.cut
        self.keepalive.reached(trio.current_time())
        if self.keepalive.cut not in (None, before):
            log.warning("%s", self.keepalive.note())
        self._show(LinkState.READY, self.keepalive.note())

    def _look_at_link(self) -> None:
        self.progress()
        if self.link.state is LinkState.READY:
            self.link.reason = self.keepalive.note()

    def _judge(self, ended: LinkEnd) -> None:
        if self.pace.comes_soon(ended):
            self._note_wish(SOON)
        fault = _FAULTS.get(Close(ended.code)) if ended.code in set(Close) else None
        if fault is not None:
            self._show(LinkState.FAULT, fault)
        else:
            why = ended.reason or f"the hub ended it ({ended.code})"
            self._show(LinkState.NO_SERVICE, f"the link ended: {why}")

    def _note_wish(self, again: float | None) -> None:
        """Who was told to come again has a modem that works."""
        self.pace.wish = again
        if again is not None:
            self.dead_since = trio.current_time()

    def _show(self, state: LinkState, reason: str) -> None:
        if (self.link.state, self.link.reason) == (state, reason):
            return
        self.link.state, self.link.reason = state, reason
        if state is LinkState.READY:
            log.info("linked to the hub at %s", self.hub.address)
        else:
            log.warning("no link to the hub: %s; trying again", reason)

    async def _rest(self) -> None:
        """Until the next attempt. An SOS does not wait for long."""
        longest = self.pace.count_try()
        if self.link.state is LinkState.FAULT:
            longest = PAUSE_MAX
        pause = self.random.uniform(*SHARE) * longest
        self.link.next_look = trio.current_time() + pause
        self.link.next_urgent = trio.current_time() + min(pause, URGENT_PAUSE)
        with waits.move_on_after(pause):
            await self.post.outbox.ready(urgent=True)
            await trio.sleep(URGENT_PAUSE)

    async def _recover(self) -> None:
        """Take the step that is due. A FAULT is the hub's or the user's to mend: no modem is reset
        for it."""
        self.progress()
        await self.heal(None if self.link.state is LinkState.FAULT else self.dead_since)
