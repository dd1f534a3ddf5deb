"""Real processes from end to end: an agent, an independent 9704 and Cloudloop
(cloudloop_peer.py), the hub, a webhook, and the failures between them.
"""

from __future__ import annotations

import base64
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.imt.cloudloop_peer import TRAITS
from tests.hub.test_cluster import contents, push
from tests.hub.test_journey import Receiver, folder, message_to, receiver
from tests.processes import MODULE, Agent, Hub, Running, administer, agent, free_port, hub, until

PEER = Path(__file__).with_name("cloudloop_peer.py")
SECRET, TOKEN = "c0ffee" * 6, "token-of-the-account"
IMEI, THING = "300258060000001", "t" * 32


@dataclass
class Journey:
    home: Path
    settings: dict[str, str]
    first: dict[str, Any]
    user: int
    hooked: Receiver
    above: Running
    stack: ExitStack

    def hub(self) -> Hub:
        (self.home / "hub").mkdir(exist_ok=True)
        return self.stack.enter_context(hub(self.home / "hub", self.settings, MODULE))

    def kit(self) -> Agent:
        settings = {
            "satellite-port": str(self.home / "lines/kit"),
            "satellite-modem": "auto",
            "inbound-hook": "cat",
        }
        return self.stack.enter_context(agent(folder(self.home / "kit"), settings))

    def push(self, running: Hub, text: str) -> None:
        proof = {
            "x-api-key": self.first["apiKey"],
            "Authorization": f"Bearer {self.first['token']}",
        }
        push(running.port, proof, message_to(self.user, self.first, text))

    def arrived(self) -> list[Any]:
        """Return the contents of all posts to the webhook."""
        return [
            event.get("content", event.get("payload"))
            for entry in self.hooked.got
            for payload in entry["payloads"]
            for event in payload["events"]
        ]


@contextmanager
def journey(home: Path, traits: str = "", **settings: str) -> Iterator[Journey]:
    port, api = free_port(), free_port()
    database = str(home / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    user = administer(database, "user", "add", "Ada")["id"]
    add = ["device", "add", "kit", "--user", str(user), "--imei", IMEI]
    administer(database, *add, "--operator", "cloudloop")
    token = home / "token"
    token.write_text(f"{TOKEN}\n")
    properties = {
        "database": database,
        "port": str(port),
        "cloudloop-secret": SECRET,
        "cloudloop-token": str(token),
        "cloudloop-address": f"http://127.0.0.1:{api}",
        "satellite-grace": "0",
        "webhook-allow": "127.0.0.0/8",
        **settings,
    }
    lingo = f"http://127.0.0.1:{port}/operator/cloudloop/{SECRET}"
    folder(home / "lines")
    peer = [sys.executable, str(PEER), str(home / "lines"), lingo, str(api), TOKEN]
    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        administer(database, "webhook", "add", hooked.url, "--untried")
        above = stack.enter_context(Running([*peer, f"kit:{IMEI}:{THING}:{traits}"], "ready"))
        yield Journey(home, properties, first, user, hooked, above, stack)
        assert not any("a token in a URL" in line for line in above.output())


@pytest.mark.full
@pytest.mark.parametrize("traits", ["", *TRAITS, "+".join(TRAITS)])
def test_messages_travel_both_ways_with_every_modem_trait(tmp_path: Path, traits: str) -> None:
    large = random.Random(1).randbytes(30_000)
    with journey(tmp_path, traits) as trip:
        running, kit = trip.hub(), trip.kit()
        assert kit.post("one").body["status"] == "Delivered"
        data = {"data": {"payload": base64.b64encode(large).decode()}}
        assert kit.call("POST", "/api/package", data).body["status"] == "Delivered"
        trip.push(running, "come down")
        until(lambda: "come down" in contents(kit))
        until(lambda: len(trip.arrived()) >= 2)
        assert trip.arrived() == ["one", base64.b64encode(large).decode()]
        assert contents(kit) == ["come down"]
        assert not any(SECRET in line or TOKEN in line for line in running.output())
        assert kit.call("GET", "/api/status").body["channels"]["Satellite"]["modem"] == "imt"


@pytest.mark.full
def test_message_survives_modem_power_loss_and_hub_outage(tmp_path: Path) -> None:
    with journey(tmp_path, "slow") as trip:
        kit = trip.kit()
        posted = kit.call("POST", "/api/package/async", {"message": {"content": "stranded"}})
        assert posted.status == 202
        trip.above.expect("has a message")
        trip.above.type("power kit")
        trip.above.expect("has lost its power")
        trip.above.expect("has a message")
        trip.above.expect("mo_ack_received")
        until(lambda: kit.call("GET", "/api/package/1").body["status"] == "Delivered")
        trip.above.expect("Connection refused")
        running = trip.hub()
        until(trip.arrived)
        trip.push(running, "stay there")
        until(lambda: contents(kit) == ["stay there"])
        assert trip.arrived() == ["stranded"]


def test_message_sent_during_a_long_hub_outage_is_fetched_from_the_history(tmp_path: Path) -> None:
    """Cloudloop has stopped trying, so only its history contains the message."""
    with journey(tmp_path, **{"cloudloop-poll": "1"}) as trip:
        running, kit = trip.hub(), trip.kit()
        assert kit.post("first").body["status"] == "Delivered"
        until(lambda: trip.arrived() == ["first"])
        assert running.stop() == 0
        trip.above.type("mute")
        trip.above.expect("done: mute")
        assert kit.post("missed").body["status"] == "Delivered"
        trip.hub()
        until(lambda: trip.arrived() == ["first", "missed"])


@pytest.mark.full
def test_unanswered_operator_call_is_settled_by_the_history(tmp_path: Path) -> None:
    with journey(tmp_path) as trip:
        running, kit = trip.hub(), trip.kit()
        assert kit.post("here").body["status"] == "Delivered"
        until(trip.arrived)
        trip.above.type("silent")
        trip.above.expect("done: silent")
        trip.push(running, "once")
        trip.above.expect("takes it and says nothing")
        until(lambda: contents(kit) == ["once"])
        until(lambda: any("the operator has it" in line for line in running.output()))
        lines = [line for line in trip.above.output() if "cloud: MT" in line]
        assert len(lines) == 1, "it is not paid for twice"
