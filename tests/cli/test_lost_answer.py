"""The message to a person if an agent accepts a call and ends, or is another program."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fieldagent.kit.local_http import describe_failure
from tests.processes import MODULE, PATIENCE, agent, free_port


@contextmanager
def ends_with_the_call(answer: bytes = b"") -> Iterator[int]:
    """Yield a port that accepts a complete call, sends only this, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def take() -> None:
            caller, _ = listener.accept()
            with caller:
                caller.settimeout(PATIENCE)
                read = b""
                while b"\r\n\r\n" not in read:
                    read += caller.recv(65_536)
                caller.sendall(answer)

        thread = threading.Thread(target=take)
        thread.start()
        yield int(listener.getsockname()[1])
        thread.join(PATIENCE)


def fieldagent(port: int, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*MODULE, *words, "--port", str(port)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize(
    "words",
    [("send", "message", "hut"), ("sos", "--yes"), ("sos", "--cancel"), ("cancel", "7")],
    ids=" ".join,
)
def test_lost_answer_to_a_change_is_reported_as_unknown_result(words: tuple[str, ...]) -> None:
    with ends_with_the_call() as port:
        done = fieldagent(port, *words)
    assert (done.returncode, done.stdout) == (69, "")
    assert f"the agent on 127.0.0.1:{port} does not answer (" in done.stderr
    assert "It is unknown whether it has done this: before you call again, check" in done.stderr


def test_lost_answer_to_a_query_is_not_reported_as_unknown_result() -> None:
    with ends_with_the_call() as port:
        done = fieldagent(port, "status")
    assert done.returncode == 69
    assert "does not answer (" in done.stderr and "not known" not in done.stderr


@pytest.mark.parametrize("words", [("status",), ("send", "message", "hut"), ("sos", "--yes")])
@pytest.mark.parametrize(
    "answer",
    [b"301 Moved Permanently\r\nLocation: /web/", b"101 Switching Protocols", b"200 OK"],
)
def test_another_program_at_the_port_is_reported(words: tuple[str, ...], answer: bytes) -> None:
    with ends_with_the_call(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 0\r\n\r\n") as port:
        done = fieldagent(port, *words)
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.startswith("fieldagent: the program at this port is not fieldagent")


def test_refused_connection_is_not_reported_as_unknown_result() -> None:
    done = fieldagent(free_port(), "send", "message", "hut")
    assert done.returncode == 69
    assert "no agent answers on" in done.stderr and "not known" not in done.stderr


@pytest.mark.parametrize("errors", [None, "down", ["down"], [{"message": "down"}], {"a": 1}])
def test_error_body_in_a_third_party_format_is_shown(errors: object) -> None:
    """A proxy or a gateway in front of the hub sends such a body."""
    body = json.dumps({"detail": "no upstream", "errors": errors}).encode()
    assert describe_failure(502, body) == "no upstream"


@pytest.mark.parametrize("named", ["ä", "a b", "../packages", "x?y", "\udcff", "a\nb"])
def test_invalid_request_id_is_reported_as_unknown(tmp_path: Path, named: str) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit:
        for words in (("inbound", "read", named), ("inbound", "replay", named)):
            done = fieldagent(kit.port, *words)
            assert (done.returncode, done.stdout) == (65, "")
            assert "does not answer" not in done.stderr and "Traceback" not in done.stderr
