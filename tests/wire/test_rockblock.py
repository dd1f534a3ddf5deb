"""RockBLOCK's forms, answers and tokens: a published token, tokens signed by a third-party library,
and forgeries.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.jwt import PublicKey, parse_public_key, verify
from fieldagent.wire.rockblock import (
    AGE_MAX_S,
    CLOCK_AHEAD_MAX_S,
    PUBLIC_KEY,
    RockBlockAnswer,
    RockBlockMo,
    make_mobile_terminated_form,
    parse_answer,
    parse_mobile_originated,
    verify_token,
)

NOW = 1_790_000_000
THEIRS = (
    "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJSb2NrIDciLCJpYXQiOjE2Nzg3ODUzMDgsImFsdCI6IjAiLCJhdCI6IjIwMjMt"
    "MDMtMTRUMDk6MTA6MDFaIiwiYXZlcmFnZUNvZyI6IjMyOCIsImF2ZXJhZ2VTb2ciOiIwLjAiLCJiYXR0ZXJ5IjoiOTgi"
    "LCJjb2ciOiIzMjgiLCJkZXZpY2VfdHlwZSI6IkdSSUZGSU4iLCJpZCI6ImVKd2d6ZHBYVnhOUm5vcHJaZXdiV01EbFFH"
    "TFB2QWJrIiwiaW1laSI6IjMwMDQzNDA2MjkyOTU0MCIsImxhdCI6IjUxLjQ5NTQwIiwibG9uIjoiLTMuMTcwNDAiLCJt"
    "b21zbiI6IjcwMTU0ODcxIiwicG93ZXIiOiJ0cnVlIiwic2VyaWFsIjoiMTAwMDE1Iiwic29nIjoiMC4wIiwic291cmNl"
    "IjoiR1BTIiwidGVtcCI6IjAuMCIsInRyYW5zbWl0X3RpbWUiOiIyMDIzLTAzLTE0VDA5OjE1OjA0WiIsInRyYW5zcG9y"
    "dCI6IkdQUlMiLCJ0cmlnZ2VyIjoiQlVSU1QiLCJ0eEF0IjoiMjAyMy0wMy0xNFQwOToxNTowNFoifQ.g4AMhUDwaK-WK"
    "aaITOKMtIu8lVtsEBfJ-00ytW-c0jyGUFxNW0259Dj9JcR34NaIai-ysSTVzqXBdROsZAiZS0oTSRum9l56JwZQTE0-Zx"
    "5yUUO8AOsUqXPjsSg2lSgsnSMTiQHXOzhydL9GIkmiEVdwANeaB24AuP45__zUwjhwniUfi-Z2RTG8J22GqnQ9Q_w9Z86"
    "1A0Bos7LmJEymbmcLOiDDdzfYxvVWE6GSm2y8ypBZEqhI0byNphZ5adIFM19iyqng4MVpQe0Uh9Jc49RR_IAjte3AMS4Y"
    "82lO76sM90Tu3-3Jwhj3Iq_NGpfd4735Bl-b5FR5oePP40mV3Q"
)
"""A token that they publish as an example."""

PRIVATE = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
KEY_PEM = (
    PRIVATE.public_key()
    .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    .decode()
)
KEY = parse_public_key(KEY_PEM)
FORM = {"imei": "300234010753370", "serial": "12345", "momsn": "7", "data": "48656c6c6f"}


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def token(claims: Any, *, head: Any = None, algorithm: hashes.HashAlgorithm | None = None) -> str:
    signed = f"{part(head or {'alg': 'RS256'})}.{part(claims)}"
    signature = PRIVATE.sign(signed.encode(), padding.PKCS1v15(), algorithm or hashes.SHA256())
    return f"{signed}.{part(signature)}"


def claims(**changed: Any) -> dict[str, Any]:
    return {"iss": "Rock 7", "iat": NOW, **FORM, **changed}


def test_published_token_is_verified_with_the_published_key() -> None:
    assert verify(THEIRS, PUBLIC_KEY)["imei"] == "300434062929540"


@pytest.mark.parametrize("at", range(0, len(THEIRS), 37))
def test_altered_token_is_refused(at: int) -> None:
    other = "A" if THEIRS[at] != "A" else "B"
    with pytest.raises(RemoteProtocolError):
        verify(THEIRS[:at] + other + THEIRS[at + 1 :], PUBLIC_KEY)


def test_token_that_matches_its_form_is_accepted() -> None:
    assert verify_token({**FORM, "JWT": token(claims())}, KEY) == claims()


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("", "not a JSON Web Token"),
        ("a.b", "not a JSON Web Token"),
        ("é.é.é", "not a JSON Web Token"),
        (f"{part({'alg': 'none'})}.{part(claims())}.", "signed with 'none'"),
        (token(claims(), head={"alg": "HS256"}), "signed with 'HS256'"),
        (token(claims(), algorithm=hashes.SHA512()), "signature is wrong"),
        (token(claims()).rpartition(".")[0] + "." + part(b"x" * 256), "signature"),
        (token(claims()).rpartition(".")[0] + "." + part(b"\xff" * 256), "another length"),
        (token(claims()).rpartition(".")[0] + "." + part(b"x"), "another length"),
        (token([1]), "holds no claims"),
        (token(claims(iss="Rock 8")), "not from RockBLOCK"),
        (token(claims(imei="300234010753371")), "another imei"),
        (token(claims(momsn="8")), "another momsn"),
        (token(claims(data="00")), "another data"),
        (token({"iss": "Rock 7", "iat": NOW}), "another imei"),
    ],
)
def test_every_forged_token_is_refused(raw: str, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        verify_token({**FORM, "JWT": raw}, KEY)


@pytest.mark.parametrize(
    "pem", ["", "x", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"]
)
def test_invalid_public_key_raises(pem: str) -> None:
    with pytest.raises(LocalProtocolError, match="not a public key"):
        parse_public_key(pem)


@given(st.text(max_size=60))
def test_random_bytes_are_no_token(raw: str) -> None:
    with pytest.raises(RemoteProtocolError):
        verify(raw, PublicKey(2**2047 + 1, 65_537))


def test_mo_message_is_read_from_the_token() -> None:
    assert parse_mobile_originated(claims(), now=NOW) == RockBlockMo("300234010753370", b"Hello")
    assert parse_mobile_originated(claims(data=""), now=NOW) == RockBlockMo(FORM["imei"], b"")


OTHER_TIME = "has another time"


@pytest.mark.parametrize(
    ("changed", "imei", "data", "why"),
    [
        ({"imei": "1"}, "", b"Hello", "imei has not 15 digits"),
        ({"imei": "٣" * 15}, "", b"Hello", "imei has not 15 digits"),
        ({"data": "zz"}, FORM["imei"], b"zz", "not hexadecimal"),
        ({"data": "4865a"}, FORM["imei"], b"4865a", "not hexadecimal"),
        ({"iat": NOW + CLOCK_AHEAD_MAX_S + 1}, FORM["imei"], b"Hello", OTHER_TIME),
        ({"iat": int(NOW - AGE_MAX_S - 1)}, FORM["imei"], b"Hello", OTHER_TIME),
        ({"iat": "today"}, FORM["imei"], b"Hello", OTHER_TIME),
        ({"iat": None, "imei": "1"}, "", b"Hello", OTHER_TIME),
        ({"momsn": "x"}, FORM["imei"], b"Hello", ""),
    ],
)
def test_data_of_a_faulty_form_is_kept_with_the_reason(
    changed: dict[str, Any], imei: str, data: bytes, why: str
) -> None:
    read = parse_mobile_originated(claims(**changed), now=NOW)
    assert (read.imei, read.data) == (imei, data)
    assert why in "; ".join(read.faults)
    assert bool(why) == bool(read.faults)


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"OK,12345\n", RockBlockAnswer(None, "12345")),
        (b"FAILED,10,Invalid login credentials", RockBlockAnswer(10, "Invalid login credentials")),
        (b"FAILED,99,System error, try again", RockBlockAnswer(99, "System error, try again")),
    ],
)
def test_rockblock_answer_is_read(body: bytes, answer: RockBlockAnswer) -> None:
    assert parse_answer(body) == answer


@given(st.binary(max_size=60))
def test_any_answer_is_read_or_refused(body: bytes) -> None:
    with suppress(RemoteProtocolError):
        parse_answer(body)


def test_mt_form_contains_the_required_members() -> None:
    assert make_mobile_terminated_form("300234010753370", "me", "secret", b"Hi") == {
        "imei": "300234010753370",
        "username": "me",
        "password": "secret",
        "data": "4869",
    }
