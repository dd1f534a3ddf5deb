"""Where a Package comes in: it gets an id and a number, is committed, and enters the queues.

Accepted means on disk: whatever this file answers, it answers after the commit.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple

import trio

from fieldagent.agent.events import Events
from fieldagent.agent.journal import history as story
from fieldagent.agent.journal import outbound, sos
from fieldagent.agent.journal.history import Line
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import Accepted, EndedLeg, Storage
from fieldagent.agent.outbound.outbox import ChannelOutbox, Cost
from fieldagent.package.delivery import FanOut, Leg, delays, legs_json, legs_of, terminal_status
from fieldagent.package.package import Channel, Package, Status
from fieldagent.package.writing import canonical, digest

log = logging.getLogger(__name__)


SESSION_MAX = 120.0
"""Seconds."""
BY_CALL = "by a call"


class Conflict(Exception):
    """The id or the Idempotency-Key is taken by something else; the text says by what."""


class AgentStopping(Exception):
    """The agent stops before the Package has ended; it goes on after the next start."""


class UnknownPackage(Exception):
    """No Package has that id."""


class Standing(NamedTuple):
    """How a Package stands: its status, None while it waits, and each channel's."""

    id: int
    sequence: int
    status: Status | None
    legs: Mapping[Channel, Leg]
    accepted: float


class Intake:
    """`outboxes` are the channels that are configured; `clock` is Unix time.

    `head_start` is how many seconds a channel has before the next dearer one, where `fan_out`
    asks for that.
    """

    def __init__(
        self,
        journal: Journal,
        outboxes: Mapping[Channel, ChannelOutbox],
        *,
        time_to_live: int,
        clock: Callable[[], float],
        events: Events,
        fan_out: FanOut = FanOut.EVERY,
        head_start: float = 0.0,
    ) -> None:
        self._journal = journal
        self._fan_out = fan_out
        self._head_start = head_start
        self._events = events
        self._outboxes = outboxes
        self._time_to_live = time_to_live
        self._clock = clock
        self._next_id = outbound.next_id(journal)
        self._waiters: dict[int, trio.Event] = {}
        self._accepting: dict[int | str, trio.Event] = {}
        self._stopped = False
        self.on_carried: Callable[[Accepted], None] | None = None
        """Called with a neighbour's Package once the hub has it."""

    async def accept(self, package: Package, idempotency_key: str | None = None) -> Standing:
        """Store and queue it, or join the one that the same caller posted before.

        Raises Conflict, and what the journal raises.
        """
        claims: list[int | str] = [c for c in (package.id, idempotency_key) if c is not None]
        if not claims:
            return await self._store(package, None)
        # Two posts of one id at one moment: the second waits until the first is on disk.
        while busy := [self._accepting[claim] for claim in claims if claim in self._accepting]:
            await busy[0].wait()
        done = trio.Event()
        self._accepting |= dict.fromkeys(claims, done)
        try:
            known = self._earlier(package, idempotency_key)
            if known is not None:
                return self._standing(known.sequence)
            return await self._store(package, idempotency_key)
        finally:
            for claim in claims:
                del self._accepting[claim]
            done.set()

    def _earlier(self, package: Package, key: str | None) -> Accepted | None:
        if key is not None and (known := outbound.by_idempotency_key(self._journal, key)):
            if known.digest != digest(canonical(package)):
                raise Conflict(f"Idempotency-Key {key!r} was used for another body")
            return known
        if package.id is None:
            return None
        known = outbound.by_id(self._journal, package.id)
        if known is None or known.status is not None:
            return None
        if known.digest != digest(canonical(package)):
            raise Conflict(
                f"Package {package.id} is still pending and has another body; cancel it, wait for"
                " it, or leave out the id to get a free one"
            )
        return known

    async def _store(self, package: Package, key: str | None) -> Standing:
        if not package.sos:
            self._journal.require_room()
        now = self._clock()
        legs = legs_of(package.channels, self._configured)
        status = terminal_status(legs.values())
        if package.id is None:
            id_, self._next_id = self._next_id, self._next_id + 1
        else:
            id_ = package.id
            if self._next_id <= id_ < outbound.CHOSEN_IDS:
                self._next_id = id_ + 1
        stamped = package.stamped(now)
        life = None if package.sos else package.time_to_live or self._time_to_live
        expires = None if life is None else now + life
        body = canonical(package)
        identity = digest(body)
        sequence = await self._journal.commit(
            outbound.accept(
                body if stamped is package else canonical(stamped),
                id_=id_,
                digest=identity,
                idempotency_key=key,
                accepted=now,
                expires=expires,
                legs=legs,
                status=status,
                is_sos=package.sos,
            )
        )
        accepted = Accepted(sequence, id_, stamped, identity, key, now, expires, None, None)
        replaced = [
            EndedLeg(older, channel, Leg(Status.COLLAPSED, f"replaced by Package {id_}"))
            for channel, delay in self._delays(legs, package, self._fan_out).items()
            for older in self._outboxes[channel].add(accepted, life, delay)
        ]
        if replaced:
            await self.end(replaced)
        return Standing(id_, sequence, status, legs, now)

    @cached_property
    def _configured(self) -> frozenset[Channel]:
        """All channels are there before the first Package is."""
        return frozenset(self._outboxes)

    def queue_carried(self, accepted: Accepted) -> None:
        """A neighbour's, which is on disk."""
        life = None if accepted.expires is None else max(0.0, accepted.expires - self._clock())
        legs = outbound.legs(self._journal, accepted.sequence)
        for channel, delay in self._delays(legs, accepted.package, self._mode(accepted)).items():
            self._outboxes[channel].add(accepted, life, delay)

    def _mode(self, accepted: Accepted) -> FanOut:
        """For a neighbour nothing is paid for twice."""
        return FanOut.CHEAPEST if accepted.origin else self._fan_out

    def _delays(
        self, legs: Mapping[Channel, Leg], package: Package, mode: FanOut
    ) -> dict[Channel, float]:
        return delays(legs, mode, self._head_start, sos=package.sos)

    def resume(self) -> int:
        """Put back into the queues what waited when the program ended; tells how many."""
        now = self._clock()
        waiting = outbound.waiting(self._journal)
        for accepted in waiting:
            life = None
            if accepted.expires is not None:
                # After a jump of the clock no Package lives longer than it was meant to.
                life = accepted.expires - accepted.accepted
                life = min(life, max(0.0, accepted.expires - now))
            legs = outbound.legs(self._journal, accepted.sequence)
            passed = max(0.0, now - accepted.accepted)
            mode = self._mode(accepted)
            for channel, delay in self._delays(legs, accepted.package, mode).items():
                if channel in self._outboxes:
                    self._outboxes[channel].add(accepted, life, delay - passed)
        return len(waiting)

    async def end(self, ended: list[EndedLeg], record: Operation[None] | None = None) -> None:
        """Record how legs ended and tell whoever waits for a Package that this decides.

        `record` is carried out in the same commit: what left has ended, or has not left.
        """
        if self._fan_out is not FanOut.EVERY or self.on_carried is not None:
            ended = ended + [also for each in ended for also in self._superfluous(each)]
        note_ends = outbound.end(ended, self._clock())

        def store(db: sqlite3.Connection) -> None:
            if record is not None:
                record(db)
            note_ends(db)

        await self._journal.persist(store)
        if self.on_carried is not None:
            self._tell_neighbours(ended, self.on_carried)
        for sequence in {e.sequence for e in ended}:
            self._tell(sequence)

    def _superfluous(self, ended: EndedLeg) -> list[EndedLeg]:
        """What the other channels need not send any more; where this one failed, they hurry."""
        known = outbound.by_sequence(self._journal, ended.sequence)
        mode = FanOut.EVERY if known is None or known.package.sos else self._mode(known)
        if mode is FanOut.EVERY:
            return []
        others = [
            (channel, outbox)
            for channel, outbox in self._outboxes.items()
            if channel is not ended.channel and ended.sequence in outbox
        ]
        if ended.leg.status is Status.ERROR and mode is FanOut.CHEAPEST:
            for _, outbox in others:
                outbox.hasten(ended.sequence)
        if ended.leg.status is not Status.DELIVERED:
            return []
        why = f"delivered over {ended.channel}"
        return [
            EndedLeg(ended.sequence, channel, Leg(Status.CANCELED, why))
            for channel, outbox in others
            if outbox.withdraw(ended.sequence, why) is None
        ]

    def _tell_neighbours(self, ended: list[EndedLeg], tell: Callable[[Accepted], None]) -> None:
        for each in ended:
            known = outbound.by_sequence(self._journal, each.sequence)
            if known is not None and known.origin and each.leg.status is Status.DELIVERED:
                tell(known)

    def _tell(self, sequence: int) -> None:
        waiter = self._waiters.get(sequence)
        if waiter is None and not self._events:
            return
        standing = self._standing(sequence)
        text = {"id": standing.id, "status": standing.status, "channels": legs_json(standing.legs)}
        self._events.publish("package", text)
        if waiter is not None and standing.status is not None:
            waiter.set()

    async def outcome(self, sequence: int) -> Standing:
        """Wait for the terminal status. Raises AgentStopping once `stop` was called."""
        while (standing := self._standing(sequence)).status is None:
            if self._stopped:
                raise AgentStopping(
                    f"the agent is stopping; Package {standing.id} is kept and goes on when it"
                    " starts again"
                )
            waiter = self._waiters.setdefault(sequence, trio.Event())
            await waiter.wait()
            self._waiters.pop(sequence, None)
        return standing

    def stop(self) -> None:
        """Let go of everyone who waits for an outcome."""
        self._stopped = True
        for waiter in self._waiters.values():
            waiter.set()

    def standing(self, id_: int) -> Standing:
        known = outbound.by_id(self._journal, id_)
        if known is None:
            raise UnknownPackage(
                f"no Package has the id {id_}; ended ones are kept for a while only"
            )
        return self._standing(known.sequence)

    def _standing(self, sequence: int) -> Standing:
        known = outbound.by_sequence(self._journal, sequence)
        if known is None:
            raise UnknownPackage("the Package ended and is no longer kept")
        legs = outbound.legs(self._journal, sequence)
        return Standing(known.id, sequence, known.status, legs, known.accepted)

    def receipts(self, standing: Standing) -> list[Storage]:
        """Whose agents are known to have stored it."""
        return outbound.receipts(self._journal, standing.sequence)

    def cost(self, package: Package) -> dict[Channel, Cost]:
        """What it would take on each channel that is configured and not excluded by it."""
        legs = legs_of(package.channels, self._configured)
        stamped = package.stamped(self._clock())
        return {
            channel: self._outboxes[channel].cost(stamped)
            for channel, leg in legs.items()
            if leg.status is None
        }

    def story(self, standing: Standing) -> list[Line]:
        """What it went through, oldest first."""
        known = outbound.by_sequence(self._journal, standing.sequence)
        return [] if known is None else story.told(self._journal, known, self.receipts(standing))

    def distress(self) -> list[Standing]:
        """Every SOS that nobody has confirmed yet, oldest first."""
        return [self._standing(sequence) for sequence in sos.declared(self._journal)]

    async def call_off(self) -> list[Standing]:
        """End every SOS that nobody has confirmed: it is withdrawn and not repeated any more."""
        sequences = sos.declared(self._journal)
        await self._journal.commit(lambda db: sos.call_off(db, sequences))
        for sequence in sequences:
            await self._withdraw(sequence, None)
        return [self._standing(sequence) for sequence in sequences]

    async def cancel(self, id_: int, channel: Channel | None = None) -> Standing:
        """Withdraw it from one channel or all, and tell how it stands then.

        What a modem is transmitting at this moment is not recalled: its end is awaited for as long
        as a session may take. After that the status is None, and the cancel holds all the same.
        """
        standing = self.standing(id_)
        if channel is None:
            await self._journal.commit(lambda db: sos.call_off(db, [standing.sequence]))
        if standing.status is None:
            await self._withdraw(standing.sequence, channel)
        return self._standing(standing.sequence)

    async def _withdraw(self, sequence: int, channel: Channel | None) -> None:
        in_flight = []
        canceled = []
        for name, outbox in self._outboxes.items():
            if channel in (None, name) and sequence in outbox:
                settled = outbox.withdraw(sequence, BY_CALL)
                if settled is None:
                    canceled.append(EndedLeg(sequence, name, Leg(Status.CANCELED, BY_CALL)))
                else:
                    in_flight.append(settled)
        if canceled:
            await self.end(canceled)
        with trio.move_on_after(SESSION_MAX):
            for settled in in_flight:
                await settled.wait()

    async def clear(self, channel: Channel | None = None) -> int:
        """Cancel everything that waits; tells how many Packages that were."""
        sequences: set[int] = set()
        canceled = []
        for name, outbox in self._outboxes.items():
            for sequence in outbox.waiting() if channel in (None, name) else ():
                sequences.add(sequence)
                if outbox.withdraw(sequence, BY_CALL) is None:
                    canceled.append(EndedLeg(sequence, name, Leg(Status.CANCELED, BY_CALL)))
        if canceled:
            await self.end(canceled)
        return len(sequences)

    def queued(self, channel: Channel | None = None) -> list[Accepted]:
        return [
            accepted
            for accepted in outbound.waiting(self._journal)
            if any(
                accepted.sequence in outbox
                for name, outbox in self._outboxes.items()
                if channel in (None, name)
            )
        ]
