"""A kit without a link whose neighbour relays its items: real processes, nodes on ptys, a real hub.

The webhook gets each item once from its true sender, over any routes. A kit that heard it by radio
passes it to its hook once, although the hub relays it too.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.lab.simulator.test_simulate_node import nodes
from tests.hub.test_cluster import contents, push
from tests.hub.test_journey import Receiver, folder, posted, receiver
from tests.processes import Agent, Hub, administer, agent, free_port, hub, sky, until


class Team:
    """A workspace of people, each with a kit on the air."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.database = str(folder / "hub.sqlite3")
        self.first = administer(self.database, "init", "Alps")
        self.devices = {}
        self.members = {}
        for name in names:
            member = administer(self.database, "user", "add", name)["id"]
            self.members[name] = str(member)
            self.devices[name] = administer(
                self.database, "device", "add", f"kit of {name}", "--user", str(member), "--relay"
            )

    @contextmanager
    def at_the_hub(self) -> Iterator[tuple[Hub, Receiver]]:
        """Run a hub with a webhook."""
        settings = {"database": self.database, "webhook-allow": "127.0.0.0/8"}
        with receiver() as hooked, hub(folder(self.folder / "hub"), settings) as running:
            administer(self.database, "webhook", "add", hooked.url, "--untried")
            yield running, hooked

    def radio(self, name: str, port: int, **more: str) -> dict[str, Any]:
        """Return the settings of a kit without a link."""
        return {
            "satellite-port": None,
            "radio-port": str(self.folder / "air" / f"node-{port}"),
            "radio-station": str(self.devices[name]["id"]),
            "radio-name": f"kit of {name}",
            "inbound-hook": "cat",
            **more,
        }

    def linked(self, name: str, running: Hub) -> dict[str, str]:
        return {
            "hub-address": running.address,
            "hub-token": self.devices[name]["hub-token"],
        }


def list_events(kit: Agent, sent: dict[str, Any]) -> list[str]:
    story = kit.call("GET", f"/api/package/{sent['id']}").body["history"]
    return [line["event"] for line in story]


@pytest.mark.full
def test_item_relayed_by_a_neighbour_has_its_true_sender(tmp_path: Path) -> None:
    team = Team(tmp_path, "Ada", "Ben")
    with ExitStack() as stack:
        running, hooked = stack.enter_context(team.at_the_hub())
        # With another seed, the first packets are lost, and the next come with a beacon a minute
        # later.
        stack.enter_context(nodes(tmp_path, "--seed", "8", "--loss", "0.1"))
        carries = team.radio("Ben", 2, **team.linked("Ben", running), **{"radio-relay": "cellular"})
        carrier = stack.enter_context(agent(folder(tmp_path / "ben"), carries))
        carrier.expect("linked to the hub")
        with agent(folder(tmp_path / "ada"), team.radio("Ada", 1)) as kit:
            sent = kit.call("POST", "/api/package", {"message": {"content": "no link here"}}).body
            assert sent["channels"] == {"Radio": {"status": "Delivered"}}
            until(lambda: posted(hooked) == ["no link here"])
            until(lambda: "relayed" in list_events(kit, sent))
            kit.stop()
        linked = team.radio("Ada", 1, **team.linked("Ada", running))
        with agent(tmp_path / "ada", linked) as kit:
            kit.expect("linked to the hub")
            both = kit.call("POST", "/api/package", {"message": {"content": "by both"}}).body

            def ended() -> bool:
                deliveries = kit.call("GET", f"/api/package/{both['id']}").body["channels"]
                return [delivery["status"] for delivery in deliveries.values()] == ["Delivered"] * 2

            until(ended)
            until(lambda: "by both" in posted(hooked))
            # The later item has arrived too, and the first one did not arrive again.
            kit.call("POST", "/api/package", {"message": {"content": "the end"}})
            until(lambda: "the end" in posted(hooked) and "the end" in contents(carrier))
            assert posted(hooked) == ["no link here", "by both", "the end"]
            assert sorted(contents(carrier)) == ["by both", "no link here", "the end"]
        senders = {json.dumps(entry["payloads"][0]["identity"]["name"]) for entry in hooked.got}
        assert senders == {'"Ada"'}


def make_cheapest_settings(team: Team, head_start: int) -> dict[str, Any]:
    """Return the settings of a kit with radio and a satellite modem."""
    own = {"satellite-port": str(team.folder / "modem"), "fan-out": "cheapest"}
    return team.radio("Ada", 1, **own, **{"fan-out-head-start": str(head_start)})


@pytest.mark.full
def test_satellite_is_used_although_a_neighbour_without_link_heard_the_item(tmp_path: Path) -> None:
    """The hub must get the item in any case."""
    team = Team(tmp_path, "Ada", "Ben")
    with (
        nodes(tmp_path, "--seed", "5"),
        sky(tmp_path) as above,
        agent(folder(tmp_path / "ben"), team.radio("Ben", 2)) as ben,
        agent(folder(tmp_path / "ada"), make_cheapest_settings(team, 5)) as ada,
    ):
        ben.expect("the radio works")
        sent = ada.call("POST", "/api/package", {"message": {"content": "no link there"}}).body
        assert sent["channels"]["Radio"] == {"status": "Delivered"}
        assert sent["channels"]["Satellite"] == {"status": None}
        above.expect("no link there")


@pytest.mark.full
def test_item_relayed_by_a_neighbour_costs_no_satellite_credit(tmp_path: Path) -> None:
    team = Team(tmp_path, "Ada", "Ben")
    with ExitStack() as stack:
        running, hooked = stack.enter_context(team.at_the_hub())
        stack.enter_context(nodes(tmp_path, "--seed", "5"))
        above = stack.enter_context(sky(tmp_path))
        carries = team.radio("Ben", 2, **team.linked("Ben", running), **{"radio-relay": "cellular"})
        ben = stack.enter_context(agent(folder(tmp_path / "ben"), carries))
        ada = stack.enter_context(
            agent(folder(tmp_path / "ada"), make_cheapest_settings(team, 86_400))
        )
        ben.expect("linked to the hub")
        sent = ada.call("POST", "/api/package", {"message": {"content": "carried"}}).body

        def satellite() -> Any:
            return ada.call("GET", f"/api/package/{sent['id']}").body["channels"]["Satellite"]

        until(lambda: satellite() == {"status": "Canceled", "reason": "the hub has it"})
        until(lambda: "carried" in posted(hooked))
        assert not any("carried" in line for line in above.lines)


@pytest.mark.full
def test_item_reaches_the_hub_over_two_radio_hops(tmp_path: Path) -> None:
    """A-C-B: Ada hears only Cid, and only Ben reaches the hub. The webhook gets it once with Ada as
    sender, and Ada gets the confirmation.
    """
    team = Team(tmp_path, "Ada", "Cid", "Ben")
    key = {"radio-key": "07" * 32}
    (tmp_path / "ridge").write_text("1 2\n2 3\n")
    with ExitStack() as stack:
        running, hooked = stack.enter_context(team.at_the_hub())
        ridge = ("--nodes", "3", "--topology", str(tmp_path / "ridge"))
        stack.enter_context(nodes(tmp_path, "--seed", "5", "--loss", "0.1", *ridge))
        linked = {**team.linked("Ben", running), "radio-relay": "cellular"}
        carries = team.radio("Ben", 3, **linked, **key)
        ben = stack.enter_context(agent(folder(tmp_path / "ben"), carries))
        ben.expect("linked to the hub")
        cid = stack.enter_context(agent(folder(tmp_path / "cid"), team.radio("Cid", 2, **key)))
        ada = stack.enter_context(agent(folder(tmp_path / "ada"), team.radio("Ada", 1, **key)))
        for kit in (cid, ada):
            kit.expect("the radio works")
        here = {"message": {"content": "here is Ben"}, "channels": ["Radio"]}
        assert ben.call("POST", "/api/package", here).body["status"] == "Delivered"
        sent = ada.call("POST", "/api/package", {"message": {"content": "over the ridge"}}).body
        until(lambda: posted(hooked) == ["over the ridge"])
        until(lambda: "relayed" in list_events(ada, sent))
        assert posted(hooked) == ["over the ridge"]
        (entry,) = hooked.got
        assert entry["payloads"][0]["identity"]["name"] == "Ada"
        heard = {each["name"] for each in ada.call("GET", "/api/neighbours").body["neighbours"]}
        assert heard == {"kit of Cid"}


def test_news_about_a_relayed_sos_returns_over_the_same_route(tmp_path: Path) -> None:
    """Ada's kit reaches the hub only through Ben's, and has a key to check the hub's news. At Ben's
    kit the SOS stops ringing after a person has taken it.
    """
    team = Team(tmp_path, "Ada", "Ben")
    administer(team.database, "user", "add", "Olga")
    administer(team.database, "user", "role", "Olga", "dispatcher")
    with ExitStack() as stack:
        running, _ = stack.enter_context(team.at_the_hub())
        stack.enter_context(nodes(tmp_path, "--seed", "5", "--loss", "0.1"))
        carries = team.radio("Ben", 2, **team.linked("Ben", running), **{"radio-relay": "cellular"})
        ben = stack.enter_context(agent(folder(tmp_path / "ben"), carries))
        ben.expect("linked to the hub")
        unreached = {
            **team.linked("Ada", running),
            "hub-address": f"http://127.0.0.1:{free_port()}",
        }
        ada = stack.enter_context(
            agent(folder(tmp_path / "ada"), team.radio("Ada", 1, **unreached))
        )
        assert ada.call("POST", "/api/sos", {"text": "leg broken"}).status == 201

        def open_at_the_desk() -> Any:
            return [each["id"] for each in administer(team.database, "sos", "list")]

        until(open_at_the_desk)
        (incident,) = open_at_the_desk()
        words = ["help is on its way", "--by", "Olga"]
        administer(team.database, "sos", "acknowledge", str(incident), *words)

        def said() -> list[dict[str, Any]]:
            steps = ada.call("GET", "/api/sos").body["incident"]["steps"]
            return [step for step in steps if step["state"] in ("seen by", "closed")]

        until(said)
        (step,) = said()
        assert (step["by"], step["text"]) == ("Olga", "help is on its way")
        assert "unauthenticated" not in step
        assert ada.call("GET", "/api/sos").body["incident"]["state"] == "seen"
        until(lambda: ben.call("GET", "/api/sos").body["heard"][0]["state"] == "seen")
        administer(team.database, "sos", "close", str(incident), "down", "--by", "Olga")
        until(lambda: ada.call("GET", "/api/sos").body["incident"]["state"] == "closed")
        assert [each["by"] for each in said()] == ["Olga", "Olga"]


@pytest.mark.full
def test_push_reaches_a_kit_over_the_link_and_radio_of_a_neighbour(tmp_path: Path) -> None:
    """Ben's kit reaches the hub only through Ada's. Hers is killed while it has a push, and then
    his own link returns. His hook gets each push once, and the hub knows the route of each
    confirmation.
    """
    team = Team(tmp_path, "Ada", "Ben")
    first = team.first
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    who = {each: first[each] for each in ("sourceUserId", "workspaceId")}
    who["targetUserId"] = team.members["Ben"]

    def push_to_ben(text: str) -> None:
        push(running.port, proof, {"message": {"content": text}, **who})

    def over() -> dict[str, str | None]:
        with closing(sqlite3.connect(team.database)) as db:
            return dict(
                db.execute(
                    "SELECT item.words, delivery.way FROM item JOIN delivery ON item = item.id"
                    " WHERE device = ?",
                    (team.devices["Ben"]["id"],),
                )
            )

    with ExitStack() as stack:
        running, _ = stack.enter_context(team.at_the_hub())
        stack.enter_context(nodes(tmp_path, "--seed", "5", "--loss", "0.1"))
        brings = {"radio-relay": "cellular", "radio-relay-down": "on"}
        brings = team.radio("Ada", 1, **team.linked("Ada", running), **brings)
        away = {**team.linked("Ben", running), "hub-address": f"http://127.0.0.1:{free_port()}"}
        with agent(folder(tmp_path / "ada"), brings) as ada:
            ada.expect("linked to the hub")
            with agent(folder(tmp_path / "ben"), team.radio("Ben", 2, **away)) as ben:
                push_to_ben("turn back")
                until(lambda: contents(ben) == ["turn back"])
                until(lambda: over() == {"turn back": "radio"})
                assert 'sent_bytes_total{channel="others"}' in str(ada.call("GET", "/metrics").body)
                ben.kill()
            # The push is not heard on the air, but Ada's kit has stored it.
            push_to_ben("the pass is shut")
            ada.expect("items for station")
            ada.kill()
        assert over()["the pass is shut"] is None
        with agent(tmp_path / "ada", brings), ExitStack() as later:
            ben = later.enter_context(agent(tmp_path / "ben", team.radio("Ben", 2, **away)))
            until(lambda: "the pass is shut" in contents(ben))
            until(lambda: over()["the pass is shut"] == "radio")
            ben.stop()
            linked = team.radio("Ben", 2, **team.linked("Ben", running))
            ben = later.enter_context(agent(tmp_path / "ben", linked))
            ben.expect("linked to the hub")
            push_to_ben("well done")
            until(lambda: over()["well done"] == "ip")
            assert sorted(contents(ben)) == ["the pass is shut", "turn back", "well done"]
            assert set(over().values()) == {"radio", "ip"}


@pytest.mark.full
def test_push_and_receipt_travel_over_two_radio_hops(tmp_path: Path) -> None:
    """A-C-B: only Ada is linked, and Cid hears both. The read receipt comes back over the same
    route.
    """
    team = Team(tmp_path, "Ada", "Cid", "Ben")
    (tmp_path / "ridge").write_text("1 2\n2 3\n")
    key = {"radio-key": "07" * 32, "radio-seal": "on"}
    with ExitStack() as stack:
        running, _ = stack.enter_context(team.at_the_hub())
        ridge = ("--nodes", "3", "--topology", str(tmp_path / "ridge"))
        stack.enter_context(nodes(tmp_path, "--seed", "5", "--loss", "0.1", *ridge))
        brings = {"radio-relay": "cellular", "radio-relay-down": "on", **key}
        brings = team.radio("Ada", 1, **team.linked("Ada", running), **brings)
        ada = stack.enter_context(agent(folder(tmp_path / "ada"), brings))
        ada.expect("linked to the hub")
        stack.enter_context(agent(folder(tmp_path / "cid"), team.radio("Cid", 2, **key)))
        away = {**team.linked("Ben", running), "hub-address": f"http://127.0.0.1:{free_port()}"}
        ben = stack.enter_context(
            agent(folder(tmp_path / "ben"), team.radio("Ben", 3, **away, **key))
        )
        ben.call("POST", "/api/package", {"message": {"content": "here is Ben"}})
        until(lambda: "here is Ben" in contents(ada))
        first = team.first
        proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
        who = {each: first[each] for each in ("sourceUserId", "workspaceId")}
        who["targetUserId"] = team.members["Ben"]
        push(running.port, proof, {"message": {"content": "turn back"}, **who})
        # Cid's kit lists its items in a beacon, and Ben's beacon shows that he lacks one.
        with suppress(AssertionError):
            until(lambda: "turn back" in contents(ben))
        until(lambda: "turn back" in contents(ben))

        def rows(sql: str) -> list[Any]:
            with closing(sqlite3.connect(team.database)) as db:
                return db.execute(sql, (team.devices["Ben"]["id"],)).fetchall()

        of_ben = (
            "FROM item JOIN delivery ON item = item.id WHERE device = ? AND words = 'turn back'"
        )
        until(lambda: rows(f"SELECT state, way {of_ben}") == [("stored", "radio")])
        (payload,) = [
            each["body"]["requestId"]
            for each in ben.call("GET", "/api/inbound").body["payloads"]
            if "turn back" in str(each["body"])
        ]
        assert ben.call("POST", f"/api/inbound/{payload}/read", {"by": "Ben"}).status < 300
        until(lambda: rows(f"SELECT text FROM reached WHERE item IN (SELECT item {of_ben})"))
        assert contents(ben).count("turn back") == 1
