"""Pictures on the kit's page with a 9704, which carries a whole picture in one message."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest

from fieldagent.package.picture import find_picture_type
from tests.agent.test_page_picture import photograph
from tests.browser import faults, page
from tests.processes import Agent, agent, imt_sky, until

pytestmark = pytest.mark.full


def is_ready(kit: Agent) -> bool:
    status = kit.call("GET", "/api/status").body["channels"]["Satellite"]
    return bool(status["state"] == "ready")


def test_photograph_is_sent_in_the_size_chosen_by_cost(tmp_path: Path, chromium: Any) -> None:
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
            assert find_picture_type(sent) == "image/webp"
            assert len(sent) > costs[0], "of the larger size"
            (tmp_path / "back.webp").write_bytes(sent)
            above.type(f"mt-data @{tmp_path / 'back.webp'}")
            image = shown.locator(".entry.received img.picture")
            image.wait_for()
            until(lambda: image.evaluate("it => it.complete && it.naturalWidth") == 640)
            assert faults(shown) == []


def test_received_svg_is_not_shown_as_a_picture(tmp_path: Path, chromium: Any) -> None:
    settings = {"satellite-modem": "imt", "inbound-hook": "true"}
    with imt_sky(tmp_path) as above, agent(tmp_path, settings) as kit:
        (tmp_path / "page.svg").write_text("<svg onload='document.title=1'></svg>")
        until(lambda: is_ready(kit))
        above.type(f"mt-data @{tmp_path / 'page.svg'}")
        with page(chromium, kit.port) as shown:
            shown.locator(".entry.received").wait_for()
            assert shown.locator(".entry.received img").count() == 0
