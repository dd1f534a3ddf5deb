"""The hub's TAK server, used by CloudTAK's client (npm, @tak-ps/node-tak)."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.tak.test_server import Valley, pem_of
from tests.hub.test_people_journey import came
from tests.machine import NPM, needs
from tests.processes import Running, until

PROGRAM = Path(__file__).with_name("node_tak.mjs")
needs_node_tak = needs(
    (NPM / "@tak-ps/node-tak").exists(), "node-tak is missing: `tests/run full` installs it"
)


@pytest.mark.full
@needs_node_tak
def test_cloudtak_client_receives_and_sends_messages(tmp_path: Path, stack: ExitStack) -> None:
    there = Valley(tmp_path, stack)
    kit = there.kit()
    position = {"latitude": 46.5, "longitude": 8.1, "altitude": 1520}
    location = {"location": {**position, "speedOverGround": 1.5, "courseOverGround": 270}}
    assert kit.call("POST", "/api/package", location).body["status"] == "Delivered"
    certificate = str(pem_of(there.package("Ben"), tmp_path))
    url = f"ssl://127.0.0.1:{there.port}"
    command = ["env", "-C", str(NPM), "node", str(PROGRAM), url, certificate]
    client = stack.enter_context(Running(command, '"ping":true'))

    def heard(wanted: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Return the first matching event."""

        def found() -> list[dict[str, Any]]:
            lines = [json.loads(each) for each in client.output() if each.startswith("{")]
            return [each for each in lines if "properties" in each and wanted(each)]

        until(found)
        return found()[0]

    # It only listens so far, and gets everything.
    # The server may show Ada before it reads the position that the hub has just stored.
    hut = [8.1, 46.5, 1520]
    place = heard(
        lambda event: (event["id"], event["geometry"]["coordinates"]) == (there.unit, hut)
    )
    motion = place["properties"]
    assert (motion["callsign"], motion["speed"], motion["course"]) == ("Ada", 1.5, 270)
    assert kit.post("storm at <17:00>").status == 200
    chat = heard(lambda event: event["properties"]["type"] == "b-t-f")
    assert chat["properties"]["remarks"] == "storm at <17:00>"

    ben, ada = {"uid": "ANDROID-Ben", "callsign": "Ben"}, {"uid": there.unit, "callsign": "Ada"}
    client.type(json.dumps({"from": ben, "to": ada, "message": "come down"}))
    payload = came(kit, "come down")
    assert payload["body"]["payloads"][0]["identity"]["name"] == "Ben"
