"""Compresses and decompresses bytes with the program `zstd`, also as a difference from existing
data (`--patch-from`).
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from fieldagent.system.wording import describe_reason

WINDOW = "--long=27"
"""Option for a window of 128 MiB, so that a match can be anywhere in the compared data."""
TIGHT_OPTIONS = ("-19", "--single-thread")
ZSTD_TIMEOUT_S = 300.0
"""Timeout in seconds for zstd on a slow kit."""


class ZstdFailed(Exception):
    """Error: the program zstd failed. The message contains the reason."""


def pack(
    content: bytes, reference: bytes | None = None, effort: tuple[str, ...] = TIGHT_OPTIONS
) -> bytes:
    """Compress the content into one frame, or only its difference from `reference`. Raises
    ZstdFailed if zstd is missing or fails.
    """
    return _open_zstd(content, reference, *effort)


def unpack(frame: bytes, reference: bytes | None = None) -> bytes:
    """Decompress a frame, and return the content. Call this only with signed data, because zstd
    reads it as root. Raises ZstdFailed if zstd is missing or fails, for example on a damaged frame.
    """
    return _open_zstd(frame, reference, "-d")


def _open_zstd(content: bytes, reference: bytes | None, *words: str) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "given").write_bytes(content)
        libraries = []
        if reference is not None:
            (folder / "before").write_bytes(reference)
            libraries = ["--patch-from=before"]
        command = ["zstd", "-q", *libraries, *words, WINDOW, "given", "-o", "made"]
        try:
            subprocess.run(
                command,
                cwd=folder,
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=ZSTD_TIMEOUT_S,
            )
        except FileNotFoundError:
            raise ZstdFailed("zstd is missing: apt install zstd") from None
        except subprocess.CalledProcessError as failed:
            lines = failed.stderr.decode(errors="replace").strip().splitlines()
            raise ZstdFailed(f"zstd fails: {lines[-1] if lines else failed.returncode}") from None
        except (subprocess.TimeoutExpired, OSError) as error:
            raise ZstdFailed(f"zstd fails: {describe_reason(error)}") from None
        return (folder / "made").read_bytes()
