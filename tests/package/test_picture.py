from __future__ import annotations

import pytest

from fieldagent.package.picture import find_picture_type


@pytest.mark.parametrize(
    ("begins", "kind"),
    [
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        (b"\x89PNG\r\n\x1a\n\0\0", "image/png"),
        (b"GIF89a\1", "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (b"\0\0\0\x20ftypavif\0", "image/avif"),
        (b"RIFF\x10\0\0\0WAVE", None),
        (b"<svg onload=alert(1)>", None),
        (b"", None),
        (b"\xff\xd8", None),
    ],
)
def test_picture_type_is_recognised_by_its_first_bytes(begins: bytes, kind: str | None) -> None:
    assert find_picture_type(begins) == kind
