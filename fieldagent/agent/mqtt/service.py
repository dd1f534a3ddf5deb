"""Keeps the kit at its broker: connected again where it was lost, after waits that grow.

1. What comes in is handed over while there is a session, by the journal as to any hook: it is done
   with once the broker has acknowledged it, and handed over again where the session or the agent
   ended before that.
2. A command is acknowledged once what became of it is on disk. Of one that comes again in the next
   session, as its acknowledgement was lost, nothing becomes a second time.
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn

import trio

from fieldagent.agent.channels.connecting import Unreachable
from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.inbound.hooks import Hook, run_hook
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.mqtt import documents
from fieldagent.agent.mqtt.documents import compact
from fieldagent.agent.mqtt.door import Door
from fieldagent.agent.mqtt.reporter import Reporter
from fieldagent.agent.mqtt.session import MqttSession, client_of, connected
from fieldagent.agent.mqtt.topics import topics_of
from fieldagent.agent.mqtt_settings import MqttSettings
from fieldagent.system import waits
from fieldagent.system.error_groups import first_error
from fieldagent.system.seldom import Seldom
from fieldagent.system.supervisor import Note
from fieldagent.system.wording import counted
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult
from fieldagent.wire.mqtt import Published, Will

log = logging.getLogger(__name__)

WAITS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Seconds between two tries to reach the broker, and up to half as many more by chance; the last
for ever."""
STEADY = 60.0
"""Seconds that a session must have lasted for the waits to begin anew."""
WAITING_MAX = 32
"""Commands that wait for the disk."""
REMEMBERED = 64
"""Commands of the last session that are known again."""
HOOK = "MQTT"
"""What the journal knows the broker by, as it knows a hook."""


class MqttCommand(NamedTuple):
    sender: str
    came: Published

    @property
    def identity(self) -> tuple[int | None, str, bytes]:
        """Return what tells it from every other of one session (2.3.1 and 3.3.1.1)."""
        return self.came.number, self.came.topic, hashlib.blake2b(self.came.payload).digest()


class Publisher:
    """The hook that hands over what comes in. It is run while there is a session."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.session: MqttSession | None = None
        self.hook = Hook(HOOK, self._hand_over, by_itself=False)

    async def _hand_over(self, delivery: Delivery) -> HandoverResult:
        if self.session is None:
            return HandoverResult(HandoverOutcome.FAILED, "the broker is away")
        try:
            await self.session.publish(self._topic, documents.inbound(delivery.body))
        except Unreachable as lost:
            return HandoverResult(HandoverOutcome.FAILED, lost.reason)
        return HandoverResult(HandoverOutcome.HANDED)


class MqttService:
    """`run` it under a supervisor; `status` is for the API."""

    def __init__(
        self,
        settings: MqttSettings,
        journal: Journal,
        inbox: Inbox,
        publisher: Publisher,
        door: Door,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._inbox = inbox
        self._publisher = publisher
        self._door = door
        self._topics = topics_of(*settings.place)
        self._reporter = Reporter(journal, self._topics, settings.name, door.purse)
        self._dropped = Seldom(trio.current_time)
        self._handled: deque[object] = deque(maxlen=REMEMBERED)
        self._handled_before: list[object] = []
        self.link = ChannelLink()

    async def run(self, status: Callable[[], Mapping[str, Any]], note_fault: Note) -> NoReturn:
        """`status` returns the answer to `GET /api/status`. Raises what the journal raises."""
        tries = 0
        while True:
            began = trio.current_time()
            try:
                await self._work(status, note_fault)
            except* Unreachable as lost:
                self._tell_lost(first_error(lost))
            finally:
                self._publisher.session = None
            if trio.current_time() - began >= STEADY:
                tries = 0
            pause = WAITS[min(tries, len(WAITS) - 1)]
            await waits.sleep(pause * random.uniform(1, 1.5))
            tries += 1

    def _tell_lost(self, error: BaseException) -> None:
        assert isinstance(error, Unreachable)
        if (self.link.state, self.link.reason) != (error.state, error.reason):
            log.warning("MQTT: %s", error.reason)
        self.link.state, self.link.reason = error.state, error.reason

    async def _work(self, status: Callable[[], Mapping[str, Any]], note_fault: Note) -> None:
        """Work with the broker until the session is lost. Raises Unreachable."""
        will = Will(self._topics.online, b"offline")
        async with connected(
            self._settings, client=client_of(self._settings), will=will
        ) as session:
            if self._handled:
                self._handled_before = [*self._handled]
                self._handled.clear()
            put, get = trio.open_memory_channel[MqttCommand](WAITING_MAX)
            async with trio.open_nursery() as nursery:
                # What comes is heard from the start: the broker sends what waited for us at once.
                nursery.start_soon(session.run, partial(self._take, session, put))
                nursery.start_soon(self._carry_out, session, get)
                await session.publish(self._topics.online, b"online", retain=True)
                await session.subscribe(self._topics.filters())
                self._publisher.session = session
                self.link.state, self.link.reason = LinkState.READY, ""
                log.info("MQTT: the broker at %s has this kit", self._settings.address)
                hook = self._publisher.hook
                nursery.start_soon(run_hook, hook, self._journal, self._inbox, note_fault)
                nursery.start_soon(self._reporter.run, session, status)

    async def _take(
        self, session: MqttSession, put: trio.MemorySendChannel[MqttCommand], came: Published
    ) -> None:
        """Judge what came before anything is made of it."""
        if came.topic == self._topics.birth and came.payload == b"online" and not came.retained:
            self._reporter.announce()
        sender = self._topics.sender(came.topic)
        if sender is not None and self._admit(put, MqttCommand(sender, came)):
            return
        if came.number is not None:
            await session.acknowledge(came.number)

    def _admit(self, put: trio.MemorySendChannel[MqttCommand], command: MqttCommand) -> bool:
        """Return whether it waits to be carried out from here on."""
        if command.came.again and command.identity in self._handled_before:
            # This acknowledgement may be lost, too.
            self._handled.append(command.identity)
            return False
        why = self._door.refuse_entry(command.came)
        if not why:
            try:
                put.send_nowait(command)
                return True
            except trio.WouldBlock:
                why = self._door.drop("too many")
        if count := self._dropped.note():
            log.warning("MQTT: %s dropped, the last as %s", counted(count, "command"), why)
        return False

    async def _carry_out(
        self, session: MqttSession, get: trio.MemoryReceiveChannel[MqttCommand]
    ) -> None:
        async for command in get:
            told: dict[str, Any] = {}

            async def take(command: MqttCommand = command, told: dict[str, Any] = told) -> None:
                told |= await self._door.take(command.sender, command.came.payload)
                if command.came.number is not None:
                    self._handled.append(command.identity)

            await waits.let_finish(take)
            if command.came.number is not None:
                await session.acknowledge(command.came.number)
            await session.publish(self._topics.result(command.sender), compact(told))

    def status(self) -> dict[str, Any]:
        """Return how the broker is reached, and what came from it."""
        waiting = self._journal.read(
            "SELECT count(*) FROM handover WHERE hook = ? AND state = 'waiting'", HOOK
        )
        return {
            "state": self.link.state.value,
            "reason": self.link.reason,
            "commands": dict(self._door.counts),
            "inboundWaiting": waiting[0][0],
            "creditsToday": self._door.purse.spent(),
            "creditsPerDay": self._settings.credits_per_day,
        }
