"""PMTiles 3: header, directories, and the place of a tile in the file. Pure.

https://github.com/protomaps/PMTiles/blob/main/spec/v3/spec.md
"""

from __future__ import annotations

import struct
import zlib
from array import array
from bisect import bisect_right

from fieldagent.system.lazy_named_tuple import NamedTuple

MAGIC = b"PMTiles"
VERSION = 3
HEADER = struct.Struct("<7sB11Q6B4iB2i")
NO_COMPRESSION, GZIP = 1, 2
COMPRESSION_NAMES = {0: "unknown", NO_COMPRESSION: "none", GZIP: "gzip", 3: "brotli", 4: "zstd"}
VECTOR, PICTURES = 1, (2, 3, 4)
"""Types of tiles. VECTOR is MVT; PICTURES are PNG, JPEG and WebP."""
PARTS_PER_DEGREE = 10_000_000
"""Number of units in a degree, in which the header stores positions."""
PLAIN_BYTES, ENTRIES = 4_000_000, 200_000
"""Maximum number of unpacked bytes of a directory or the metadata, and of entries in a
directory."""
OFFSET_MAX = (1 << 63) - 1
"""Largest offset in a file."""
WRONG_DIRECTORY = "is damaged: its directory has an impossible value"
WRONG_PART = "is damaged: a part of it does not match its header"
ZOOM_MAX = 22
_GZIP_WINDOW = 31


class WrongArchive(ValueError):
    """Error: the file is not valid. The text follows the name of the file."""


class ByteSpan(NamedTuple):
    offset: int
    length: int


class Header(NamedTuple):
    root: ByteSpan
    metadata: ByteSpan
    leaf_span: ByteSpan
    tiles: ByteSpan
    metadata_compression: int
    """Compression of the directories and the metadata, a key of `COMPRESSION_NAMES`."""
    tile_compression: int
    """Compression of the tiles, a key of `COMPRESSION_NAMES`."""
    tile_type: int
    lowest: int
    highest: int
    bounds: tuple[float, float, float, float]
    """West, south, east and north in degrees."""

    def end(self) -> int:
        """Return the smallest possible size of a file with this header."""
        return max(sum(span) for span in (self.root, self.metadata, self.leaf_span, self.tiles))


def read_header(content: bytes) -> Header:
    """Parse the header. Raises WrongArchive if it is damaged or of another version."""
    if not content.startswith(MAGIC):
        raise WrongArchive("is not a PMTiles file")
    version = content[7] if len(content) > 7 else 0
    if version != VERSION:
        raise WrongArchive(f"is of PMTiles version {version}, and not {VERSION}")
    if len(content) < HEADER.size:
        raise WrongArchive("is cut short")
    fields = HEADER.unpack_from(content)
    inner, outer, tile_type, lowest, highest = fields[14:19]
    for compression in (inner, outer):
        if compression not in (NO_COMPRESSION, GZIP):
            name = COMPRESSION_NAMES.get(compression, str(compression))
            raise WrongArchive(f"is compressed with {name}, not with gzip")
    root, metadata, leaves, tiles = spans = [
        ByteSpan(*fields[at : at + 2]) for at in range(2, 10, 2)
    ]
    if any(sum(span) > OFFSET_MAX for span in spans) or not lowest <= highest <= ZOOM_MAX:
        raise WrongArchive("is damaged: its header has an impossible value")
    west, south, east, north = (each / PARTS_PER_DEGREE for each in fields[19:23])
    bounds = (west, south, east, north)
    return Header(root, metadata, leaves, tiles, inner, outer, tile_type, lowest, highest, bounds)


class TileDirectory(NamedTuple):
    """Entries of a directory as columns, in the order of their tile numbers."""

    numbers: array[int]
    runs: array[int]
    """Number of consecutive tiles with the same content. 0 if the entry is another directory."""
    lengths: array[int]
    offsets: array[int]


class FoundTile(NamedTuple):
    span: ByteSpan
    is_leaf: bool
    """True if the entry is another directory to search, whose offset is relative to the leaf
    directories."""


def read_directory(content: bytes) -> TileDirectory:
    """Parse a directory. Raises WrongArchive if the directory is damaged."""
    numbers = _Numbers(content)
    count = numbers.read_next()
    if not 0 < count <= ENTRIES:
        raise WrongArchive(WRONG_DIRECTORY)
    columns = [array("Q", (numbers.read_next() for _ in range(count))) for _ in range(4)]
    total = 0
    for at, step in enumerate(columns[0]):
        total += step
        columns[0][at] = _limit(total)
    offsets, lengths = columns[3], columns[2]
    for at, offset in enumerate(offsets):
        if offset:
            offsets[at] = offset - 1
        elif at:
            offsets[at] = _limit(offsets[at - 1] + lengths[at - 1])
        else:
            raise WrongArchive(WRONG_DIRECTORY)
    return TileDirectory(*columns)


def find_tile(directory: TileDirectory, number: int) -> FoundTile | None:
    """Return the tile `number`, or the leaf directory that must be searched next (PMTiles 3).
    Return None if the directory contains neither.
    """
    at = bisect_right(directory.numbers, number) - 1
    if at < 0:
        return None
    run = directory.runs[at]
    if run and number >= directory.numbers[at] + run:
        return None
    return FoundTile(ByteSpan(directory.offsets[at], directory.lengths[at]), is_leaf=not run)


def compute_tile_number(zoom: int, x: int, y: int) -> int:
    """Return a tile's number: its place on the Hilbert curve, after all tiles of lower
    zoom levels.
    """
    side = 1 << zoom
    number = (side * side - 1) // 3
    half = side >> 1
    while half:
        right, low = int(bool(x & half)), int(bool(y & half))
        number += half * half * ((3 * right) ^ low)
        if not low:
            if right:
                x, y = side - 1 - x, side - 1 - y
            x, y = y, x
        half >>= 1
    return number


def unpack(content: bytes, compression: int) -> bytes:
    """Decompress a part of the file. Raises WrongArchive if the part is damaged, or if the result
    would exceed `PLAIN_BYTES`.
    """
    if compression == NO_COMPRESSION:
        return content
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = unpacker.decompress(content, PLAIN_BYTES)
    except zlib.error as error:
        raise WrongArchive(WRONG_PART) from error
    if not unpacker.eof:
        raise WrongArchive(WRONG_PART)
    return plain


class _Numbers:
    """Variable-length numbers, in the format of protocol buffers."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def read_next(self) -> int:
        number = shift = 0
        while shift < 64:
            if self._at >= len(self._content):
                raise WrongArchive(WRONG_DIRECTORY)
            byte = self._content[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return _limit(number)
            shift += 7
        raise WrongArchive(WRONG_DIRECTORY)


def _limit(number: int) -> int:
    if number > OFFSET_MAX:
        raise WrongArchive(WRONG_DIRECTORY)
    return number
