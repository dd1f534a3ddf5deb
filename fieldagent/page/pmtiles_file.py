"""Reads a PMTiles file in parts, because the file may have many gigabytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from fieldagent.page import pmtiles, tiles
from fieldagent.page.pmtiles import (
    HEADER,
    WRONG_DIRECTORY,
    WRONG_PART,
    ByteSpan,
    Header,
    TileDirectory,
    WrongArchive,
)
from fieldagent.page.tiles import TILE_BYTES, MapAbout, Tile, UnusableMap
from fieldagent.system.wording import describe_reason

DIRECTORY_DEPTH_MAX = 4
"""Maximum number of directories from the root to a tile."""
PART_BYTES = 1_000_000
"""Maximum bytes of a directory or the metadata in the file."""
CACHED_DIRECTORIES_MAX = 8
"""Maximum number of cached directories. Neighbours of a tile are usually in the same directory."""


@contextmanager
def _open_file(path: Path) -> Iterator[BinaryIO]:
    """Open the file. Raises UnusableMap for errors of opening, and for errors inside the
    context.
    """
    try:
        with path.open("rb") as file:
            yield file
    except WrongArchive as wrong:
        raise UnusableMap(f"map-file {path} {wrong}: copy it there again") from wrong
    except OSError as error:
        raise UnusableMap(f"map-file {path} cannot be read: {describe_reason(error)}") from error


def read_about(path: Path) -> MapAbout:
    """Return the map file's description. Raises UnusableMap if the map file cannot be used."""
    with _open_file(path) as file:
        header = _read_header(file)
        size, least = os.fstat(file.fileno()).st_size, header.end()
        if size < least:
            raise WrongArchive(f"is cut short ({size:,} of {least:,} bytes)")
        _find_directory(path, file, header.metadata_compression, header.root)
        document = pmtiles.unpack(
            _read_part(file, header.metadata, PART_BYTES), header.metadata_compression
        )
    metadata = tiles.read_metadata(document.decode("utf-8", "replace"))
    is_vector = header.tile_type == pmtiles.VECTOR
    if is_vector:
        tiles.refuse_other_layers(metadata, f"map-file {path}")
    return MapAbout(
        str(metadata.get("name", "")),
        str(metadata.get("attribution", "")),
        header.lowest,
        header.highest,
        header.bounds if tiles.is_valid_box(*header.bounds) else None,
        is_vector,
    )


def read_tile(path: Path, zoom: int, x: int, y: int) -> Tile | None:
    """Return a tile, or None if the map does not have it. `y` counts from the north. Raises
    UnusableMap if the map file cannot be read.
    """
    number = pmtiles.compute_tile_number(zoom, x, y)
    with _open_file(path) as file:
        header = _read_header(file)
        span = header.root
        for _ in range(DIRECTORY_DEPTH_MAX):
            entry = pmtiles.find_tile(
                _find_directory(path, file, header.metadata_compression, span), number
            )
            if entry is None:
                return None
            if not entry.is_leaf:
                content = _read_part(file, _find_span(header.tiles, entry.span), TILE_BYTES)
                break
            span = _find_span(header.leaf_span, entry.span)
        else:
            raise WrongArchive(WRONG_DIRECTORY)
        if header.tile_type == pmtiles.VECTOR:
            return tiles.read_vector(content)
        return tiles.read_picture(pmtiles.unpack(content, header.tile_compression))


def _read_header(file: BinaryIO) -> Header:
    header = pmtiles.read_header(file.read(HEADER.size))
    if header.tile_type not in (pmtiles.VECTOR, *pmtiles.PICTURES):
        raise WrongArchive("holds neither vector tiles nor PNG, JPEG or WebP")
    return header


def _find_directory(path: Path, file: BinaryIO, compression: int, span: ByteSpan) -> TileDirectory:
    stat = os.fstat(file.fileno())
    known_by = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return _read_directory(path, known_by, compression, span)


@lru_cache(CACHED_DIRECTORIES_MAX)
def _read_directory(
    path: Path, known_by: tuple[int, ...], compression: int, span: ByteSpan
) -> TileDirectory:
    with path.open("rb") as file:
        content = _read_part(file, span, PART_BYTES)
    return pmtiles.read_directory(pmtiles.unpack(content, compression))


def _find_span(limits_span: ByteSpan, span: ByteSpan) -> ByteSpan:
    if span.offset + span.length > limits_span.length:
        raise WrongArchive("is damaged: a tile lies behind its end")
    return ByteSpan(limits_span.offset + span.offset, span.length)


def _read_part(file: BinaryIO, span: ByteSpan, maximum: int) -> bytes:
    if span.length > maximum:
        raise WrongArchive(WRONG_PART)
    file.seek(span.offset)
    content = file.read(span.length)
    if len(content) < span.length:
        raise WrongArchive("is cut short")
    return content
