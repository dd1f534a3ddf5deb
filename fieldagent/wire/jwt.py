"""Verifies JSON Web Tokens with RS256 signatures (RFC 7515, RFC 7519, RFC 8017 8.2.2).

PyJWT is not used, because for RS256 it needs `cryptography`, whose native code cannot be in a
zipapp. The verification needs only one modular power with a public exponent, and no secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Any

from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError

_DIGEST_INFO = bytes.fromhex("3031300d060960864801650304020105000420")
"""DigestInfo of SHA-256: RFC 8017 section 9.2, note 1."""
_RSA = bytes.fromhex("300d06092a864886f70d0101010500")
"""AlgorithmIdentifier of rsaEncryption, RFC 3279 section 2.3.1."""

INTEGER, BIT_STRING, SEQUENCE = 0x02, 0x03, 0x30


@dataclass(frozen=True, slots=True)
class PublicKey:
    modulus: int
    exponent: int

    @property
    def size(self) -> int:
        """Return the length of a signature in bytes."""
        return (self.modulus.bit_length() + 7) // 8


def parse_public_key(pem: str) -> PublicKey:
    """Parse a SubjectPublicKeyInfo of an RSA key (RFC 7468 section 13). Raises LocalProtocolError
    if the text is not such a key.
    """
    lines = [line.strip() for line in pem.strip().splitlines()]
    try:
        if lines[0] != "-----BEGIN PUBLIC KEY-----" or lines[-1] != "-----END PUBLIC KEY-----":
            raise ValueError("it does not begin and end as a PUBLIC KEY")
        outer, rest = _split_der_element(
            base64.b64decode("".join(lines[1:-1]), validate=True), SEQUENCE
        )
        if rest or not outer.startswith(_RSA):
            raise ValueError("it is not an RSA key")
        bits, _ = _split_der_element(outer[len(_RSA) :], BIT_STRING)
        pair, _ = _split_der_element(bits[1:], SEQUENCE)
        modulus, rest = _split_der_element(pair, INTEGER)
        exponent, _ = _split_der_element(rest, INTEGER)
    except (ValueError, IndexError) as error:
        raise LocalProtocolError(f"not a public key in PEM: {error}") from None
    return PublicKey(int.from_bytes(modulus, "big"), int.from_bytes(exponent, "big"))


def _split_der_element(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """Return the content of the first DER element in `data`, and the rest."""
    if data[0] != tag:
        raise ValueError(f"DER element {data[0]:#04x} where {tag:#04x} belongs")
    length, at = data[1], 2
    if length & 0x80:
        at += length & 0x7F
        length = int.from_bytes(data[2:at], "big")
    if len(data) < at + length:
        raise ValueError("DER is cut short")
    return data[at : at + length], data[at + length :]


def verify(token: str, key: PublicKey) -> dict[str, Any]:
    """Return the claims of a token that `key` has signed. Raises RemoteProtocolError if the token
    is malformed or the signature is wrong.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise RemoteProtocolError(f"not a JSON Web Token: that has three parts, not {len(parts)}")
    head, claims, signature = parts
    try:
        algorithm = _decode_document("head", head)["alg"]
        signed = int.from_bytes(_decode(signature), "big")
        document = _decode_document("claims", claims)
    except (KeyError, TypeError):
        raise RemoteProtocolError("not a JSON Web Token: its head names no algorithm") from None
    except ValueError as error:
        raise RemoteProtocolError(f"not a JSON Web Token: {error}") from None
    if algorithm != "RS256":
        algorithm_name = str(algorithm)[:20]
        raise RemoteProtocolError(f"the token is signed with {algorithm_name!r}, not with RS256")
    if len(_decode(signature)) != key.size or signed >= key.modulus:
        raise RemoteProtocolError("the token's signature has another length")
    block = pow(signed, key.exponent, key.modulus).to_bytes(key.size, "big")
    if not hmac.compare_digest(block, _encode_padded(f"{head}.{claims}".encode(), key.size)):
        raise RemoteProtocolError("the token's signature is wrong")
    if not isinstance(document, dict):
        raise RemoteProtocolError("the token holds no claims")
    return document


def _decode_document(name: str, part: str) -> Any:
    """Decode one part of a token. Errors contain its `name`. Raises ValueError for malformed
    data.
    """
    try:
        return load_document(_decode(part))
    except NotJson as error:
        raise ValueError(f"{name}: {error}") from None


def _encode_padded(message: bytes, size: int) -> bytes:
    """Return the EMSA-PKCS1-v1_5 encoding, RFC 8017 section 9.2. The verifier compares the whole
    encoding and parses nothing.
    """
    digest = _DIGEST_INFO + hashlib.sha256(message).digest()
    return b"\x00\x01" + b"\xff" * (size - len(digest) - 3) + b"\x00" + digest


def _decode(part: str) -> bytes:
    """Decode base64url without padding, RFC 7515 section 2. Raises ValueError for malformed
    data.
    """
    if not part.isascii():
        raise ValueError("it is not ASCII")
    try:
        padded = part + "=" * (-len(part) % 4)
        return base64.b64decode(padded.translate(_URL_SAFE), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


_URL_SAFE = str.maketrans("-_", "+/")
