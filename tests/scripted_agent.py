"""A simulated local API of an agent, with channels that a test chooses. It records posted
Packages.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.processes import PATIENCE

PACE = "/api/track/tracker"


class ScriptedAgent(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, answers: dict[str, Any]) -> None:
        self.answers = answers
        """Body of the answer, by path."""
        self.posted: queue.Queue[dict[str, Any]] = queue.Queue()
        super().__init__(("127.0.0.1", port), _Exchange)

    def expect(self) -> dict[str, Any]:
        """Wait for the next posted Package and return it."""
        return self.posted.get(timeout=PATIENCE)


class _Exchange(BaseHTTPRequestHandler):
    server: ScriptedAgent

    def do_GET(self) -> None:
        content = json.dumps(self.server.answers.get(self.path)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != PACE:
            self.server.posted.put(body)
        self.do_GET()

    def log_message(self, *what: object) -> None:
        """Print no log, because tests read the output of the tracker."""


@contextmanager
def scripted_agent(
    port: int = 0, *, up: tuple[str, ...] = ("Cellular",)
) -> Iterator[ScriptedAgent]:
    """Yield an agent. All channels are configured, and those in `up` are ready."""
    channels = {
        name: {"configured": True, "state": "ready" if name in up else "no service"}
        for name in ("Satellite", "Radio", "Cellular")
    }
    answers: dict[str, Any] = {
        "/api/status": {"channels": channels},
        "/api/package/async": {"id": 7},
    }
    answers[PACE] = {"chosenInterval": None}
    with ScriptedAgent(port, answers) as agent:
        thread = threading.Thread(target=agent.serve_forever, daemon=True)
        thread.start()
        try:
            yield agent
        finally:
            agent.shutdown()
            thread.join()
