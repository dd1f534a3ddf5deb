"""Keeps the kit connected to its broker, and reconnects after growing waits.

1. While there is a session, the journal hands over inbound items as to any hook. An item is done
   once the broker has acknowledged it. If the session or the agent ends before that, the item is
   handed over again.
2. Commands go through `fieldagent.extensions.mqtt.commands`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import trio

from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.inbound.hooks import Hook, run_hook
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.day_budget import DayBudget
from fieldagent.agent.part_service import PartBase, PartHost, PartPlan, PartService
from fieldagent.extensions.mqtt.agent import documents
from fieldagent.extensions.mqtt.agent.connecting import make_client_id, open_session
from fieldagent.extensions.mqtt.agent.door import CommandAdmission
from fieldagent.extensions.mqtt.agent.reporter import Reporter
from fieldagent.extensions.mqtt.agent.settings import MqttSettings
from fieldagent.extensions.mqtt.agent.topics import make_topics
from fieldagent.extensions.mqtt.commands import Commands, MqttCommand
from fieldagent.extensions.mqtt.packets import LastWill, Published
from fieldagent.extensions.mqtt.session import (
    STABLE_AFTER_S,
    BrokerLost,
    MqttSession,
    ShortSessions,
    wait_before,
)
from fieldagent.system import waits
from fieldagent.system.error_groups import get_first_error
from fieldagent.system.supervisor import Note
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult

log = logging.getLogger(__name__)

HOOK = "MQTT"
"""Name of the broker in the journal, as a hook and as a payer."""


class Publisher:
    """Hook that publishes inbound items. It is active during a session."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.session: MqttSession | None = None
        self.hook = Hook(HOOK, self._publish_delivery, by_itself=False)

    async def _publish_delivery(self, delivery: Delivery) -> HandoverResult:
        if self.session is None:
            return HandoverResult(HandoverOutcome.FAILED, "the broker is away")
        try:
            await self.session.publish(self._topic, documents.encode_inbound(delivery.body))
        except BrokerLost as lost:
            return HandoverResult(HandoverOutcome.FAILED, lost.reason)
        return HandoverResult(HandoverOutcome.HANDED)


def plan(settings: MqttSettings, base: PartBase) -> PartPlan:
    """Return the plan of the part that connects to the broker in the settings."""
    publisher = Publisher(make_topics(*settings.place).inbound)

    def make_service(host: PartHost) -> MqttService:
        budget = DayBudget(host.journal, HOOK, settings.credits_per_day)
        door = CommandAdmission(
            settings,
            host.journal,
            host.intake,
            host.outboxes,
            budget,
            bearer_bytes=host.bearer_bytes,
        )
        return MqttService(settings, host.journal, host.inbox, publisher, door)

    return PartPlan(make_service, [publisher.hook])


class MqttService(PartService):
    """Connection to the broker. Call `run` under a supervisor. The API calls `get_status`."""

    def __init__(
        self,
        settings: MqttSettings,
        journal: Journal,
        inbox: Inbox,
        publisher: Publisher,
        door: CommandAdmission,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._inbox = inbox
        self._publisher = publisher
        self._admission = door
        self._topics = make_topics(*settings.place)
        self._reporter = Reporter(journal, self._topics, settings.name, door.budget)
        self._commands = Commands(door.gate, self._carry_out, self._topics.get_result_topic)
        self._short = ShortSessions(make_client_id(settings))
        self._logged_reason = ""
        self.link = ChannelLink()

    async def run(self, status: Callable[[], Mapping[str, Any]], note_fault: Note) -> NoReturn:
        """Connect to the broker, serve the session, and connect again when the connection is lost.
        `status` returns the content of the response to `GET /api/status`. Raises the journal's
        errors.
        """
        tries = 0
        while True:
            started_at = trio.current_time()
            try:
                await self._serve_session(status, note_fault)
            except* BrokerLost as lost:
                self._log_lost(get_first_error(lost), trio.current_time() - started_at)
            finally:
                self._publisher.session = None
            if trio.current_time() - started_at >= STABLE_AFTER_S:
                tries = 0
            await waits.sleep(wait_before(tries))
            tries += 1

    def _log_lost(self, error: BaseException, duration_s: float) -> None:
        assert isinstance(error, BrokerLost)
        loss = self._short.judge(error, duration_s)
        if self._logged_reason != loss.reason:
            log.warning("MQTT: %s", loss.reason)
        self._logged_reason = self.link.reason = loss.reason
        self.link.state = LinkState.FAULT if loss.fault else LinkState.NO_SERVICE

    def _log_ready(self) -> None:
        """Report that the session works, and log this. If the last sessions were short, do not log
        it, because the new session will probably end soon too.
        """
        self.link.state = LinkState.READY
        if not self._short.often:
            self._logged_reason = self.link.reason = ""
            log.info("MQTT: connected to the broker at %s", self._settings.address)

    async def _serve_session(
        self, status: Callable[[], Mapping[str, Any]], note_fault: Note
    ) -> None:
        """Publish items and state, and receive commands, until the session is lost. Raises
        BrokerLost when the session ends, or if the broker cannot be reached.
        """
        will = LastWill(self._topics.online, b"offline")
        async with open_session(self._settings, will) as session:
            self._commands.begin()
            async with trio.open_nursery() as nursery:
                # Receive from the start, because the broker sends stored messages at once.
                nursery.start_soon(session.run, partial(self._admit_message, session))
                nursery.start_soon(self._commands.run, session)
                await session.publish(self._topics.online, b"online", retain=True)
                await session.subscribe(self._topics.list_filters())
                self._publisher.session = session
                self._log_ready()
                nursery.start_soon(self._short.wait_until_lasting, self._log_ready)
                hook = self._publisher.hook
                nursery.start_soon(run_hook, hook, self._journal, self._inbox, note_fault)
                nursery.start_soon(self._reporter.run, session, status)

    async def _admit_message(self, session: MqttSession, message: Published) -> None:
        """If the message shows that Home Assistant has started, announce the kit again. If it is a
        command, queue it. Acknowledge any other message, and a command that is not queued.
        """
        if (
            message.topic == self._topics.birth
            and message.payload == b"online"
            and not message.retained
        ):
            self._reporter.announce()
        sender = self._topics.find_sender(message.topic)
        if sender is not None and self._commands.admit(MqttCommand(sender, message)):
            return
        if message.number is not None:
            await session.acknowledge(message.number)

    async def _carry_out(self, command: MqttCommand) -> dict[str, Any]:
        return await self._admission.receive_message(command.sender, command.published.payload)

    def get_status(self) -> dict[str, Any]:
        """Return the state of the connection and the numbers of commands."""
        waiting = self._journal.read(
            "SELECT count(*) FROM handover WHERE hook = ? AND state = 'waiting'", HOOK
        )
        return {
            "state": self.link.state.value,
            "reason": self.link.reason,
            "commands": dict(self._admission.gate.counts),
            "inboundWaiting": waiting[0][0],
            "creditsToday": self._admission.budget.compute_spent(),
            "creditsPerDay": self._settings.credits_per_day,
        }
