"""Measures an idle kit by channel, and estimates the result for a Pi Zero 2 W. With
satellite alone a kit rests most, so each channel has its rows.

Run it as root as `python -m tests.bench.kit_at_rest`. It counts wakeups, processor time, memory,
bytes at the block device of a separate ext4, and bytes on an idle link. It computes a day of a Pi
Zero 2 W from these and from the factors below, which come from other sources. No Pi was measured
yet. `docs/explain/energy.md` has the figures.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio
import trustme

from fieldagent.agent.condition.logbook import Logbook
from fieldagent.agent.journal import elapsed_base
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.watchdog import INTERVALS_PER_DISK_PROOF
from fieldagent.wire.kit_condition import UNKNOWN
from tests.bench.process import (
    REST,
    doings,
    peer_memory,
    radio_node,
    resident,
    until_at_work,
)
from tests.bench.table import row, show
from tests.browser import browser, page
from tests.machine import mounted
from tests.processes import MODULE, Agent, Hub, administer, agent, hub, sky

WATCHDOG = 180.0
"""WatchdogSec of `systemd/fieldagent.service`."""
DAY, HOUR = 86_400.0, 3_600.0
PING = 10
"""Seconds without data after which the measured link is tested. A real link has 45 to 300."""
MESSAGES, PACE = 5, 8.0
"""Number of messages, and seconds between two: by then, ext4's journal has written the
earlier one."""
WRITTEN = 45.0
"""Seconds until everything is at the block device: ext4's journal after 5, the inodes after 30."""
HEADERS = 52
"""Bytes of the headers of IPv4 and of TCP with timestamps."""

SLOWER = 20.0
"""Factor by which a core of a Pi Zero 2 W is slower: the estimate of docs/explain/energy.md,
not measured."""
WAKEUP = 0.001
"""Maximum seconds for which a wakeup keeps a core awake in addition to its work."""
BOARD_IDLE = 0.6
"""Watts. 0.375 with that article's savings (cnx-software.com/2021/12/09)."""
BOARD_BUSY = 1.75
"""Watts: 350 mA are typical for the active board in Raspberry Pi's table of power supplies."""
DEVICES = {
    "a 9602N, waiting for rings": 0.175,
    "a LoRa board with nRF52": 0.05,
    "a LoRa board with ESP32, Wi-Fi off": 0.2,
    "an LTE-M modem (SIM7000), registered": 0.041,
}
"""Watts: 35 mA at 5 V (the 9602's developer's guide, table 9); 15 mA at 3.3 V, 40 mA at 5 V
(wiki.meshamerica.com); 11 mA at 3.7 V (SIMCom's hardware design)."""

PAGE_OPEN = "satellite, its page in view"
WAKEUPS = {
    "satellite": "<= 0.06",
    "radio, a node": "<= 0.1",
    "link to the hub": "<= 0.1",
    PAGE_OPEN: "<= 0.3",
}
"""Goals per second for a kit with only that channel."""


class Card:
    """A separate ext4 whose block device counts the written bytes."""

    def __init__(self, place: Path) -> None:
        self.place = place
        device = place.stat().st_dev
        self._counts = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")

    def written(self) -> int:
        """Return the bytes so far. Data that is only in memory does not count."""
        # Sectors of 512 bytes (the kernel's Documentation/block/stat.rst).
        return int(self._counts.read_text().split()[6]) * 512


@contextmanager
def card(home: Path) -> Iterator[Card]:
    image = home / "card.image"
    with image.open("wb") as file:
        file.truncate(128 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0", image], check=True)
    with mounted(home / "card", "-o", "loop,noatime", image) as place:
        yield Card(place)


class AtRest(NamedTuple):
    wakeups: float
    """Wakeups per second."""
    processor: float
    """Processor seconds of this machine per hour."""
    written: float
    """Bytes written to the block device in a minute without a disk test."""
    resident: int
    own: int
    """Proportional set size in bytes: private memory, and the share of shared memory."""


class Kit(NamedTuple):
    name: str
    process: Agent
    card: Card


class Seen(NamedTuple):
    at: float
    wakeups: int
    nanoseconds: int
    written: int


def look(kit: Kit) -> Seen:
    pid = kit.process.process.pid
    tasks = Path(f"/proc/{pid}/task").iterdir()
    computed = sum(int((each / "schedstat").read_text().split()[0]) for each in tasks)
    return Seen(time.monotonic(), doings(pid).wakeups, computed, kit.card.written())


def at_rest(kits: list[Kit]) -> dict[str, AtRest]:
    """Wait a minute, and then measure all kits for another minute at the same time."""
    time.sleep(REST)
    # Write the inodes of files from the start now, because they do not belong to the idle time.
    os.sync()
    before = [look(each) for each in kits]
    time.sleep(REST)
    results = {}
    for kit, first in zip(kits, before, strict=True):
        last = look(kit)
        seconds = last.at - first.at
        pid = kit.process.process.pid
        results[kit.name] = AtRest(
            (last.wakeups - first.wakeups) / seconds,
            (last.nanoseconds - first.nanoseconds) / 1e9 / seconds * HOUR,
            (last.written - first.written) / seconds * 60,
            resident(pid),
            _proportional(pid),
        )
    return results


def _proportional(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


class Relay:
    """A TCP relay to a hub that counts the bytes in both directions."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.bytes = self.segments = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            ours, _ = self._listening.accept()
            theirs = socket.create_connection(("127.0.0.1", self._port))
            for pair in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while segment := source.recv(65536):
                self.bytes += len(segment)
                self.segments += 1
                target.sendall(segment)
            target.shutdown(socket.SHUT_WR)

    def on_wire(self) -> int:
        """Return the bytes so far with all headers. Each piece is acknowledged by a packet."""
        return self.bytes + self.segments * 2 * HEADERS


class Above(NamedTuple):
    running: Hub
    database: str
    ca_file: Path

    def link(self, name: str, port: int) -> dict[str, str]:
        """Return the settings of a new kit's link through this port."""
        member = str(administer(self.database, "user", "add", name)["id"])
        device = administer(self.database, "device", "add", name, "--user", member)
        return {
            "hub-address": f"https://127.0.0.1:{port}",
            "hub-token": device["hub-token"],
            "hub-ca-file": str(self.ca_file),
        }


@contextmanager
def hub_with_tls(home: Path) -> Iterator[Above]:
    database = str(home / "hub.sqlite3")
    administer(database, "init", "Bench")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(home / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(home / "hub.pem")
    files = {"tls-certificate": str(home / "hub.pem"), "tls-key": str(home / "hub.pem")}
    with hub(home, {"database": database, **files}) as running:
        yield Above(running, database, home / "ca.pem")


def measure() -> tuple[dict[str, AtRest], float]:
    """Return the idle costs of each kit, and the bytes of one link test in both directions."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        above = stack.enter_context(hub_with_tls(home))
        relay = Relay(above.running.port)
        none: dict[str, str | None] = {"satellite-port": None}
        kinds: dict[str, dict[str, str | None]] = {
            "no channel": none,
            "satellite": {},
            PAGE_OPEN: {},
            "radio, a node": none,
            "link to the hub": {**none, **above.link("linked", above.running.port)},
            "all three": {**above.link("all", above.running.port)},
            "a link that is tested": {
                **none,
                **above.link("tested", relay.port),
                "cellular-ping": str(PING),
            },
        }
        kits = []
        for number, (name, settings) in enumerate(kinds.items()):
            own = home / str(number)
            own.mkdir()
            place = stack.enter_context(card(own))
            if settings.get("satellite-port", "") is not None:
                stack.enter_context(sky(own))
            if name in ("radio, a node", "all three"):
                settings.update(stack.enter_context(radio_node(own)))
            settings["state-directory"] = str(place.place / "state")
            watchdog = {"WATCHDOG_USEC": f"{WATCHDOG * 1e6:.0f}"}
            running = stack.enter_context(agent(own, settings, MODULE, **watchdog))
            until_at_work(running)
            if name == PAGE_OPEN:
                opened = stack.enter_context(browser())
                stack.enter_context(page(opened, running.port))
            kits.append(Kit(name, running, place))
        results = at_rest(kits)
        before = relay.on_wire()
        time.sleep(REST)
        tests = REST / PING
        del results["a link that is tested"]
        return results, (relay.on_wire() - before) / tests


def bytes_of_day() -> tuple[float, float]:
    """Return the bytes that an idle agent writes to the block device per day: disk tests and its
    logbook.
    """
    with tempfile.TemporaryDirectory() as name, card(Path(name)) as place:
        proof, kept = trio.run(_bytes_of_each, place)
    return proof * DAY / (WATCHDOG * INTERVALS_PER_DISK_PROOF), kept * DAY / HOUR


async def _bytes_of_each(place: Card) -> tuple[int, int]:
    journal = Journal(place.place / "journal.sqlite3")
    logbook = Logbook(place.place, "boot", time.time, reset=UNKNOWN, commanded_boots=())
    logbook.write_file()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        await journal.refill_reserve()
        await trio.sleep(WRITTEN)
        seen = [place.written()]
        await journal.commit(partial(elapsed_base.store_base, base=journal.clock.get_base()))
        await trio.sleep(WRITTEN)
        seen.append(place.written())
        logbook.write_file()
        await trio.sleep(WRITTEN)
        seen.append(place.written())
        nursery.cancel_scope.cancel()
    journal.close()
    return seen[1] - seen[0], seen[2] - seen[1]


class Sent(NamedTuple):
    """Cost of one message over satellite, from the POST to its delivery."""

    processor: float
    """Processor seconds of this machine."""
    written: float
    """Bytes written to the block device."""


def sent() -> Sent:
    with (
        tempfile.TemporaryDirectory() as name,
        card(home := Path(name)) as place,
        sky(home),
        agent(home, {"state-directory": str(place.place / "state")}) as running,
    ):
        kit = Kit("satellite", running, place)
        time.sleep(WRITTEN)
        before = look(kit)
        for number in range(MESSAGES):
            assert running.post(f"message {number}").status == 200
            time.sleep(PACE)
        time.sleep(WRITTEN)
        after = look(kit)
    computed = (after.nanoseconds - before.nanoseconds) / 1e9
    return Sent(computed / MESSAGES, (after.written - before.written) / MESSAGES)


def main() -> None:
    if os.geteuid() != 0:
        show("a kit at rest: not measured, as only root may mount a file system of its own")
        return
    # Each counts only its own work, and waits for almost all of its time.
    with ThreadPoolExecutor() as beside:
        day, one_sent = beside.submit(bytes_of_day), beside.submit(sent)
        results, test = measure()
    for name, kit in results.items():
        row(f"at rest, {name}: wakeups", kit.wakeups, WAKEUPS.get(name, ""), "/s")
        row("  processor, of this machine", kit.processor, "", "s/h")
        row("  memory, resident", kit.resident / (1 << 20), "", "MiB")
        row("  memory, its own share (PSS)", kit.own / (1 << 20), "", "MiB")
        if name == PAGE_OPEN:
            row("  memory over that of its libraries", kit.resident / peer_memory(), "<= 1.35")
        row("  at the block device, between two proofs of the disk", kit.written, "<= 0", "B/m")
        busy = kit.processor * SLOWER + kit.wakeups * WAKEUP * HOUR
        energy = busy / HOUR * (BOARD_BUSY - BOARD_IDLE) * DAY / HOUR
        row("  computed for a Pi Zero 2 W: of a core", busy / HOUR * 100, "", "%")
        row("  the same: energy a day above the idle board's", energy, "", "Wh")
    proofs, logbook = day.result()
    row("bytes a day at the block device: proofs of the disk", proofs / 1e6, "", "MB")
    row("  the logbook", logbook / 1e6, "", "MB")
    row("  both", (proofs + logbook) / 1e6, "<= 4", "MB")
    message = one_sent.result()
    row("a message over satellite, at the block device", message.written / 1e3, "", "kB")
    row("  processor, of this machine", message.processor * 1e3, "", "ms")
    row("one test of an idle link over TLS, all headers counted", test, "", "B")
    row("  an hour, tested every 300 s", test * HOUR / 300, "<= 6000", "B")
    row("  an hour, tested every 45 s", test * HOUR / 45, "", "B")
    row("a day of the idle board, stated", BOARD_IDLE * 24, "", "Wh")
    for name, watts in DEVICES.items():
        row(f"  {name}", watts * 24, "", "Wh")


if __name__ == "__main__":
    main()
