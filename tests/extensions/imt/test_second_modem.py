"""A kit with an independent modem 9704 (`tests/peers/jspr.py`), and the maker's own library with
the same modem.
"""

from __future__ import annotations

import os
import random
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldagent.package.package import Data, Message
from fieldagent.wire.envelope import Entry, decode, encode
from tests.processes import Running, agent

PEER = Path(__file__).parents[2] / "peers/jspr.py"
LARGE = random.Random(9704).randbytes(50_000)
"""35 segments."""
OFFICIAL = """
import sys, time
from rockblock9704 import RockBlock9704
modem = RockBlock9704()
while not modem.begin(sys.argv[1]):
    pass
time.sleep(0.2)
assert modem.send_message(open(sys.argv[2], "rb").read(), timeout=60)
print(modem.get_imei(), flush=True)
while not (message := modem.receive_message()):
    time.sleep(0.05)
print(bytes(message).hex())
"""


@pytest.fixture
def modem(tmp_path: Path) -> Iterator[Running]:
    with Running([sys.executable, str(PEER), str(tmp_path / "modem")], "ready") as running:
        yield running


def read_sent(modem: Running) -> bytes:
    """Return the next MO message at the modem."""
    return bytes.fromhex(modem.expect("MO ").removeprefix("MO "))


def test_kit_sends_and_receives_through_an_independent_9704(modem: Running, tmp_path: Path) -> None:
    settings = {"satellite-modem": "imt", "inbound-hook": "cat"}
    with agent(tmp_path, settings) as kit:
        assert kit.post("Camp reached").body["status"] == "Delivered"
        contents = [each.content for each in decode(read_sent(modem)).entries]
        assert Message("Camp reached") in contents
        body = {"data": {"payload": b64encode(LARGE).decode()}}
        assert kit.call("POST", "/api/package", body).body["status"] == "Delivered"
        assert Data(LARGE) in [each.content for each in decode(read_sent(modem)).entries]
        channel = kit.call("GET", "/api/status").body["channels"]["Satellite"]
        assert (channel["imei"], channel["signal"]) == ("300258060000001", 3)
        modem.type(encode([Entry(1, Message("come down"), 1_800_000_000)]).hex())
        kit.expect("come down")


def test_makers_library_sends_and_receives_through_this_9704(
    modem: Running, tmp_path: Path
) -> None:
    pytest.importorskip("rockblock9704", reason="its wheel is for x86-64 alone")
    (tmp_path / "body").write_bytes(LARGE)
    # The library accepts only short paths.
    port = os.path.realpath(tmp_path / "modem")
    with Running([sys.executable, "-c", OFFICIAL, port, str(tmp_path / "body")]) as library:
        assert read_sent(modem) == LARGE
        library.expect("300258060000001")
        modem.type(LARGE.hex())
        assert library.expect(LARGE.hex()[:9])
