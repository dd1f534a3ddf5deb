"""The list of kits in range on the kit's page, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser import faults, page
from tests.extensions.lab.simulator.test_simulate_node import kit, nodes
from tests.processes import until


@pytest.mark.full
def test_kits_in_range_are_listed_with_missing_items(chromium: Any, tmp_path: Path) -> None:
    """Ben's kit is off. Cid's kit has the items that Ben's kit misses."""
    with nodes(tmp_path, "--nodes", "3", "--seed", "7"), kit(tmp_path, 1) as ada:
        with kit(tmp_path, 2) as ben:
            ben.post("here is Ben")
            until(lambda: ada.call("GET", "/api/neighbours").body["neighbours"])
            ben.stop()
        with kit(tmp_path, 3) as cid:
            cid.post("here is Cid")
            sent = ada.post("the hut is full").body
            assert sent["status"] == "Delivered"

            def missing_items() -> dict[int, list[int]]:
                listed = ada.call("GET", "/api/neighbours").body["neighbours"]
                return {each["station"]: each["missing"] for each in listed}

            until(lambda: missing_items() == {2: [sent["id"]], 3: []})
            with page(chromium, ada.port) as shown:
                listed = shown.locator("[aria-label='Kits in range'] li")
                listed.nth(1).wait_for()
                (neighbour,) = [text for text in listed.all_inner_texts() if "Kit 2" in text]
                assert f"missing: {sent['id']}" in neighbour and "-80 dBm" in neighbour
                assert "direct · version 0.1.0" in neighbour
                assert faults(shown) == []
