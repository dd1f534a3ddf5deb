"""Identifies the device at a port. Each kind of radio and modem supplies a `Recognition`.

A device also receives the questions that are meant for other kinds. So each question begins with
`GUARD_BYTES`, and a question must not contain bytes that another kind of firmware would obey:

    a KISS TNC     takes the bytes after a FEND as a frame. With the guard that is command 13,
                   which does not exist. Without it the node link's hello, which begins with 00,
                   would be data, and would be transmitted at the next FEND
    an RNode       obeys each byte after a FEND at once, and has no command 13 either. Bytes that
                   begin with the letters S or T would change its stored settings
    a modem        takes one line at a time, and rejects any line except a command of its own
    Meshtastic, MeshCore's companion and a node skip bytes that are not their frames

A question never changes a setting, and nothing is transmitted on the air.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

Read = TypeVar("Read")

GUARD_BYTES = b"\r"
QUESTION_ROUNDS = 2
"""Number of rounds of questions. A board that starts when its port is opened misses the first
round."""
ANSWER_TIMEOUT_S = 0.8
"""Longest time in seconds for an answer, unless the kind of device has its own."""
RECEIVED_BYTES_MAX = 8_192
"""Maximum number of received bytes that are examined."""
SHOWN_CHARACTERS_MAX = 40
"""Characters of the received text that are shown to people."""


class DeviceLine(Protocol):
    """Serial line to a device. The methods raise PortLost when the device is lost."""

    async def read(self) -> bytes: ...
    async def write(self, data: bytes) -> None: ...


class DeviceReport(NamedTuple):
    """Description of a device, from its own answers. It never contains a key."""

    device_kind: str
    """Kind of device, for people."""
    lines: tuple[str, ...] = ()
    """Current settings, for people."""
    trouble: tuple[str, ...] = ()
    """Problems with the settings, each with a remedy."""
    facts: Mapping[str, Any] = {}
    """The device's current settings, for programs."""
    settings: Mapping[str, str] = {}
    """Settings of the agent that follow from the answers."""


@dataclass(frozen=True, slots=True)
class Recognition:
    """Description of how one kind of device is recognised."""

    name: str
    """Name of the device kind in the settings."""
    order: int
    """Order of the questions; the lowest is first."""
    baud: int
    question: Callable[[], bytes]
    """Returns the question, without the guard. It is empty if the device transmits by itself."""
    is_answer: Callable[[bytes], bool]
    """Returns True if the received bytes contain the device's answer."""
    read_report: Callable[[DeviceLine], Awaitable[DeviceReport]]
    """Queries a recognised device, and returns its full report. The function has its own deadline.
    Raises RadioLost and PortLost, in exception groups."""
    tcp_port: int = 0
    """TCP port of such a device in a network, or 0 if it has none."""
    patience: float = ANSWER_TIMEOUT_S
    """Longest time in seconds for the device's answer."""


class UnrecognisedDevice(NamedTuple):
    """Facts about a device whose answer matches no known kind."""

    last_bytes: bytes
    """The last bytes that the device sent, without echoes of the questions."""
    echoes: bool
    """True if the device returns the bytes that it receives."""

    def describe_facts(self) -> str:
        """Return the known facts for people, with a guess about the kind of device."""
        if self.last_bytes:
            received_text = self.last_bytes.decode("ascii", "backslashreplace")[
                :SHOWN_CHARACTERS_MAX
            ]
            return (
                f"an unknown device answers ({received_text!r} …): check its speed and firmware,"
                " and that it is a radio"
            )
        if self.echoes:
            return (
                "the device echoes its input, as a TNC outside KISS mode or a cable with a"
                " short circuit does"
            )
        return "the device accepts bytes and does not answer, as a KISS TNC or a dead line does"


class _ReceivedBytes:
    """Collects the bytes that the device has sent, without the echoed questions."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._questions: list[bytes] = []

    def ask(self, question: bytes) -> None:
        self._questions.append(question)

    def add_bytes(self, data: bytes) -> None:
        self._received += data
        del self._received[:-RECEIVED_BYTES_MAX]

    def get_received(self) -> bytes:
        received = bytes(self._received)
        for each in self._questions:
            # Compare without line endings, because terminals change them in the echo.
            received = received.replace(each.strip(b"\r\0"), b"")
        return received

    def judge(self) -> UnrecognisedDevice:
        received = self.get_received()
        echoes = len(received) < len(self._received)
        # A terminal returns lines with its own line endings, and with prompts between them.
        return UnrecognisedDevice(
            b"" if echoes and not received.strip(b"\r\n\0") else received, echoes
        )


async def recognise(
    line: DeviceLine, kinds_to_ask: Sequence[Recognition], known_kinds: Sequence[Recognition] = ()
) -> Recognition | UnrecognisedDevice:
    """Send the question of each kind in `kinds_to_ask` in turn, and return the kind that matches
    the answer. The kind may also be one of `known_kinds`. Return UnrecognisedDevice if no answer
    matches. Raises PortLost.
    """
    hearing = _ReceivedBytes()
    for number in range(QUESTION_ROUNDS):
        for kind in sorted(kinds_to_ask, key=lambda each: each.order):
            question = kind.question()
            if not question and number:
                continue
            with waits.move_on_after(kind.patience):
                if question:
                    hearing.ask(GUARD_BYTES + question)
                    await line.write(GUARD_BYTES + question)
                while True:
                    received = hearing.get_received()
                    for each in (*kinds_to_ask, *known_kinds):
                        if each.is_answer(received):
                            return each
                    hearing.add_bytes(await line.read())
    return hearing.judge()


async def answer_to(
    line: DeviceLine,
    question: bytes,
    read: Callable[[bytes], Read | None],
    seconds: float = ANSWER_TIMEOUT_S,
) -> Read | None:
    """Send `question`, and call `read` with all bytes that have arrived so far, until it returns a
    value. Return this value, or None after `seconds` seconds. Raises PortLost.
    """
    received = bytearray()
    with waits.move_on_after(seconds):
        if question:
            await line.write(question)
        while (answer := read(bytes(received))) is None:
            received += await line.read()
        return answer
    return None
