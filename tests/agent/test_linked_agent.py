"""The agent in use, as a real process, linked to a hub's end in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.agent.test_agent import HOOK
from tests.hub.memory_mailbox import TOKEN, MemoryHub
from tests.hub.serving import CA, hub_end
from tests.processes import MODULE, Agent, Answer


def link_settings(home: Path, port: int) -> dict[str, str | None]:
    """Return settings with the link as the only channel."""
    ca = home / "ca.pem"
    CA.cert_pem.write_to_path(str(ca))
    return {
        "hub-address": f"https://127.0.0.1:{port}",
        "hub-token": TOKEN,
        "hub-ca-file": str(ca),
        "satellite-port": None,
    }


@contextmanager
def linked(home: Path, port: int, **more: str) -> Iterator[Agent]:
    with Agent(home, {**link_settings(home, port), **more}) as running:
        yield running


async def post(agent: Agent, content: str) -> Answer:
    return await trio.to_thread.run_sync(agent.post, content)


async def test_linked_agent_delivers_package_to_hub(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with hub_end(hub) as port:
        with linked(tmp_path, port, **{"inbound-hook": HOOK}) as agent:
            answer = await post(agent, "Camp reached")
            assert answer.body["status"] == "Delivered"
            assert answer.body["channels"] == {"Cellular": {"status": "Delivered"}}
            assert hub.mailbox.contents == ["Camp reached"]
            status = (await trio.to_thread.run_sync(agent.call, "GET", "/api/status")).body
            cellular = status["channels"]["Cellular"]
            assert (cellular["state"], cellular["hub"]) == ("ready", f"https://127.0.0.1:{port}")
            assert cellular["creditsToday"] == 0 < cellular["bytesToday"]
            assert status["channels"]["Satellite"]["configured"] is False


async def test_repeated_kills_of_linked_agent_lose_and_repeat_nothing(tmp_path: Path) -> None:
    hub = MemoryHub()
    contents = [f"note {number}" for number in range(60)]
    async with hub_end(hub) as port:
        for start in range(0, 60, 20):
            with linked(tmp_path, port) as agent:
                for content in contents[start : start + 20]:
                    message = {"message": {"content": content}}
                    accept = partial(agent.call, "POST", "/api/package/async", message)
                    assert (await trio.to_thread.run_sync(accept)).status == 202
        with linked(tmp_path, port) as agent:
            assert (await post(agent, "last")).body["status"] == "Delivered"
            while len(hub.mailbox.contents) < 61:
                await trio.sleep(0.05)
    assert sorted(hub.mailbox.contents) == sorted([*contents, "last"])


async def test_linked_agent_stops_cleanly(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with hub_end(hub) as port:
        with linked(tmp_path, port) as agent:
            await post(agent, "x")
            assert await trio.to_thread.run_sync(agent.stop) == 0
        while hub.linked:
            await trio.sleep(0.01)


@pytest.mark.parametrize(
    ("token", "good", "said"),
    [
        (TOKEN, True, "accepts a WebSocket over lo and the token"),
        ("wrong", False, "correct hub-token"),
    ],
)
async def test_check_command_tests_hub_without_opening_link(
    tmp_path: Path, token: str, good: bool, said: str
) -> None:
    hub = MemoryHub()
    CA.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with hub_end(hub) as port:
        properties = tmp_path / "agent.properties"
        properties.write_text(
            f"api-port=0\nstate-directory={tmp_path}\nhub-address=https://127.0.0.1:{port}\n"
            f"hub-token={token}\nhub-ca-file={tmp_path}/ca.pem\ncellular-interface=lo\n"
        )
        command = [*MODULE, "check", "--json", "--config", str(properties)]
        done = await trio.run_process(command, capture_stdout=True, check=False)
    report = json.loads(done.stdout)
    assert report["good"] is good
    assert any(said in finding["text"] for finding in report["findings"])
    assert hub.links == 0
