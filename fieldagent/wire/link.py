"""The IP link between an agent and the hub: numbered messages, acknowledged once they are on disk.

Byte by byte, with test vectors, it is described in `docs/reference/ip-link.md`. Both ends speak
alike; each CBOR message is one binary WebSocket message. A link forgets everything when it ends:
what was not acknowledged is sent again over the next, and the numbers within the envelope make that
harmless.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import Any

import cbor2

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import strict_cbor
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError

PATH = "/link"
CHECK_PATH = "/link?check"
"""A WebSocket that the hub closes at once: it is no link, and ends none."""
VERSION = 1
BODY_BYTES = 102_400
"""Every end takes at least that many bytes in one message's body."""
OVERHEAD = 16
"""Most bytes that a message adds to its body: array, kind, number and the body's own head."""
WINDOW = 4
"""Unacknowledged messages that an end asks for; pings are messages too."""
NOTES = 1
"""The feature of an end that takes notes."""
_UINT = 2**32 - 1


class LinkKind(IntEnum):
    HELLO = 0
    MESSAGE = 1
    ACKNOWLEDGEMENT = 2
    NOTE = 3


class Close(IntEnum):
    """WebSocket close codes (RFC 6455 7.4.1) that say something about the link."""

    CHECKED = 1000
    """It was no link, but a check whether there could be one."""
    GOING_AWAY = 1001
    """The end stops or restarts: connect again, in a while."""
    PROTOCOL_ERROR = 1002
    POLICY = 1008
    """The device was disabled, or has another token."""
    TRY_AGAIN = 1013
    """The end lives and can store nothing now: connect again soon."""
    REPLACED = 4000
    """A newer link of the same device took over."""
    NO_COMMON_VERSION = 4001
    SILENT = 4002
    """Nothing was acknowledged, or heard, for too long."""
    REVOKED = 4003
    """The device is revoked: whoever has its kit may be a thief."""


@dataclass(frozen=True, slots=True)
class LinkHello:
    """What an end tells of itself before anything else."""

    lowest: int = VERSION
    highest: int = VERSION
    features: int = 0
    """A bit each, such as NOTES; what both ends have may be used."""
    size: int = BODY_BYTES
    """Most bytes of a message's body that it takes."""
    window: int = WINDOW
    """Most unacknowledged messages that it takes."""
    silence: int = 0
    """Seconds after which it says something at the latest; 0 promises nothing."""
    journal: int = 0
    """The number of its journal, so that the peer knows what it was told; 0 tells none."""


@dataclass(frozen=True, slots=True)
class LinkOpened:
    """The peer's hello has come: messages may be sent."""

    version: int
    features: int
    size: int
    window: int
    silence: int
    journal: int = 0


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message to be acknowledged, with all before it, once it is on disk; b"" is a ping."""

    number: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The peer has these on disk."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Noted:
    """A note: nobody acknowledges it, and it is told again over each link while it holds."""

    body: bytes


LinkEvent = LinkOpened | Arrived | Acknowledged | Noted


class IpLink:
    """One end, for as long as one connection lasts. After an error it is of no further use."""

    def __init__(self, hello: LinkHello) -> None:
        self._hello = hello
        self._peer: LinkOpened | None = None
        self._sent = 0
        self._unacknowledged: deque[int] = deque()
        self._arrived = 0
        self._answered = 0

    def hello(self) -> bytes:
        """Return the first thing to send."""
        ours = self._hello
        known = [ours.lowest, ours.highest, ours.features, ours.size, ours.window, ours.silence]
        named = [ours.journal] if ours.journal else []
        return cbor2.dumps([LinkKind.HELLO, *known, *named])

    @property
    def free(self) -> int:
        """Return how many messages may be sent before an acknowledgement must come."""
        return 0 if self._peer is None else self._peer.window - len(self._unacknowledged)

    def send(self, body: bytes) -> tuple[int, bytes]:
        """Return the next message: the number that its acknowledgement will name, and its bytes."""
        if self._peer is None or self.free < 1:
            raise LocalProtocolError("the window is full, or the peer has not said hello")
        if len(body) > self._peer.size:
            raise LocalProtocolError(f"{len(body)} bytes, where the peer takes {self._peer.size}")
        self._sent += 1
        self._unacknowledged.append(self._sent)
        message = [LinkKind.MESSAGE, self._sent, body] if body else [LinkKind.MESSAGE, self._sent]
        return self._sent, cbor2.dumps(message)

    def ping(self) -> tuple[int, bytes]:
        """Return a message without a body: acknowledged by an end that is alive to its disk."""
        return self.send(b"")

    def note(self, body: bytes) -> bytes:
        """Return what goes beside the messages: it takes no number, and no place in the window."""
        if self._peer is None or not self._peer.features & NOTES:
            raise LocalProtocolError("the peer takes no notes")
        if len(body) > BODY_BYTES:
            raise LocalProtocolError(f"{len(body)} bytes, where a note has {BODY_BYTES} at most")
        return cbor2.dumps([LinkKind.NOTE, body])

    def acknowledge(self, number: int) -> bytes:
        """Acknowledge that `number` and all before it are on disk; return the bytes that say so."""
        if not self._answered < number <= self._arrived:
            raise LocalProtocolError(f"{number} is not there to be acknowledged")
        self._answered = number
        return cbor2.dumps([LinkKind.ACKNOWLEDGEMENT, number])

    def receive(self, message: bytes) -> LinkEvent | None:
        """Read what the peer sent; None for a kind that is not known here.

        Raises RemoteProtocolError, after which the connection is to be closed.
        """
        kind, *members = _load(message)
        if kind == LinkKind.HELLO:
            return self._open(members)
        if self._peer is None:
            raise RemoteProtocolError("the first message is no hello")
        if kind == LinkKind.MESSAGE:
            return self._take(_number(members), members[1:])
        if kind == LinkKind.NOTE and self._peer.features & NOTES:
            return Noted(_note(members))
        return self._settle(_number(members)) if kind == LinkKind.ACKNOWLEDGEMENT else None

    def _open(self, members: list[Any]) -> LinkOpened:
        if self._peer is not None:
            raise RemoteProtocolError("a second hello")
        if len(members) < 6 or not all(_is_uint(member) for member in members[:6]):
            raise RemoteProtocolError("the hello is damaged")
        # Who names no journal may have something else there, some day.
        journal = [member for member in members[6:7] if _is_uint(member)]
        peer = LinkHello(*members[:6], *journal)
        version = min(peer.highest, self._hello.highest)
        if version < max(peer.lowest, self._hello.lowest):
            raise NoCommonVersion(
                f"the peer speaks versions {peer.lowest} to {peer.highest} of the link, this end"
                f" {self._hello.lowest} to {self._hello.highest}: update the older one"
            )
        if peer.size < BODY_BYTES or peer.window < 1:
            raise RemoteProtocolError("the hello promises to take less than it must")
        features = peer.features & self._hello.features
        self._peer = LinkOpened(
            version, features, peer.size, peer.window, peer.silence, peer.journal
        )
        return self._peer

    def _take(self, number: int, members: list[Any]) -> Arrived:
        if number != self._arrived + 1:
            raise RemoteProtocolError(f"message {number} where {self._arrived + 1} should follow")
        if number - self._answered > self._hello.window:
            raise RemoteProtocolError("more unacknowledged messages than were asked for")
        body = members[0] if members else b""
        if not isinstance(body, bytes) or len(body) > self._hello.size:
            raise RemoteProtocolError(f"message {number} has no body of {self._hello.size} bytes")
        self._arrived = number
        return Arrived(number, body)

    def _settle(self, number: int) -> Acknowledged:
        waiting = self._unacknowledged
        if not waiting or not waiting[0] <= number <= waiting[-1]:
            raise RemoteProtocolError(f"{number} is acknowledged and does not wait for that")
        settled = []
        while waiting and waiting[0] <= number:
            settled.append(waiting.popleft())
        return Acknowledged(tuple(settled))


class NoCommonVersion(RemoteProtocolError):
    """One end is too old for the other."""


def _load(message: bytes) -> list[Any]:
    items = strict_cbor.loads(message)
    if not isinstance(items, list) or not items or not _is_uint(items[0]):
        raise RemoteProtocolError("a message is no array that starts with its kind")
    return items


def _number(members: list[Any]) -> int:
    if not members or not _is_uint(members[0]):
        raise RemoteProtocolError("a message or acknowledgement has no number")
    return int(members[0])


def _note(members: list[Any]) -> bytes:
    if not members or not isinstance(members[0], bytes) or len(members[0]) > BODY_BYTES:
        raise RemoteProtocolError(f"a note has no body of {BODY_BYTES} bytes")
    return bytes(members[0])


def _is_uint(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _UINT
