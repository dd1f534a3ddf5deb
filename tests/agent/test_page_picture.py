"""A photograph on the kit's page: it is scaled in the browser, its cost is shown before it goes,
and an incoming one is shown as a picture.
"""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.browser import page
from tests.processes import agent, until

pytestmark = pytest.mark.full


def photograph(width: int, height: int) -> bytes:
    """Return a PNG with some content."""

    def chunk(name: bytes, content: bytes) -> bytes:
        guard = zlib.crc32(name + content).to_bytes(4)
        return len(content).to_bytes(4) + name + content + guard

    chance = random.Random(1)
    rows = []
    for y in range(height):
        row = bytearray(b"\0")
        for x in range(width):
            row += bytes([(x * y // 97) % 256, (x + y) % 256, chance.randrange(64)])
        rows.append(bytes(row))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(rows))
    chunks = chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def test_late_result_of_replaced_picture_is_ignored(tmp_path: Path, chromium: Any) -> None:
    """The result of the first picture is late, as for a large picture on an old phone."""
    sizes_of = {"large": (1200, 800), "small": (200, 100)}
    for name, (width, height) in sizes_of.items():
        (tmp_path / f"{name}.png").write_bytes(photograph(width, height))
    with agent(tmp_path, {"satellite-port": None}) as kit, page(chromium, kit.port) as shown:
        shown.locator("label:has([value=picture])").click()
        held: list[Any] = []
        shown.route("**/api/package/cost", lambda route: held.append(route), times=1)
        shown.locator("#field-picture").set_input_files(str(tmp_path / "large.png"))
        until(lambda: shown.title() and len(held) == 1)
        shown.locator("#field-picture").set_input_files(str(tmp_path / "small.png"))
        sizes = shown.locator("#sizes label")
        sizes.first.wait_for()
        with shown.expect_response("**/api/package/cost"):
            held.pop().continue_()
        shown.evaluate("fetch('/api/status').then(told => told.text())")
        (text,) = sizes.all_inner_texts()
        assert text.startswith("200 pixels") and sizes.locator(":checked").count() == 1
