"""RockBLOCK's web services (Ground Control): the webhook for MO messages, and the HTTP request for
MT messages.

Source: docs.groundcontrol.com, RockBLOCK web services.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.jwt import PublicKey, parse_public_key, verify

ISSUER = "Rock 7"
PUBLIC_KEY = parse_public_key(
    """-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAlaWAVJfNWC4XfnRx96p9
cztBcdQV6l8aKmzAlZdpEcQR6MSPzlgvihaUHNJgKm8t5ShR3jcDXIOI7er30cIN
4/9aVFMe0LWZClUGgCSLc3rrMD4FzgOJ4ibD8scVyER/sirRzf5/dswJedEiMte1
ElMQy2M6IWBACry9u12kIqG0HrhaQOzc6Tr8pHUWTKft3xwGpxCkV+K1N+9HCKFc
cbwb8okRP6FFAMm5sBbw4yAu39IVvcSL43Tucaa79FzOmfGs5mMvQfvO1ua7cOLK
fAwkhxEjirC0/RYX7Wio5yL6jmykAHJqFG2HT0uyjjrQWMtoGgwv9cIcI7xbsDX6
owIDAQAB
-----END PUBLIC KEY-----"""
)
"""Public key for RockBLOCK's signatures, as published."""
CLOCK_AHEAD_MAX_S = 300.0
"""Maximum seconds that RockBLOCK's clock may be ahead of ours."""
AGE_MAX_S = 7 * 86_400.0
"""Seconds for which RockBLOCK delivers a message again."""
BOUND_MEMBERS = ("imei", "momsn", "data")
"""Members that must be equal in the token and in the form. Otherwise a token could authenticate any
form."""

POSITION = ("iridium_latitude", "iridium_longitude", "iridium_cep")


@dataclass(frozen=True, slots=True)
class RockBlockMo:
    imei: str
    """IMEI. Empty if the form has no IMEI of 15 digits."""
    data: bytes
    """The message. Empty for a mailbox check."""
    faults: tuple[str, ...] = ()
    """Reasons why `data` is stored but not processed."""


def parse_mobile_originated(token_members: Mapping[str, Any], *, now: float) -> RockBlockMo:
    """Parse the result of `verify_token`. RockBLOCK has signed these members, so `data` is kept
    even if other members have faults. `now` is Unix time.
    """
    faults = []
    imei = str(token_members.get("imei", ""))
    if len(imei) != 15 or not imei.isascii() or not imei.isdigit():
        faults.append("imei has not 15 digits")
        imei = ""
    text = str(token_members.get("data", ""))
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = text.encode()
        faults.append("data is not hexadecimal")
    issued = token_members.get("iat")
    if not isinstance(issued, int) or not now - AGE_MAX_S <= issued <= now + CLOCK_AHEAD_MAX_S:
        faults.append(f"the token has another time ({str(issued)[:20]}): check the hub's clock")
    return RockBlockMo(imei, data, tuple(faults))


def verify_token(form: Mapping[str, Any], key: PublicKey) -> Mapping[str, Any]:
    """Verify the token in a form, and return the members that RockBLOCK has signed, if they match
    the form. Raises RemoteProtocolError if the token is invalid or differs from the form.
    """
    claims = verify(str(form.get("JWT", "")), key)
    if claims.get("iss") != ISSUER:
        raise RemoteProtocolError("the token is not from RockBLOCK")
    for name in BOUND_MEMBERS:
        if str(claims.get(name, "")) != str(form.get(name, "")):
            raise RemoteProtocolError(f"the token is for another {name}")
    return claims


def parse_position(token_members: Mapping[str, Any]) -> tuple[float, float, int] | None:
    """Return the signed latitude, longitude and CEP in kilometres, or None if they are missing or
    impossible.
    """
    try:
        latitude, longitude, radius = (float(str(token_members[name])) for name in POSITION)
    except (KeyError, ValueError):
        return None
    possible = abs(latitude) <= 90 and abs(longitude) <= 180 and 0 < radius < 100_000
    return (latitude, longitude, round(radius)) if possible else None


def make_mobile_terminated_form(
    imei: str, username: str, password: str, body: bytes
) -> dict[str, str]:
    """Return the form of an HTTP request with an MT message."""
    return {"imei": imei, "username": username, "password": password, "data": body.hex()}


@dataclass(frozen=True, slots=True)
class RockBlockAnswer:
    """RockBLOCK's response to a request. If `code` is None, the message was accepted, and `text` is
    its number at RockBLOCK.
    """

    code: int | None
    text: str


def parse_answer(body: bytes) -> RockBlockAnswer:
    """Parse `OK,id` or `FAILED,code,text`. Raises RemoteProtocolError for malformed data."""
    text = body.decode("utf-8", "replace").strip()
    first_word, _, rest = text.partition(",")
    if first_word == "OK":
        return RockBlockAnswer(None, rest.strip())
    code, _, reason = rest.partition(",")
    if first_word != "FAILED" or not re.fullmatch(r"\s*[0-9]{1,9}\s*", code, re.ASCII):
        raise RemoteProtocolError(f"not an answer of RockBLOCK's: {text[:60]!r}")
    return RockBlockAnswer(int(code), reason.strip())
