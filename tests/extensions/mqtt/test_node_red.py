"""The example for Node-RED in operation: a real Node-RED, mosquitto, agent and sky."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fieldagent.extensions.mqtt.agent.settings import MqttSettings
from fieldagent.extensions.mqtt.agent.topics import make_topics
from tests.extensions.mqtt.brokers import Mosquitto, needs_mosquitto, neighbour
from tests.machine import NPM, needs
from tests.processes import Running, agent, free_port, sky, until

FLOW = Path(__file__).parents[3] / "examples/node-red.json"
NODE_RED = shutil.which(NPM / ".bin/node-red")
needs_node_red = needs(NODE_RED, "node-red is missing: `tests/run full` installs it")


def nodes() -> dict[str, dict[str, Any]]:
    return {node["id"]: node for node in json.loads(FLOW.read_text())}


def test_node_red_flow_is_connected_and_uses_the_kits_topics() -> None:
    known = nodes()
    ours = make_topics(*MqttSettings().place)
    variables = {each["name"]: each["value"] for each in known["fa-tab"]["env"]}

    def topic(node: str) -> str:
        """Return a node's topic with the flow's variables in place."""
        text = str(known[node]["topic"])
        while match := re.search(r"\$\{(\w+)\}", text):
            text = text.replace(match[0], variables[match[1]])
        return text

    wires = [wire for node in known.values() for out in node.get("wires", ()) for wire in out]
    assert {*wires} <= {*known}
    assert topic("fa-in") == ours.inbound
    assert ours.find_sender(topic("fa-out")) == "node-red"
    assert topic("fa-result") == ours.get_result_topic("node-red")
    # No published message is retained, because each connection would get it again.
    assert known["fa-out"]["retain"] == "false"
    assert all(node["broker"] == "fa-broker" for node in known.values() if "topic" in node)


class Notice(NamedTuple):
    title: str
    priority: str | None
    text: str


@contextmanager
def notification_receiver() -> Iterator[tuple[int, list[Notice]]]:
    """Yield a receiver of notifications that acts like ntfy."""
    got: list[Notice] = []

    class Ntfy(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            got.append(Notice(self.headers["Title"], self.headers["Priority"], text))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ntfy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1], got
    finally:
        server.shutdown()
        server.server_close()


class NodeRed(Running):
    def __init__(self, home: Path) -> None:
        assert NODE_RED is not None, "node-red is missing"
        self.address = f"http://127.0.0.1:{free_port()}"
        port = self.address.rpartition(":")[2]
        (home / "settings.js").write_text(
            f'module.exports = {{uiHost: "127.0.0.1", uiPort: {port}, flowFile: "flows.json",'
            ' telemetry: {enabled: false}, editorTheme: {tours: false}, credentialSecret: "x"}\n'
        )
        command = [NODE_RED, "--userDir", str(home), "--settings", str(home / "settings.js")]
        super().__init__(command, "Started flows")
        # Node-RED starts the flows and its HTTP server side by side.
        until(self._is_listening)

    def _is_listening(self) -> bool:
        try:
            return self.ask("/")[0] == 200
        except urllib.error.URLError:
            return False

    def ask(self, path: str, data: bytes | None = None, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(f"{self.address}{path}", data, headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def deploy(self, flow: list[dict[str, Any]]) -> None:
        status, answer = self.ask(
            "/flows", json.dumps(flow).encode(), **{"Content-Type": "application/json"}
        )
        assert status == 204, answer

    def fill_in(self, origin: str = "", **fields: str) -> tuple[int, str]:
        headers = {"Origin": origin} if origin else {}
        return self.ask("/fieldagent", urllib.parse.urlencode(fields).encode(), **headers)


@pytest.mark.full
@needs_mosquitto
@needs_node_red
def test_node_red_flow_transfers_messages_both_ways(tmp_path: Path) -> None:
    home = tmp_path / "node-red"
    home.mkdir()
    with ExitStack() as stack:
        above = stack.enter_context(sky(tmp_path))
        broker = stack.enter_context(Mosquitto(tmp_path, free_port()))
        address = f"mqtt://127.0.0.1:{broker.port}"
        place = {"mqtt-address": address, "mqtt-prefix": "hut", "mqtt-name": "roof"}
        budget = {"mqtt-senders": "node-red", "mqtt-credits-per-day": "1"}
        kit = stack.enter_context(agent(tmp_path, {**place, **budget}))
        until(lambda: kit.call("GET", "/api/status").body["mqtt"]["state"] == "ready")
        other = stack.enter_context(neighbour(broker.port))
        port, got = stack.enter_context(notification_receiver())
        running = stack.enter_context(NodeRed(home))
        flow = nodes()
        flow["fa-broker"]["port"] = str(broker.port)
        variables = {each["name"]: each for each in flow["fa-tab"]["env"]}
        variables["KIT"]["value"] = "hut/roof"
        variables["NOTIFY"]["value"] = f"http://127.0.0.1:{port}/fieldagent"
        running.deploy([*flow.values()])
        running.expect("Connected to broker")

        # An incoming message causes a notification.
        above.type("mt Storm at noon")
        until(lambda: got)
        assert got == [Notice("Message from Base camp", None, "Storm at noon")]
        # The same message again, as after a lost acknowledgement, causes none.
        came = other.await_one("hut/roof/inbound")
        other.say("hut/roof/inbound", came)
        other.say("hut/roof/inbound", {**came, "event_type": "sos", "requestId": "another"})
        until(lambda: len(got) > 1)
        assert got[1:] == [Notice("SOS from Base camp", "urgent", "Storm at noon")]
        status, page = running.ask("/fieldagent")
        assert (status, "<form" in page) == (200, True)
        reply = running.fill_in(running.address, content="hut reached", to="Ada")
        assert reply == (200, "The kit has it, as Package 1.")
        above.expect("hut reached")
        assert kit.call("GET", "/api/packages").body["packages"][0]["to"] == "Ada"
        # The page shows the kit's refusals and those of the form itself.
        status, text = running.fill_in(content="for whom the budget is spent")
        assert (status, text[:9]) == (403, "Not sent:")
        assert running.fill_in("http://elsewhere.example", content="x")[0] == 403
        assert running.fill_in(content=" ") == (422, "Not sent: it is empty.")
        assert len(kit.call("GET", "/api/packages").body["packages"]) == 1
