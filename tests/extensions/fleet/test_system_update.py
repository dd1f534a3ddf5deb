"""A whole system is written into the other slot, from existing and served pieces, and the boot
loader is set. Slots are files, systemd is simulated, and the web server is real.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from fieldagent.extensions.fleet import fetching, system_trial, system_update, trial_journal
from fieldagent.extensions.fleet.fetching import FetchedFile, UpdateRefused
from fieldagent.extensions.fleet.system_slots import PARTITIONS, SystemSlots
from fieldagent.extensions.fleet.trial import Place
from fieldagent.extensions.fleet.update_order import UpdateOrder
from fieldagent.kit import kit_health
from fieldagent.system.system_image import PIECE, decode_image, make_pieces_folder
from tests.file_server import file_server
from tests.machine import tool
from tests.signer import BUILD, Signer

ENTRY = "title @SLOT@\nversion @TURN@\noptions root=PARTUUID=@ROOT@ kit.slot=@SLOT@ ro\n"
WORDS = "root=PARTUUID=@ROOT@ kit.slot=@SLOT@ ro\n"
SLOT = 4 * PIECE


def file_system(folder: Path, target: Path, kernel: bytes) -> Path:
    tree = folder / "tree"
    own = tree / "usr/lib/kit/slot"
    own.mkdir(parents=True, exist_ok=True)
    (own / "vmlinuz").write_bytes(kernel)
    (own / "initrd.img").write_bytes(b"initrd")
    (own / "entry.conf").write_text(ENTRY)
    (own / "cmdline.txt").write_text(WORDS)
    (tree / "data").write_bytes(random.Random(1).randbytes(3 << 20))
    made = ["-q", "-t", "ext4", "-O", "^has_journal", "-U", "6b697400-0000-4000-8000-000000000000"]
    seed = ["-E", "hash_seed=6b697400-0000-4000-8000-000000000000", "-d", str(tree)]
    target.unlink(missing_ok=True)
    subprocess.run([tool("mke2fs", "e2fsprogs"), *made, *seed, target, "40M"], check=True)
    return target


def describe_system(version: str) -> str:
    return json.dumps({"board": "amd64", "version": version, "id": f"id{version}"})


class Maker:
    """A maker that builds systems and serves them."""

    def __init__(self, folder: Path) -> None:
        tool("zstd", "zstd")
        self.folder, self.served = folder, folder / "served"
        self.served.mkdir()
        self.signer = Signer(folder / "keys")
        self.old = file_system(folder, folder / "1.0.0.part", b"kernel 1")
        self.make("1.0.0", self.old)
        kernel = b"kernel 2" + random.Random(2).randbytes(100_000)
        self.new = file_system(folder, folder / "2.0.0.part", kernel)
        self.make("2.0.0", self.new)

    @cached_property
    def with_difference(self) -> Path:
        """Return the served folder with a delta from 1 to 2."""
        folder = self.folder / "with difference"
        shutil.copytree(self.served, folder)
        command = [BUILD / "delta", folder / "2.0.0.system", folder / "1.0.0.system"]
        subprocess.run([*command, "-s", self.folder / "keys/secret"], check=True)
        return folder

    def make(self, version: str, part: Path) -> None:
        made, name = self.served / f"{version}.system", self.folder / "name"
        name.write_text(describe_system(version))
        script = [sys.executable, BUILD / "system.py", part, name, made]
        subprocess.run(list(map(str, script)), check=True)
        self.signer.release(made)


class Card:
    """A card that runs slot a with version 1."""

    def __init__(self, maker: Maker, folder: Path) -> None:
        tool("debugfs", "e2fsprogs")
        self.maker, self.folder, self.root = maker, folder, folder / "root"
        self.entries = self.root / "boot/firmware/loader/entries"
        for each in (self.entries, self.root / "proc", self.root / "usr/lib/kit"):
            each.mkdir(parents=True)
        (self.root / "dev/disk/by-partuuid").mkdir(parents=True)
        (self.root / "var/lib/kit/program-b").mkdir(parents=True)
        self.slots = SystemSlots(self.root)
        self.runs("a")
        (self.root / "usr/lib/kit/system.json").write_text(describe_system("1.0.0"))
        (self.entries / "system-a.conf").write_text("title a\nversion 7\n")
        for slot in PARTITIONS:
            self.slots.get_device(slot).write_bytes(maker.old.read_bytes() if slot == "a" else b"")
            subprocess.run(["truncate", "-s", str(SLOT), self.slots.get_device(slot)], check=True)
        self.place = Place(folder / "update")
        self.served = folder / "served"
        shutil.copytree(maker.served, self.served)
        self.new = self.served / "2.0.0.system"
        (folder / "update.pub").write_text(maker.signer.public)
        (folder / "agent.properties").write_text(f"state-directory={folder}/state\n")
        (folder / "state").mkdir()
        (folder / "own.pyz").write_bytes(b"the program before")

    def runs(self, slot: str) -> None:
        (self.root / "proc/cmdline").write_text(f"root=x kit.slot={slot} ro\n")

    def has_written_it(self) -> bool:
        part = self.maker.new.read_bytes()
        return self.slots.get_device("b").read_bytes()[: len(part)] == part

    def serve_difference(self) -> None:
        shutil.copytree(self.maker.with_difference, self.served, dirs_exist_ok=True)

    def begin(self, what: str | Path, *, older: bool = False) -> None:
        order = UpdateOrder(
            what=str(what),
            older=older,
            key=self.folder / "update.pub",
            settings=self.folder / "agent.properties",
            program=self.folder / "own.pyz",
            minutes=3.0,
            steady=1.0,
        )
        system_update.begin_system_update(order, self.place, self.slots)

    def go_on(self) -> int:
        return system_trial.continue_trial(self.place, self.slots)

    def names(self) -> set[str]:
        return {each.name for each in self.entries.iterdir()}

    def result(self) -> str:
        return str(json.loads(self.place.result.read_bytes())["why"])

    def is_tried(self, runs: str) -> None:
        """Write the system, and boot its slot."""
        self.begin(self.new)
        self.go_on()
        self.loader_starts_it()
        self.runs(runs)

    def loader_starts_it(self) -> None:
        """Rename the tried entry as systemd-boot does."""
        (self.entries / "system-b+1.conf").rename(self.entries / "system-b+0-1.conf")


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Return the recorded commands to systemd."""
    said: list[str] = []
    monkeypatch.setattr(kit_health, "call_systemctl", lambda *words: said.append(" ".join(words)))
    monkeypatch.setattr(system_trial, "send_to_hub", lambda _, text: said.append(text))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "systemctl").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return said


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    return Maker(tmp_path_factory.mktemp("maker"))


@pytest.fixture
def card(maker: Maker, tmp_path: Path, systemd: list[str]) -> Card:
    return Card(maker, tmp_path)


@pytest.fixture
def server(card: Card) -> Iterator[str]:
    with file_server(card.served) as address:
        yield address


def test_system_update_is_written_armed_and_rebooted(card: Card, systemd: list[str]) -> None:
    card.begin(card.new)
    assert card.go_on() == 0
    assert card.has_written_it()
    assert card.names() == {"system-a.conf", "system-b+1.conf"}
    entry = (card.entries / "system-b+1.conf").read_text()
    assert "version 8" in entry
    assert f"root=PARTUUID={PARTITIONS['b']} kit.slot=b ro kit.trial" in entry
    assert (card.root / "boot/firmware/b/vmlinuz").read_bytes().startswith(b"kernel 2")
    # A program of an earlier system in that slot does not belong to this one.
    assert not (card.root / "var/lib/kit/program-b").exists()
    assert systemd == ["stop fieldagent.service", "reboot"]


def test_reboot_after_the_update_waits_for_an_open_sos(
    card: Card,
    systemd: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Writing takes hours. Meanwhile a disk may fail and a person may need help."""
    card.begin(card.new)
    answers = ["an SOS is open", "an SOS is open", ""]
    monkeypatch.setattr(kit_health, "find_stop_obstacle", lambda port: answers.pop(0))

    def wait(seconds: float) -> None:
        assert not systemd

    monkeypatch.setattr("time.sleep", wait)
    assert card.go_on() == 0
    assert not answers
    assert systemd == ["stop fieldagent.service", "reboot"]
    assert capsys.readouterr().err.count("the agent is not stopped yet: an SOS is open") == 1


def test_working_system_is_kept(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    card.is_tried("b")
    monkeypatch.setattr(kit_health, "start_watched", lambda *_, **__: "")
    assert card.go_on() == 0
    assert card.names() == {"system-a.conf", "system-b.conf"}
    assert "kit.trial" not in (card.entries / "system-b.conf").read_text()
    assert card.result() == ""
    assert not card.place.system.exists()


def test_failed_system_is_rolled_back_with_the_reason(
    card: Card, systemd: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card.is_tried("b")
    monkeypatch.setattr(kit_health, "start_watched", lambda *_, **__: "no agent answers")
    card.go_on()
    assert card.names() == {"system-a.conf"}
    assert systemd[-1] == "reboot"
    card.runs("a")
    assert card.go_on() == 1
    assert card.result() == "no agent answers"
    assert "system 2.0.0 did not work here, 1.0.0 runs again: no agent answers" in systemd


def test_system_that_never_started_is_rolled_back(card: Card) -> None:
    card.is_tried("a")
    assert card.go_on() == 1
    assert card.result() == system_trial.NEVER_STARTED
    assert card.names() == {"system-a.conf"}


def test_boot_loader_that_skips_the_new_slot_is_tried_twice(card: Card) -> None:
    card.begin(card.new)
    assert [card.go_on() for _ in range(3)] == [0, 0, 1]
    assert card.names() == {"system-a.conf"}


def test_interrupted_write_resumes_after_a_power_cut(
    card: Card, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    card.begin(f"{server}/2.0.0.system")
    written = system_trial.store_trial
    fetched: list[str] = []

    def fetch(what: str, *how: Any) -> FetchedFile:
        fetched.append(what)
        return fetching.fetch_file(what, *how)

    monkeypatch.setattr(system_trial, "fetch_file", fetch)

    def cut(place: Place, trial: system_trial.SystemTrial) -> None:
        written(place, trial)
        if trial.written == 1:
            raise KeyboardInterrupt("the power fails")

    monkeypatch.setattr(system_trial, "store_trial", cut)
    with pytest.raises(KeyboardInterrupt, match="the power fails"):
        card.go_on()
    assert card.names() == {"system-a.conf"}
    monkeypatch.setattr(system_trial, "store_trial", written)
    card.go_on()
    first = decode_image(card.new.read_bytes()).pieces[0].file
    assert [each.rpartition("/")[2] for each in fetched].count(first) == 1
    assert card.names() == {"system-a.conf", "system-b+1.conf"}


@pytest.mark.full
def test_only_the_system_delta_is_fetched(
    card: Card, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    card.serve_difference()
    for each in decode_image(card.new.read_bytes()).pieces:
        (Path(make_pieces_folder(str(card.new))) / each.file).unlink()
    card.begin(f"{server}/2.0.0.system")
    card.go_on()
    assert card.has_written_it()
    output = capsys.readouterr().err
    fetched = int(output.partition(" bytes were fetched")[0].split()[-1].replace(",", ""))
    # The new kernel has 100 kB that no earlier file had.
    assert 100_000 < fetched < 200_000


@pytest.mark.full
def test_whole_system_is_fetched_if_the_delta_does_not_fit(card: Card) -> None:
    card.serve_difference()
    with card.slots.get_device("a").open("r+b") as running:
        running.write(bytes(40 << 20))
    card.begin(card.new)
    card.go_on()
    assert card.has_written_it()


def test_full_disk_ends_the_update_and_restarts_the_agent(
    card: Card, systemd: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(trial_journal, "copy_journal", full)
    card.begin(card.new)
    assert card.go_on() == 1
    assert card.result() == "no space left on device"
    assert card.names() == {"system-a.conf"}
    assert "start --no-block fieldagent.service" in systemd
    assert "reboot" not in systemd


def test_agent_restarts_after_any_failure_of_the_trial(
    card: Card, systemd: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(_: SystemSlots, __: str) -> str:
        raise OSError("the card does not answer")

    card.begin(card.new)
    monkeypatch.setattr(SystemSlots, "get_state", failed)
    with pytest.raises(OSError, match="does not answer"):
        card.go_on()
    assert systemd[-1] == "start --no-block fieldagent.service"


def test_refused_or_aborted_order_leaves_the_previous_update_running(
    card: Card, systemd: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card.begin(card.new)
    begun: list[bool] = []
    monkeypatch.setattr(system_update, "_start_unit", lambda: begun.append(True))
    with pytest.raises(UpdateRefused, match="cannot be read"):
        card.begin(card.served / "3.0.0.system")
    assert (systemd, len(begun)) == (["stop fieldagent-system.service"], 1)

    def give_up(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(system_update, "read_signed_file", give_up)
    with pytest.raises(KeyboardInterrupt):
        card.begin(card.served / "3.0.0.system")
    assert len(begun) == 2
    card.go_on()
    assert card.has_written_it()


def test_altered_image_segment_is_not_written(card: Card) -> None:
    piece = decode_image(card.new.read_bytes()).pieces[0].file
    (Path(make_pieces_folder(str(card.new))) / piece).write_bytes(b"another's")
    card.begin(card.new)
    assert card.go_on() == 1
    assert "is not the file that was signed" in card.result()
    assert card.names() == {"system-a.conf"}


def test_system_of_the_same_version_another_board_or_excessive_size_is_refused(card: Card) -> None:
    with pytest.raises(UpdateRefused, match="is already running"):
        card.begin(card.served / "1.0.0.system")
    subprocess.run(["truncate", "-s", "1M", card.slots.get_device("b")], check=True)
    with pytest.raises(UpdateRefused, match="this card has room for"):
        card.begin(card.new)
    name = card.root / "usr/lib/kit/system.json"
    name.write_text(name.read_text().replace("amd64", "riscv"))
    with pytest.raises(UpdateRefused, match="is for amd64, and this is riscv"):
        card.begin(card.new)


def test_system_signed_with_an_unknown_key_is_refused(card: Card) -> None:
    Signer(card.folder / "stranger").release(card.new)
    with pytest.raises(UpdateRefused, match="the signature is from key"):
        card.begin(card.new)
    assert not card.place.system.exists()


def test_card_with_one_slot_refuses_with_a_remedy(card: Card) -> None:
    (card.root / "proc/cmdline").write_text("root=LABEL=system ro\n")
    with pytest.raises(UpdateRefused, match="write a card of the newer image"):
        card.begin(card.new)


def format_slot_choice(slot: str, words: str = "cmdline.txt") -> str:
    return f"kernel={slot}/vmlinuz\ninitramfs {slot}/initrd.img\ncmdline={slot}/{words}\n"


class PiCard(Card):
    """A card of a Pi that runs slot a with version 1."""

    def __init__(self, maker: Maker, folder: Path) -> None:
        super().__init__(maker, folder)
        self.boot = self.root / "boot/firmware"
        shutil.rmtree(self.boot / "loader")
        self.choice = self.boot / "slot.txt"
        self.choice.write_text(format_slot_choice("a"))
        (self.boot / "a").mkdir()
        (self.boot / "a/cmdline.txt").write_text("root=PARTUUID=6b697400-02 kit.slot=a ro\n")

    def loader_starts_it(self) -> None:
        """Do what the kernel does after the firmware has started it to try the other system
        (build/boards/arm64/initramfs-tools).
        """
        assert self.choice.read_text() == format_slot_choice("a", "try.txt")
        words = (self.boot / "a/try.txt").read_text()
        assert words == "root=PARTUUID=6b697400-02 kit.slot=a ro nr_cpus=1 kit.try=b\n"
        (self.boot / "b/tried").touch()
        self.choice.write_text(format_slot_choice("a"))


@pytest.fixture
def pi(maker: Maker, tmp_path: Path, systemd: list[str]) -> PiCard:
    return PiCard(maker, tmp_path)


def test_pi_boots_the_written_system_at_the_next_start(pi: PiCard, systemd: list[str]) -> None:
    pi.begin(pi.new)
    assert pi.go_on() == 0
    assert pi.has_written_it()
    assert pi.slots.get_state("b") == "armed"
    assert (pi.boot / "b/vmlinuz").read_bytes().startswith(b"kernel 2")
    assert (pi.boot / "b/cmdline.txt").read_text() == "root=PARTUUID=6b697400-03 kit.slot=b ro\n"
    pi.loader_starts_it()
    assert pi.slots.get_state("b") == "spent"
    assert systemd == ["stop fieldagent.service", "reboot"]


def test_pi_keeps_a_working_system_and_frees_the_other_slot(
    pi: PiCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    pi.is_tried("b")
    monkeypatch.setattr(kit_health, "start_watched", lambda *_, **__: "")
    assert pi.go_on() == 0
    assert pi.choice.read_text() == format_slot_choice("b")
    assert [pi.slots.get_state(slot) for slot in "ab"] == ["absent", "kept"]
    assert pi.result() == ""


@pytest.mark.parametrize("runs", ["b", "a"], ids=["its agent is dead", "its kernel is dead"])
def test_pi_rolls_back_a_failed_system(
    pi: PiCard, systemd: list[str], monkeypatch: pytest.MonkeyPatch, runs: str
) -> None:
    pi.is_tried(runs)
    monkeypatch.setattr(kit_health, "start_watched", lambda *_, **__: "no agent answers")
    pi.go_on()
    assert pi.choice.read_text() == format_slot_choice("a")
    if runs == "b":
        assert systemd[-1] == "reboot"
        pi.runs("a")
        assert pi.go_on() == 1
    assert pi.slots.get_state("b") == "absent"
    assert pi.result() == ("no agent answers" if runs == "b" else system_trial.NEVER_STARTED)


def test_pi_that_skips_the_new_slot_is_tried_twice(pi: PiCard) -> None:
    pi.begin(pi.new)
    assert [pi.go_on() for _ in range(3)] == [0, 0, 1]
    assert pi.choice.read_text() == format_slot_choice("a")


def test_pi_with_an_unmounted_boot_partition_refuses_the_update(pi: PiCard) -> None:
    pi.choice.unlink()
    with pytest.raises(UpdateRefused, match="is it mounted"):
        pi.begin(pi.new)
