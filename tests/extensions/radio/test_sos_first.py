"""A kit that catches up gets an SOS before everything else, over each route."""

from __future__ import annotations

import json
import shutil
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent.agent.inbound.hooks import JournalSpool, dispatch
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult
from tests.extensions.lab.simulator.test_simulate_node import nodes
from tests.extensions.radio import radio_kit
from tests.extensions.radio.radio_kit import Station, on_air, station
from tests.hub.test_cluster import push
from tests.hub.test_journey import IMEI, behind_directip, folder, message_to, sky
from tests.processes import Agent, administer, agent, free_port, hub, until

NOTES = 8


async def until_async(there: Any) -> None:
    with trio.fail_after(1200):
        while not there():
            await trio.sleep(0.5)


@pytest.mark.parametrize(
    ("count", "loss", "seed"),
    [
        (3, 0.0, 1),
        pytest.param(5, 0.3, 2, marks=pytest.mark.full),
        pytest.param(10, 0.3, 3, marks=pytest.mark.full),
    ],
)
async def test_kit_with_lost_journal_gets_sos_first_by_radio(
    tmp_path: Path, clock: Any, count: int, loss: float, seed: int
) -> None:
    """The test runs in virtual time. The kit returns among other kits that still send the missed
    items.
    """
    async with (
        on_air(tmp_path, {"loss": loss}, count, seed=seed) as sky,
        AsyncExitStack() as stack,
    ):

        def there(number: int) -> Any:
            return station(tmp_path, number, tmp_path / f"node-{number}")

        others = [await stack.enter_async_context(there(n)) for n in range(1, count)]
        async with there(count) as late:
            for kit in (*others, late):
                await kit.post(message={"content": f"here is {kit.number}"})
                await trio.sleep(20)
            await others[0].post(message={"content": "help"}, priority=100)
            await until_async(lambda: all("help" in kit.messages() for kit in (*others[1:], late)))
        socket = sky.nodes.sockets[count - 1]
        sky.nodes.unplug(socket)
        shutil.rmtree(tmp_path / f"station-{count}")
        for number in range(NOTES):
            for kit in others:
                await kit.post(message={"content": f"note {number} of {kit.number}"})
            await trio.sleep(30)
        sky.nodes.plug(socket)
        handed: list[str] = []
        async with there(count) as late, trio.open_nursery() as nursery:
            nursery.start_soon(_hand_over, late, handed)
            await until_async(lambda: len(handed) > NOTES)
            nursery.cancel_scope.cancel()
    assert handed[0] == "help", handed


async def _hand_over(kit: Station, handed: list[str]) -> None:
    async def call(delivery: Delivery) -> HandoverResult:
        handed.append(_content(delivery.body))
        return HandoverResult(HandoverOutcome.HANDED)

    spool = JournalSpool("script", kit.journal, lambda: kit.inbox.news)
    await dispatch(spool, call, name="the script", clock=radio_kit.clock)


def _content(body: str) -> str:
    (event,) = json.loads(body)["payloads"][0]["events"]
    return str(event.get("content"))


def hooked(home: Path) -> str:
    """Return a hook that stores its payloads one after the other."""
    return f"cat >>{home}/came && echo >>{home}/came"


def came(home: Path) -> list[str]:
    place = home / "came"
    lines = place.read_text().splitlines() if place.exists() else []
    return [_content(line) for line in lines if line]


@pytest.mark.full
def test_real_agent_with_lost_journal_gets_sos_first_by_radio(tmp_path: Path) -> None:
    homes = {name: folder(tmp_path / name) for name in ("Ada", "Ben", "Cleo")}

    def start(name: str) -> Agent:
        number = [*homes].index(name) + 1
        radio = {"radio-port": str(tmp_path / f"air/node-{number}"), "radio-station": str(number)}
        return Agent(
            homes[name], {"satellite-port": None, "inbound-hook": hooked(homes[name]), **radio}
        )

    with ExitStack() as stack:
        stack.enter_context(nodes(tmp_path, "--nodes", "3", "--seed", "7"))
        ada, ben = (stack.enter_context(start(name)) for name in ("Ada", "Ben"))
        with start("Cleo") as cleo:
            until(lambda: len(cleo.call("GET", "/api/neighbours").body["neighbours"]) == 2)
            ada.call("POST", "/api/sos", {"text": "help"})
            until(lambda: "help" in came(homes["Cleo"]) and "help" in came(homes["Ben"]))
            cleo.kill()
        shutil.rmtree(homes["Cleo"] / "state")
        (homes["Cleo"] / "came").unlink()
        for number in range(NOTES):
            for kit in (ada, ben):
                kit.call("POST", "/api/package/async", {"message": {"content": f"note {number}"}})
        stack.enter_context(start("Cleo"))
        until(lambda: len(came(homes["Cleo"])) > NOTES)
        assert came(homes["Cleo"])[0] == "help"


@pytest.mark.full
@pytest.mark.parametrize("way", ["IP", "Satellite"])
def test_returning_kit_gets_sos_first_from_hub(tmp_path: Path, way: str) -> None:
    """The SOS is behind many messages that wait for a kit that was off, at the hub or at the
    operator.
    """
    mo_port, mt_port = free_port(), free_port()
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    ada = administer(database, "user", "add", "Ada")["id"]
    ben = administer(database, "user", "add", "Ben", "--over-satellite")["id"]
    of_ada = administer(database, "device", "add", "Ada's kit", "--user", str(ada))
    modem = ["--imei", IMEI] if way == "Satellite" else []
    of_ben = administer(database, "device", "add", "Ben's kit", "--user", str(ben), *modem)
    home = folder(tmp_path / "ben")
    with ExitStack() as stack:
        settings = behind_directip(database, mo_port, mt_port)
        running = stack.enter_context(hub(folder(tmp_path / "hub"), settings))
        linked = {"satellite-port": None, "hub-address": running.address}
        raises = agent(folder(tmp_path / "ada"), {**linked, "hub-token": of_ada["hub-token"]})
        kit = stack.enter_context(raises)
        if way == "Satellite":
            above = stack.enter_context(sky(home, mo_port, mt_port))
        for number in range(NOTES):
            push(running.port, proof, message_to(ben, first, f"note {number}"))
            if way == "Satellite":
                # Each note waits at the operator's gateway in a separate message.
                above.expect("MT of")
        kit.call("POST", "/api/sos", {"text": "help"})
        if way == "Satellite":
            above.expect("MT of")
        else:
            running.expect("raised")
        receives = {"inbound-hook": hooked(home), "satellite-port": None}
        if way == "Satellite":
            receives["satellite-port"] = str(home / "modem")
        else:
            receives |= {"hub-address": running.address, "hub-token": of_ben["hub-token"]}
        stack.enter_context(agent(home, receives))
        until(lambda: len(came(home)) > NOTES)
        assert came(home)[0] == "help", came(home)
