"""Independent modems and an independent gateway (tests/peers/sbd.py): all messages arrive once.

Real processes: one agent for each trait of a modem, a hub behind all of them, and a webhook.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.breaking import Put, environment
from tests.hub.test_cluster import contents, push
from tests.hub.test_journey import behind_directip, folder, message_to, receiver
from tests.peers.sbd import TRAITS
from tests.processes import MODULE, Agent, Running, administer, agent, free_port, hub, until

TOGETHER = ("old+spacing+failure+noise+five", "echo+lies+twice", "slow+brownout+zero")
"""Several traits in one modem."""
PACKAGES, PUSHES = 4, 2
PEER = Path(__file__).parents[1] / "peers/sbd.py"


@pytest.mark.parametrize(
    "modems",
    [TOGETHER, pytest.param((*TRAITS, *TOGETHER), marks=pytest.mark.full)],
    ids=["several traits each", "each trait"],
)
def test_every_package_arrives_once_through_third_party_modems(
    tmp_path: Path, modems: tuple[str, ...]
) -> None:
    mo_port, mt_port = free_port(), free_port()
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    lines = folder(tmp_path / "lines")
    users: dict[str, int] = {}
    described: list[str] = []
    for number, traits in enumerate(modems):
        imei = f"30123401{number:07}"
        user = administer(database, "user", "add", traits)["id"]
        administer(database, "device", "add", traits, "--user", str(user), "--imei", imei)
        users[traits] = user
        described.append(f"{number}:{imei}:{traits}")
    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        settings = behind_directip(database, mo_port, mt_port)
        soon = environment(tmp_path, Put("fieldagent.hub.records.ring_alerts:RING_PAUSES_S", [3.0]))
        running = stack.enter_context(hub(folder(tmp_path / "hub"), settings, MODULE, **soon))
        administer(database, "webhook", "add", hooked.url, "--untried")
        peer = [sys.executable, str(PEER), str(lines), str(mo_port), str(mt_port), *described]
        above = stack.enter_context(Running(peer, "ready"))
        kits: dict[str, Agent] = {}
        for number, traits in enumerate(users):
            satellite = {"satellite-port": str(lines / str(number)), "inbound-hook": "cat"}
            kits[traits] = stack.enter_context(agent(folder(tmp_path / f"kit-{number}"), satellite))

        for traits, kit in kits.items():
            for number in range(PACKAGES):
                body: dict[str, Any] = {"message": {"content": f"{traits} {number}"}}
                if number == PACKAGES - 1:
                    body["priority"] = 100
                assert kit.call("POST", "/api/package/async", body).status == 202
        for traits, user in users.items():
            for number in range(PUSHES):
                push(running.port, proof, message_to(user, first, f"{traits} push {number}"))

        def arrived() -> Counter[str]:
            return Counter(
                event["content"]
                for entry in hooked.got
                for payload in entry["payloads"]
                for event in payload["events"]
            )

        def pushed(kit: Agent) -> Counter[str]:
            return Counter(text for text in contents(kit) if "push" in text)

        def waiting() -> dict[str, Any]:
            """Return the queued Packages of each kit, and its number of pushes."""
            return {
                traits: (queued, here)
                for traits, kit in kits.items()
                if (queued := kit.call("GET", "/api/queue").body["queued"])
                or (here := pushed(kit).total()) < PUSHES
            }

        sent = {f"{traits} {number}" for traits in users for number in range(PACKAGES)}
        try:
            until(lambda: set(arrived()) == sent and not waiting())
        except AssertionError:
            missing = sorted(sent - set(arrived()))
            raise AssertionError((missing, waiting(), above.output())) from None
        assert arrived() == Counter(sent)
        for traits, kit in kits.items():
            assert pushed(kit) == Counter(f"{traits} push {n}" for n in range(PUSHES))
            assert set(Counter(contents(kit)).values()) == {1}
