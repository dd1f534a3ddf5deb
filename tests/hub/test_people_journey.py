"""From a person at one kit to a person at another: the receivers, and the sender's view at each
moment while one part between them fails.

Real processes: a hub, a kit that has only satellite, and two with a link.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fieldagent.system.exit_codes import NO_PERSON
from tests.agent.test_agent import command
from tests.hub.test_cluster import contents, push
from tests.hub.test_journey import (
    IMEI,
    Receiver,
    behind_directip,
    folder,
    message_to,
    receiver,
    sky,
)
from tests.processes import Agent, administer, agent, free_port, hub, until


def stages(kit: Agent, package: int) -> list[str]:
    """Return the sender's stages, without those on its own kit and channels."""
    steps = kit.call("GET", f"/api/package/{package}").body["reached"]
    return [each["text"] for each in steps if each["stage"] not in ("kept", "left")]


def came(kit: Agent, text: str) -> dict[str, Any]:
    """Wait for the payload with this text, and return it."""
    until(lambda: text in contents(kit))
    payloads = kit.call("GET", "/api/inbound").body["payloads"]
    return next(
        each for each in payloads if each["body"]["payloads"][0]["events"][0].get("content") == text
    )


def list_events(hooked: Receiver, request_id: str = "") -> list[list[str]]:
    """Return the content or the stages of each event that came, for one item or all."""
    events = [
        each["payloads"][0]["events"][0]
        for each in hooked.got
        if not request_id or each["requestId"] == request_id
    ]
    return [
        [step["text"] for step in event.get("reached", ())] or [event["content"]]
        for event in events
    ]


def test_sender_sees_each_stage_of_an_item_to_another_user(tmp_path: Path) -> None:
    mo_port, mt_port = free_port(), free_port()
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    users = {
        name: administer(database, "user", "add", name)["id"] for name in ("Ada", "Ben", "Cleo")
    }
    ada, ben, cleo = (
        administer(database, "device", "add", f"{name}'s", "--user", name, *more)
        for name, *more in (["Ada", "--imei", IMEI, "--tagged"], ["Ben"], ["Cleo"])
    )
    # Items to the group reach Ada, who has only satellite.
    administer(database, "group", "add", "rescue", "Ada", "Ben", "--over-satellite")
    settings = behind_directip(database, mo_port, mt_port)
    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        running = stack.enter_context(hub(folder(tmp_path / "hub"), settings))
        administer(database, "webhook", "add", hooked.url, "--untried")
        watching = stack.enter_context(receiver())
        administer(database, "webhook", "add", watching.url, "--untried", "--steps")
        stack.enter_context(sky(tmp_path, mo_port, mt_port))

        def linked(device: dict[str, Any], **more: str) -> dict[str, Any]:
            token = device["hub-token"]
            return {
                "satellite-port": None,
                "hub-address": running.address,
                "hub-token": token,
            } | more

        cleos = stack.enter_context(agent(folder(tmp_path / "cleo"), linked(cleo)))
        above: dict[str, Any] = {
            "satellite-port": str(tmp_path / "modem"),
            "satellite-key": ada["satellite-key"],
        }
        adas = stack.enter_context(agent(folder(tmp_path / "ada"), above))
        home = folder(tmp_path / "ben")
        with agent(home, linked(ben, **{"inbound-hook": "cat"})) as bens:
            until(lambda: bens.call("GET", "/api/people").body["complete"])
            listed = bens.call("GET", "/api/people").body
            assert listed["owner"] == users["Ben"]
            assert {(each["kind"], each["name"]) for each in listed["people"]} == {
                *(("user", name) for name in users),
                ("group", "rescue"),
                *(("device", f"{name}'s") for name in users),
            }
            misspelt = command(bens, "send", "message", "hi", "--to", "Clio")
            assert misspelt.returncode == NO_PERSON and "nearest: Cleo" in misspelt.stderr
            for path in ("/api/package", "/api/package/async", "/api/package/cost"):
                wrong = bens.call("POST", path, {"message": {"content": "hi"}, "to": "Clio"})
                assert (wrong.status, wrong.body["code"]) == (422, "no-such-person")
                assert [each["pointer"] for each in wrong.body["errors"]] == ["/to"]
            assert bens.call("GET", "/api/packages").body["packages"] == []
            body = {"message": {"content": "are you there?"}, "to": "ben", "receipt": "read"}
            sent = adas.call("POST", "/api/package", body).body
            # Only the arrival at the gateway is known.
            assert sent["status"] == "Delivered"
            assert stages(adas, sent["id"]) == []
            payload = came(bens, "are you there?")
            event = payload["body"]["payloads"][0]["events"][0]
            assert event["to"] == {"id": str(users["Ben"]), "name": "Ben", "type": "User"}
            assert event["receipt"] == "read"
            bens.expect('"are you there?"')
            assert bens.stop() == 0
        # Ben reads it while his kit has no link, and its power fails. The receipt goes afterwards.
        unlinked = {"satellite-port": None, "inbound-hook": "cat"}
        with agent(home, unlinked) as bens:
            path = f"/api/inbound/{payload['requestId']}/read"
            assert bens.call("POST", path, {"by": "Ben"}).status == 200
            assert bens.call("POST", path, {"by": "Ben"}).status == 200
            bens.kill()
        push(running.port, proof, message_to(users["Ada"], first, "first"))
        until(lambda: "first" in contents(adas))
        until(lambda: "on Ben's kit" in stages(adas, sent["id"]))
        # Only Ben's kit knows that he has read it.
        assert not [each for each in stages(adas, sent["id"]) if each.startswith("read")]
        with agent(home, linked(ben)) as bens:
            bens.expect("linked to the hub")
            administered = {"id": str(users["Ben"]), "name": "Ben", "type": "User"}
            assert hooked.got[0]["payloads"][0]["events"][0]["to"] == administered

            def read_at_last() -> bool:
                push(running.port, proof, message_to(users["Ada"], first, "again"))
                return "read by Ben" in stages(adas, sent["id"])

            until(read_at_last)
            steps = ["on Ben's kit", "with Ben's programs", "read by Ben"]
            assert stages(adas, sent["id"]) == steps
            # A webhook that asked for it gets the stages too, also of pushed items.
            number = watching.got[0]["requestId"]
            until(lambda: list_events(watching, number)[-1:] == [steps])
            assert list_events(watching, number)[0] == ["are you there?"]
            push(running.port, proof, message_to(users["Ben"], first, "well done"))
            until(lambda: ["on Ben's kit"] in list_events(watching)[2:])
            assert not [each for each in list_events(hooked) if each[0].startswith("on ")]
            # A group: its sender sends it once and sees the receivers who have it.
            to_all = {"message": {"content": "all of you"}, "to": "group:rescue"}
            assert bens.call("POST", "/api/package", to_all).body["status"] == "Delivered"
            until(lambda: "all of you" in contents(adas))
            # The kit cannot check a number. The hub reports that it is unknown.
            lost = {"message": {"content": "hello?"}, "to": 999}
            lost_id = bens.call("POST", "/api/package", lost).body["id"]
            nobody = "user 999 cannot be reached: user 999 is not in the workspace"
            until(lambda: stages(bens, lost_id) == ["at the hub", nobody])
        assert contents(cleos) == []
