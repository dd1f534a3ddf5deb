"""Commands that arrive over MQTT, in one session after another.

| received as                   | effect                                                       |
|-------------------------------|--------------------------------------------------------------|
| text                          | a Message                                                    |
| JSON                          | depends on the program; its `key` has the meaning of         |
|                               | Idempotency-Key over HTTP                                    |
| retained                      | nothing: each connection would deliver it again              |
| longer than a packet may be   | nothing                                                      |
| more than the hour's rate     | nothing                                                      |

A command is acknowledged when its result is on disk. If the acknowledgement is lost, the command
arrives again in the next session and has no second effect.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from fieldagent.extensions.mqtt.discovery import encode_compact
from fieldagent.extensions.mqtt.packets import Published
from fieldagent.extensions.mqtt.session import MqttSession
from fieldagent.package.reading import Fault, InvalidPackage
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.system import waits
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import EventRate, Rate
from fieldagent.system.wording import format_count

log = logging.getLogger(__name__)

BURST_COMMANDS = 10
"""Largest number of commands that are admitted at once after a long silence."""
DROP_REASONS = ("retained", "too long", "too many")
WAITING_MAX = 32
"""Largest number of commands that wait to be stored."""
REMEMBERED_COMMANDS_MAX = 64
"""Largest number of commands of the last session that are recognised as duplicates."""


class MqttCommand(NamedTuple):
    sender: str
    published: Published

    @property
    def identity(self) -> tuple[int | None, str, bytes]:
        """Return the data that identify a command within its session (MQTT 3.1.1, sections 2.3.1
        and 3.3.1.1).
        """
        return (
            self.published.number,
            self.published.topic,
            hashlib.blake2b(self.published.payload).digest(),
        )


class HourlyGate:
    """Limits the number of commands per hour. `clock` returns Unix time. `note` is called with the
    reason of each dropped command.
    """

    def __init__(
        self,
        per_hour: int,
        clock: Callable[[], float],
        note: Callable[[str], object] = lambda why: None,
    ) -> None:
        self._rate = Rate(per_hour / 60, min(BURST_COMMANDS, per_hour))
        self._clock = clock
        self._note = note
        self._next = 0.0
        self.counts = dict.fromkeys(("taken", "refused", *DROP_REASONS), 0)

    def admit(self, message: Published) -> str:
        """Count the command, and return an empty string if it is admitted. Otherwise return the
        reason, one of `DROP_REASONS`.
        """
        if message.retained:
            return self.drop("retained")
        if message.skipped:
            return self.drop("too long")
        self._next, wait = self._rate.admit(self._next, self._clock())
        return self.drop("too many") if wait else ""

    def drop(self, reason: str) -> str:
        """Count and report a dropped command. Return the reason, one of `DROP_REASONS`."""
        self.counts[reason] += 1
        self._note(reason)
        return reason


class Commands:
    """Queue of the commands in a session. `carry_out` stores the result of a command on disk and
    returns it for the sender. `result_topic` returns the topic for a sender's results.
    """

    def __init__(
        self,
        gate: HourlyGate,
        carry_out: Callable[[MqttCommand], Awaitable[dict[str, Any]]],
        result_topic: Callable[[str], str],
    ) -> None:
        self._gate = gate
        self._carry_out = carry_out
        self._result_topic = result_topic
        self._dropped = EventRate(trio.current_time)
        self._handled: deque[object] = deque(maxlen=REMEMBERED_COMMANDS_MAX)
        self._handled_before: list[object] = []
        self._put, self._get = trio.open_memory_channel[MqttCommand](WAITING_MAX)

    def begin(self) -> None:
        """Begin a new session. The broker sends commands again that were still waiting in the last
        session.
        """
        if self._handled:
            self._handled_before = [*self._handled]
            self._handled.clear()
        self._put, self._get = trio.open_memory_channel[MqttCommand](WAITING_MAX)

    def admit(self, command: MqttCommand) -> bool:
        """Queue the command and return True. If the function returns False, the caller must
        acknowledge the command.
        """
        if command.published.again and command.identity in self._handled_before:
            # Remember the command again, because the acknowledgement of this copy may be lost too.
            self._handled.append(command.identity)
            return False
        refusal = self._gate.admit(command.published)
        if not refusal:
            try:
                self._put.send_nowait(command)
                return True
            except trio.WouldBlock:
                refusal = self._gate.drop("too many")
        if count := self._dropped.count_event():
            log.warning("MQTT: %s dropped, the last as %s", format_count(count, "command"), refusal)
        return False

    async def run(self, session: MqttSession) -> None:
        """Carry out the waiting commands one after the other, until cancelled. Raises BrokerLost
        when the session ends.
        """
        async for command in self._get:
            result: dict[str, Any] = {}

            async def carry_out_once(
                command: MqttCommand = command, result: dict[str, Any] = result
            ) -> None:
                result |= await self._carry_out(command)
                if command.published.number is not None:
                    self._handled.append(command.identity)

            await waits.run_to_the_end(carry_out_once)
            if command.published.number is not None:
                await session.acknowledge(command.published.number)
            await session.publish(self._result_topic(command.sender), encode_compact(result))


def parse_document(body: bytes) -> Any:
    """Return the Package document in the body of a command: a JSON object, or a text as a message.
    Raises NotJson if the body is empty, invalid JSON or not UTF-8.
    """
    if body.lstrip()[:1] == b"{":
        return load_document(body)
    if not body.strip():
        # A client that clears a retained message sends an empty body, which current subscribers
        # also receive.
        raise NotJson("nothing was queued: it is empty")
    try:
        return {"message": {"content": body.decode().strip()}}
    except UnicodeDecodeError as error:
        raise NotJson(f"the text is not UTF-8: byte {error.start} does not fit") from None


def remove_key(document: Any) -> str | None:
    """Remove the key from a document and return it. Raises InvalidPackage if the key is not 1 to
    200 printable ASCII characters.
    """
    key = document.pop("key", None)
    if key is None or (isinstance(key, str) and re.fullmatch(r"[\x21-\x7e]{1,200}", key)):
        return key
    raise InvalidPackage([Fault("must be 1 to 200 printable ASCII characters", "/key")])
