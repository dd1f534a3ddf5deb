"""Compact form of a minisign signature: its four lines without the unauthenticated texts
(jedisct1.github.io/minisign, "Signature format").
"""

from __future__ import annotations

import base64

from fieldagent.system.lazy_named_tuple import NamedTuple

FIRST_BYTES, SECOND_BYTES = 74, 64
"""Sizes in bytes of two parts: algorithm, key and signature together, and the signature of the
trusted comment."""
TRUSTED_COMMENT = "trusted comment: "


class SignatureParts(NamedTuple):
    first: bytes
    comment: str
    """The trusted comment, one line."""
    second: bytes

    def format_signature(self, comment: str) -> str:
        """Return the signature in the form of minisign's file, with `comment` as the untrusted
        comment.
        """
        first, second = (base64.b64encode(each).decode() for each in (self.first, self.second))
        return f"untrusted comment: {comment}\n{first}\n{TRUSTED_COMMENT}{self.comment}\n{second}\n"

    def has_valid_form(self) -> bool:
        """Return True if the two byte strings have the sizes of a signature, and the comment is one
        line. The signature is not verified.
        """
        is_line = "\n" not in self.comment and "\r" not in self.comment
        return is_line and (len(self.first), len(self.second)) == (FIRST_BYTES, SECOND_BYTES)


def split_signature(text: str) -> SignatureParts:
    """Return the parts of minisign's file. Raises ValueError if it is invalid."""
    _, first, comment, second = text.splitlines()[:4]
    parts = SignatureParts(
        base64.b64decode(first), comment.removeprefix(TRUSTED_COMMENT), base64.b64decode(second)
    )
    if not parts.has_valid_form():
        raise ValueError("a minisign signature has another size")
    return parts
