"""A queue of many thousands delays no caller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.processes import Agent, agent, until

MANY = 350


def fill(kit: Agent, count: int, **members: object) -> None:
    for number in range(count):
        body = {"message": {"content": str(number)}, **members}
        assert kit.call("POST", "/api/package/async", body).status == 202


def without_reasons(package: dict[str, Any]) -> dict[str, Any]:
    """Return the Package without the reason of its wait, which changes at each look."""
    return {
        **package,
        "channels": {name: delivery["status"] for name, delivery in package["channels"].items()},
    }


def test_long_queue_is_restored_and_listed_in_pages(tmp_path: Path) -> None:
    nobody = {"satellite-port": str(tmp_path / "nobody")}
    with agent(tmp_path, nobody) as kit:
        fill(kit, MANY)
        fill(kit, 1, collapseKey=7, priority=5)
        assert kit.stop() == 0
    with agent(tmp_path, nobody) as kit:
        # The new Package waits for the Package that it replaces, which is restored last.
        fill(kit, 1, collapseKey=7, priority=5)
        whole = kit.call("GET", "/api/queue").body
        assert (whole["queued"], len(whole["packages"]), whole["next"]) == (MANY + 1,) * 2 + (None,)
        assert kit.call("GET", f"/api/package/{MANY + 1}").body["status"] == "Collapsed"
        listed, path = [], "/api/queue?limit=100&channel=Satellite"
        while path is not None:
            page = kit.call("GET", path)
            listed += page.body["packages"]
            path = page.body["next"]
            link = page.headers.get("link")
            assert link == (None if path is None else f'<{path}>; rel="next"')
        assert [without_reasons(each) for each in listed] == [
            without_reasons(each) for each in whole["packages"]
        ]
        assert [each["id"] for each in listed] == [*range(1, MANY + 1), MANY + 2]
        for wrong in ("limit=0", "limit=1001", "after=-1", "limit=x", "page=2"):
            assert kit.call("GET", f"/api/queue?{wrong}").status == 400
        assert kit.call("DELETE", "/api/queue", {}).body == {"deleted": MANY + 1}
        until(lambda: kit.call("GET", "/api/queue").body["queued"] == 0)
        assert kit.call("GET", "/api/package/1").body["status"] == "Canceled"
