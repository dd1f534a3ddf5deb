"""Signs files for `fieldagent update`, by minisign. The signed text contains the kind of a file,
its version, and its expiry (`fieldagent/system/signed_release.py` reads it).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fieldagent.system.signed_release import PROGRAM, SYSTEM
from fieldagent.system.system_image import SUFFIX, UnreadableImage, decode_image


def make_parser(name: str) -> argparse.ArgumentParser:
    """Return a command-line parser with `--days`. The caller passes unknown options to minisign."""
    parser = argparse.ArgumentParser(prog=name, allow_abbrev=False)
    parser.add_argument("--days", type=int, default=90)
    return parser


def sign(path: Path, kind: str, version: str, days: int, options: Sequence[str]) -> None:
    """Sign the file with minisign, and write `PATH.minisig`. The signature expires in `days` days.
    If minisign fails, exit with its exit code.
    """
    today = datetime.now(UTC).date()
    text = f"fieldagent {kind} {version}, signed {today}, expires {today + timedelta(days=days)}"
    try:
        done = subprocess.run(["minisign", "-S", "-m", path, "-t", text, *options])
    except FileNotFoundError:
        sys.exit("minisign is missing: apt-get install minisign")
    if done.returncode:
        sys.exit(done.returncode)
    print(f"{path}.minisig: {text}")


def get_kind(path: Path) -> str:
    return SYSTEM if path.name.endswith(SUFFIX) else PROGRAM


def read_version(program: Path) -> str:
    if get_kind(program) == SYSTEM:
        try:
            return decode_image(program.read_bytes()).name.version
        except (OSError, UnreadableImage) as wrong:
            sys.exit(f"{program}: {wrong}")
    try:
        with zipfile.ZipFile(program) as archive:
            source = archive.read("fieldagent/__init__.py").decode()
    except (OSError, zipfile.BadZipFile, KeyError) as wrong:
        sys.exit(f"{program} is no fieldagent that build/zipapp made: {wrong}")
    match = re.search(r'^__version__ ?= ?"([^"]+)"', source, re.MULTILINE)
    return match[1] if match else sys.exit(f"{program} names no version")
