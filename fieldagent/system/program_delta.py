"""Makes a program file from an earlier program file and a delta, the difference between the two
builds. A delta has 4 to 40 kB, a program 2.5 MB.

The bytes of a zip file depend on the packer. So the contents are compared: the names and files in
order, as one unpacked sequence of bytes with its SHA-256. zstd makes the difference
(`--patch-from`). A delta contains the difference after both digests:

    fieldagent delta 1 LF, SHA-256 of the old contents, SHA-256 of the new contents, zstd's frame
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.zstd import ZstdFailed, pack, unpack

SHEBANG = b"#!/usr/bin/env python3\n"
MODE = 0o100644 << 16
MAGIC = b"fieldagent delta 1\n"
DIGEST = 32
DIGEST_DIGITS = 16
"""Number of hex digits of the digest in a delta's name."""


class NoDelta(Exception):
    """The delta cannot be used. The message contains the reason."""


class Delta(NamedTuple):
    before: bytes
    after: bytes
    frame: bytes


def get_contents(program: bytes) -> bytes:
    """Return the contents of a program in order, each as name, NUL, size in decimal, LF, content.
    Raises NoDelta if it is not a readable zip file.
    """
    contents = bytearray()
    try:
        with zipfile.ZipFile(io.BytesIO(program)) as archive:
            for name in archive.namelist():
                content = archive.read(name)
                contents += b"%s\0%d\n%s" % (name.encode(), len(content), content)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as wrong:
        raise NoDelta(f"the program is not a readable zip file: {wrong}") from None
    return bytes(contents)


def rebuild_program(contents: bytes) -> bytes:
    """Build the program file from the result of a delta. Raises NoDelta if `contents` are not the
    contents of a program.
    """
    files, at = dict[str, bytes](), 0
    try:
        while at < len(contents):
            name_end = contents.index(b"\0", at)
            sized = contents.index(b"\n", name_end)
            start, size = sized + 1, int(contents[name_end + 1 : sized])
            files[contents[at:name_end].decode()] = contents[start : start + size]
            at = start + size
    except ValueError as wrong:
        raise NoDelta(f"the result of the delta is not a program: {wrong}") from None
    return make_zip(files)


def make_zip(files: Mapping[str, bytes]) -> bytes:
    """Return these files as a zip file that Python can run."""
    archive_bytes = io.BytesIO()
    archive_bytes.write(SHEBANG)
    with zipfile.ZipFile(archive_bytes, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = MODE
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return archive_bytes.getvalue()


def make_delta_name(program: str, now: bytes) -> str:
    """Return the path of the delta beside the new program file `program`. `now` contains the
    contents of the old program to which the delta is applied.
    """
    return f"{program}.from-{hashlib.sha256(now).hexdigest()[:DIGEST_DIGITS]}"


def make_delta(old_contents: bytes, after: bytes) -> bytes:
    """Return the delta from the contents `old_contents` of a program to the new contents `after`,
    made with zstd. Raises NoDelta if zstd fails.
    """
    try:
        frame = pack(after, old_contents)
    except ZstdFailed as why:
        raise NoDelta(str(why)) from None
    digests = hashlib.sha256(old_contents).digest() + hashlib.sha256(after).digest()
    return MAGIC + digests + frame


def parse_delta(body: bytes) -> Delta:
    """Parse a delta. Raises NoDelta for malformed data."""
    rest = body.removeprefix(MAGIC)
    if rest == body or len(rest) <= 2 * DIGEST:
        raise NoDelta("the file is not a delta, or is from a later version")
    return Delta(rest[:DIGEST], rest[DIGEST : 2 * DIGEST], rest[2 * DIGEST :])


def apply_delta(body: bytes, old_contents: bytes) -> bytes:
    """Apply a delta to the contents `old_contents`, and return the new contents. Call this only
    with signed data, because zstd reads it as root. Raises NoDelta if the delta is damaged, or is
    for other contents.
    """
    delta = parse_delta(body)
    if hashlib.sha256(old_contents).digest() != delta.before:
        raise NoDelta("the delta is for a different program")
    try:
        after = unpack(delta.frame, old_contents)
    except ZstdFailed as why:
        raise NoDelta(str(why)) from None
    if hashlib.sha256(after).digest() != delta.after:
        raise NoDelta("the result of the delta differs from its description")
    return after
