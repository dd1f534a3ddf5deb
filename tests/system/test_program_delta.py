"""A program is rebuilt from another one and a delta, or the reason of the failure is reported."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldagent.system import program_delta
from fieldagent.system.program_delta import (
    MAGIC,
    NoDelta,
    apply_delta,
    get_contents,
    make_delta,
    make_delta_name,
    make_zip,
    rebuild_program,
)
from tests.machine import tool

FILES = {"__main__.py": b"print('old')\n" * 40, "a/b.py": bytes(range(256)) * 8, "empty": b""}
LATER = {**FILES, "__main__.py": b"print('new')\n" * 40}

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


@settings(max_examples=60)
@given(st.dictionaries(NAMES, st.binary(max_size=80), max_size=5))
def test_contents_are_the_same_with_any_zip_writer(files: dict[str, bytes]) -> None:
    program = make_zip(files)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    assert get_contents(made.getvalue()) == get_contents(program)
    assert rebuild_program(get_contents(program)) == program


def test_python_runs_the_packed_program(tmp_path: Path) -> None:
    (tmp_path / "it.pyz").write_bytes(make_zip({"__main__.py": b"print('it runs')"}))
    output = subprocess.check_output([sys.executable, tmp_path / "it.pyz"], text=True)
    assert output == "it runs\n"


def test_delta_turns_one_program_into_the_other() -> None:
    tool("zstd", "zstd")
    before, after = get_contents(make_zip(FILES)), get_contents(make_zip(LATER))
    delta = make_delta(before, after)
    assert len(delta) < 200
    assert rebuild_program(apply_delta(delta, before)) == make_zip(LATER)


def test_delta_name_depends_on_its_base_program() -> None:
    before = get_contents(make_zip(FILES))
    named = make_delta_name("https://example.org/a.pyz", before)
    assert named.startswith("https://example.org/a.pyz.from-")
    assert named != make_delta_name("https://example.org/a.pyz", get_contents(make_zip(LATER)))


@pytest.fixture(scope="module")
def delta() -> bytes:
    tool("zstd", "zstd")
    return make_delta(get_contents(make_zip(FILES)), get_contents(make_zip(LATER)))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda body: b"", "not a delta"),
        (lambda body: body.replace(b"delta 1", b"delta 2"), "a later version"),
        (lambda body: body[: len(MAGIC) + 64], "not a delta"),
        (lambda body: body[:-3], "zstd fails: "),
        (lambda body: body[:90] + b"?" + body[91:], "zstd fails: "),
        (lambda body: MAGIC + bytes(32) + body[len(MAGIC) + 32 :], "for a different program"),
        (
            lambda body: body[: len(MAGIC) + 32] + bytes(32) + body[len(MAGIC) + 64 :],
            "differs from its description",
        ),
    ],
    ids=["empty", "later", "head alone", "cut short", "flipped", "other base", "other result"],
)
def test_delta_for_another_program_is_refused(delta: bytes, spoil: object, reason: str) -> None:
    assert callable(spoil)
    with pytest.raises(NoDelta, match=reason):
        apply_delta(spoil(delta), get_contents(make_zip(FILES)))


@pytest.mark.parametrize(
    "plain", [b"name", b"name\0", b"name\0x\n", b"\xff\0\x31\nx"], ids=["1", "2", "3", "4"]
)
def test_invalid_contents_are_refused(plain: bytes) -> None:
    with pytest.raises(NoDelta):
        rebuild_program(plain)


def test_missing_zstd_is_reported_with_the_package_to_install(
    delta: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shutil.which("zstd")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoDelta, match="apt install zstd"):
        apply_delta(delta, get_contents(make_zip(FILES)))


def test_invalid_zip_file_is_refused() -> None:
    with pytest.raises(NoDelta, match="not a readable zip file"):
        program_delta.get_contents(b"#!/bin/sh\n")
