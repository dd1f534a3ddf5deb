"""Measures a message on each kind of satellite modem: bytes on the air as a ratio to the payload,
the billed amount for the corpus, and the processor time from a POST to the first byte for the
modem. Texts in different languages compress differently, so the table has separate rows for each
language.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import threading
import time
import tty
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from fieldagent.extensions.imt import messages as imt_messages
from fieldagent.extensions.lab.simulator.base_camp import BaseCamp
from fieldagent.extensions.lab.simulator.gateway import SimulatedGateway
from fieldagent.extensions.lab.simulator.imt_modem import SimulatedImtModem
from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.extensions.lab.simulator.sbd_modem import SimulatedModem
from fieldagent.package.package import Data, Message
from fieldagent.wire import sbd
from fieldagent.wire.credit import compute_credits
from fieldagent.wire.envelope import Entry, encode
from fieldagent.wire.fragments import split
from tests.bench.field_texts import FIELD_TEXTS, packed_share
from tests.bench.table import row
from tests.processes import agent, until

SIZES = (50, 340, 2_000, 30_000)
"""Sizes of the measured payloads in bytes."""
LARGEST = {"sbd": sbd.MO_BYTES, "imt": imt_messages.PAYLOAD_BYTES}
POSTS = 20
NUMBER, TIME = 50_000_000, 1_790_000_000
"""Sequence number and Unix time that take the usual number of bytes."""


class Wire(Protocol):
    """A simulated modem at the other end of the line."""

    def receive_data(self, data: bytes) -> None: ...

    def data_to_send(self) -> bytes: ...


def main() -> None:
    """Print the rows."""
    for kind, largest in LARGEST.items():
        for size in SIZES:
            sent = messages(Data(random.Random(size).randbytes(size)), largest)
            what = f"bytes on air over {size} of data, {kind}, {len(sent)} messages"
            row(what, sum(sent) / size)
    texts = [text for each in FIELD_TEXTS.values() for text in each]
    sizes = message_bytes(texts)
    row(f"sbd: credits of the {len(texts)} texts of the corpus", sum(map(compute_credits, sizes)))
    row(f"imt: bytes of the {len(texts)} texts of the corpus", sum(sizes))
    for language, own in FIELD_TEXTS.items():
        row(f"packed text over UTF-8, {language}", packed_share(own))
        row(
            f"sbd: credits of its {len(own)} in {language}",
            sum(map(compute_credits, message_bytes(own))),
        )
    for kind in LARGEST:
        processor, clock = first_byte(kind)
        row(f"{kind}: processor from a POST to the first byte for the modem", processor, "", "ms")
        row(f"{kind}: the same by the clock", clock, "", "ms")


def message_bytes(texts: Sequence[str]) -> list[int]:
    """Return the bytes of a packed message for each single text."""
    return [len(encode([Entry(NUMBER, Message(text), TIME)], is_packed=True)) for text in texts]


def messages(item: Data, largest: int) -> list[int]:
    """Return the bytes of each message that carries a part of the item."""
    whole = encode([Entry(NUMBER, item, TIME)], is_packed=True)
    if len(whole) <= largest:
        return [len(whole)]
    return [len(encode([Entry(NUMBER, part)])) for part in split(whole, largest)]


def modem_of(kind: str) -> tuple[Wire, Callable[[], None]]:
    """Return a simulated modem, and a function that makes the network answer immediately."""
    queue = MtQueue()
    gateway = SimulatedGateway(lambda line: None, queue, BaseCamp(lambda line: None, queue))
    if kind == "imt":
        modem = SimulatedImtModem(gateway)
        return modem, modem.finish_transit
    other = SimulatedModem(gateway)
    return other, other.finish_session


def first_byte(kind: str) -> tuple[float, float]:
    """Return the median milliseconds of the agent's processor and of real time."""
    modem, network = modem_of(kind)
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    heard = threading.Event()

    def serve() -> None:
        while True:
            data = os.read(ours, 4096)
            heard.set()
            modem.receive_data(data)
            os.write(ours, modem.data_to_send())
            network()
            os.write(ours, modem.data_to_send())

    threading.Thread(target=serve, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        settings = {"satellite-port": os.ttyname(theirs), "satellite-modem": kind}
        with agent(Path(folder), settings) as kit:
            answered: list[tuple[float, float]] = []
            for number in range(POSTS):
                kit.post(f"before {number}")
                heard.clear()
                busy, began = _busy(kit.process.pid), time.perf_counter()
                kit.call("POST", "/api/package/async", {"message": {"content": "now"}})
                assert heard.wait(20)
                answered.append((_busy(kit.process.pid) - busy, time.perf_counter() - began))
                until(lambda: kit.call("GET", "/api/queue").body["queued"] == 0)
            by_kind = zip(*answered, strict=True)
            processor, clock = (statistics.median(each) * 1000 for each in by_kind)
            return processor, clock


def _busy(process: int) -> float:
    """Return the processor seconds of the process (Documentation/scheduler/sched-stats)."""
    return sum(
        int(each.read_text().split()[0]) / 1e9
        for each in Path(f"/proc/{process}/task").glob("*/schedstat")
    )


if __name__ == "__main__":
    main()
