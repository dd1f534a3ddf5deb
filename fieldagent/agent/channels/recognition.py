"""How whatever is at a port is asked what it is: the socket that each radio and modem fills.

What is there hears the questions to all others, too. So each question begins with `GUARD`, and none
holds what a firmware of another kind would obey:

    a KISS TNC     takes what follows a FEND for a frame: of command 13 with the guard, which there
                   is not. Without it the node link's hello, which begins with 00, were data, and
                   would be transmitted as the next FEND comes
    an RNode       obeys each byte behind a FEND as it comes, and has no command 13 either. What
                   would begin with the letters S or T there would change what it has stored
    a modem        takes a line at a time, and refuses one that is no AT command, or no JSPR
    Meshtastic, MeshCore's companion and a node skip what is no frame of theirs

No question sets anything, and nothing is transmitted on the air.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

Read = TypeVar("Read")

GUARD = b"\r"
ROUNDS = 2
"""How often all are asked: a board that starts as its port is opened misses the first."""
PATIENCE = 0.8
"""Seconds for an answer, unless its kind says otherwise."""
SAID_MAX = 8_192
"""Bytes of what is said that are looked at."""
SHOWN = 40
"""Characters of it that people are shown."""


class DeviceLine(Protocol):
    """Raises PortLost once it is gone."""

    async def read(self) -> bytes: ...
    async def write(self, data: bytes) -> None: ...


class DeviceReport(NamedTuple):
    """What a device tells of itself; no key is among it."""

    what: str
    """Which it is, for people."""
    lines: tuple[str, ...] = ()
    """How it is set, for people."""
    trouble: tuple[str, ...] = ()
    """What is wrong with that, and what to do."""
    facts: Mapping[str, Any] = {}
    """The same for programs."""
    settings: Mapping[str, str] = {}
    """Settings of the agent's that follow from what it tells."""


@dataclass(frozen=True, slots=True)
class Recognition:
    """Describes how one kind of device is recognised."""

    name: str
    """What the settings call it."""
    turn: int
    """The lowest is asked first."""
    baud: int
    question: Callable[[], bytes]
    """Makes what it is asked, without the guard; empty where it speaks by itself."""
    is_answer: Callable[[bytes], bool]
    """Whether its answer is in what was said so far."""
    tell: Callable[[DeviceLine], Awaitable[DeviceReport]]
    """Asks one that was recognised all that it tells, within its own deadline. Raises RadioLost and
    PortLost, in groups."""
    tcp_port: int = 0
    """Where it listens if it has a network; 0: it has none."""
    patience: float = PATIENCE
    """Seconds for its answer."""


class Unrecognised(NamedTuple):
    """What is known of a device that is none of those that were asked for."""

    said: bytes
    """What it said, or the last of it, without what it was sent."""
    echoes: bool
    """It gives back what it is sent."""

    def in_words(self) -> str:
        """Return for people what is known of it, and what it may be."""
        if self.said:
            shown = self.said.decode("ascii", "backslashreplace")[:SHOWN]
            return (
                f"something talks there that is none of the known ones ({shown!r} …): is it another"
                " speed, another firmware, or no radio at all?"
            )
        if self.echoes:
            return (
                "what is there gives back what it is sent: a TNC does so that is not in KISS mode,"
                " and so does a cable whose two wires touch"
            )
        return (
            "something takes bytes here and says nothing: a KISS TNC does so, and so does a dead"
            " line"
        )


class _Hearing:
    """What was said, apart from what it was sent itself."""

    def __init__(self) -> None:
        self._said = bytearray()
        self._asked: list[bytes] = []

    def ask(self, question: bytes) -> None:
        self._asked.append(question)

    def take(self, data: bytes) -> None:
        self._said += data
        del self._said[:-SAID_MAX]

    def said(self) -> bytes:
        said = bytes(self._said)
        for each in self._asked:
            # Of their ends a terminal makes something of its own.
            said = said.replace(each.strip(b"\r\0"), b"")
        return said

    def verdict(self) -> Unrecognised:
        said = self.said()
        echoes = len(said) < len(self._said)
        # A terminal gives lines back in its own way, with prompts between them.
        return Unrecognised(b"" if echoes and not said.strip(b"\r\n\0") else said, echoes)


async def recognise(
    line: DeviceLine, asked: Sequence[Recognition], known: Sequence[Recognition] = ()
) -> Recognition | Unrecognised:
    """Ask a device on an open line the question of each kind in turn; it may answer as one of
    `known`, too. Raises PortLost."""
    hearing = _Hearing()
    for number in range(ROUNDS):
        for kind in sorted(asked, key=lambda each: each.turn):
            question = kind.question()
            if not question and number:
                continue
            with waits.move_on_after(kind.patience):
                if question:
                    hearing.ask(GUARD + question)
                    await line.write(GUARD + question)
                while True:
                    said = hearing.said()
                    for each in (*asked, *known):
                        if each.is_answer(said):
                            return each
                    hearing.take(await line.read())
    return hearing.verdict()


async def answer_to(
    line: DeviceLine,
    question: bytes,
    read: Callable[[bytes], Read | None],
    seconds: float = PATIENCE,
) -> Read | None:
    """Say something, and return what `read` finds in all that is said within so many seconds; None
    where that is nothing. Raises PortLost."""
    said = bytearray()
    with waits.move_on_after(seconds):
        if question:
            await line.write(question)
        while (answer := read(bytes(said))) is None:
            said += await line.read()
        return answer
    return None
