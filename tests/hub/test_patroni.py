"""Two hubs on PostgreSQL with Patroni and HAProxy. The primary is switched over, killed or cut off,
and so is its standby, while callers push and a kit sends.

No answered item is lost or doubled, and everything continues by itself.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.hub.alps import Alps
from tests.hub.test_cluster import balancer
from tests.hub.test_journey import Receiver, folder, receiver
from tests.patroni import PASSWORD, Cluster, cluster
from tests.processes import Agent, administer, agent, hub, until

pytestmark = pytest.mark.full

PACE = 0.2
"""Seconds between two pushes, and between two of the kit's Packages."""


class Camp(NamedTuple):
    """The running parts of all tests here."""

    postgres: Cluster
    alps: Alps
    front: int
    """The port in front of the hubs."""
    kit: Agent
    above: Receiver
    """Posts of the workspace's webhook."""
    below: Receiver
    """Deliveries of the kit's hook."""


@pytest.fixture(scope="module")
def camp() -> Iterator[Camp]:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fieldagent-patroni-")))
        home.chmod(0o755)
        postgres = stack.enter_context(cluster(home))
        postgres.query(f"CREATE ROLE fieldagent LOGIN PASSWORD '{PASSWORD}'")
        postgres.query("CREATE DATABASE fieldagent OWNER fieldagent")
        database = f"postgresql://fieldagent:{PASSWORD}@/fieldagent?host={postgres.socket}"
        alps = Alps(database)
        often = ["--per-minute", "60000", "--burst", "9999"]
        alps.proof["x-api-key"] = administer(database, "key", "add", "load", *often)["apiKey"]
        above, below = stack.enter_context(receiver()), stack.enter_context(receiver())
        administer(database, "webhook", "add", above.url, "--untried")
        settings = {"database": database, "webhook-allow": "127.0.0.0/8"}
        hubs = [stack.enter_context(hub(folder(home / name), settings)) for name in ("one", "two")]
        front = stack.enter_context(balancer([each.port for each in hubs])).port
        of_kit = {
            "satellite-port": None,
            "hub-address": f"http://127.0.0.1:{front}",
            "hub-token": alps.token,
            "webhook-address": below.url,
        }
        kit = stack.enter_context(agent(folder(home / "kit"), of_kit))
        kit.expect("linked to the hub")
        yield Camp(postgres, alps, front, kit, above, below)


def map_texts(receiver: Receiver) -> dict[str, set[str]]:
    """Map each text to the ids of its items. A post may come again with the same id."""
    ids = defaultdict(set)
    for body in [*receiver.got]:
        for payload in body["payloads"]:
            for event in payload["events"]:
                ids[event["content"]].add(body["requestId"])
    return ids


class Load:
    """Callers and a kit's program, which continue until a test stops them."""

    def __init__(self, camp: Camp, about: str) -> None:
        self._camp = camp
        self._about = about
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._push, self._send)]
        self.pushed: list[str] = []
        self.sent: dict[str, str] = {}
        """The id of each Package, by its text."""

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def push(self, text: str) -> None:
        self._camp.alps.push(self._camp.front, text)
        self.pushed.append(text)

    def send(self, text: str) -> None:
        answer = self._camp.kit.call("POST", "/api/package/async", {"message": {"content": text}})
        self.sent[text] = answer.body["id"]

    def _push(self) -> None:
        while not self._stopped.wait(PACE):
            self.push(f"{self._about}: push {len(self.pushed)}")

    def _send(self) -> None:
        while not self._stopped.wait(PACE):
            self.send(f"{self._about}: sent {len(self.sent)}")

    def delivered(self) -> bool:
        """Return True if the hub has answered that all sent Packages are on its disk."""
        kit = self._camp.kit
        packages = (kit.call("GET", f"/api/package/{each}").body for each in self.sent.values())
        return all(each["status"] == "Delivered" for each in packages)


@contextmanager
def switched_over(postgres: Cluster) -> Iterator[None]:
    postgres.switch_over()
    yield


@contextmanager
def killed(postgres: Cluster) -> Iterator[None]:
    victim = postgres.primary()
    victim.kill()
    yield
    victim.start()


def primary_cut_off(postgres: Cluster) -> AbstractContextManager[None]:
    """Cut the primary off from the other machines and from the hubs."""
    return postgres.primary().plug.pulled()


def standby_cut_off(postgres: Cluster) -> AbstractContextManager[None]:
    """Cut off the standby that confirms each commit."""
    return postgres.synchronous().plug.pulled()


FAULTS = {
    "switchover": switched_over,
    "the primary is killed": killed,
    "the primary is cut off": primary_cut_off,
    "its standby is cut off": standby_cut_off,
}


@pytest.mark.parametrize("what", FAULTS)
def test_answered_items_arrive_once_despite_a_patroni_fault(what: str, camp: Camp) -> None:
    """`pytest -s` prints the time until everything continued."""
    camp.postgres.until_whole()
    before = camp.postgres.primary().name
    with Load(camp, what) as load:
        until(lambda: len(load.pushed) > 10 and len(load.sent) > 10)
        began = time.monotonic()
        with FAULTS[what](camp.postgres):
            load.send(f"{what}: from the kit")
            load.push(f"{what}: to the kit")
            took = {"a push": time.monotonic() - began}
            until(lambda: f"{what}: to the kit" in map_texts(camp.below))
            took["the kit's link"] = time.monotonic() - began
            until(lambda: f"{what}: from the kit" in map_texts(camp.above))
            took["the webhook"] = time.monotonic() - began
            stays = camp.postgres.primary().name == before
        assert stays == (what == "its standby is cut off")
        camp.postgres.until_whole()
    print(what, *(f"{name} after {seconds:.1f} s" for name, seconds in took.items()), sep=", ")
    until(load.delivered)
    until(lambda: {*load.sent} <= {*map_texts(camp.above)})
    until(lambda: {*load.pushed} <= {*map_texts(camp.below)})
    came = {**map_texts(camp.above), **map_texts(camp.below)}
    assert {text: len(came[text]) for text in came} == dict.fromkeys(came, 1)
    assert camp.postgres.query("SELECT count(*) FROM item", "fieldagent") == f"{len(came)}\n"
