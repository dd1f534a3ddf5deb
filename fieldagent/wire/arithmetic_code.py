"""An arithmetic code, which encodes a sequence of weighted choices as one number.
`docs/reference/on-air.md` describes the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

_BITS, _LEAST = 32, 1 << 24


class Coder(Protocol):
    """Encoder or decoder of the arithmetic code. Both take the same steps: the encoder gets each
    choice as an argument, and the decoder finds the choice in its input.
    """

    def choose(self, weights: Sequence[int], choice: int) -> int:
        """Encode or decode one of the weighted choices, and return its index. A decoder ignores
        `choice`.
        """


class Encoder:
    def __init__(self) -> None:
        self._low, self._range, self._bytes = 0, 1 << _BITS, _BITS // 8

    def choose(self, weights: Sequence[int], choice: int) -> int:
        """Encode the choice `choice` among weighted choices."""
        unit = self._range // sum(weights)
        self._low += unit * sum(weights[:choice])
        self._range = unit * weights[choice]
        while self._range < _LEAST:
            self._low, self._range, self._bytes = self._low << 8, self._range << 8, self._bytes + 1
        return choice

    def finish(self) -> bytes:
        """Return the encoded choices: the shortest number in the remaining range, without trailing
        zeros.
        """
        for cut in range(self._bytes * 8, -1, -8):
            number = -(-self._low >> cut) << cut
            if number < self._low + self._range:
                return number.to_bytes(self._bytes).rstrip(b"\0")
        raise AssertionError("the last cut fits")


class Decoder:
    def __init__(self, body: bytes) -> None:
        self._rest = iter(body)
        self._range, self._code = 1 << _BITS, 0
        for _ in range(_BITS // 8):
            self._code = self._code << 8 | next(self._rest, 0)

    def choose(self, weights: Sequence[int], choice: int) -> int:
        """Decode the next choice and return its index. `choice` is ignored. After the end of the
        number, zeros are read.
        """
        upper_ends = list(accumulate(weights))
        unit = self._range // upper_ends[-1]
        target = min(self._code // unit, upper_ends[-1] - 1)
        choice = next(index for index, end in enumerate(upper_ends) if target < end)
        self._code -= unit * (upper_ends[choice] - weights[choice])
        self._range = unit * weights[choice]
        while self._range < _LEAST:
            self._code, self._range = self._code << 8 | next(self._rest, 0), self._range << 8
        return choice
