"""Runs on a board: an agent and a hub under load, on a recorded disk.

    under_load.py FOLDER ANSWERS POSTS [LIBRARY]

FOLDER contains their data. Each answer is a line in ANSWERS, a port whose other end notes the
length of the record. LIBRARY is preloaded into both (`tests/peers/disk.c`): with it, their syncs do
nothing. The board has nothing else of this tree except the product.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

PRODUCT = "fieldagent"
CALLERS = 4


@contextmanager
def running(ready: str, *arguments: str, **environment: str) -> Iterator[str]:
    """Yield the line that shows the start. The program ends in order with the block."""
    process = subprocess.Popen(
        [PRODUCT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if ready in line:
            break
    else:
        raise AssertionError(said)
    with ThreadPoolExecutor(1) as reader:
        reader.submit(process.stdout.read)
        try:
            yield line.strip()
        finally:
            process.terminate()
    # The simulator needs no orderly end.
    assert process.wait() in (0, -signal.SIGTERM), arguments


def administer(database: Path, *arguments: str) -> Any:
    command = [PRODUCT, "hub", *arguments, "--database", str(database), "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def post(port: str, path: str, body: object, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", int(port))
    try:
        content = json.dumps(body)
        connection.request("POST", path, content, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def begin_agent(stack: ExitStack, place: Path, state: Path, **environment: str) -> str:
    """Return its port."""
    modem = place / "modem"
    sky = ["simulate", "satellite", "--link", str(modem), "--latency", "0.02"]
    stack.enter_context(running("satellite-port=", *sky))
    settings = place / "agent.properties"
    settings.write_text(f"api-port=0\nstate-directory={state}\nsatellite-port={modem}\n")
    started = running("answers at", "run", "--config", str(settings), **environment)
    return stack.enter_context(started).rpartition(":")[2]


def begin_hub(
    stack: ExitStack, place: Path, state: Path, **environment: str
) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return its port, and the head and the body of a push."""
    state.mkdir(mode=0o700)
    database = state / "hub.sqlite3"
    first = administer(database, "init", "Alps")
    key = administer(database, "key", "add", "all", "--per-minute", "60000", "--burst", "9999")
    member = administer(database, "user", "add", "kit")["id"]
    administer(database, "device", "add", "kit", "--user", str(member))
    proof = {"x-api-key": key["apiKey"], "Authorization": f"Bearer {first['token']}"}
    body = {
        "sourceUserId": first["sourceUserId"],
        "workspaceId": first["workspaceId"],
        "targetUserId": member,
    }
    settings = place / "hub.properties"
    settings.write_text(f"port=0\nlisten=127.0.0.1\ndatabase={database}\n")
    started = running("answers at", "hub", "run", "--config", str(settings), **environment)
    return stack.enter_context(started).rpartition(":")[2], proof, body


def main() -> None:
    folder, answers, posts = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    library = sys.argv[4] if len(sys.argv) > 4 else None
    folder.mkdir(mode=0o700)
    lying = {"LD_PRELOAD": library, "DISK_FOLDER": str(folder), "DISK_FAULT": "sync,1,0,0"}
    environment = {name: text for name, text in lying.items() if text} if library else {}
    port = os.open(answers, os.O_WRONLY)

    def answered(line: str) -> None:
        os.write(port, f"{line}\n".encode())

    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        agent = begin_agent(stack, Path(place), folder / "agent", **environment)
        hub, proof, body = begin_hub(stack, Path(place), folder / "hub", **environment)

        def both(number: int) -> None:
            text = {"content": f"text {number}."}
            path = "/api/package" if number % 10 == 7 else "/api/package/async"
            response, said = post(agent, path, {"message": text})
            assert response.status in (200, 202), said
            package = json.loads(said)
            answered(f"agent {package['id']} {package['status'] or ''}".strip())
            response, said = post(hub, "/api/package", {**body, "message": text}, **proof)
            assert response.status == 200, said
            answered(f"hub {(response.getheader('Location') or '').rpartition('/')[2]}")

        with ThreadPoolExecutor(CALLERS) as callers:
            list(callers.map(both, range(posts)))


if __name__ == "__main__":
    main()
