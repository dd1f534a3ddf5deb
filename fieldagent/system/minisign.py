"""Verifies signatures of files in minisign's format (jedisct1.github.io/minisign, "Signature
format").

A signature has two comments. The trusted comment is also signed. OpenSSL computes Ed25519 (RFC
8032).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from fieldagent.system.lazy_named_tuple import NamedTuple

PLAIN, HASHED = b"Ed", b"ED"
"""Kinds of signed data: the file, or its BLAKE2b-512 (the default since minisign 0.11)."""
COMMENT = "trusted comment: "
DER = bytes.fromhex("302a300506032b6570032100")
"""DER prefix of the 32 bytes of a public key (RFC 8410, section 4)."""


class NotSigned(Exception):
    """Error: the signature is invalid or unreadable."""


class TrustedKey(NamedTuple):
    id: bytes
    """Id of the key, 8 bytes."""
    key: bytes
    """Public key, 32 bytes."""

    def format_id(self) -> str:
        """Return the key's id as minisign shows it: a number in hexadecimal, in capitals."""
        return f"{int.from_bytes(self.id, 'little'):X}"


class Signature(NamedTuple):
    algorithm: bytes
    key: bytes
    """Id of the signing key, 8 bytes."""
    of_file: bytes
    comment: str
    of_comment: bytes


def parse_keys(text: str) -> list[TrustedKey]:
    """Parse a file with one or more keys in the form of `minisign -G`. Other lines are comments.
    Raises NotSigned if there is no key.
    """
    keys = []
    for line in text.splitlines():
        raw = _decode(line)
        if len(raw) == 42 and raw[:2] == PLAIN:
            keys.append(TrustedKey(raw[2:10], raw[10:]))
    if not keys:
        raise NotSigned("the file does not contain a minisign public key")
    return keys


def parse_signature(text: str) -> Signature:
    """Parse a signature file. Raises NotSigned if the file has another form."""
    lines = text.splitlines()
    if len(lines) < 4 or not lines[2].startswith(COMMENT):
        raise NotSigned("the signature is not in minisign's format")
    raw, of_comment = _decode(lines[1]), _decode(lines[3])
    if len(raw) != 74 or raw[:2] not in (PLAIN, HASHED) or len(of_comment) != 64:
        raise NotSigned("the signature is not in minisign's format")
    return Signature(raw[:2], raw[2:10], raw[10:], lines[2].removeprefix(COMMENT), of_comment)


def verify(content: bytes, signature: Signature, keys: Iterable[TrustedKey]) -> str:
    """Verify the signature and return the trusted comment. Raises NotSigned, or OSError if there is
    no `openssl`.
    """
    key = _find_key(signature, keys)
    signed = content
    if signature.algorithm == HASHED:
        signed = hashlib.blake2b(content).digest()
    if not _is_valid(signed, signature.of_file, key):
        raise NotSigned("the file is not the one that was signed: it was changed, or cut short")
    return verify_comment(signature, [key])


def verify_comment(signature: Signature, keys: Iterable[TrustedKey]) -> str:
    """Verify the trusted comment of a signature, and return it. The signed file is not needed for
    this. Raises NotSigned, or OSError if there is no `openssl`.
    """
    signed = signature.of_file + signature.comment.encode()
    if not _is_valid(signed, signature.of_comment, _find_key(signature, keys)):
        raise NotSigned("the signature's comment was changed")
    return signature.comment


def _find_key(signature: Signature, keys: Iterable[TrustedKey]) -> TrustedKey:
    """Return the trusted key whose id is in the signature. Raises NotSigned if there is none. The
    signature is not verified.
    """
    trusted_keys = list(keys)
    key = next((each for each in trusted_keys if each.id == signature.key), None)
    if key is None:
        signing_key = TrustedKey(signature.key, b"").format_id()
        trusted = ", ".join(each.format_id() for each in trusted_keys)
        raise NotSigned(
            f"the signature is from key {signing_key}, but this machine trusts only {trusted}"
        )
    return key


def _is_valid(signed_data: bytes, signature: bytes, key: TrustedKey) -> bool:
    pem = base64.b64encode(DER + key.key).decode()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "key").write_text(
            f"-----BEGIN PUBLIC KEY-----\n{pem}\n-----END PUBLIC KEY-----\n"
        )
        (folder / "signature").write_bytes(signature)
        (folder / "signed").write_bytes(signed_data)
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "key", "-rawin"]
        process = subprocess.run(
            [*command, "-in", "signed", "-sigfile", "signature"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
        )
    return process.returncode == 0


def _decode(line: str) -> bytes:
    try:
        return base64.b64decode(line.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""
