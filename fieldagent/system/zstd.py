"""Packs and unpacks bytes by the program `zstd`, also as the difference from what is there already
(`--patch-from`)."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from fieldagent.system.wording import reason_of

WINDOW = "--long=27"
"""Of 128 MiB: a match may be anywhere in what is compared."""
TIGHT = ("-19", "--single-thread")
PATIENCE = 300.0
"""Seconds for zstd, on a slow kit."""


class ZstdFailed(Exception):
    """The text says why."""


def pack(content: bytes, before: bytes | None = None, effort: tuple[str, ...] = TIGHT) -> bytes:
    """Return one frame of it; the difference from `before` where that is named. Raises
    ZstdFailed."""
    return _zstd(content, before, *effort)


def unpack(frame: bytes, before: bytes | None = None) -> bytes:
    """Return what was packed. Only what is signed may come here: zstd reads it as root. Raises
    ZstdFailed."""
    return _zstd(frame, before, "-d")


def _zstd(content: bytes, before: bytes | None, *words: str) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "given").write_bytes(content)
        there = []
        if before is not None:
            (folder / "before").write_bytes(before)
            there = ["--patch-from=before"]
        command = ["zstd", "-q", *there, *words, WINDOW, "given", "-o", "made"]
        try:
            subprocess.run(
                command,
                cwd=folder,
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
            )
        except FileNotFoundError:
            raise ZstdFailed("zstd is missing: apt install zstd") from None
        except subprocess.CalledProcessError as failed:
            lines = failed.stderr.decode(errors="replace").strip().splitlines()
            raise ZstdFailed(f"zstd fails: {lines[-1] if lines else failed.returncode}") from None
        except (subprocess.TimeoutExpired, OSError) as error:
            raise ZstdFailed(f"zstd fails: {reason_of(error)}") from None
        return (folder / "made").read_bytes()
