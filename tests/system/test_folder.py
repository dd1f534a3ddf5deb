"""A replaced file exists under its name after a power cut, also on the FAT of a card."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fieldagent.system.folder import (
    SLOT_BYTES,
    SLOT_MAX,
    read_slots,
    rename_file,
    replace_file,
    write_in_slots,
)


def write_new_file(path: Path) -> None:
    replace_file(path, b"content")


def overwrite_file(path: Path) -> None:
    path.write_bytes(b"before")
    replace_file(path, b"content")


def rename_to(path: Path) -> None:
    before = path.with_name("before")
    before.write_bytes(b"content")
    rename_file(before, path)


@pytest.mark.parametrize("put", [write_new_file, overwrite_file, rename_to])
def test_file_is_synced_under_its_final_name_and_then_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], None]
) -> None:
    path = tmp_path / "file"
    synced: list[tuple[str, bool]] = []
    sync = os.fsync

    def noted(file: int) -> None:
        synced.append((Path(f"/proc/self/fd/{file}").readlink().name, path.exists()))
        sync(file)

    monkeypatch.setattr(os, "fsync", noted)
    put(path)
    assert path.read_bytes() == b"content"
    assert synced[-2:] == [(path.name, True), (tmp_path.name, True)]


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_torn_slot_write_leaves_the_previous_content(tmp_path: Path, writes: int) -> None:
    """This holds for each part of the write that reached the disk."""
    path = tmp_path / "slots"
    for number in range(writes):
        write_in_slots(path, b"write %d" % number)
    before = path.read_bytes()
    write_in_slots(path, b"the last")
    after = path.read_bytes()
    assert read_slots(path) == b"the last"
    assert len(after) == 2 * SLOT_BYTES
    changed = [at for at in range(2 * SLOT_BYTES) if before[at] != after[at]]
    assert {at // SLOT_BYTES for at in changed} == {writes % 2}
    old = b"write %d" % (writes - 1)
    for cut in (*changed, 2 * SLOT_BYTES):
        for torn in (after[:cut] + before[cut:], before[:cut] + after[cut:]):
            path.write_bytes(torn)
            assert read_slots(path) == (b"the last" if torn == after else old)
            write_in_slots(path, b"goes on")
            assert read_slots(path) == b"goes on"


@pytest.mark.parametrize(
    "rot", [b"", b"{}", bytes(SLOT_BYTES), bytes(2 * SLOT_BYTES), b"\xff" * 3 * SLOT_BYTES]
)
def test_file_without_a_complete_slot_is_written_again(tmp_path: Path, rot: bytes) -> None:
    path = tmp_path / "slots"
    path.write_bytes(rot)
    with pytest.raises(ValueError, match="empty"):
        read_slots(path)
    write_in_slots(path, b"x" * SLOT_MAX)
    assert read_slots(path) == b"x" * SLOT_MAX
    with pytest.raises(ValueError, match="more than the"):
        write_in_slots(path, b"x" * (SLOT_MAX + 1))


def test_slot_write_creates_and_renames_no_file(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    write_in_slots(path, b"first")
    before = path.stat().st_ino
    write_in_slots(path, b"second")
    assert path.stat().st_ino == before
    assert [each.name for each in tmp_path.iterdir()] == ["slots"]
