"""A kit without a link, carried by its neighbour: real processes, nodes on ptys, a real hub.

What reaches the webhook is the true sender's, once, whichever ways it took; and a kit that heard it
by radio hands it to its hook once, though the hub relays it too.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.hub.test_cluster import contents
from tests.hub.test_journey import folder, posted, receiver
from tests.processes import administer, agent, hub, until
from tests.simulator.test_simulate_node import nodes


def test_a_neighbour_carries_and_the_hub_sees_the_true_sender(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    devices = {}
    for name in ("Ada", "Ben"):
        member = administer(database, "user", "add", name)["id"]
        devices[name] = administer(
            database, "device", "add", f"kit of {name}", "--user", str(member), "--relay"
        )
    settings = {"database": database, "webhook-allow": "127.0.0.0/8"}

    def radio(name: str, port: int) -> dict[str, Any]:
        return {
            "satellite-port": None,
            "radio-port": str(tmp_path / "air" / f"node-{port}"),
            "radio-station": str(devices[name]["id"]),
            "radio-name": f"kit of {name}",
            "inbound-hook": "cat",
        }

    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        running = stack.enter_context(hub(folder(tmp_path / "hub"), settings))
        administer(database, "webhook", "add", hooked.url, "--untried")
        stack.enter_context(nodes(tmp_path, "--seed", "5", "--loss", "0.1"))
        link = {"hub-address": running.address}
        carrier = stack.enter_context(
            agent(
                folder(tmp_path / "ben"),
                {
                    **radio("Ben", 2),
                    **link,
                    "hub-token": devices["Ben"]["hub-token"],
                    "radio-carry": "cellular",
                },
            )
        )
        carrier.expect("linked to the hub")
        with agent(folder(tmp_path / "ada"), radio("Ada", 1)) as kit:
            sent = kit.call("POST", "/api/package", {"message": {"content": "no link here"}}).body
            assert sent["channels"] == {"Radio": {"status": "Delivered"}}
            until(lambda: posted(hooked) == ["no link here"])

            def events() -> list[str]:
                story = kit.call("GET", f"/api/package/{sent['id']}").body["story"]
                return [line["event"] for line in story]

            until(lambda: "relayed" in events())
            kit.stop()
        linked = {**radio("Ada", 1), **link, "hub-token": devices["Ada"]["hub-token"]}
        with agent(tmp_path / "ada", linked) as kit:
            kit.expect("linked to the hub")
            both = kit.call("POST", "/api/package", {"message": {"content": "by both"}}).body

            def ended() -> bool:
                legs = kit.call("GET", f"/api/package/{both['id']}").body["channels"]
                return [leg["status"] for leg in legs.values()] == ["Delivered"] * 2

            until(ended)
            until(lambda: "by both" in posted(hooked))
            time.sleep(1)
            assert posted(hooked) == ["no link here", "by both"]
            assert sorted(contents(carrier)) == ["by both", "no link here"]
        senders = {json.dumps(entry["payloads"][0]["identity"]["name"]) for entry in hooked.got}
        assert senders == {'"Ada"'}


@pytest.mark.long
def test_a_carrier_is_found_behind_a_kit_without_a_link(tmp_path: Path) -> None:
    """A-C-B: Ada hears Cid alone, and Ben alone reaches the hub. The webhook has it, once, as
    Ada's, and Ada is told."""
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    devices = {}
    for name in ("Ada", "Cid", "Ben"):
        member = administer(database, "user", "add", name)["id"]
        devices[name] = administer(
            database, "device", "add", f"kit of {name}", "--user", str(member), "--relay"
        )
    (tmp_path / "ridge").write_text("1 2\n2 3\n")

    def radio(name: str, port: int) -> dict[str, Any]:
        return {
            "satellite-port": None,
            "radio-port": str(tmp_path / "air" / f"node-{port}"),
            "radio-station": str(devices[name]["id"]),
            "radio-name": f"kit of {name}",
            "radio-key": "07" * 32,
            "inbound-hook": "cat",
        }

    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        settings = {"database": database, "webhook-allow": "127.0.0.0/8"}
        running = stack.enter_context(hub(folder(tmp_path / "hub"), settings))
        administer(database, "webhook", "add", hooked.url, "--untried")
        ridge = ("--nodes", "3", "--topology", str(tmp_path / "ridge"))
        stack.enter_context(nodes(tmp_path, "--seed", "5", "--loss", "0.1", *ridge))
        linked = {
            "hub-address": running.address,
            "hub-token": devices["Ben"]["hub-token"],
            "radio-carry": "cellular",
        }
        ben = stack.enter_context(agent(folder(tmp_path / "ben"), {**radio("Ben", 3), **linked}))
        ben.expect("linked to the hub")
        cid = stack.enter_context(agent(folder(tmp_path / "cid"), radio("Cid", 2)))
        ada = stack.enter_context(agent(folder(tmp_path / "ada"), radio("Ada", 1)))
        for kit in (cid, ada):
            kit.expect("the radio works")
        here = {"message": {"content": "here is Ben"}, "channels": ["Radio"]}
        assert ben.call("POST", "/api/package", here).body["status"] == "Delivered"
        sent = ada.call("POST", "/api/package", {"message": {"content": "over the ridge"}}).body
        until(lambda: posted(hooked) == ["over the ridge"])

        def events() -> list[str]:
            story = ada.call("GET", f"/api/package/{sent['id']}").body["story"]
            return [line["event"] for line in story]

        until(lambda: "relayed" in events())
        assert posted(hooked) == ["over the ridge"]
        (entry,) = hooked.got
        assert entry["payloads"][0]["identity"]["name"] == "Ada"
        heard = {each["name"] for each in ada.call("GET", "/api/neighbours").body["neighbours"]}
        assert heard == {"kit of Cid"}
