"""What a kit and the hub write to each other by SMS: an envelope, and what has come, in plain text.

Every service that takes SMS for a hub bears text, and few bear octets, so there is one form: `fa:`
and base64 (RFC 4648, 4) without padding, all of it in the GSM alphabet. A message of 160 septets
holds 117 bytes of a frame. `docs/how-to/sms.md` has it with a vector:

| bytes | what |
|---|---|
| 1 | version 1 in the upper half, the number of acknowledgements in the lower |
| 6 | the name: the first bytes of the link token's SHA-256, by which the hub finds the kit |
| 8 each | acknowledgements: the tag of a frame whose envelope is on disk at who says so |
| any | an envelope, or nothing |
| 8 | the tag over all of it: HMAC 256/64 by a key that kit and hub derive of the token |

A frame goes again unchanged until it is acknowledged, so that one acknowledgement is of all its
copies. A number on an SMS can be forged: nothing but the tag says who writes.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Sequence

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import derive_key
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.tag import TAG_BYTES, tag

VERSION = 1
MARK = "fa:"
NAME_BYTES = 6
ACKNOWLEDGED_MAX = 15
_HEAD = 1 + NAME_BYTES
_ONE_SMS, _PART = 160, 153
"""Septets of one message, and of each part of a longer one."""
PARTS_DOWN = 8
"""Most parts of a message that the hub sends: a SIM holds ten or more, services take ten."""
_TEXT = re.compile(r"fa:([A-Za-z0-9+/]{20,})", re.ASCII)


def _bytes_in(septets: int) -> int:
    return (septets - len(MARK)) * 6 // 8


ENVELOPE_BYTES = _bytes_in(_ONE_SMS) - _HEAD - TAG_BYTES
"""Most bytes of an envelope that a kit sends: the frame goes in one SMS."""


def envelope_bytes_down(parts: int) -> int:
    """Return the same of one that the hub sends, in so many parts from two on, beside four
    acknowledgements."""
    return _bytes_in(_PART * parts) - _HEAD - TAG_BYTES - TAG_BYTES * 4


def name_of(token_digest: bytes) -> bytes:
    """Return by what the hub finds the kit with that token. The rest of the digest, of which the
    keys are made, is in no frame."""
    return token_digest[:NAME_BYTES]


def key_up(token_digest: bytes) -> bytes:
    """Return the key of what the kit sends."""
    return derive_key(token_digest, "SMS MO")


def key_down(token_digest: bytes) -> bytes:
    """Return the key of what the hub sends."""
    return derive_key(token_digest, "SMS MT")


@dataclass(frozen=True, slots=True)
class SmsFrame:
    name: bytes
    envelope: bytes = b""
    acknowledged: tuple[bytes, ...] = ()
    """Tags of frames that the sender of this one has on disk."""
    tag: bytes = b""
    """Of a frame that was read."""

    def plain(self) -> bytes:
        """Return what the tag is over. Raises LocalProtocolError."""
        if len(self.name) != NAME_BYTES or len(self.acknowledged) > ACKNOWLEDGED_MAX:
            raise LocalProtocolError("a name has 6 bytes, and 15 acknowledgements are the most")
        head = bytes([VERSION << 4 | len(self.acknowledged)])
        return b"".join((head, self.name, *self.acknowledged, self.envelope))

    def tag_by(self, key: bytes) -> bytes:
        """Return the tag, by which it is acknowledged."""
        return tag(self.plain(), key)

    def is_tagged_by(self, key: bytes) -> bool:
        """Return whether who holds this key wrote it."""
        return hmac.compare_digest(self.tag_by(key), self.tag)

    def text(self, key: bytes) -> str:
        """Return the text of the SMS."""
        return MARK + base64.b64encode(self.plain() + self.tag_by(key)).decode().rstrip("=")


def is_frame(text: str) -> bool:
    """Return whether the text is meant for us: no person writes so."""
    return text.lstrip().startswith(MARK)


def read(text: str) -> SmsFrame:
    """Return the frame that a text holds; who wrote it is not yet known. Raises
    RemoteProtocolError."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise RemoteProtocolError("it is cut off, or a service has changed characters of it")
    padding = "=" * (-len(match[1]) % 4)
    try:
        whole = base64.b64decode(match[1] + padding, validate=True)
    except ValueError:
        raise RemoteProtocolError("its length is that of no base64") from None
    plain, own = whole[:-TAG_BYTES], whole[-TAG_BYTES:]
    if not plain or plain[0] >> 4 != VERSION:
        raise RemoteProtocolError("it is of a version that is not known here: update this end")
    count = plain[0] & 0x0F
    rest = plain[_HEAD:]
    if len(rest) < count * TAG_BYTES:
        raise RemoteProtocolError("it ends within its acknowledgements")
    return SmsFrame(
        plain[1:_HEAD],
        rest[count * TAG_BYTES :],
        tuple(rest[at * TAG_BYTES : (at + 1) * TAG_BYTES] for at in range(count)),
        own,
    )


def fits_one(acknowledged: Sequence[bytes], envelope: bytes) -> bool:
    """Return whether a frame with both goes in one SMS."""
    return len(envelope) + TAG_BYTES * len(acknowledged) <= ENVELOPE_BYTES
