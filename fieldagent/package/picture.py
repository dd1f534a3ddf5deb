"""Detects pictures in data by their first bytes."""

from __future__ import annotations

_AVIF = (b"avif", b"avis")


def find_picture_type(content: bytes) -> str | None:
    """Return the media type of a picture that browsers can show, or None for any other data."""
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if content[4:8] == b"ftyp" and content[8:12] in _AVIF:
        return "image/avif"
    return None
