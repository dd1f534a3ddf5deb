"""What is put under a name is there after a power cut, on FAT too: a card begins with that."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fieldagent.system.folder import put_file, rename_file


def put_anew(path: Path) -> None:
    put_file(path, b"content")


def put_over_another(path: Path) -> None:
    path.write_bytes(b"before")
    put_file(path, b"content")


def rename_to(path: Path) -> None:
    before = path.with_name("before")
    before.write_bytes(b"content")
    rename_file(before, path)


@pytest.mark.parametrize("put", [put_anew, put_over_another, rename_to])
def test_a_file_is_synced_under_its_last_name_and_then_its_folder(
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
