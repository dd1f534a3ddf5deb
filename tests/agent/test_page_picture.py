"""A photograph on the kit's page: it is scaled in the browser, its cost is shown before it goes,
and an incoming one is shown as a picture.
"""

from __future__ import annotations

import base64
import random
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from fieldagent.package.picture import picture_type
from tests.browser import faults, page
from tests.processes import Agent, agent, imt_sky, until

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


def is_ready(kit: Agent) -> bool:
    status = kit.call("GET", "/api/status").body["channels"]["Satellite"]
    return bool(status["state"] == "ready")


def test_a_photograph_goes_in_the_size_that_is_chosen_by_its_cost(
    tmp_path: Path, chromium: Any
) -> None:
    file = tmp_path / "camp.png"
    file.write_bytes(photograph(1200, 800))
    settings = {"satellite-modem": "imt", "inbound-hook": "true"}
    with imt_sky(tmp_path) as above, agent(tmp_path, settings) as kit:
        until(lambda: is_ready(kit))
        with page(chromium, kit.port) as shown:
            shown.locator("label:has([value=picture])").click()
            shown.locator("#field-picture").set_input_files(str(file))
            sizes = shown.locator("#sizes label")
            until(lambda: sizes.count() == 4)
            texts = sizes.all_inner_texts()
            assert [int(re.findall(r"(\d+) pixels", each)[0]) for each in texts] == [
                320,
                640,
                1024,
                1200,
            ]
            costs = [int(re.findall(r"Satellite: 1 part, (\d+) paid bytes", texts[0])[0])]
            assert 1_000 < costs[0] < 30_000
            sizes.nth(1).click()
            shown.locator("#submit").click()
            above.expect("MO 1 from")
            until(lambda: kit.call("GET", "/api/package/1").body["status"] == "Delivered")
            line = above.expect("data {")
            sent = base64.b64decode(re.findall(r'"payload": "([^"]+)"', line)[0])
            assert picture_type(sent) == "image/webp"
            assert len(sent) > costs[0], "of the larger size"
            (tmp_path / "back.webp").write_bytes(sent)
            above.type(f"mt-data @{tmp_path / 'back.webp'}")
            image = shown.locator(".entry.received img.picture")
            image.wait_for()
            until(lambda: image.evaluate("it => it.complete && it.naturalWidth") == 640)
            assert faults(shown) == []


def test_what_is_no_picture_is_shown_as_none(tmp_path: Path, chromium: Any) -> None:
    settings = {"satellite-modem": "imt", "inbound-hook": "true"}
    with imt_sky(tmp_path) as above, agent(tmp_path, settings) as kit:
        (tmp_path / "page.svg").write_text("<svg onload='document.title=1'></svg>")
        until(lambda: is_ready(kit))
        above.type(f"mt-data @{tmp_path / 'page.svg'}")
        with page(chromium, kit.port) as shown:
            shown.locator(".entry.received").wait_for()
            assert shown.locator(".entry.received img").count() == 0


def test_a_picture_that_another_took_the_place_of_is_not_sent(
    tmp_path: Path, chromium: Any
) -> None:
    """A result of the first picture that is late, as for a large one on an old phone."""
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
