"""Recovers rows from the pages of an SQLite file and its write-ahead log, even if the trees in the
file are damaged. Pure functions.

The format is described at https://sqlite.org/fileformat2.html in sections 1.5 (free pages), 1.6
(trees), 2.1 (records) and 4 (the log). A page that cannot be read to its end is scanned byte by
byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress

from fieldagent.system.lazy_named_tuple import NamedTuple

PAGE_BYTES = 4096
"""Page size in bytes. This is SQLite's default since 3.12."""
_WAL_HEAD, _FRAME_HEAD = 32, 24
_BIG_ENDIAN = 0x377F0683
_INDEX_INNER, _TABLE_INNER, _INDEX_LEAF, _TABLE_LEAF = 2, 5, 10, 13
_SIZES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}
DEPTH_MAX = 20
"""Largest number of levels of a tree. If there are more levels, the tree contains a cycle."""

Value = None | int | float | str | bytes


class Row(NamedTuple):
    table: str | None
    """Name of the table or index to which the page belongs; None if unknown."""
    rowid: int | None
    """Row id; None in an index and in a table WITHOUT ROWID."""
    values: tuple[Value, ...]


class Image(NamedTuple):
    """One version of a page, from the database file or from the log."""

    content: bytes
    sound: bool
    """True if the page shows no sign of damage."""


class NoRecord(Exception):
    """Error: there is no record at this place."""


class Pages:
    """Pages of an SQLite database. `database` is the content of its file, and `log` the content of
    its write-ahead log.
    """

    def __init__(self, database: bytes, log: bytes = b"") -> None:
        self._images: dict[int, list[Image]] = {}
        for number in range(1, len(database) // PAGE_BYTES + 1):
            content = database[(number - 1) * PAGE_BYTES : number * PAGE_BYTES]
            self._images[number] = [Image(content, sound=True)]
        for number, image in _read_frames(log):
            self._images.setdefault(number, []).insert(0, image)
        self._owners: dict[int, str] = {}
        self._overflow: set[int] = set()
        for name, root in self._find_roots():
            self._follow(root, name, 0)

    def read_rows(self) -> Iterator[Row]:
        """Yield every row that can be read, possibly including rows that were deleted long ago. The
        newest version of a changed row comes first.
        """
        free = self._list_free_pages() - self._owners.keys()
        pages: list[tuple[int, list[Row]]] = []
        for number, images in sorted(self._images.items()):
            if number in free:
                continue
            rows: list[Row] = []
            for image in images:
                rows += self._read_rows(number, image.content)
                if image.sound:
                    break
            pages.append((number, rows))
        for number, rows in pages:
            if number in self._owners or number not in self._overflow:
                yield from rows

    def _read_rows(self, number: int, page: bytes) -> list[Row]:
        owner = self._owners.get(number)
        rows: list[Row] = []
        is_complete = True
        try:
            cells = list(_read_cells(page, number))
        except NoRecord:
            cells, is_complete = [], False
        for at, kind in cells:
            try:
                rows.append(self._read_row(owner, page, at, kind)[0])
            except NoRecord:
                is_complete = False
        if not is_complete and any(page):
            rows += self._scan(owner, page)
        return rows

    def _scan(self, owner: str | None, page: bytes) -> Iterator[Row]:
        for kind in (_TABLE_LEAF, _INDEX_LEAF):
            at = 0
            while at < PAGE_BYTES - 2:
                if min(page[at : at + 4]) >= 0x80:
                    # A record with this header would have 256 MiB or more, so there is no record
                    # here. With this check, the scan skips overwritten areas quickly.
                    at += 1
                    continue
                try:
                    row, end = self._read_row(owner, page, at, kind)
                except NoRecord:
                    at += 1
                else:
                    yield row
                    at = end

    def _read_row(self, owner: str | None, page: bytes, at: int, kind: int) -> tuple[Row, int]:
        """Return a row and the position of its end. Raises NoRecord if the bytes are damaged."""
        rowid = None
        size, at = _read_varint(page, at)
        if kind == _TABLE_LEAF:
            rowid, at = _read_varint(page, at)
            rowid -= (rowid >> 63) << 64
        payload, end = self._read_payload(page, at, size, kind)
        return Row(owner, rowid, _read_record(payload)), end

    def _read_payload(self, page: bytes, at: int, size: int, kind: int) -> tuple[bytes, int]:
        payload_max = PAGE_BYTES - 35 if kind == _TABLE_LEAF else (PAGE_BYTES - 12) * 64 // 255 - 23
        if size <= payload_max:
            if size < 2 or at + size > PAGE_BYTES:
                raise NoRecord
            return page[at : at + size], at + size
        least = (PAGE_BYTES - 12) * 32 // 255 - 23
        local = least + (size - least) % (PAGE_BYTES - 4)
        local = local if local <= payload_max else least
        end = at + local + 4
        if end > PAGE_BYTES or size > len(self._images) * PAGE_BYTES:
            raise NoRecord
        payload = bytearray(page[at : at + local])
        (follows,) = struct.unpack_from(">I", page, at + local)
        while len(payload) < size:
            images = self._images.get(follows)
            if images is None:
                raise NoRecord
            self._overflow.add(follows)
            payload += images[0].content[4 : 4 + size - len(payload)]
            (follows,) = struct.unpack_from(">I", images[0].content)
        return bytes(payload), end

    def _find_roots(self) -> list[tuple[str, int]]:
        """Return the root pages of all tables and indexes. The schema comes first."""
        self._follow(1, "sqlite_schema", 0)
        roots = []
        for number in [number for number, owner in self._owners.items() if owner]:
            for row in self._read_rows(number, self._images[number][0].content):
                match row.values:
                    case (str(), str(name), str(), int(root), _):
                        roots.append((name, root))
        return [("sqlite_schema", 1), *roots]

    def _follow(self, number: int, owner: str, depth: int) -> None:
        images = self._images.get(number)
        if images is None or depth > DEPTH_MAX or (depth and number in self._owners):
            return
        self._owners[number] = owner
        page = images[0].content
        head = 100 if number == 1 else 0
        if page[head] not in (_INDEX_INNER, _TABLE_INNER):
            return
        children = [struct.unpack_from(">I", page, head + 8)[0]]
        with suppress(NoRecord):
            children += [
                struct.unpack_from(">I", page, at)[0] for at in _read_pointers(page, number)
            ]
        for child in children:
            self._follow(child, owner, depth + 1)

    def _list_free_pages(self) -> set[int]:
        """Return the numbers of the pages that the file's free list contains."""
        free: set[int] = set()
        first = self._images.get(1)
        trunk = 0 if first is None else struct.unpack_from(">I", first[0].content, 32)[0]
        while trunk in self._images and trunk not in free:
            free.add(trunk)
            content = self._images[trunk][0].content
            trunk, count = struct.unpack_from(">II", content)
            free.update(struct.unpack_from(f">{min(count, PAGE_BYTES // 4 - 2)}I", content, 8))
        return free


def _read_pointers(page: bytes, number: int) -> Sequence[int]:
    """Return the positions of the cells in a page of a tree. Raises NoRecord if the bytes are
    damaged.
    """
    head = 100 if number == 1 else 0
    (count,) = struct.unpack_from(">H", page, head + 3)
    start = head + (12 if page[head] in (_INDEX_INNER, _TABLE_INNER) else 8)
    if start + 2 * count > PAGE_BYTES:
        raise NoRecord
    pointers: Sequence[int] = struct.unpack_from(f">{count}H", page, start)
    if any(not start + 2 * count <= at <= PAGE_BYTES - 4 for at in pointers):
        raise NoRecord
    return pointers


def _read_cells(page: bytes, number: int) -> Iterator[tuple[int, int]]:
    """Yield the position and the kind of each row in a page. Raises NoRecord if the bytes are
    damaged.
    """
    kind = page[100 if number == 1 else 0]
    if kind not in (_INDEX_INNER, _TABLE_INNER, _INDEX_LEAF, _TABLE_LEAF):
        raise NoRecord
    if kind != _TABLE_INNER:
        child, leaf = (4, _INDEX_LEAF) if kind == _INDEX_INNER else (0, kind)
        for at in _read_pointers(page, number):
            yield at + child, leaf


def _read_varint(page: bytes, at: int) -> tuple[int, int]:
    """Return the value of a varint and the position of its end. Raises NoRecord if the bytes are
    damaged.
    """
    value = 0
    for index, byte in enumerate(page[at : at + 9]):
        if index == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    raise NoRecord


def _read_record(payload: bytes) -> tuple[Value, ...]:
    """Decode a record, and return the values of its columns. Raises NoRecord if the bytes are
    damaged.
    """
    end, at = _read_varint(payload, 0)
    if not at < end <= len(payload):
        raise NoRecord
    kinds = []
    while at < end:
        kind, at = _read_varint(payload, at)
        kinds.append(kind)
    sizes = [_SIZES[kind] if kind in _SIZES else (kind - 12) // 2 for kind in kinds]
    if at != end or {10, 11} & set(kinds) or end + sum(sizes) != len(payload):
        raise NoRecord
    values = []
    for kind, size in zip(kinds, sizes, strict=True):
        values.append(_read_value(kind, payload[at : at + size]))
        at += size
    return tuple(values)


def _read_value(kind: int, content: bytes) -> Value:
    if kind == 0:
        return None
    if kind in (8, 9):
        return kind - 8
    if kind < 7:
        return int.from_bytes(content, "big", signed=True)
    if kind == 7:
        value: float = struct.unpack(">d", content)[0]
        return value
    if kind % 2 == 0:
        return content
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise NoRecord from None


def _read_frames(log: bytes) -> Iterator[tuple[int, Image]]:
    """Yield the pages in a write-ahead log, oldest first. The checksum of each frame is computed
    from the checksum in the previous frame, so a damaged frame does not invalidate later frames.
    """
    if len(log) < _WAL_HEAD:
        return
    magic, _, _, _, *salts, first, second = struct.unpack_from(">8I", log)
    order = ">" if magic == _BIG_ENDIAN else "<"
    sums = (first, second)
    size = _FRAME_HEAD + PAGE_BYTES
    places = range(_WAL_HEAD, len(log) - size + 1, size)
    if places:
        # The first frame always belongs to the current log, even if the log's header is damaged.
        frame_salts = struct.unpack_from(">2I", log, _WAL_HEAD + 8)
    for place in places:
        number, _, *own, first, second = struct.unpack_from(">6I", log, place)
        content = log[place + _FRAME_HEAD : place + size]
        if any(own_salt in both for own_salt, *both in zip(own, salts, frame_salts, strict=True)):
            sound = _compute_sums(order, log[place : place + 8] + content, sums) == (first, second)
            yield number, Image(content, sound)
        sums = (first, second)


def _compute_sums(order: str, content: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """Return the checksum that section 4.2 defines."""
    first, second = sums
    integers = struct.unpack(f"{order}{len(content) // 4}I", content)
    for even, odd in zip(integers[::2], integers[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
