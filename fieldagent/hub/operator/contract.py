"""A satellite operator, as the hub sees one: it takes MT messages for an IMEI, and says how that
went; it brings MO messages; and it describes itself, so that nothing else has to know it.

An operator is one module or folder with an `OperatorKind`, named in `known.OPERATORS`. Each passes
`tests/hub/operator/test_contract.py`. The whole way is in docs/adding-an-operator.md.
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


class TakeIn(Protocol):
    """The hub, as an operator's gateway brings it what came."""

    async def __call__(
        self, imei: str, body: bytes, estimate: Estimate | None, *, unusable: str = ""
    ) -> None:
        """Store one MO message, of whatever IMEI and content. It is on disk on return.

        `unusable` says why it must not be decoded: it is kept as a dead letter. `imei` is then
        empty where the gateway named none.
        """


class NoteSession(Protocol):
    """The hub, as an operator tells it of sessions."""

    async def __call__(self, imei: str, *, fetched: bool) -> None:
        """A modem reached the operator, who gave it a message, or had none for it."""


class CountSession(Protocol):
    """The hub, which counts what an operator is going to bill."""

    async def __call__(self, imei: str, session: str, size: int) -> None:
        """Count an MO session of so many bytes, 0 of a mailbox check: once for each `session`,
        which is the operator's own name for it."""


async def count_nothing(imei: str, session: str, size: int) -> None:
    """Count no session."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a call ended; DOUBTFUL is one that got no answer after the request had left. REFUSED is
    a ring that this operator never does; a message is always tried again."""

    outcome: Outcome
    failure: Failure | None = None
    """Why, unless it was SENT."""
    waiting: int = 0
    """Messages that the operator keeps for the modem with this one; 0: they do not tell, and a
    ring that was missed cannot be rung again."""

    id: str = ""
    """The operator's name for the message, by which it tells how far that has come."""

    @property
    def reason(self) -> str:
        """Return why it failed; empty where it did not."""
        return "" if self.failure is None else self.failure.text


class FarModem(NamedTuple):
    """What is known of the modem that a message is for."""

    kind: str = ""
    """As the operator told: `sbd`, `imt`; empty while it has not."""
    address: str = ""
    """What the operator calls it, where that is not the IMEI."""
    tries: int = 0
    """How often the same bytes were called in before."""
    since: float = 0.0
    """When they were made, Unix time: no call was before."""


NO_MODEM = FarModem()


class Operator(Protocol):
    async def send(
        self, imei: str, body: bytes, *, number: int, priority: bool, modem: FarModem = NO_MODEM
    ) -> Verdict:
        """Hand over one MT message. `number` is the same whenever the same bytes are called in."""

    async def ring(self, imei: str) -> Verdict:
        """Ring the modem for what waits, and hand over nothing."""


Own: TypeAlias = "Mapping[str, Any]"
"""An operator's settings by name, each as its `Key` reads it."""


class Book(Protocol):
    """What the hub remembers for an operator; each is on disk on return."""

    async def learn(self, imei: str, kind: str, address: str) -> None:
        """Note which kind of modem has this IMEI, and what the operator calls it."""

    async def imei_of(self, address: str) -> str | None:
        """Return the IMEI of the modem that the operator calls so."""

    async def has(self, id_: str) -> bool:
        """Return whether this MO message was taken in before."""

    async def note(self, id_: str) -> None:
        """Note that it was taken in."""

    async def fetched(self) -> float | None:
        """Return up to which Unix time what the operator kept was fetched; None: never."""

    async def note_fetched(self, until: float) -> None:
        """Note up to when it was."""

    async def note_balance(self, left: Mapping[str, float], *, below: float) -> None:
        """Note what is left of each plan; less than `below` of one raises an alarm, once."""

    async def under_way(self) -> Sequence[HandedOver]:
        """Return what was handed over and is not known to be in the modem."""

    async def note_state(self, id_: str, state: str, *, ended: bool) -> None:
        """Note how far the operator says that a message has come."""


class HandedOver(NamedTuple):
    """An MT message that the operator has, by its own name for it."""

    id: str
    state: str


class OperatorHost(NamedTuple):
    """What the hub lends to an operator that brings MO messages."""

    take_in: TakeIn
    note_session: NoteSession
    note_fault: Note
    """Logs and counts a fault of ours; what it was about, second."""
    clock: Callable[[], float]
    """Unix time."""
    book: Book | None = None
    count_session: CountSession = count_nothing


class MoListener(NamedTuple):
    """Sockets of an operator's own, where its gateway brings MO messages."""

    sockets: Sequence[socket.socket]
    serve: Callable[[Sequence[socket.socket], OperatorHost], Awaitable[None]]
    """Serves the sockets until it is cancelled, and closes them."""


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """Describes one satellite operator: all that settings, routes, figures and devices ask."""

    name: str
    """What a device's `operator` calls it, and what its settings' names begin with."""
    title: str
    """What people and the log call it."""
    means: str
    """For people: whose service it is."""
    keys: tuple[Key, ...]
    """Its settings."""
    caller: Callable[[Own], Operator | None]
    """Returns what takes MT messages; None where the settings for that are not there."""
    failures: Mapping[Any, Failure]
    """Why a call may fail, by the operator's own code."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Values for a first settings file, of settings without a default; none of a secret."""
    together: tuple[tuple[str, str], ...] = ()
    """Settings that mean nothing without each other."""
    faults: Callable[[Own], list[str]] = lambda own: []
    """What else is wrong with the settings, each in a sentence with what to do."""
    routes: Callable[[Own, OperatorHost], list[Route]] = lambda own, host: []
    """Where its webhook brings MO messages. Raises OSError where a file of the settings is not
    there."""
    listen: Callable[[Own], MoListener | None] = lambda own: None
    """Where its gateway does by a protocol of its own. Raises ListenFailed."""
