"""Keeps the hub connected to an MQTT broker. Only one process of the hub has the connection. After
each failed attempt, the process waits longer.
"""

from __future__ import annotations

import logging
import secrets
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import trio

from fieldagent.extensions.mqtt import session
from fieldagent.extensions.mqtt.commands import Commands, HourlyGate, MqttCommand
from fieldagent.extensions.mqtt.hub import inward, records
from fieldagent.extensions.mqtt.hub.inward import (
    BrokerOutcome,
    CommandInbox,
    DeliveryMark,
    HubMqttRules,
)
from fieldagent.extensions.mqtt.hub.outward import HubReporter
from fieldagent.extensions.mqtt.hub.topics import make_topics
from fieldagent.extensions.mqtt.packets import LastWill, Published
from fieldagent.extensions.mqtt.session import (
    STABLE_AFTER_S,
    BrokerLost,
    MqttClient,
    MqttSession,
    ShortSessions,
    wait_before,
)
from fieldagent.http import tls
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.bridge import connecting, tenure
from fieldagent.hub.bridge.connecting import ConnectionLost
from fieldagent.hub.bridge.contract import BridgeHost
from fieldagent.hub.bridge.tenure import BridgePost
from fieldagent.hub.contract import ItemResult
from fieldagent.hub.store.persist import persist
from fieldagent.system import waits
from fieldagent.system.error_groups import get_first_error
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.text_files import read_first_line
from fieldagent.system.wording import describe_reason

log = logging.getLogger(__name__)

DROP_RESULTS = {
    "retained": ItemResult.RETAINED,
    "too long": ItemResult.LIMITED,
    "too many": ItemResult.LIMITED,
}


class HubBroker(NamedTuple):
    """Address of the broker, and the hub's name and account there."""

    host: str
    port: int
    secure: bool
    name: str
    prefix: str
    discovery: str
    """Discovery prefix; empty if discovery is off."""
    commands_per_hour: int
    user: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    """File with certificate authorities that are trusted instead of the system's."""


async def run(host: BridgeHost, broker: HubBroker, rules: HubMqttRules) -> None:
    """Run the bridge until cancelled. Only one process of the hub runs it."""

    async def work(identity: str, workspace: int) -> None:
        await _BrokerBridge(host, broker, rules, workspace).run()

    await tenure.run_exclusively(
        host, BridgePost(records.NAME, rules.workspace, "mqtt-workspace"), work
    )


class _BrokerBridge:
    """Bridge between an MQTT broker and one workspace. One hub process at a time runs it."""

    def __init__(
        self, host: BridgeHost, broker: HubBroker, rules: HubMqttRules, workspace: int
    ) -> None:
        self._host = host
        self._broker = broker
        self._topics = make_topics(broker.prefix, broker.name, broker.discovery)
        self._inbox = CommandInbox(workspace, rules, self._topics)
        self._reporter = HubReporter(host, self._inbox, broker.name)
        gate = HourlyGate(
            broker.commands_per_hour, host.clock, lambda why: host.note_events(DROP_RESULTS[why])
        )
        self._commands = Commands(gate, self._carry_out, self._topics.get_result_topic)
        self._client_id = f"fieldagent-hub-{broker.name}"
        self._short = ShortSessions(self._client_id)
        self._logged_reason = ""

    async def run(self) -> NoReturn:
        tries = 0
        while True:
            started_at = trio.current_time()
            try:
                await self._serve_session()
            except* BrokerLost as lost:
                self._note_lost(get_first_error(lost), trio.current_time() - started_at)
            finally:
                self._host.note_link(False)
            tries = 0 if trio.current_time() - started_at >= STABLE_AFTER_S else tries
            await waits.sleep(wait_before(tries))
            tries += 1

    def _note_lost(self, error: BaseException, duration_s: float) -> None:
        assert isinstance(error, BrokerLost)
        reason = self._short.judge(error, duration_s).reason
        if reason != self._logged_reason:
            log.warning("MQTT: %s", reason)
        self._logged_reason = reason

    async def _serve_session(self) -> None:
        """Publish the hub's documents and receive commands until the session is lost. Raises
        BrokerLost when the session ends, or if the broker cannot be reached.
        """
        broker, online = self._broker, self._topics.online
        client = MqttClient(
            self._client_id,
            "this hub",
            "mqtt-password-file",
            broker.user,
            await trio.to_thread.run_sync(_read_password, broker.password_file),
        )
        will = LastWill(online, b"offline")
        async with session.open_session(partial(_open, broker), client, will) as connection:
            self._commands.begin()
            async with trio.open_nursery() as nursery:
                # Receive before everything else, because the broker sends waiting messages at once.
                nursery.start_soon(connection.run, partial(self._admit_message, connection))
                nursery.start_soon(self._commands.run, connection)
                await connection.publish(online, b"online", retain=True)
                await connection.subscribe(self._topics.list_filters())
                self._host.note_link(True)
                self._log_ready()
                nursery.start_soon(self._short.wait_until_lasting, self._log_ready)
                nursery.start_soon(self._reporter.run, connection)

    def _log_ready(self) -> None:
        """Log the session, unless the broker will probably end it soon like the earlier
        sessions.
        """
        if not self._short.often:
            self._logged_reason = ""
            log.info("MQTT: connected to the broker at %s", self._broker.host)

    async def _admit_message(self, session: MqttSession, message: Published) -> None:
        """If the message shows that Home Assistant has started, announce the hub and its kits
        again. If it is a command, queue it. Acknowledge any other message, and a command that is
        not queued.
        """
        if (
            message.topic == self._topics.birth
            and message.payload == b"online"
            and not message.retained
        ):
            self._reporter.announce()
        address = self._topics.find_address(message.topic)
        if address is not None and self._commands.admit(MqttCommand(address.sender, message)):
            return
        if message.number is not None:
            await session.acknowledge(message.number)

    async def _carry_out(self, command: MqttCommand) -> dict[str, Any]:
        address = self._topics.find_address(command.published.topic)
        assert address is not None, "it was looked at before it was let in"
        received, now = command.published, self._host.clock()
        came_as = DeliveryMark(received.number, received.again, secrets.token_hex(8))
        try:
            outcome: BrokerOutcome = await persist(
                self._host.store,
                lambda db: inward.carry_out(
                    db, self._inbox, address, came_as, received.payload, now
                ),
            )
        except Refused as refused:
            log.warning("an MQTT message is refused: %s", refused)
            self._host.note_events(ItemResult.REFUSED)
            return {"accepted": False, "problem": {"detail": str(refused)}}
        self._host.note_events(outcome.result)
        return dict(outcome.answer)


def _read_password(path: Path | None) -> str | None:
    """Return the password in the file, or None if `path` is None. Raises BrokerLost if the file
    cannot be read.
    """
    try:
        return None if path is None else read_first_line(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = describe_reason(error) if isinstance(error, OSError) else "it is not UTF-8"
        raise BrokerLost(
            f"mqtt-password-file {path} cannot be read: {reason}", fault=True
        ) from error


async def _open(broker: HubBroker) -> trio.abc.Stream:
    """Connect to the broker. Raises BrokerLost if the broker cannot be reached or its certificate
    cannot be verified.
    """
    context = None
    try:
        if broker.secure:
            context = await trio.to_thread.run_sync(tls.trust, broker.ca_file)
        return await connecting.open_stream(broker.host, broker.port, context, "mqtt-ca-file")
    except tls.UnusableTrust as unusable:
        raise BrokerLost(f"mqtt-ca-file {unusable}", fault=True) from unusable
    except ConnectionLost as lost:
        raise BrokerLost(str(lost)) from lost
