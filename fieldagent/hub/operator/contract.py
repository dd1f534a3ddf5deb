"""Interface of a satellite operator.

An operator accepts MT messages for an IMEI and returns the result. The operator also delivers MO
messages. Each operator describes itself in an `OperatorKind`, so that no other module contains code
for one operator.

The `OperatorKind` is in a module or folder that `registry.OPERATORS` or an extension names. Each
operator must pass `tests/hub/operator/test_contract.py`. docs/how-to/add-an-operator.md describes
all steps.
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
    """Function of the hub that processes MO messages."""

    async def __call__(
        self, imei: str, body: bytes, estimate: Estimate | None, *, unusable: str = ""
    ) -> None:
        """Store one MO message from any IMEI, with any content. The message is on disk when the
        function returns.

        `unusable` is the reason why the hub must not decode the message. Such a message is stored
        as a dead letter, and its `imei` may be empty.
        """


class RecordModemSession(Protocol):
    """Function of the hub that processes reports of sessions."""

    async def __call__(self, imei: str, *, fetched: bool) -> None:
        """Record that a modem had a session. `fetched` is True if the modem fetched a message in
        it.
        """


class CountSession(Protocol):
    """Function of the hub that counts sessions that an operator will bill."""

    async def __call__(self, imei: str, session: str, size: int) -> None:
        """Count an MO session of `size` bytes (0 for a mailbox check). `session` is the operator's
        id of the session. Each id is counted once.
        """


async def count_nothing(imei: str, session: str, size: int) -> None:
    """Do nothing. Used for an operator whose sessions are not counted."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a call to the operator. DOUBTFUL: the request was sent, but no response arrived.
    REFUSED: the operator does not support ring alerts. A message never has this result.
    """

    outcome: Outcome
    failure: Failure | None = None
    """The failure, or None if the outcome is SENT."""
    waiting: int = 0
    """Number of messages that the operator keeps for the modem, including this message. 0 if the
    operator does not report the number. Then the hub cannot repeat a missed ring alert."""

    id: str = ""
    """The operator's id of the message, used to query its state."""

    @property
    def reason(self) -> str:
        """Return the reason of a failure, or an empty text if there was no failure."""
        return "" if self.failure is None else self.failure.text


class FarModem(NamedTuple):
    """Known facts about the modem that receives a message."""

    kind: str = ""
    """Kind of modem that the operator reports, such as `sbd`; empty if unknown."""
    address: str = ""
    """The operator's name for the modem, if the name is not the IMEI."""
    tries: int = 0
    """Number of earlier calls with the same bytes."""
    since: float = 0.0
    """Unix time when the bytes were packed, before the first call with them."""


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
    """Records that the hub keeps for an operator. Each record is on disk when the method
    returns.
    """

    async def store_modem(self, imei: str, kind: str, address: str) -> None:
        """Store the kind of the modem with this IMEI, and the operator's name for it."""

    async def find_imei(self, address: str) -> str | None:
        """Return the IMEI of the modem that the operator calls `address`, or None if the modem is
        unknown.
        """

    async def has_message(self, id_: str) -> bool:
        """Return True if the hub has accepted this MO message before."""

    async def record_message(self, id_: str) -> None:
        """Record that the hub has accepted this MO message."""

    async def read_fetched(self) -> float | None:
        """Return the Unix time up to which the hub has fetched the operator's stored messages, or
        None if it has never fetched messages.
        """

    async def record_fetched_until(self, until: float) -> None:
        """Record the Unix time up to which the hub has fetched the operator's stored messages."""

    async def record_balance(self, amounts: Mapping[str, float], *, below: float) -> None:
        """Store the remaining amount of each plan. Raise one alarm if an amount is less than
        `below`.
        """

    async def list_under_way(self) -> Sequence[HandedOver]:
        """Return the messages that were handed over and that may not be in the modem yet."""

    async def record_state(self, id_: str, state: str, *, is_final: bool) -> None:
        """Store the state that the operator reports for a message. `is_final` is True if the modem
        has the message.
        """


class HandedOver(NamedTuple):
    """An MT message that the operator has accepted, with the operator's id of the message."""

    id: str
    state: str


class OperatorHost(NamedTuple):
    """Services that the hub offers to an operator that delivers MO messages."""

    take_in: MessageReceiver
    record_modem_session: RecordModemSession
    note_fault: Note
    """Logs and counts a bug in the hub. The second argument describes what the hub was doing."""
    clock: Callable[[], float]
    """Returns Unix time."""
    book: Book | None = None
    count_session: CountSession = count_nothing


class MoListener(NamedTuple):
    """Sockets on which an operator's gateway delivers MO messages."""

    sockets: Sequence[socket.socket]
    serve: Callable[[Sequence[socket.socket], OperatorHost], Awaitable[None]]
    """Serves the sockets until it is cancelled, and closes them."""


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """Description of a satellite operator for settings, routes, metrics and devices."""

    name: str
    """Name of the operator in a device's `operator`, and prefix of the operator's settings."""
    title: str
    """Name that people see, and name in the log."""
    description: str
    """Description of the service, for people."""
    keys: tuple[Key, ...]
    """Keys with which the hub's settings file configures the operator."""
    caller: Callable[[Own], Operator | None]
    """Returns the object that sends MT messages, or None if the operator is not configured."""
    failures: Mapping[Any, Failure]
    """Failures of a call, by the operator's own code."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Example values in the first settings file, for settings without a default. A secret has no
    example."""
    together: tuple[tuple[str, str], ...] = ()
    """Settings that must be set together."""
    faults: Callable[[Own], list[str]] = lambda own: []
    """Returns other errors in the settings. Each is a sentence that contains the fix."""
    routes: Callable[[Own, OperatorHost], list[Route]] = lambda own, host: []
    """Returns the routes on which the operator's webhook delivers MO messages. Raises OSError if a
    configured file is missing."""
    listen: Callable[[Own], MoListener | None] = lambda own: None
    """Returns the listener for a gateway that uses another protocol than HTTP. Raises
    ListenFailed."""
