"""The image of a whole system: kernel, Debian and program in one file system, in pieces of 16 MiB.

    NAME.system             list of its pieces: JSON, which is signed (`build/sign`)
    NAME.system.from-ID     the same for kits with the system ID; pieces may be differences from it
    NAME.system.pieces/…    the files, each named by its own SHA-256: a piece packed by zstd

A piece is identified by the SHA-256 of its content. So a piece that is already on the card, from an
earlier system or an interrupted attempt, is neither downloaded nor written again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from fieldagent.system.lazy_named_tuple import NamedTuple

PIECE = 16 << 20
FORMAT = 1
SUFFIX = ".system"
MOST_BYTES = 4 << 30


class UnreadableImage(Exception):
    """The image cannot be read. The message contains the reason."""


class SystemName(NamedTuple):
    """Description of a system, in /usr/lib/kit/system.json."""

    board: str
    version: str
    id: str


class SystemPiece(NamedTuple):
    content: str
    """SHA-256 of the content, in hex."""
    file: str
    """SHA-256 of the file, which is its name."""
    is_difference: bool = False
    """True if the file is a difference from the old system's data around the piece
    (`read_around`)."""


class SystemImage(NamedTuple):
    name: SystemName
    size: int
    pieces: list[SystemPiece]
    before: str = ""
    """Id of the old system, if the list is for kits with that system."""
    before_size: int = 0
    """Size of the old system in bytes."""

    def compute_length(self, number: int) -> int:
        """Return the size of a piece in bytes. The last piece may be shorter."""
        return min(PIECE, self.size - number * PIECE)


Read = Callable[[int, int], bytes]
"""Function that gets an offset and a length, and returns the bytes there. At the end, it returns
fewer bytes."""


def make_reader(file: int) -> Read:
    """Return a reader of an open file or partition."""
    return lambda offset, length: os.pread(file, length, offset)


def parse_system_name(text: bytes) -> SystemName:
    """Parse board, version and id. Raises UnreadableImage."""
    try:
        document = json.loads(text)
        return SystemName(*(str(document[name]) for name in SystemName._fields))
    except (ValueError, KeyError, TypeError):
        raise UnreadableImage("the file has no board, version and id") from None


def decode_image(text: bytes) -> SystemImage:
    """Parse the list of a system's pieces. Raises UnreadableImage."""
    try:
        document: dict[str, Any] = json.loads(text)
        if document["format"] != FORMAT:
            raise UnreadableImage(
                f"it has format {document['format']}, this program knows {FORMAT}"
            )
        pieces = [
            SystemPiece(str(each[0]), str(each[1]), bool(each[2])) for each in document["pieces"]
        ]
        size, before = int(document["size"]), str(document["before"])
        before_size = int(document["before_size"])
    except (ValueError, KeyError, TypeError, IndexError):
        raise UnreadableImage(
            "the file is not a list of a system's pieces: create one with build/image"
        ) from None
    if not 0 < size <= MOST_BYTES or len(pieces) != -(-size // PIECE):
        raise UnreadableImage(f"{len(pieces)} pieces do not make {size} bytes")
    if not all(_is_digest(each.content) and _is_digest(each.file) for each in pieces):
        raise UnreadableImage("a piece of the system has no SHA-256")
    return SystemImage(parse_system_name(text), size, pieces, before, before_size)


def _is_digest(text: str) -> bool:
    return len(text) == 64 and not text.strip("0123456789abcdef")


def encode_image(image: SystemImage) -> bytes:
    """Return the list of an image's pieces for `decode_image`, as JSON with a final line feed."""
    document = {
        "format": FORMAT,
        **image.name._asdict(),
        "size": image.size,
        "before": image.before,
        "before_size": image.before_size,
        "pieces": image.pieces,
    }
    return json.dumps(document, indent=0).encode() + b"\n"


def make_pieces_folder(name: str) -> str:
    """Return the folder of an image's pieces, by the image's path or address."""
    return f"{name.partition(f'{SUFFIX}.from-')[0].removesuffix(SUFFIX)}{SUFFIX}.pieces"


def make_delta_name(name: str, id_: str) -> str:
    """Return the name of the list for kits with the system `id_`, by the image's path or
    address.
    """
    return f"{name}.from-{id_}"


def read_around(read: Read, size: int, number: int) -> bytes:
    """Return the old system's data at the place of a piece, with the piece before and the piece
    after. Files move at most that far between two builds.
    """
    start = max(0, number - 1) * PIECE
    end = min(size, (number + 2) * PIECE)
    return read(start, end - start) if start < end else b""


def read_in_pieces(read: Read, size: int) -> Iterator[bytes]:
    """Yield `size` bytes of `read` in pieces of PIECE bytes. The last piece may be shorter."""
    for start in range(0, size, PIECE):
        yield read(start, min(PIECE, size - start))


def digest(content: bytes) -> str:
    """Return the SHA-256 of `content` in hexadecimal, which identifies a piece or names its
    file.
    """
    return hashlib.sha256(content).hexdigest()
