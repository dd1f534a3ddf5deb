"""Interface of a satellite operator. An operator accepts MT messages for an IMEI and returns the
result. The operator also delivers MO messages. Each operator describes itself, so that no other
module needs to know it.

An operator is a module or folder with an `OperatorKind`. `registry.OPERATORS` or an extension names
it. Each operator must pass `tests/hub/operator/test_contract.py`. docs/how-to/add-an-operator.md
describes all steps.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias

from fieldagent.http.routes import Route
from fieldagent.hub.contract import Estimate
from fieldagent.hub.operator.failures import Failure
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import Key
from fieldagent.system.supervisor import Note
from fieldagent.wire.outcome import Outcome


class MessageReceiver(Protocol):
    """Receiver of MO messages in the hub."""

    async def __call__(
        self, imei: str, body: bytes, estimate: Estimate | None, *, unusable: str = ""
    ) -> None:
        """Store one MO message, of any IMEI and content. The message is on disk on return.

        `unusable` is the reason why the message must not be decoded. Such a message is kept as a
        dead letter, and its `imei` may be empty.
        """


class NoteSession(Protocol):
    """Receiver of reports about sessions in the hub."""

    async def __call__(self, imei: str, *, fetched: bool) -> None:
        """Record that a modem had a session, with or without a message for it."""


class CountSession(Protocol):
    """Counter in the hub of sessions that an operator will bill."""

    async def __call__(self, imei: str, session: str, size: int) -> None:
        """Count an MO session of `size` bytes (0 for a mailbox check). `session` is the operator's
        own id of the session. Each id counts once.
        """


async def count_nothing(imei: str, session: str, size: int) -> None:
    """Ignore a session, for an operator whose sessions are not counted."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a call. DOUBTFUL: there was no answer after the request had left. REFUSED, for a
    ring alert only: this operator never rings. A message is always tried again.
    """

    outcome: Outcome
    failure: Failure | None = None
    """The failure; None if the outcome is SENT."""
    waiting: int = 0
    """Number of messages that the operator keeps for the modem, including this one. 0 if the
    operator does not report the number; a missed ring alert then cannot be repeated."""

    id: str = ""
    """The operator's id of the message, used to query its state."""

    @property
    def reason(self) -> str:
        """Return the reason of a failure; empty if there was none."""
        return "" if self.failure is None else self.failure.text


class FarModem(NamedTuple):
    """Known facts about the modem that gets a message."""

    kind: str = ""
    """Kind reported by the operator, such as `sbd`; empty if unknown."""
    address: str = ""
    """The operator's name for the modem, if that is not the IMEI."""
    tries: int = 0
    """Number of earlier calls with the same bytes."""
    since: float = 0.0
    """Unix time when the bytes were packed. All calls with these bytes were later."""


NO_MODEM = FarModem()


class Operator(Protocol):
    async def send(
        self, imei: str, body: bytes, *, number: int, priority: bool, modem: FarModem = NO_MODEM
    ) -> Verdict:
        """Hand over one MT message. `number` is the same for every call with the same bytes."""

    async def ring(self, imei: str) -> Verdict:
        """Send a ring alert to the modem, without a message."""


Own: TypeAlias = "Mapping[str, Any]"
"""An operator's settings by name, each in the form that its `Key` reads."""


class Book(Protocol):
    """Records of the hub for an operator. Each record is on disk on return."""

    async def learn(self, imei: str, kind: str, address: str) -> None:
        """Store the kind of the modem with this IMEI, and the operator's name for it."""

    async def find_imei(self, address: str) -> str | None:
        """Return the IMEI of the modem with this name at the operator; None if it is unknown."""

    async def has(self, id_: str) -> bool:
        """Return True if this MO message was accepted before."""

    async def note(self, id_: str) -> None:
        """Record that this MO message was accepted."""

    async def read_fetched(self) -> float | None:
        """Return the Unix time up to which the operator's stored messages were fetched; None if
        never.
        """

    async def note_fetched(self, until: float) -> None:
        """Record the Unix time up to which the operator's stored messages were fetched."""

    async def note_balance(self, amounts: Mapping[str, float], *, below: float) -> None:
        """Store the remaining amount of each plan. If an amount is under `below`, raise an alarm
        once.
        """

    async def list_under_way(self) -> Sequence[HandedOver]:
        """Return the messages that were handed over and are not known to be in the modem."""

    async def note_state(self, id_: str, state: str, *, is_final: bool) -> None:
        """Store the state that the operator reports for a message."""


class HandedOver(NamedTuple):
    """An MT message that the operator has accepted, by the operator's id."""

    id: str
    state: str


class OperatorHost(NamedTuple):
    """Services of the hub for an operator that delivers MO messages."""

    take_in: MessageReceiver
    note_session: NoteSession
    note_fault: Note
    """Logs and counts a bug in the hub. The second argument is the context of the bug."""
    clock: Callable[[], float]
    """Returns Unix time."""
    book: Book | None = None
    count_session: CountSession = count_nothing


class MoListener(NamedTuple):
    """Sockets of an operator on which its gateway delivers MO messages."""

    sockets: Sequence[socket.socket]
    serve: Callable[[Sequence[socket.socket], OperatorHost], Awaitable[None]]
    """Serves the sockets until cancelled, and closes them."""


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """Description of a satellite operator for settings, routes, metrics and devices."""

    name: str
    """Name in a device's `operator`, and prefix of its settings."""
    title: str
    """Name for people and the log."""
    description: str
    """Description of the service, for people."""
    keys: tuple[Key, ...]
    """Settings of the operator."""
    caller: Callable[[Own], Operator | None]
    """Returns the sender of MT messages; None if the operator is not configured."""
    failures: Mapping[Any, Failure]
    """Failures of a call, by the operator's own code."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Examples for the first settings file, for settings without a default; none for a secret."""
    together: tuple[tuple[str, str], ...] = ()
    """Settings that must be set together."""
    faults: Callable[[Own], list[str]] = lambda own: []
    """Returns other faults of the settings, each as a sentence with the fix."""
    routes: Callable[[Own, OperatorHost], list[Route]] = lambda own, host: []
    """Returns the routes on which the operator's webhook delivers MO messages. Raises OSError if a
    configured file is missing."""
    listen: Callable[[Own], MoListener | None] = lambda own: None
    """Returns the listener for a gateway with a protocol of its own. Raises ListenFailed."""
