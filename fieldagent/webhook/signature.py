"""Makes the three headers of Standard Webhooks 1.0.0, with which a receiver can authenticate our
requests. Pure.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from fieldagent.system.properties import WrongProperty

PREFIX = "whsec_"


def read_secrets(value: str) -> tuple[str, ...]:
    """Parse the secrets in a setting. Raises WrongProperty if a secret is invalid."""
    secrets = tuple(value.split())
    for secret in secrets:
        size = _compute_base64_size(secret.removeprefix(PREFIX))
        if not secret.startswith(PREFIX) or size is None or not 24 <= size <= 64:
            raise WrongProperty(
                "must be whsec_ and base64 of 24 to 64 bytes; to rotate, set two with a "
                "space between them"
            )
    return secrets


def _compute_base64_size(value: str) -> int | None:
    try:
        return len(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return None


def make_headers(
    message_id: str, body: bytes, *, now: float, secrets: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return the headers that sign a message. Each secret is `whsec_` and base64. During a change
    of the secret, there are two secrets, and both sign. If there is no secret, the headers contain
    only the id and the time.

    `now` is the Unix time of this attempt. Receivers refuse a time that is minutes old.
    """
    moment = str(int(now))
    plain = (("webhook-id", message_id), ("webhook-timestamp", moment))
    if not secrets:
        return plain
    content = f"{message_id}.{moment}.".encode() + body
    signatures = " ".join(_sign(secret, content) for secret in secrets)
    return (*plain, ("webhook-signature", signatures))


def _sign(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
