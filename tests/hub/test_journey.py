"""A push to a hook over IP, then over the operator and a modem, and a Package to a webhook, once.

All are real processes: hub, agents, and the simulated sky with its DirectIP gateway.
"""

from __future__ import annotations

import http.server
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.hub.test_cluster import contents, push
from tests.processes import MODULE, Running, administer, agent, free_port, hub, until

IMEI = "300234010000001"


class Receiver:
    """A webhook's receiver that keeps the JSON bodies."""

    def __init__(self, tls: ssl.SSLContext | None, before_answer: Callable[[], None]) -> None:
        self.got: list[Any] = []
        self.headers: list[Any] = []
        self.times: list[float] = []
        """Times on the monotonic clock."""
        got, headers, times = self.got, self.headers, self.times

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers.append(self.headers)
                times.append(time.monotonic())
                got.append(json.loads(body))
                before_answer()
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        scheme = "http"
        if tls is not None:
            scheme = "https"
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self.server.server_address[1]}/"


@contextmanager
def receiver(
    tls: ssl.SSLContext | None = None, before_answer: Callable[[], None] = lambda: None
) -> Iterator[Receiver]:
    running = Receiver(tls, before_answer)
    thread = threading.Thread(target=running.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.server.shutdown()
        running.server.server_close()
        thread.join()


@contextmanager
def sky(home: Path, mo_port: int, mt_port: int) -> Iterator[Running]:
    arguments = ["--link", str(home / "modem"), "--latency", "0.2", "--imei", IMEI]
    behind = ["--hub", f"127.0.0.1:{mo_port}", "--mt-port", str(mt_port)]
    command = [*MODULE, "simulate", "satellite", *arguments, *behind]
    with Running(command, "satellite-port=") as running:
        yield running


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def behind_directip(database: str, mo_port: int, mt_port: int) -> dict[str, str]:
    """Return settings of a hub whose satellite operator is the simulated sky."""
    return {
        "database": database,
        "satellite-grace": "1",
        "directip-listen": f"127.0.0.1:{mo_port}",
        "directip-gateway": f"127.0.0.1:{mt_port}",
        "webhook-allow": "127.0.0.0/8",
    }


def message_to(member: int, first: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a push in the name of the workspace's `first` member."""
    return {
        "sourceUserId": first["sourceUserId"],
        "workspaceId": first["workspaceId"],
        "targetUserId": member,
        "message": {"content": text},
    }


def test_items_travel_once_between_hub_kits_and_webhook(tmp_path: Path) -> None:
    mo_port, mt_port = free_port(), free_port()
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    ada = administer(database, "user", "add", "Ada", "--over-satellite")["id"]
    ben = administer(database, "user", "add", "Ben")["id"]
    device = administer(
        database, "device", "add", "kit", "--user", str(ada), "--imei", IMEI, "--tagged"
    )
    bens = administer(database, "device", "add", "tablet", "--user", str(ben))
    settings = behind_directip(database, mo_port, mt_port)

    def message(text: str) -> dict[str, Any]:
        return message_to(ada, first, text)

    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        running = stack.enter_context(hub(folder(tmp_path / "hub"), settings))
        added = administer(database, "webhook", "add", hooked.url, "--untried")
        assert added["secret"].startswith("whsec_")
        above = stack.enter_context(sky(tmp_path, mo_port, mt_port))
        by_ip: dict[str, Any] = {
            "satellite-port": None,
            "hub-address": running.address,
            "hub-token": bens["hub-token"],
        }
        tablet = stack.enter_context(agent(folder(tmp_path / "tablet"), by_ip))
        common: dict[str, Any] = {
            "satellite-port": str(tmp_path / "modem"),
            "satellite-key": device["satellite-key"],
            "inbound-hook": "cat",
        }
        linked = {
            **common,
            "hub-address": running.address,
            "hub-token": device["hub-token"],
        }
        home = folder(tmp_path / "kit")
        with agent(home, linked) as kit:
            kit.expect("linked to the hub")
            push(running.port, proof, message("over IP"))
            assert '"content":"over IP"' in kit.expect('"requestId"')
            assert kit.stop() == 0
        with agent(home, common) as kit:
            push(running.port, proof, message("over satellite"))
            assert '"content":"over satellite"' in kit.expect('"requestId"')
            above.expect("MT of")
            sent = kit.call("POST", "/api/package", {"message": {"content": "from the ice"}}).body
            assert sent["channels"] == {"Satellite": {"status": "Delivered"}}
            until(lambda: "from the ice" in contents(tablet))
            # The receipt of Ben's agent comes with the next message to the kit.
            push(running.port, proof, message("thanks"))
            kit.expect('"content":"thanks"')

            def receipts() -> list[str]:
                answer = kit.call("GET", f"/api/package/{sent['id']}").body
                return [each["name"] for each in answer["receipts"]]

            until(lambda: receipts() == ["Ben"])
            assert kit.stop() == 0
        with agent(home, linked) as kit:
            # The same kit on both channels: a Package goes over both and arrives once. If the hub
            # has confirmed it before the modem's turn, satellite costs nothing (fan-out).
            kit.expect("linked to the hub")
            both = kit.call("POST", "/api/package", {"message": {"content": "twice sent"}}).body
            assert both["status"] == "Delivered"

            def ended() -> bool:
                deliveries = kit.call("GET", f"/api/package/{both['id']}").body["channels"]
                free = {"status": "Canceled", "reason": "delivered over Cellular"}
                over_satellite = deliveries["Satellite"] in ({"status": "Delivered"}, free)
                return over_satellite and deliveries["Cellular"] == {"status": "Delivered"}

            until(ended)
            above.expect("the hub has MO")
            until(lambda: "twice sent" in posted(hooked))
            dry = [*MODULE, "send", "--dry-run", "message", "all well", "--by", "60"]
            said = subprocess.run(
                [*dry, "--port", str(kit.port)], capture_output=True, text=True, check=True
            ).stdout
            assert "\n  begins after 60 s: a cheaper channel goes first\n" in said
            assert said.endswith(", otherwise by Satellite after 60 s for 1 credit\n"), said
            # The later Package has arrived too, and the first one did not arrive again.
            kit.call("POST", "/api/package", {"message": {"content": "the end"}})
            until(lambda: "the end" in posted(hooked) and "the end" in contents(tablet))
            assert sorted(posted(hooked)) == ["from the ice", "the end", "twice sent"]
            assert sorted(contents(tablet)) == ["from the ice", "the end", "twice sent"]
            assert sorted(contents(kit)) == ["over IP", "over satellite", "thanks"]
        assert {entry["payloads"][0]["identity"]["name"] for entry in hooked.got} == {"Ada"}


def posted(hooked: Receiver) -> list[str]:
    return [entry["payloads"][0]["events"][0]["content"] for entry in hooked.got]
