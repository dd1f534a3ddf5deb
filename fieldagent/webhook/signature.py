"""Standard Webhooks 1.0.0: the three headers that let a receiver tell ours from anybody's; pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"


def headers(
    message_id: str, body: bytes, *, now: float, secrets: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """`secrets` are `whsec_` and base64; while one is being replaced, both sign.

    `now` is the Unix time of this attempt; receivers refuse what is minutes old.
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
