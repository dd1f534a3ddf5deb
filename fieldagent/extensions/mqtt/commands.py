"""Commands that come by MQTT, over one session after the other.

| came as                       | becomes                                                      |
|-------------------------------|--------------------------------------------------------------|
| text                          | a Message                                                    |
| JSON                          | what the program makes of it; `key` in it is what            |
|                               | Idempotency-Key is over HTTP                                 |
| retained                      | nothing: each connection would bring it again                |
| longer than a packet may be   | nothing                                                      |
| more than the hour's rate     | nothing                                                      |

A command is acknowledged once what became of it is on disk. Of one that comes again in the next
session, as its acknowledgement was lost, nothing becomes a second time.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from fieldagent.extensions.mqtt.discovery import compact
from fieldagent.extensions.mqtt.packets import Published
from fieldagent.extensions.mqtt.session import MqttSession
from fieldagent.package.reading import Fault, InvalidPackage
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.system import waits
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import Rate
from fieldagent.system.seldom import Seldom
from fieldagent.system.wording import counted

log = logging.getLogger(__name__)

BURST = 10
"""Commands that may come at once after a long silence."""
DROPS = ("retained", "too long", "too many")
WAITING_MAX = 32
"""Commands that wait for the disk."""
REMEMBERED = 64
"""Commands of the last session that are known again."""


class MqttCommand(NamedTuple):
    sender: str
    came: Published

    @property
    def identity(self) -> tuple[int | None, str, bytes]:
        """Return what tells it from every other of one session (2.3.1 and 3.3.1.1)."""
        return self.came.number, self.came.topic, hashlib.blake2b(self.came.payload).digest()


class HourlyGate:
    """Lets so many commands an hour in. `clock` is Unix time; `note` is told why one is dropped."""

    def __init__(
        self,
        per_hour: int,
        clock: Callable[[], float],
        note: Callable[[str], object] = lambda why: None,
    ) -> None:
        self._rate = Rate(per_hour / 60, min(BURST, per_hour))
        self._clock = clock
        self._note = note
        self._next = 0.0
        self.counts = dict.fromkeys(("taken", "refused", *DROPS), 0)

    def admit(self, came: Published) -> str:
        """Let it in, and count it for the rate; or return why not, which is counted too."""
        if came.retained:
            return self.drop("retained")
        if came.skipped:
            return self.drop("too long")
        self._next, wait = self._rate.admit(self._next, self._clock())
        return self.drop("too many") if wait else ""

    def drop(self, why: str) -> str:
        """Count a command as dropped, say so, and return the reason, one of DROPS."""
        self.counts[why] += 1
        self._note(why)
        return why


class Commands:
    """`carry_out` returns what a sender is told, once that is true on disk; `result_topic` where,
    by the sender. Its queue lasts as long as a session does."""

    def __init__(
        self,
        gate: HourlyGate,
        carry_out: Callable[[MqttCommand], Awaitable[dict[str, Any]]],
        result_topic: Callable[[str], str],
    ) -> None:
        self._gate = gate
        self._carry_out = carry_out
        self._result_topic = result_topic
        self._dropped = Seldom(trio.current_time)
        self._handled: deque[object] = deque(maxlen=REMEMBERED)
        self._handled_before: list[object] = []
        self._put, self._get = trio.open_memory_channel[MqttCommand](WAITING_MAX)

    def begin(self) -> None:
        """Begin a new session; what waited of the last comes again by it."""
        if self._handled:
            self._handled_before = [*self._handled]
            self._handled.clear()
        self._put, self._get = trio.open_memory_channel[MqttCommand](WAITING_MAX)

    def admit(self, command: MqttCommand) -> bool:
        """Return whether it waits to be carried out from here on; else it is to be acknowledged."""
        if command.came.again and command.identity in self._handled_before:
            # This acknowledgement may be lost, too.
            self._handled.append(command.identity)
            return False
        why = self._gate.admit(command.came)
        if not why:
            try:
                self._put.send_nowait(command)
                return True
            except trio.WouldBlock:
                why = self._gate.drop("too many")
        if count := self._dropped.note():
            log.warning("MQTT: %s dropped, the last as %s", counted(count, "command"), why)
        return False

    async def run(self, session: MqttSession) -> None:
        """Carry out what waits, one after the other, until cancelled. Raises BrokerLost."""
        async for command in self._get:
            result: dict[str, Any] = {}

            async def take(command: MqttCommand = command, result: dict[str, Any] = result) -> None:
                result |= await self._carry_out(command)
                if command.came.number is not None:
                    self._handled.append(command.identity)

            await waits.let_finish(take)
            if command.came.number is not None:
                await session.acknowledge(command.came.number)
            await session.publish(self._result_topic(command.sender), compact(result))


def document_in(body: bytes) -> Any:
    """Read JSON; what is no object is a message's text. Raises NotJson."""
    if body.lstrip()[:1] == b"{":
        return load_document(body)
    if not body.strip():
        # Who clears a retained message sends that to those who are there, too.
        raise NotJson("nothing was queued: it is empty")
    try:
        return {"message": {"content": body.decode().strip()}}
    except UnicodeDecodeError as error:
        raise NotJson(f"the text is not UTF-8: byte {error.start} does not fit") from None


def take_key(document: Any) -> str | None:
    """Take the key out of a document. Raises InvalidPackage."""
    key = document.pop("key", None)
    if key is None or (isinstance(key, str) and re.fullmatch(r"[\x21-\x7e]{1,200}", key)):
        return key
    raise InvalidPackage([Fault("must be 1 to 200 printable ASCII characters", "/key")])
