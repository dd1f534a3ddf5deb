"""Power fails under a real ext4: answered data of an agent and a hub is there.

A board runs both on a disk whose writes and flushes QEMU records, with each answer beside them. For
each moment, the test computes the disk's content, runs e2fsck(8) as at a boot, and opens the files
with our own code. It mounts nothing, so each moment costs half a second.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from fieldagent.agent.journal.journal import Journal
from fieldagent.hub.store.opening import open_store
from fieldagent.store.group import StoreFailed
from tests.disk import build
from tests.machine import tool
from tests.processes import PATIENCE
from tests.shipping.board import ANSWER, BARE, MIB, Board
from tests.shipping.disk_log import RecordedDisk, entries
from tests.test_power_cuts import packages, pushes

pytestmark = [pytest.mark.full, pytest.mark.machine]

CUTS = int(os.environ.get("EXT4_CUTS", "2000"))
CUTS_LYING = 50
POSTED = 300
POSTED_LYING = 60
LOAD = 1200.0
"""Maximum seconds of the load on an emulated processor."""
MOUNT = """\
mkdir /run/disk
for disk in /sys/block/vd*; do
    ! grep -q recorded $disk/serial || mount /dev/${disk##*/} /run/disk
done
mountpoint -q /run/disk"""
PORT = "/dev/$(basename $(dirname $(grep -l answers /sys/class/virtio-ports/*/name)))"
HERE = Path(__file__).parent


@dataclass
class Recording:
    before: Path
    """The disk's image before all writes."""
    log: Path
    answers: list[tuple[int, str]]
    """Answers with the length of the log at each."""
    honest: int
    """Length of the log at the end of the part in which syncs work."""


def recorder(image: Path, log: Path, answers: Path) -> list[tuple[str, str]]:
    """Return the devices of a board: a recorded disk and a port for answers.

    A flush of the image does nothing here, but it is recorded immediately, so that no write gets
    between a flush and its entry.
    """
    disk = [
        "driver=blklogwrites,node-name=recorded,file.driver=file,log.driver=file",
        f"file.filename={image},file.cache.no-flush=on",
        f"log.filename={log},log.cache.no-flush=on",
    ]
    return [
        ("-blockdev", ",".join(disk)),
        ("-device", "virtio-blk-pci,drive=recorded,serial=recorded,write-cache=on"),
        ("-chardev", f"socket,id=answers,path={answers},server=on,wait=off"),
        ("-device", "virtserialport,chardev=answers,name=answers"),
    ]


@contextmanager
def recording_answers(port: Path, log: Path) -> Iterator[list[tuple[int, str]]]:
    """Record the length of the log at each answer."""
    answers: list[tuple[int, str]] = []
    line = socket.socket(socket.AF_UNIX)
    line.connect(str(port))

    def note() -> None:
        rest = b""
        while piece := line.recv(65536):
            size = log.stat().st_size
            *whole, rest = (rest + piece).split(b"\n")
            answers.extend((size, each.decode()) for each in whole)

    notes = threading.Thread(target=note)
    notes.start()
    try:
        yield answers
    finally:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
        notes.join(PATIENCE)
        line.close()


@pytest.fixture(scope="module")
def recording(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    home = tmp_path_factory.mktemp("recorded")
    before, disk, log = home / "before", home / "disk", home / "log"
    with before.open("wb") as file:
        file.truncate(64 * MIB)
    subprocess.run([tool("mke2fs", "e2fsprogs"), "-q", "-t", "ext4", before], check=True)
    shutil.copyfile(before, disk)
    log.touch()
    with tempfile.TemporaryDirectory(prefix="answers-") as short:
        port = Path(short) / "port"
        board = Board(home, image, None, *recorder(disk, log, port), shell=BARE)
        try:
            build(board.share)
            shutil.copy(HERE / "under_load.py", board.share)
            board.boot()
            board.run(MOUNT)
            load = f"python3 /mnt/under_load.py /run/disk/{{}} {PORT} {{}}"
            with recording_answers(port, log) as answers:
                board.run(load.format("honest", POSTED), LOAD)
                honest = log.stat().st_size
                board.run(load.format("lying", POSTED_LYING) + " /mnt/disk.so", LOAD)
                wait_for(lambda: len(answers) == 2 * (POSTED + POSTED_LYING))
        finally:
            board.close()
    return Recording(before, log, answers, honest)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ANSWER
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def choose_moments(
    recorded: Recording, first: int, last: int, count: int, random: Random
) -> list[int]:
    """Return lengths of the log, half of them directly after an answer, when its data is as new as
    possible.
    """
    ends = [entry.end for entry in entries(recorded.log, last) if entry.end > first]
    answered = [size for size, _ in recorded.answers if first < size <= last]
    chosen = random.choices(ends, k=count - count // 2) + random.choices(answered, k=count // 2)
    return sorted(chosen)


def write_states_after_cuts(
    recorded: Recording, chosen: list[int], image: Path, random: Random
) -> Iterator[int]:
    """Replay the disk up to each of these moments, and write its state after a power cut to
    `image`.
    """
    disk = RecordedDisk(recorded.before)
    log = entries(recorded.log, recorded.log.stat().st_size)
    entry = next(log, None)
    for moment in chosen:
        while entry and entry.end <= moment:
            disk.receive_message(entry)
            entry = next(log, None)
        disk.fail(image, random)
        yield moment


def start_again(image: Path, folder: str, target: Path) -> Path:
    """Return the content of `folder` on the disk after ext4 has recovered."""
    done = subprocess.run(
        [tool("e2fsck", "e2fsprogs"), "-p", image], capture_output=True, text=True
    )
    # 1: it has repaired something (e2fsck(8)).
    assert done.returncode in (0, 1), done.stdout
    target.mkdir()
    take_out = f'rdump "/{folder}" "{target}"'
    subprocess.run(
        [tool("debugfs", "e2fsprogs"), "-R", take_out, image], check=True, capture_output=True
    )
    for each in ("agent", "hub"):
        (target / folder / each).mkdir(mode=0o700, parents=True, exist_ok=True)
    return target / folder


def texts(state: Path) -> list[str]:
    """Return the texts of all Packages and all pushes."""
    journal, store = (
        Journal(state / "agent/journal.sqlite3"),
        open_store(str(state / "hub/hub.sqlite3")),
    )
    try:
        posted = [body.encode() for (body,) in journal.read("SELECT body FROM package")]
        pushed = [
            body for (body,) in store.run_once(lambda db: db.execute("SELECT body FROM item"))
        ]
    finally:
        journal.close()
        store.close()
    return [
        f"{what} {match[0].decode()}"
        for what, bodies in (("posted", posted), ("pushed", pushed))
        for body in bodies
        if (match := re.search(rb"text \d+\.", body))
    ]


def lost(recorded: Recording, home: Path, folder: str, chosen: list[int], seed: int) -> int:
    """Return the number of answered items that are missing over that many power cuts."""
    random = Random(seed)
    missing = known = 0
    lies = folder == "lying"
    place = home / "left"
    for moment in write_states_after_cuts(recorded, chosen, home / "image", random):
        state = start_again(home / "image", folder, place)
        first = 0 if folder == "honest" else recorded.honest
        answered = {line for size, line in recorded.answers if first < size <= moment}
        there: set[str] = set()
        with suppress(*([StoreFailed] if lies else [])):
            there |= {f"agent {each}" for each in packages(state / "agent")}
            there |= {f"hub {each}" for each in pushes(state / "hub")}
            come = texts(state)
            assert len(come) == len(set(come)), moment
        assert lies or not list(state.glob("*/*.bad")), moment
        missing += len(answered - there)
        known += len(answered)
        shutil.rmtree(place)
    assert known
    print(f"{len(chosen)} cuts, {known} times something had been answered, {missing} are not there")
    return missing


def test_acknowledged_data_survives_power_cuts_on_ext4(
    recording: Recording, tmp_path: Path
) -> None:
    chosen = choose_moments(recording, 0, recording.honest, CUTS, Random(1))
    assert lost(recording, tmp_path, "honest", chosen, seed=2) == 0


def test_data_is_lost_if_syncs_do_nothing(recording: Recording, tmp_path: Path) -> None:
    """The lost data proves that the test above can fail."""
    end = recording.log.stat().st_size
    chosen = choose_moments(recording, recording.honest, end, CUTS_LYING, Random(3))
    assert lost(recording, tmp_path, "lying", chosen, seed=4) > 0
