"""Noise on a kit's serial line, between real processes with an independent modem and gateway:
unreadable messages arrive later.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

from fieldagent.wire import trace
from tests.breaking import Put, environment
from tests.hub.test_cluster import contents, push
from tests.hub.test_foreign_modems import PEER
from tests.hub.test_journey import IMEI, behind_directip, folder, message_to
from tests.processes import MODULE, Running, administer, agent, free_port, hub, until

KIT = "fieldagent.agent.channels.satellite"


def test_messages_garbled_on_the_serial_line_arrive_later(tmp_path: Path) -> None:
    mo_port, mt_port = free_port(), free_port()
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    ada = administer(database, "user", "add", "Ada")["id"]
    administer(database, "device", "add", "kit", "--user", str(ada), "--imei", IMEI)
    lines = folder(tmp_path / "lines")
    soon = environment(tmp_path, Put(f"{KIT}:PAUSES", [0.1, 0.2]), Put(f"{KIT}:GARBLED_MAX_S", 0.0))
    settings = behind_directip(database, mo_port, mt_port)
    peer = [sys.executable, str(PEER), str(lines), str(mo_port), str(mt_port), f"0:{IMEI}:garbles"]
    with ExitStack() as stack:
        running = stack.enter_context(hub(folder(tmp_path / "hub"), settings, MODULE, **soon))
        above = stack.enter_context(Running(peer, "ready"))
        satellite = {"satellite-port": str(lines / "0")}
        home = folder(tmp_path / "kit")
        kit = stack.enter_context(agent(home, satellite, MODULE, **soon))
        push(running.port, proof, message_to(ada, first, "come home"))
        above.expect("MT of ")
        running.expect("kit could not read a message of")
        above.expect("MT of ")
        until(lambda: contents(kit) == ["come home"])
        # The trace of the line is on disk, without the text of the message.
        (kept,) = tmp_path.glob("kit/**/trace-satellite.log")
        records = trace.parse_trace(kept.read_text("ascii"))
        assert any(each.data == b"AT+SBDRB\r" for each in records)
        assert b"come home" not in kept.read_bytes()
    (day,) = administer(database, "usage", "list")
    assert (day["name"], day["difference"]) == ("kit", "not imported")
    assert day["mo"] >= 1
    assert day["mt"] >= 2
