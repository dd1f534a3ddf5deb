"""Frames between a kit and the hub over SMS: an envelope and acknowledgements, as plain text.

Every SMS service for a hub supports text, but only few support octets. So the only form is `fa:`
and base64 (RFC 4648, 4) without padding, in the GSM alphabet. A message of 160 septets contains 117
bytes of a frame. `docs/how-to/sms.md` describes it, with a vector:

| bytes | contents |
|---|---|
| 1 | version 1 in the upper half, the number of acknowledgements in the lower |
| 6 | the name: the first bytes of the link token's SHA-256, by which the hub finds the kit |
| 8 each | acknowledgements: the tag of a frame whose envelope is on the sender's disk |
| any | an envelope, or nothing |
| 8 | the tag over all of it: HMAC 256/64 by a key that kit and hub derive from the token |

A frame is repeated unchanged until it is acknowledged, so that one acknowledgement is valid for all
copies. The sender's number of an SMS can be forged, so only the tag authenticates the sender.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Sequence

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import derive_key
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.seal import TAG_BYTES, tag

VERSION = 1
MARK = "fa:"
NAME_BYTES = 6
ACKNOWLEDGED_MAX = 15
_HEAD = 1 + NAME_BYTES
_ONE_SMS, _PART = 160, 153
"""Septets in a message that is sent alone, and in each part of a longer message."""
PARTS_DOWN = 8
"""Maximum parts of a message from the hub: a SIM holds ten or more, services accept ten."""
_TEXT = re.compile(r"fa:([A-Za-z0-9+/]{20,})", re.ASCII)


def _count_bytes(septets: int) -> int:
    return (septets - len(MARK)) * 6 // 8


ENVELOPE_BYTES = _count_bytes(_ONE_SMS) - _HEAD - TAG_BYTES
"""Maximum bytes of an envelope from a kit, so that the frame fits into one SMS."""


def compute_envelope_bytes_down(parts: int) -> int:
    """Return the maximum bytes of an envelope from the hub in an SMS of `parts` parts (2 or more)
    with four acknowledgements.
    """
    return _count_bytes(_PART * parts) - _HEAD - TAG_BYTES - TAG_BYTES * 4


def derive_name(token_digest: bytes) -> bytes:
    """Return the name by which the hub finds the kit with this token. Frames never contain the rest
    of the digest, from which the keys are derived.
    """
    return token_digest[:NAME_BYTES]


def derive_key_up(token_digest: bytes) -> bytes:
    """Return the key that authenticates frames from the kit to the hub."""
    return derive_key(token_digest, "SMS MO")


def derive_key_down(token_digest: bytes) -> bytes:
    """Return the key that authenticates frames from the hub to the kit."""
    return derive_key(token_digest, "SMS MT")


@dataclass(frozen=True, slots=True)
class SmsFrame:
    name: bytes
    envelope: bytes = b""
    acknowledged: tuple[bytes, ...] = ()
    """Tags of the frames whose envelopes the sender of this frame has on disk."""
    tag: bytes = b""
    """Tag of a received frame. Empty in a frame that this end makes."""

    def make_plain(self) -> bytes:
        """Return the bytes that the tag covers. Raises LocalProtocolError if the name does not have
        NAME_BYTES bytes, or if there are more than ACKNOWLEDGED_MAX acknowledgements.
        """
        if len(self.name) != NAME_BYTES or len(self.acknowledged) > ACKNOWLEDGED_MAX:
            raise LocalProtocolError("a name has 6 bytes, and at most 15 acknowledgements fit")
        head = bytes([VERSION << 4 | len(self.acknowledged)])
        return b"".join((head, self.name, *self.acknowledged, self.envelope))

    def tag_by(self, key: bytes) -> bytes:
        """Return the frame's tag, which an acknowledgement of the frame contains."""
        return tag(self.make_plain(), key)

    def is_tagged_by(self, key: bytes) -> bool:
        """Return True if the tag is valid for this key."""
        return hmac.compare_digest(self.tag_by(key), self.tag)

    def encode_text(self, key: bytes) -> str:
        """Return the frame, tagged with `key`, as the text of an SMS."""
        return MARK + base64.b64encode(self.make_plain() + self.tag_by(key)).decode().rstrip("=")


def is_frame(text: str) -> bool:
    """Return True if the text seems to be a frame, and not written by a person."""
    return text.lstrip().startswith(MARK)


def parse_frame(text: str) -> SmsFrame:
    """Parse the frame in a text. The frame's tag is not checked. Raises RemoteProtocolError for
    malformed data.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise RemoteProtocolError("it is cut off, or a service has changed characters of it")
    padding = "=" * (-len(match[1]) % 4)
    try:
        frame = base64.b64decode(match[1] + padding, validate=True)
    except ValueError:
        raise RemoteProtocolError("its length is not valid for base64") from None
    plain, own = frame[:-TAG_BYTES], frame[-TAG_BYTES:]
    if not plain or plain[0] >> 4 != VERSION:
        raise RemoteProtocolError("its version is unknown: update this program")
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


def fits_into_one_sms(acknowledged: Sequence[bytes], envelope: bytes) -> bool:
    """Return True if a frame with these acknowledgements and this envelope fits into one SMS."""
    return len(envelope) + TAG_BYTES * len(acknowledged) <= ENVELOPE_BYTES
