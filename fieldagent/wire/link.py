"""The IP link between an agent and the hub: numbered messages, acknowledged when they are on disk.

`docs/reference/ip-link.md` describes it byte by byte, with test vectors. Both ends use the same
protocol. Each CBOR message is one binary WebSocket message. No state is kept after the end of a
link. Unacknowledged messages are sent again over the next link. Receivers recognise duplicates by
the numbers in the envelopes.
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
"""Path of a WebSocket that the hub closes at once. Such a connection is not a link, and does not
end another link."""
VERSION = 1
BODIES_MAX = 200
"""Maximum number of bodies in a message."""
HEAD = 5
"""Maximum bytes of a body's CBOR head, which contains the length. Counted for each body if a
message has several."""
BODY_BYTES = 102_400
"""Body size in bytes that every end must accept."""
OVERHEAD_BYTES = 16
"""Maximum bytes that a message adds to its body: array, kind, number and the head of the body. If
there are several bodies, each body also has a head."""
WINDOW = 4
"""Maximum number of unacknowledged messages that an end accepts, including pings."""
NOTES = 1
"""Feature bit of an end that accepts notes."""
_UINT = 2**32 - 1


class LinkKind(IntEnum):
    HELLO = 0
    MESSAGE = 1
    ACKNOWLEDGEMENT = 2
    NOTE = 3


class Close(IntEnum):
    """WebSocket close codes (RFC 6455 7.4.1) with a meaning for the link."""

    CHECKED = 1000
    """The connection was only a test, not a link."""
    GOING_AWAY = 1001
    """This end stops or restarts. The peer should reconnect after a while."""
    PROTOCOL_ERROR = 1002
    POLICY = 1008
    """The device was disabled, or has another token."""
    TRY_AGAIN = 1013
    """This end runs, but cannot store anything now. The peer should reconnect soon."""
    REPLACED = 4000
    """A newer link of the same device has replaced this one."""
    NO_COMMON_VERSION = 4001
    SILENT = 4002
    """No message or acknowledgement arrived for too long."""
    REVOKED = 4003
    """The device is revoked, because its kit may be stolen."""


@dataclass(frozen=True, slots=True)
class LinkHello:
    """First message of each end, with a description of this end."""

    lowest: int = VERSION
    highest: int = VERSION
    features: int = 0
    """Feature bits, such as NOTES. The link can use the features that both ends have."""
    size: int = BODY_BYTES
    """Maximum bytes of a message's body that this end accepts."""
    window: int = WINDOW
    """Maximum number of unacknowledged messages that this end accepts."""
    silence: int = 0
    """Maximum seconds between two messages of this end. 0 means that this end promises no
    maximum."""
    journal: int = 0
    """Number of this end's journal, which shows the peer which data this end already has. 0 means
    no number."""


@dataclass(frozen=True, slots=True)
class LinkOpened:
    """The peer's hello has arrived. From now on, messages can be sent."""

    version: int
    features: int
    size: int
    window: int
    silence: int
    journal: int = 0


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message has arrived. The receiver acknowledges it when it and all earlier messages are on
    disk. A message without a body is a ping.
    """

    number: int
    bodies: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Numbers of messages that the peer has on disk."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NoteReceived:
    """A note has arrived. Notes are not acknowledged, but repeated on each link while they are
    valid.
    """

    body: bytes


Body = bytes | tuple[bytes, ...]
"""Content of a message: one body or several."""


def get_size(body: Body) -> int:
    """Return the size of a message's content in bytes."""
    return len(body) if isinstance(body, bytes) else sum(map(len, body)) + HEAD * len(body)


LinkEvent = LinkOpened | MessageReceived | Acknowledged | NoteReceived


class IpLink:
    """One end of a link, for one connection. The object must not be used after an error."""

    def __init__(self, hello: LinkHello) -> None:
        self._hello = hello
        self._peer: LinkOpened | None = None
        self._sent = 0
        self._unacknowledged: deque[int] = deque()
        self._last_arrived = 0
        self._last_answered = 0

    def make_hello(self) -> bytes:
        """Return the first message to send."""
        own_hello = self._hello
        hello_fields = [
            own_hello.lowest,
            own_hello.highest,
            own_hello.features,
            own_hello.size,
            own_hello.window,
            own_hello.silence,
        ]
        journal_field = [own_hello.journal] if own_hello.journal else []
        return cbor2.dumps([LinkKind.HELLO, *hello_fields, *journal_field])

    @property
    def free(self) -> int:
        """Return the number of messages that can be sent before an acknowledgement is needed."""
        return 0 if self._peer is None else self._peer.window - len(self._unacknowledged)

    def send(self, body: Body) -> tuple[int, bytes]:
        """Encode the next message. Return its number, which the acknowledgement will contain, and
        its bytes. Raises LocalProtocolError if the window is full, or if the peer's hello has not
        arrived.
        """
        if self._peer is None or self.free < 1:
            raise LocalProtocolError("the window is full, or the peer has not said hello")
        if (size := get_size(body)) > self._peer.size:
            raise LocalProtocolError(f"{size} bytes, but the peer accepts {self._peer.size}")
        if len(body) > BODIES_MAX and not isinstance(body, bytes):
            raise LocalProtocolError(
                f"{len(body)} bodies, where a message has {BODIES_MAX} at most"
            )
        self._sent += 1
        self._unacknowledged.append(self._sent)
        message = [LinkKind.MESSAGE, self._sent, body] if body else [LinkKind.MESSAGE, self._sent]
        return self._sent, cbor2.dumps(message)

    def make_ping(self) -> tuple[int, bytes]:
        """Return a message without a body. Its acknowledgement shows that the peer can write to its
        disk.
        """
        return self.send(b"")

    def make_note(self, body: bytes) -> bytes:
        """Encode a note. A note uses no number and no place in the window. Raises
        LocalProtocolError if the peer accepts no notes.
        """
        if self._peer is None or not self._peer.features & NOTES:
            raise LocalProtocolError("the peer accepts no notes")
        if len(body) > BODY_BYTES:
            raise LocalProtocolError(f"{len(body)} bytes, where a note has {BODY_BYTES} at most")
        return cbor2.dumps([LinkKind.NOTE, body])

    def acknowledge(self, number: int) -> bytes:
        """Return the acknowledgement of `number` and all earlier messages, which must be on disk.
        Raises LocalProtocolError if `number` has not arrived, or was acknowledged before.
        """
        if not self._last_answered < number <= self._last_arrived:
            raise LocalProtocolError(f"{number} has not arrived and cannot be acknowledged")
        self._last_answered = number
        return cbor2.dumps([LinkKind.ACKNOWLEDGEMENT, number])

    def receive(self, message: bytes) -> LinkEvent | None:
        """Process a message from the peer, and return the event, or None for an unknown kind of
        message.

        If RemoteProtocolError is raised, the caller must close the connection.
        """
        kind, *members = _parse_message(message)
        if kind == LinkKind.HELLO:
            return self._accept_hello(members)
        if self._peer is None:
            raise RemoteProtocolError("the first message is not a hello")
        if kind == LinkKind.MESSAGE:
            return self._accept_numbered(_get_number(members), members[1:])
        if kind == LinkKind.NOTE and self._peer.features & NOTES:
            return NoteReceived(_get_note(members))
        return self._settle(_get_number(members)) if kind == LinkKind.ACKNOWLEDGEMENT else None

    def _accept_hello(self, members: list[Any]) -> LinkOpened:
        if self._peer is not None:
            raise RemoteProtocolError("a second hello")
        if len(members) < 6 or not all(_is_uint(member) for member in members[:6]):
            raise RemoteProtocolError("the hello is damaged")
        # Ignore any other value: in a later version, a peer without a journal number may send
        # another member in this place.
        journal = [member for member in members[6:7] if _is_uint(member)]
        peer = LinkHello(*members[:6], *journal)
        version = min(peer.highest, self._hello.highest)
        if version < max(peer.lowest, self._hello.lowest):
            raise NoCommonVersion(
                f"the peer speaks versions {peer.lowest} to {peer.highest} of the link, this end"
                f" {self._hello.lowest} to {self._hello.highest}: update the older one"
            )
        if peer.size < BODY_BYTES or peer.window < 1:
            raise RemoteProtocolError("the hello accepts less than the protocol requires")
        features = peer.features & self._hello.features
        self._peer = LinkOpened(
            version, features, peer.size, peer.window, peer.silence, peer.journal
        )
        return self._peer

    def _accept_numbered(self, number: int, members: list[Any]) -> MessageReceived:
        if number != self._last_arrived + 1:
            raise RemoteProtocolError(
                f"message {number} where {self._last_arrived + 1} should follow"
            )
        if number - self._last_answered > self._hello.window:
            raise RemoteProtocolError("more unacknowledged messages than were asked for")
        self._last_arrived = number
        return MessageReceived(number, self._split_bodies(number, members[0]) if members else ())

    def _split_bodies(self, number: int, content: Any) -> tuple[bytes, ...]:
        bodies = content if isinstance(content, list) else [content]
        are_bytes = all(isinstance(body, bytes) for body in bodies)
        body = content if isinstance(content, bytes) else tuple(bodies)
        if not are_bytes or get_size(body) > self._hello.size:
            raise RemoteProtocolError(f"message {number} has no body of {self._hello.size} bytes")
        if len(bodies) > BODIES_MAX:
            raise RemoteProtocolError(f"message {number} has more than {BODIES_MAX} bodies")
        return tuple(body for body in bodies if body)

    def _settle(self, number: int) -> Acknowledged:
        waiting = self._unacknowledged
        if not waiting or not waiting[0] <= number <= waiting[-1]:
            raise RemoteProtocolError(
                f"{number} is acknowledged, but does not wait for an acknowledgement"
            )
        settled = []
        while waiting and waiting[0] <= number:
            settled.append(waiting.popleft())
        return Acknowledged(tuple(settled))


class NoCommonVersion(RemoteProtocolError):
    """Error: the two ends have no common version of the protocol. The older end must be updated."""


def _parse_message(message: bytes) -> list[Any]:
    items = strict_cbor.decode_single(message)
    if not isinstance(items, list) or not items or not _is_uint(items[0]):
        raise RemoteProtocolError("a message is not an array that starts with its kind")
    return items


def _get_number(members: list[Any]) -> int:
    if not members or not _is_uint(members[0]):
        raise RemoteProtocolError("a message or acknowledgement has no number")
    return int(members[0])


def _get_note(members: list[Any]) -> bytes:
    if not members or not isinstance(members[0], bytes) or len(members[0]) > BODY_BYTES:
        raise RemoteProtocolError(f"a note has no body of {BODY_BYTES} bytes")
    return bytes(members[0])


def _is_uint(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _UINT
