"""Encodes several positions in few bytes, as differences in Rice codes (Rice and Plaunt 1971).

Numbers, times, latitudes and longitudes are stored as steps from one fix to the next, or as changes
of these steps, whichever takes fewer bits. The same applies to altitudes, speeds and courses, for
the fixes that have them. `docs/reference/on-air.md` describes the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

from fieldagent.system.lazy_dataclass import dataclass


def zigzag(value: int) -> int:
    """Map a signed number to a number that is not negative: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return 2 * value if value >= 0 else -2 * value - 1


def unzigzag(code: int) -> int:
    """Return the signed number that `zigzag` maps to `code`."""
    return -(code + 1 >> 1) if code & 1 else code >> 1


UNIT = 100
"""Unit of a track in 1e-7 degree, the unit of other positions: 1e-5 degree, at most 1.1 m."""
COUNT_MAX = 255
LATITUDE_MAX, LONGITUDE_MAX = 9_000_000, 18_000_000
_LATITUDE_BITS, _LONGITUDE_BITS, _PARAMETER_BITS, _COUNT_PARAMETER = 25, 26, 5, 4
_MEMBER_BITS = 4
"""Size in bits of the Rice parameter of a column of altitudes, speeds or courses."""
_ORDERS = 8, 6, 9
"""Orders of the exponential Golomb code for the first value of these columns."""
Members: TypeAlias = "tuple[int | None, int | None, int | None]"


@dataclass(frozen=True, slots=True)
class TrackFix:
    sequence: int
    time: int
    latitude: int
    """Latitude in 1e-5 degree."""
    longitude: int
    altitude: int | None = None
    """Altitude in metres."""
    speed: int | None = None
    """Speed in 0.1 m/s."""
    course: int | None = None
    """Course in degrees, from -180 to 179."""


def encode_track(fixes: Sequence[TrackFix]) -> bytes:
    """Encode a track, without the number and the time of its first fix, which the entry
    contains.
    """
    bits = Bits()
    bits.write_rice(len(fixes), _COUNT_PARAMETER)
    first = fixes[0]
    bits.write_bits(first.latitude + LATITUDE_MAX, _LATITUDE_BITS)
    bits.write_bits(first.longitude + LONGITUDE_MAX, _LONGITUDE_BITS)
    sequences = [fix.sequence for fix in fixes]
    consecutive = sequences == list(range(sequences[0], sequences[0] + len(fixes)))
    bits.write_bits(int(consecutive), 1)
    if not consecutive:
        _write_column(bits, sequences)
    _write_column(bits, [fix.time for fix in fixes])
    _write_column(bits, [fix.latitude for fix in fixes])
    _write_column(bits, [fix.longitude for fix in fixes])
    members = [(fix.altitude, fix.speed, fix.course) for fix in fixes]
    _write_presence(bits, members)
    altitudes, speeds, courses = (
        [each for each in column if each is not None] for column in zip(*members, strict=True)
    )
    for order, column in zip(_ORDERS, (altitudes, speeds, _unwind_courses(courses)), strict=True):
        _write_members(bits, column, order)
    return bits.to_bytes()


def decode_track(sequence: int, time: int, body: bytes) -> list[TrackFix]:
    """Decode a track. Raises ValueError if the track is damaged."""
    bits = Bits(body)
    count = bits.read_rice(_COUNT_PARAMETER)
    if not 1 <= count <= COUNT_MAX:
        raise ValueError(f"a track of {count} positions")
    latitude = bits.read_bits(_LATITUDE_BITS) - LATITUDE_MAX
    longitude = bits.read_bits(_LONGITUDE_BITS) - LONGITUDE_MAX
    if bits.read_bits(1):
        sequences = list(range(sequence, sequence + count))
    else:
        sequences = _read_column(bits, sequence, count)
    times, latitudes, longitudes = (
        _read_column(bits, first, count) for first in (time, latitude, longitude)
    )
    presence = zip(_read_presence(bits, count), _ORDERS, strict=True)
    altitudes, speeds, courses = (_read_members(bits, has, order) for has, order in presence)
    courses = [None if each is None else _centre(each) for each in courses]
    fixes = zip(sequences, times, latitudes, longitudes, altitudes, speeds, courses, strict=True)
    return [TrackFix(*each) for each in fixes]


def _write_presence(bits: Bits, members: Sequence[Members]) -> None:
    """Write which fixes have an altitude, a speed and a course. One or two bits are enough if no
    fix has any of them, or if all fixes have all of them. Otherwise write this for each member
    separately, with one bit per fix if only some fixes have the member.
    """
    is_any_set = any(each is not None for fix in members for each in fix)
    is_each_set = all(each is not None for fix in members for each in fix)
    bits.write_bits(int(is_any_set), 1)
    if is_any_set:
        bits.write_bits(int(is_each_set), 1)
    if not is_any_set or is_each_set:
        return
    for column in zip(*members, strict=True):
        has = [each is not None for each in column]
        bits.write_bits(int(any(has)), 1)
        if any(has):
            bits.write_bits(int(all(has)), 1)
        if any(has) and not all(has):
            for each in has:
                bits.write_bits(int(each), 1)


def _read_presence(bits: Bits, count: int) -> list[list[bool]]:
    none_present, all_present = [False] * count, [True] * count
    if not bits.read_bits(1):
        return [none_present for _ in _ORDERS]
    if bits.read_bits(1):
        return [all_present for _ in _ORDERS]
    has = []
    for _ in _ORDERS:
        is_any_set = bits.read_bits(1)
        is_each_set = is_any_set and bits.read_bits(1)
        if not is_any_set or is_each_set:
            has.append(all_present if is_each_set else none_present)
        else:
            has.append([bool(bits.read_bits(1)) for _ in range(count)])
    return has


def _write_members(bits: Bits, column: Sequence[int], order: int) -> None:
    """Write the first value of a column, and then the steps from each value to the next."""
    if column:
        bits.write_golomb(zigzag(column[0]), order)
    if len(column) > 1:
        _write_column(bits, column, _MEMBER_BITS)


def _read_members(bits: Bits, member_flags: Sequence[bool], order: int) -> list[int | None]:
    several = sum(member_flags)
    if not several:
        return [None for _ in member_flags]
    first = unzigzag(bits.read_golomb(order))
    column = _read_column(bits, first, several, _MEMBER_BITS) if several > 1 else [first]
    members = iter(column)
    return [next(members) if each else None for each in member_flags]


def _unwind_courses(courses: Sequence[int]) -> list[int]:
    """Return the courses without a jump between -180 and 179 degrees, so that each step turns the
    shorter way.
    """
    turns = [_centre(after - before) for before, after in pairwise(courses)]
    return [*accumulate(turns, initial=courses[0])] if courses else []


def _centre(angle: int) -> int:
    """Return the same direction in the range from -180 to below 180 degrees."""
    return (angle + 180) % 360 - 180


def _write_column(bits: Bits, column: Sequence[int], size: int = _PARAMETER_BITS) -> None:
    """Write a column without its first value, in the shorter of two forms: the step from each value
    to the next, or the first step and the change from each step to the next.
    """
    steps = [zigzag(after - before) for before, after in pairwise(column)]
    turns = [
        zigzag(later - 2 * before + earlier)
        for earlier, before, later in zip(column, column[1:], column[2:], strict=False)
    ]
    even, bent, first = _find_parameter(steps, size), _find_parameter(turns, size), steps[0]
    bends = 2 * (first + 1).bit_length() - 1 + _compute_size(turns, bent) < _compute_size(
        steps, even
    )
    bits.write_bits(int(bends), 1)
    bits.write_bits(bent if bends else even, size)
    if bends:
        bits.write_golomb(first, 0)
    for code in turns if bends else steps:
        bits.write_rice(code, bent if bends else even)


def _read_column(bits: Bits, first: int, count: int, size: int = _PARAMETER_BITS) -> list[int]:
    bends, parameter = bits.read_bits(1), bits.read_bits(size)
    codes = [bits.read_golomb(0)] if bends else []
    codes += [bits.read_rice(parameter) for _ in range(count - 1 - len(codes))]
    steps = [unzigzag(code) for code in codes]
    return list(accumulate(accumulate(steps) if bends else steps, initial=first))


def _find_parameter(codes: Sequence[int], size: int) -> int:
    """Return the parameter, of at most `size` bits, with which the Rice codes are shortest."""
    # The best parameter is close to the bit length of the mean.
    most = (1 << size) - 1
    guess = min((sum(codes) // max(1, len(codes))).bit_length(), most)
    return min(range(max(0, guess - 2), guess + 1), key=lambda each: _compute_size(codes, each))


def _compute_size(codes: Sequence[int], parameter: int) -> int:
    return sum(code >> parameter for code in codes) + len(codes) * (1 + parameter)


class Bits:
    """A sequence of bits, the highest bit of a byte first. Zeros fill the last byte."""

    def __init__(self, body: bytes = b"") -> None:
        self._bits = f"{int.from_bytes(body):0{8 * len(body)}b}" if body else ""
        self._at = 0

    def write_bits(self, value: int, size: int) -> None:
        """Append a non-negative number in `size` bits. The number must fit."""
        self._bits += f"{value:0{size}b}" if size else ""

    def write_rice(self, code: int, parameter: int) -> None:
        """Append a Rice code: `code` divided by 2 to the `parameter`, in unary, then a zero and the
        remainder.
        """
        self._bits += "1" * (code >> parameter) + "0"
        self.write_bits(code & (1 << parameter) - 1, parameter)

    def write_golomb(self, code: int, order: int) -> None:
        """Append the number `code` as an exponential Golomb code of the given order.

        The number (code >> order) + 1 follows one zero for each of its bits except the first. Then
        the low `order` bits of `code` follow.
        """
        high = (code >> order) + 1
        self.write_bits(0, high.bit_length() - 1)
        self.write_bits(high, high.bit_length())
        self.write_bits(code & (1 << order) - 1, order)

    def to_bytes(self) -> bytes:
        """Return the bits as bytes. Raises ValueError if there are none."""
        size = -(-len(self._bits) // 8)
        return int(self._bits.ljust(8 * size, "0"), 2).to_bytes(size)

    def read_bits(self, size: int) -> int:
        """Return the next `size` bits as a number. Raises ValueError if there are fewer."""
        bits = self._bits[self._at : self._at + size]
        if len(bits) < size:
            raise ValueError("track that ends before its last position")
        self._at += size
        return int(bits, 2) if size else 0

    def read_golomb(self, order: int) -> int:
        """Return the next code of `write_golomb`. Raises ValueError if bits are missing."""
        end = self._bits.find("1", self._at)
        if end < 0:
            raise ValueError("track that ends before its last position")
        zeros, self._at = end - self._at, end + 1
        high = (1 << zeros | self.read_bits(zeros)) - 1
        return high << order | self.read_bits(order)

    def read_rice(self, parameter: int) -> int:
        """Return the next code of `write_rice`. Raises ValueError if bits are missing."""
        end = self._bits.find("0", self._at)
        if end < 0:
            raise ValueError("track that ends before its last position")
        ones, self._at = end - self._at, end + 1
        return ones << parameter | self.read_bits(parameter)
