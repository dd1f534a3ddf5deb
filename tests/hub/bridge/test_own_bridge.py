"""The third-party bridge of docs/how-to/add-a-bridge.md in a real hub."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fieldagent import extensions
from fieldagent.hub.settings import parse_settings
from fieldagent.package.package import Message
from fieldagent.system.properties import InvalidSettings
from fieldagent.wire.envelope import Entry, encode
from tests import offline
from tests.hub.test_journey import folder
from tests.processes import administer, hub, until

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
EXAMPLE = (EXAMPLES / "folder_bridge.py").read_text()
PAGE = (ROOT / "docs/how-to/add-a-bridge.md").read_text()
IMEI = "300234010000001"


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_how_to_page_quotes_the_example_code(block: str) -> None:
    assert block in EXAMPLE


def test_third_party_bridge_exchanges_items_both_ways(tmp_path: Path) -> None:
    """A kit's message becomes a file once, also after a restart. A file becomes an item, which no
    bridge sends out again. An unusable file is kept under another name.
    """
    board, courier = folder(tmp_path / "board"), folder(tmp_path / "courier")
    home, database = folder(tmp_path / "hub"), str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    ada = administer(database, "user", "add", "Ada")["id"]
    program = administer(database, "user", "add", "Board", "--type", "Integration")["id"]
    administer(database, "device", "add", "kit-ada", "--user", "Ada", "--imei", IMEI)
    settings = {
        "database": database,
        "extensions": "folder_bridge:EXTENSION",
        "board-folder": str(board),
        "board-workspace": "Alps",
        "board-user": str(program),
        "operators": "folder_operator:KIND",
        "folder-path": str(courier),
    }

    def put(name: str, content: dict[str, Any]) -> None:
        (board / "new").write_text(json.dumps(content))
        (board / "new").rename(board / name)

    def items() -> list[dict[str, Any]]:
        return [json.loads(each.read_text()) for each in sorted(board.glob("*.item"))]

    path = offline.path(str(EXAMPLES))
    with hub(home, settings, PYTHONPATH=path):
        put("1.push", {"targetUserId": str(ada), "message": {"content": "come down"}})
        until(lambda: not [*board.glob("*.push")])
        (courier / f"{IMEI}-1.mo").write_bytes(encode([Entry(9, Message("on my way"))]))
        until(items)
        (item,) = items()
        assert (item["device"], item["sender"]["name"]) == ("kit-ada", "Ada")
        assert item["event"]["content"] == "on my way"
        alarm = {"message": {"content": "help"}, "priority": 100, "targetUserId": str(ada)}
        put("2.push", alarm)
        put("3.push", {"targetUserId": "4711", "message": {"content": "to nobody"}})
        (board / "4.push").write_text("no JSON")
        until(lambda: len([*board.glob("*.refused")]) == 3)
    for each in board.glob("*.item"):
        each.unlink()
    with hub(home, settings, PYTHONPATH=path):
        (courier / f"{IMEI}-2.mo").write_bytes(encode([Entry(10, Message("nearly there"))]))
        until(items)
        (item,) = items()
        assert item["event"]["content"] == "nearly there"


def test_incomplete_bridge_settings_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(extensions, "_THIRD_PARTY", {})
    lines = "extensions=folder_bridge:EXTENSION\nboard-workspace=Alps\n"
    with pytest.raises(InvalidSettings, match="board-workspace needs all three settings"):
        parse_settings(lines, Path("hub.properties"))
