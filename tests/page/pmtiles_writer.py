"""Writes maps in the formats PMTiles 3 and Mapbox vector tiles 2.1, from their specifications. It
shares no code with the reader.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

Place = tuple[int, int, int]
"""Zoom level, column, and row from the north."""
MVT, PNG = 1, 2
LEAF = 20
"""Entries of a directory below the root, so few that there are several directories."""


def curve(zoom: int) -> Iterator[tuple[int, int]]:
    """Yield columns and rows of a level along Hilbert's curve. Each quarter is the whole curve, the
    first mirrored at the main diagonal, the last at the other one.
    """
    if zoom == 0:
        yield 0, 0
        return
    half = 2 ** (zoom - 1)
    smaller = list(curve(zoom - 1))
    yield from ((y, x) for x, y in smaller)
    yield from ((x, y + half) for x, y in smaller)
    yield from ((x + half, y + half) for x, y in smaller)
    yield from ((2 * half - 1 - y, half - 1 - x) for x, y in smaller)


def numbered(highest: int) -> dict[Place, int]:
    places = ((zoom, *place) for zoom in range(highest + 1) for place in curve(zoom))
    return {place: number for number, place in enumerate(places)}


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def directory(entries: list[tuple[int, int, int, int]]) -> bytes:
    """Return the packed directory from number, run, length and offset of each entry."""
    content = varint(len(entries))
    before = 0
    for number, *_ in entries:
        content += varint(number - before)
        before = number
    content += b"".join(varint(run) for _, run, _, _ in entries)
    content += b"".join(varint(length) for _, _, length, _ in entries)
    end = -1
    for _, _, length, offset in entries:
        content += varint(0 if offset == end else offset + 1)
        end = offset + length
    return gzip.compress(content, mtime=0)


def write_pmtiles(
    path: Path,
    tiles: dict[Place, bytes],
    kind: int = PNG,
    metadata: dict[str, object] | None = None,
    bounds: tuple[float, float, float, float] = (-180, -85, 180, 85),
) -> None:
    """Write a file. A tile that equals the previous one is stored once."""
    highest = max(place[0] for place in tiles)
    order = numbered(highest)
    data = b""
    entries: list[tuple[int, int, int, int]] = []
    for place in sorted(tiles, key=order.__getitem__):
        number, content = order[place], tiles[place]
        if entries:
            first, run, length, offset = entries[-1]
            if first + run == number and data[offset : offset + length] == content:
                entries[-1] = (first, run + 1, length, offset)
                continue
        entries.append((number, 1, len(content), len(data)))
        data += content
    leaves, root = b"", []
    for begin in range(0, len(entries), LEAF):
        leaf = directory(entries[begin : begin + LEAF])
        root.append((entries[begin][0], 0, len(leaf), len(leaves)))
        leaves += leaf
    parts = [
        directory(root if len(root) > 1 else entries),
        gzip.compress(json.dumps(metadata or {"name": "Alps", "attribution": "us"}).encode()),
        leaves if len(root) > 1 else b"",
        data,
    ]
    header = b"PMTiles\x03"
    at = 127
    for part in parts:
        header += at.to_bytes(8, "little") + len(part).to_bytes(8, "little")
        at += len(part)
    for count in (len(tiles), len(entries), len(entries)):
        header += count.to_bytes(8, "little")
    lowest = min(place[0] for place in tiles)
    header += bytes([1, 2, 2 if kind == MVT else 1, kind, lowest, highest])
    header += b"".join(_e7(each) for each in bounds) + bytes([lowest]) + _e7(0) + _e7(0)
    assert len(header) == 127
    path.write_bytes(header + b"".join(parts))


def _e7(degrees: float) -> bytes:
    return round(degrees * 10_000_000).to_bytes(4, "little", signed=True)


def field(number: int, content: bytes | int) -> bytes:
    """Return a field of a protocol buffers message."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def layer(name: str, corners: list[tuple[int, int]], kind: str) -> bytes:
    """Return a layer with a polygon that has a property `kind`, in 4096ths of the tile."""
    commands, here = [1 << 3 | 1], (0, 0)
    for number, corner in enumerate(corners):
        if number == 1:
            commands.append((len(corners) - 1) << 3 | 2)
        commands += [_zigzag(to - at) for to, at in zip(corner, here, strict=True)]
        here = corner
    commands.append(1 << 3 | 7)
    geometry = b"".join(map(varint, commands))
    feature = field(2, varint(0) + varint(0)) + field(3, 3) + field(4, geometry)
    named = field(1, name.encode()) + field(2, feature) + field(3, b"kind")
    return field(3, field(15, 2) + named + field(4, field(1, kind.encode())) + field(5, 4096))


def _zigzag(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def stripes() -> bytes:
    """Return a vector tile in quarters from west to east: land, water, land, water."""
    layers = b""
    for west in range(0, 4096, 1024):
        name, kind = ("water", "ocean") if west % 2048 else ("earth", "earth")
        corners = [(west, 0), (west + 1024, 0), (west + 1024, 4096), (west, 4096)]
        layers += layer(name, corners, kind)
    return gzip.compress(layers, mtime=0)
