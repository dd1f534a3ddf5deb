"""Packs a folder into a zip file that Python can run, with the best possible DEFLATE compression.

    PYTHON build/archive.py FOLDER TARGET UNIX_TIME LIBRARIES

libdeflate compresses 4 % better than zlib, in seconds. If the folder LIBRARIES does not contain it
(PyPI has `deflate` for x86-64 and arm64), zlib is used. With either of them, the same input gives
the same bytes.
"""

from __future__ import annotations

import struct
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

BEFORE = b"#!/usr/bin/env python3\n"
VERSION = 20
"""Version of the format that supports DEFLATE (APPNOTE 4.4.3)."""
UNIX = 3
DEFLATE = 8
MODE = 0o100644 << 16
TIGHTEST = 12


Pack = Callable[[bytes], bytes]
"""Function that compresses to a raw stream of RFC 1951."""


def tightest() -> Pack:
    try:
        from deflate import deflate_compress  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return by_zlib
    return lambda content: bytes(deflate_compress(content, TIGHTEST))


def by_zlib(content: bytes) -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return squeeze.compress(content) + squeeze.flush()


def make_archive(files: dict[str, bytes], made_at: int, pack: Pack) -> bytes:
    """Return the zip file (APPNOTE.TXT 6.3): each file after its header (4.3.7), then all headers
    again (4.3.12), then their position (4.3.16).
    """
    year, month, day, hour, minute, second, *_ = time.gmtime(made_at)
    date = (year - 1980) << 9 | month << 5 | day
    moment = hour << 11 | minute << 5 | second // 2
    whole, directory = bytearray(BEFORE), bytearray()
    for name, content in files.items():
        stream, path = pack(content), name.encode()
        about = struct.pack(
            "<HHHHHLLLHH",
            *(VERSION, 0, DEFLATE, moment, date),
            *(zlib.crc32(content), len(stream), len(content), len(path), 0),
        )
        rest = struct.pack("<HHHLL", 0, 0, 0, MODE, len(whole))
        directory += b"PK\x01\x02" + bytes([VERSION, UNIX]) + about + rest + path
        whole += b"PK\x03\x04" + about + path + stream
    begin, count = len(whole), len(files)
    end = struct.pack("<HHHHLLH", 0, 0, count, count, len(directory), begin, 0)
    return bytes(whole + directory + b"PK\x05\x06" + end)


if __name__ == "__main__":
    folder, target = Path(sys.argv[1]), Path(sys.argv[2])
    sys.path.insert(0, sys.argv[4])
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    contents = {name: paths[name].read_bytes() for name in sorted(paths) if paths[name].is_file()}
    target.write_bytes(make_archive(contents, int(sys.argv[3]), tightest()))
