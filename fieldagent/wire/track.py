"""Several positions in few bytes: differences, as Rice codes (Rice and Plaunt 1971).

The numbers, the times, the latitudes and the longitudes stand as the steps from one fix to the
next, or as what each step differs from the one before it; whichever takes fewer bits.
Described in `docs/on-air.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from fieldagent.system.lazy_dataclass import dataclass

UNIT = 100
"""Of the 1e-7 degree that a position has otherwise: 1e-5 degree, at most 1.1 m."""
COUNT_MAX = 255
LATITUDE_MAX, LONGITUDE_MAX = 9_000_000, 18_000_000
_LATITUDE_BITS, _LONGITUDE_BITS, _PARAMETER_BITS, _COUNT_PARAMETER = 25, 26, 5, 4


@dataclass(frozen=True, slots=True, order=True)
class TrackFix:
    sequence: int
    time: int
    latitude: int
    """In 1e-5 degree."""
    longitude: int


def write_track(fixes: Sequence[TrackFix]) -> bytes:
    """All but the number and the time of the first, which stand beside it."""
    bits = Bits()
    bits.put_rice(len(fixes), _COUNT_PARAMETER)
    first = fixes[0]
    bits.put(first.latitude + LATITUDE_MAX, _LATITUDE_BITS)
    bits.put(first.longitude + LONGITUDE_MAX, _LONGITUDE_BITS)
    sequences = [fix.sequence for fix in fixes]
    consecutive = sequences == list(range(sequences[0], sequences[0] + len(fixes)))
    bits.put(int(consecutive), 1)
    if not consecutive:
        _write_column(bits, sequences)
    _write_column(bits, [fix.time for fix in fixes])
    _write_column(bits, [fix.latitude for fix in fixes])
    _write_column(bits, [fix.longitude for fix in fixes])
    return bits.to_bytes()


def read_track(sequence: int, time: int, body: bytes) -> list[TrackFix]:
    """ValueError where it is damaged."""
    bits = Bits(body)
    count = bits.take_rice(_COUNT_PARAMETER)
    if not 1 <= count <= COUNT_MAX:
        raise ValueError(f"a track of {count} positions")
    latitude = bits.take(_LATITUDE_BITS) - LATITUDE_MAX
    longitude = bits.take(_LONGITUDE_BITS) - LONGITUDE_MAX
    if bits.take(1):
        sequences = list(range(sequence, sequence + count))
    else:
        sequences = _read_column(bits, sequence, count)
    columns = [_read_column(bits, first, count) for first in (time, latitude, longitude)]
    return [TrackFix(*each) for each in zip(sequences, *columns, strict=True)]


def _write_column(bits: Bits, column: Sequence[int]) -> None:
    """The steps from one to the next; or the first step, and what the others differ from the one
    before them."""
    steps = [_unsigned(after - before) for before, after in pairwise(column)]
    turns = [
        _unsigned(later - 2 * before + earlier)
        for earlier, before, later in zip(column, column[1:], column[2:], strict=False)
    ]
    even, bent = _parameter(steps), _parameter(turns)
    first = steps[0] + 1
    bends = 2 * first.bit_length() - 1 + _size(turns, bent) < _size(steps, even)
    bits.put(int(bends), 1)
    bits.put(bent if bends else even, _PARAMETER_BITS)
    if bends:
        bits.put(0, first.bit_length() - 1)
        bits.put(first, first.bit_length())
    for code in turns if bends else steps:
        bits.put_rice(code, bent if bends else even)


def _read_column(bits: Bits, first: int, count: int) -> list[int]:
    bends, parameter = bits.take(1), bits.take(_PARAMETER_BITS)
    if bends:
        zeros = bits.take_zeros()
        codes = [(1 << zeros | bits.take(zeros)) - 1]
    else:
        codes = []
    codes += [bits.take_rice(parameter) for _ in range(count - 1 - len(codes))]
    steps = [-(code + 1 >> 1) if code & 1 else code >> 1 for code in codes]
    return list(accumulate(accumulate(steps) if bends else steps, initial=first))


def _unsigned(value: int) -> int:
    """0, -1, 1, -2 as 0, 1, 2, 3."""
    return 2 * value if value >= 0 else -2 * value - 1


def _parameter(codes: Sequence[int]) -> int:
    """That of the Rice code in which they are shortest."""
    # It is close to the bits of their mean.
    most = (1 << _PARAMETER_BITS) - 1
    guess = min((sum(codes) // max(1, len(codes))).bit_length(), most)
    return min(range(max(0, guess - 2), guess + 1), key=lambda each: _size(codes, each))


def _size(codes: Sequence[int], parameter: int) -> int:
    return sum(code >> parameter for code in codes) + len(codes) * (1 + parameter)


class Bits:
    """A row of bits, the first the highest of its byte. Zeros fill up the last byte."""

    def __init__(self, body: bytes = b"") -> None:
        self._bits = f"{int.from_bytes(body):0{8 * len(body)}b}" if body else ""
        self._at = 0

    def put(self, value: int, size: int) -> None:
        self._bits += f"{value:0{size}b}" if size else ""

    def put_rice(self, code: int, parameter: int) -> None:
        """As many ones as the code has times 2 to the parameter, a zero, and what is left."""
        self._bits += "1" * (code >> parameter) + "0"
        self.put(code & (1 << parameter) - 1, parameter)

    def to_bytes(self) -> bytes:
        size = -(-len(self._bits) // 8)
        return int(self._bits.ljust(8 * size, "0"), 2).to_bytes(size)

    def take(self, size: int) -> int:
        found = self._bits[self._at : self._at + size]
        if len(found) < size:
            raise ValueError("track that ends before its last position")
        self._at += size
        return int(found, 2) if size else 0

    def take_zeros(self) -> int:
        """Those up to the next one, which is taken too."""
        end = self._bits.find("1", self._at)
        if end < 0:
            raise ValueError("track that ends before its last position")
        zeros, self._at = end - self._at, end + 1
        return zeros

    def take_rice(self, parameter: int) -> int:
        end = self._bits.find("0", self._at)
        if end < 0:
            raise ValueError("track that ends before its last position")
        ones, self._at = end - self._at, end + 1
        return ones << parameter | self.take(parameter)
