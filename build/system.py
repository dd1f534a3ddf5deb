"""Makes the image of a whole system from a file system, in the pieces that kits download
(`fieldagent/system/system_image.py`).

    python3 build/system.py FILE-SYSTEM NAME TARGET.system

NAME is the system's description, its /usr/lib/kit/system.json. `build/sign TARGET.system` signs it.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fieldagent.system.system_image import (
    PIECE,
    Read,
    SystemImage,
    SystemName,
    SystemPiece,
    UnreadableImage,
    decode_image,
    digest,
    encode_image,
    make_delta_name,
    make_pieces_folder,
    make_reader,
    parse_system_name,
    read_around,
    read_in_pieces,
)
from fieldagent.system.zstd import ZstdFailed, pack, unpack

QUICK = ("-12",)
"""zstd level of pieces, with which a system of 490 MiB becomes 205 MB."""


def main() -> None:
    source, name, target = map(Path, sys.argv[1:])
    try:
        make(source, parse_system_name(name.read_bytes()), target)
    except (UnreadableImage, ZstdFailed, OSError) as why:
        sys.exit(f"build/system.py: {why}")


def make(source: Path, name: SystemName, target: Path) -> None:
    """Write the image of the file system `source`: the list of pieces to `target`, and the pieces
    to the folder of the list. Raises ZstdFailed, OSError.
    """
    folder = Path(make_pieces_folder(str(target)))
    folder.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as file:
        size = os.fstat(file.fileno()).st_size

        def pack_whole_piece(content: bytes) -> SystemPiece:
            return store_piece(folder, content, pack(content, effort=QUICK))

        with ThreadPoolExecutor(os.cpu_count()) as workers:
            pieces = [
                *workers.map(pack_whole_piece, read_in_pieces(make_reader(file.fileno()), size))
            ]
    target.write_bytes(encode_image(SystemImage(name, size, pieces)))


def make_delta(target: Path, before: Path) -> Path:
    """Write the list of pieces for kits with the system `before`, and return its path. A changed
    piece is a difference if that is smaller. Raises UnreadableImage, ZstdFailed, OSError.
    """
    new, old = (decode_image(each.read_bytes()) for each in (target, before))
    folder = Path(make_pieces_folder(str(target)))
    read_new, read_old = make_stored_reader(target, new), make_stored_reader(before, old)

    def pack_piece(number: int) -> SystemPiece:
        piece = new.pieces[number]
        if number < len(old.pieces) and old.pieces[number].content == piece.content:
            return piece
        content = read_new(number * PIECE, new.compute_length(number))
        patch = pack(content, read_around(read_old, old.size, number), QUICK)
        if len(patch) >= (folder / piece.file).stat().st_size:
            return piece
        return store_piece(folder, content, patch, differs=True)

    pieces = [pack_piece(number) for number in range(len(new.pieces))]
    delta = new._replace(pieces=pieces, before=old.name.id, before_size=old.size)
    delta_file = Path(make_delta_name(str(target), old.name.id))
    delta_file.write_bytes(encode_image(delta))
    return delta_file


def store_piece(
    folder: Path, content: bytes, packed: bytes, *, differs: bool = False
) -> SystemPiece:
    file = digest(packed)
    (folder / file).write_bytes(packed)
    return SystemPiece(digest(content), file, differs)


def make_stored_reader(target: Path, image: SystemImage) -> Read:
    """Return a function that reads bytes of the system in `image`, which is unpacked in memory."""
    folder = Path(make_pieces_folder(str(target)))
    content = b"".join(unpack((folder / each.file).read_bytes()) for each in image.pieces)
    return lambda offset, length: content[offset : offset + length]


if __name__ == "__main__":
    main()
