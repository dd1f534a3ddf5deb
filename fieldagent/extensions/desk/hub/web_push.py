"""Web push: notifications for a browser, even if the page is closed, through the push service of
the browser's vendor.

Standards: RFC 8030 (requests), RFC 8291 and 8188 (encryption that hides the content from the
service) and RFC 8292 (VAPID, the key that identifies the hub). This module needs only the library
`cryptography`. The library pywebpush would also need aiohttp and requests, and would connect to any
address in a subscription. The hub's own client connects only to public addresses.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fieldagent.http.client import Opener, RequestFailed, request
from fieldagent.hub.access.known_devices import read_signing_key
from fieldagent.hub.contact.contract import Notice
from fieldagent.hub.records.stored_entry import DAMAGED_ROW, load_stored_object
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import make_visible, sentence
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult
from fieldagent.webhook.post import judge_response

KEY = "web push"
DEADLINE_S = 20.0
"""Seconds within which one request must end."""
TIME_TO_LIVE_S = 3_600
"""Seconds for which the push service stores a message for a browser that is not running."""
TOKEN_LIFETIME_S = 12 * 3_600
"""Seconds for which a token is valid. RFC 8292, section 2 allows 24 hours."""
RECORD_BYTES = 4_096
"""Size in bytes of the only record (RFC 8188, section 2)."""
TEXT_CHARACTERS_MAX = 2_000
"""Largest number of characters of the text, because a push service accepts 4096 bytes (RFC 8030
7.2)."""
REASON_MAX, REASON_SHOWN = 1_024, 200
"""Bytes of a response that the hub reads, and characters of its reason that the hub shows, such as
`{"reason":"BadJwtToken"}`."""
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of the curve P-256 (SEC 2, section 2.4.2)."""
_EXPIRED_STATUSES = (404, 410)
"""HTTP statuses for an expired subscription (RFC 8030, section 7.3)."""


class Subscription(NamedTuple):
    """A browser's push subscription (W3C Push API, section 7)."""

    endpoint: str
    p256dh: str
    """Public key of the browser, base64url."""
    auth: str
    """Secret of 16 bytes, base64url."""

    def find_fault(self) -> str:
        """Return the reason why the subscription cannot be used, or an empty string."""
        try:
            secret = _decode_text(self.auth)
            ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), _decode_text(self.p256dh))
        except ValueError:
            return sentence("the keys are not push subscription keys")
        if not _is_https(self.endpoint):
            return sentence("the endpoint is not an https:// address")
        return "" if len(secret) == 16 else sentence("the secret does not have 16 bytes")

    def encode(self) -> str:
        """Return the subscription in the form that a contact's address stores."""
        return json.dumps(self._asdict())


def _is_https(endpoint: str) -> bool:
    try:
        url = urlsplit(endpoint)
        return url.scheme == "https" and bool(url.hostname) and url.port != 0
    except ValueError:  # The endpoint is not a URL, for example https://[.
        return False


def read_hub_key(db: Db) -> ec.EllipticCurvePrivateKey:
    """Return the hub's key, which identifies the hub to push services. The first use creates the
    key.
    """
    number = int.from_bytes(read_signing_key(db, KEY)) % (_ORDER - 1) + 1
    return ec.derive_private_key(number, ec.SECP256R1())


def get_public_text(key: ec.EllipticCurvePrivateKey) -> str:
    """Return the public key in the form that `applicationServerKey` has in browsers."""
    return _encode_text(_encode_point(key.public_key()))


async def send(
    address: str,
    notice: Notice,
    *,
    key: ec.EllipticCurvePrivateKey,
    subject: str,
    clock: Callable[[], float],
    open_stream: Opener,
) -> HandoverResult:
    """Send a notice as JSON to the push service of a subscription. The outcome GONE means that the
    subscription has expired. `subject` is the URL at which push services can reach the hub's
    operator: https: or mailto:.
    """
    try:
        subscription = Subscription(**load_stored_object(address, "the address of a browser"))
    except TypeError:
        return HandoverResult(HandoverOutcome.FAILED, DAMAGED_ROW)
    token = make_vapid_token(key, subscription.endpoint, subject, clock())
    headers = (
        ("Content-Type", "application/octet-stream"),
        ("Content-Encoding", "aes128gcm"),
        ("TTL", str(TIME_TO_LIVE_S)),
        ("Urgency", "high"),
        ("Authorization", f"vapid t={token}, k={get_public_text(key)}"),
    )
    try:
        reply = await request(
            "POST",
            subscription.endpoint,
            headers=headers,
            body=encrypt(_encode_payload(notice), subscription),
            deadline=DEADLINE_S,
            max_body=REASON_MAX,
            open_stream=open_stream,
        )
    except RequestFailed as failure:
        return HandoverResult(HandoverOutcome.FAILED, failure.reason)
    if reply.status in _EXPIRED_STATUSES:
        return HandoverResult(HandoverOutcome.GONE, "the browser no longer accepts push messages")
    result = judge_response(reply, clock(), "let the browser request it again")
    answer_text = make_visible(reply.body.decode("utf-8", "replace"))[:REASON_SHOWN]
    if result.outcome is HandoverOutcome.FAILED and answer_text:
        return replace(result, reason=f"{result.reason}: {answer_text}")
    return result


def _encode_payload(notice: Notice) -> bytes:
    """Return the payload for the console's service worker. The payload of a test contains no SOS
    that could be opened.
    """
    payload: dict[str, Any] = {"title": notice.subject, "body": notice.said[:TEXT_CHARACTERS_MAX]}
    if notice.alarm:
        payload |= {"alarm": notice.alarm, "id": notice.sos, "device": notice.device}
    elif notice.sos:
        payload |= {"sos": notice.sos, "device": notice.device}
    else:
        payload["body"] = notice.text
    return json.dumps(payload).encode()


def make_vapid_token(
    key: ec.EllipticCurvePrivateKey, endpoint: str, subject: str, now: float
) -> str:
    """Return the signed token for the push service of an endpoint (RFC 8292, section 2)."""
    parts = urlsplit(endpoint)
    claims = {
        "aud": f"{parts.scheme}://{parts.netloc}",
        "exp": int(now) + TOKEN_LIFETIME_S,
        "sub": subject,
    }
    signing_input = ".".join(
        _encode_text(json.dumps(part, separators=(",", ":")).encode())
        for part in ({"typ": "JWT", "alg": "ES256"}, claims)
    )
    r, s = decode_dss_signature(key.sign(signing_input.encode(), ec.ECDSA(hashes.SHA256())))
    # RFC 7518, section 3.4: two numbers of 32 bytes each.
    return f"{signing_input}.{_encode_text(r.to_bytes(32) + s.to_bytes(32))}"


def encrypt(
    text: bytes,
    subscription: Subscription,
    *,
    salt: bytes | None = None,
    once: ec.EllipticCurvePrivateKey | None = None,
) -> bytes:
    """Return the body in one record (RFC 8291, section 4). `salt` and the key `once` are new for
    each message.
    """
    salt = os.urandom(16) if salt is None else salt
    once = ec.generate_private_key(ec.SECP256R1()) if once is None else once
    their_key = _decode_text(subscription.p256dh)
    receiver = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), their_key)
    our_key = _encode_point(once.public_key())
    shared = once.exchange(ec.ECDH(), receiver)
    secret = _derive(
        shared, _decode_text(subscription.auth), b"WebPush: info\0" + their_key + our_key, 32
    )
    sealing = _derive(secret, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(secret, salt, b"Content-Encoding: nonce\0", 12)
    # RFC 8188, section 2: the byte 2 marks the last record.
    sealed = AESGCM(sealing).encrypt(nonce, text + b"\2", None)
    return salt + RECORD_BYTES.to_bytes(4) + bytes([len(our_key)]) + our_key + sealed


def _derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)


def _encode_point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _encode_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode_text(text: str) -> bytes:
    """Decode a base64url text. Raises ValueError for malformed data."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
