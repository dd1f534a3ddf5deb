"""`fieldagent demo --team 3`: items of one kit arrive at the others."""

from __future__ import annotations

import json
import re
import signal
from functools import partial
from http.client import HTTPConnection
from typing import Any

from tests.processes import MODULE, PATIENCE, Running, until


def call(port: int, method: str, path: str, body: Any = None) -> Any:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def has_received(port: int, text: str) -> bool:
    return text in str(call(port, "GET", "/api/inbound"))


def test_demo_team_receives_the_messages_and_sos_of_each_kit() -> None:
    command = [*MODULE, "demo", "--team", "3", "--port", "0"]
    with Running(command, "3 kits hear each other") as demo:
        demo.expect("Ctrl-C ends the team")
        pages = re.findall(r"http://127.0.0.1:(\d+)/", "\n".join(demo.output()))
        one, *others = map(int, pages)
        sent = call(one, "POST", "/api/package", {"message": {"content": "Camp reached"}})
        assert sent["status"] == "Delivered"
        for port in others:
            until(partial(has_received, port, "Camp reached"))
        call(others[0], "POST", "/api/sos", {"text": "help"})
        for port in (one, others[1]):
            until(partial(has_received, port, "help"))
        demo.process.send_signal(signal.SIGINT)
        assert demo.wait() == 0


def test_demo_team_of_one_is_refused() -> None:
    with Running([*MODULE, "demo", "--team", "1"]) as demo:
        assert demo.wait() == 2
    assert "'1' is not a team size; use 2 to 8" in "\n".join(demo.output())


def test_demo_team_with_a_hub_is_refused() -> None:
    with Running([*MODULE, "demo", "--team", "2", "--hub"]) as demo:
        demo.expect("--hub: not allowed with argument --team")
        assert demo.wait() == 2
