"""Signatures of the real minisign, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldagent.system.minisign import NotSigned, TrustedKey, parse_keys, parse_signature, verify
from tests.signer import Signer

CONTENT = b"a program\n" * 1000


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path / "keys")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "program.pyz"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("how", [(), ("-l",)], ids=["hashed", "legacy"])
def test_signature_is_verified_and_returns_its_comment(
    signer: Signer, file: Path, how: tuple[str, ...]
) -> None:
    signature = parse_signature(signer.sign(file, "-t", "0.2.0 of today", *how))
    assert verify(CONTENT, signature, parse_keys(signer.public)) == "0.2.0 of today"


def test_any_of_several_trusted_keys_may_sign(signer: Signer, file: Path, tmp_path: Path) -> None:
    other = Signer(tmp_path / "other")
    keys = parse_keys(f"{other.public}\n{signer.public}")
    assert verify(CONTENT, parse_signature(signer.sign(file)), keys)


@pytest.mark.parametrize(
    ("content", "old", "new", "reason"),
    [
        (CONTENT[:-1], "", "", "changed, or cut short"),
        (CONTENT[:-1] + b"!", "", "", "changed, or cut short"),
        (CONTENT, "0.2.0", "9.9.9", "comment was changed"),
        (CONTENT, "trusted comment: ", "", "not in minisign's format"),
        (CONTENT, "\nR", "\nA", "not in minisign's format"),
    ],
)
def test_altered_content_or_signature_is_refused(
    signer: Signer, file: Path, content: bytes, old: str, new: str, reason: str
) -> None:
    text = signer.sign(file, "-t", "0.2.0")
    assert old in text
    with pytest.raises(NotSigned, match=reason):
        verify(content, parse_signature(text.replace(old, new)), parse_keys(signer.public))


def test_signature_of_an_unknown_key_is_refused_with_both_ids(
    signer: Signer, file: Path, tmp_path: Path
) -> None:
    other = Signer(tmp_path / "other")
    trusted = parse_keys(signer.public)
    with pytest.raises(NotSigned) as refused:
        verify(CONTENT, parse_signature(other.sign(file)), trusted)
    assert trusted[0].format_id() in str(refused.value)
    assert trusted[0].format_id() in signer.public
    assert parse_keys(other.public)[0].format_id() in str(refused.value)


def test_key_id_is_formatted_as_by_minisign() -> None:
    """minisign prints a number without leading zeros."""
    assert TrustedKey(bytes.fromhex("d7a5fd96c8d45301"), bytes(32)).format_id() == "153D4C896FDA5D7"


@pytest.mark.parametrize("text", ["", "untrusted comment: x\nAAAA\n", "-----BEGIN PUBLIC KEY-----"])
def test_invalid_public_key_is_refused(text: str) -> None:
    with pytest.raises(NotSigned, match="not contain a minisign public key"):
        parse_keys(text)
