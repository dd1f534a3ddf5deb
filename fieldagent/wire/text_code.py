"""Text in fewer bytes than UTF-8: a static model of short messages, and an arithmetic coder.

A few dozen bytes teach a general compressor nothing, so what is likely to follow what is known
beforehand: `text_table_1.bin` holds it, which `build/text_table.py` makes. It is prediction by
partial matching (Cleary and Witten 1984): the longest context that the table knows tells what may
follow, or that it is something else, which a shorter one then tells. Everything is integers, so
that every machine reads the same. Described in `docs/on-air.md`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Protocol

from fieldagent.system.data_files import read_data
from fieldagent.wire.errors import RemoteProtocolError

CHARACTERS = (
    " abcdefghijklmnopqrstuvwxyzàáâäãåæçèéêëìíîïñòóôöõøœùúûüß\n.,!?-:;()'\"/+&%@#=*_<>€°$¿¡"
)
"""Those that the model knows, by their symbol. A digit has the symbol DIGIT, and a capital letter
follows SHIFT, or another one."""
DIGIT, SHIFT, OTHER, END = range(len(CHARACTERS), len(CHARACTERS) + 4)
SYMBOLS = END + 1
ORDER = 6
"""Symbols of a context, at most."""
WEIGHTS = tuple(max(1, (1 << 12) * 2**level // 3**level) for level in range(16))
"""What a level in the table stands for: each is two thirds of the one before."""
PER_BYTE = 8
"""Characters that a packed byte may stand for, at most: it bounds what a hostile one costs."""
LONGEST = 2_000
"""Characters of a text that is packed; longer ones go as they are."""
_LOWER = "abcdefghijklmnopqrstuvwxyzàáâäãåæçèéêëìíîïñòóôöõøœùúûü"
_UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZÀÁÂÄÃÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÖÕØŒÙÚÛÜ"
# Not `str.lower`, which differs from one version of Unicode to the next.
_FOLDED = dict(zip(_UPPER, _LOWER, strict=True))
_CAPITAL = dict(zip(_LOWER, _UPPER, strict=True))
_SYMBOL = {character: symbol for symbol, character in enumerate(CHARACTERS)}
_CAPITALS = ((39, 1), (2, 30))
"""A letter after one capital, and after two or more, is none; or is one."""
_DIGITS, _TEN = "0123456789", [1] * 10
_CODE_POINT = ([64, 8] + [1] * 15, [1] * 256, [1] * 256)
"""Of anything else: the plane of Unicode, and the two bytes below it."""
_BITS, _LEAST = 32, 1 << 24


class Coder(Protocol):
    """Either end of the arithmetic code. Both make the same steps: the encoder is given each
    choice, the decoder finds it."""

    def choose(self, weights: Sequence[int], chosen: int) -> int: ...


class Encoder:
    def __init__(self) -> None:
        self._low, self._range, self._bytes = 0, 1 << _BITS, _BITS // 8

    def choose(self, weights: Sequence[int], chosen: int) -> int:
        """Of so many, each of its weight, this one."""
        unit = self._range // sum(weights)
        self._low += unit * sum(weights[:chosen])
        self._range = unit * weights[chosen]
        while self._range < _LEAST:
            self._low, self._range, self._bytes = self._low << 8, self._range << 8, self._bytes + 1
        return chosen

    def finish(self) -> bytes:
        """The shortest number within what is left; zeros at its end are left out."""
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

    def choose(self, weights: Sequence[int], chosen: int) -> int:
        ends = list(accumulate(weights))
        unit = self._range // ends[-1]
        target = min(self._code // unit, ends[-1] - 1)
        chosen = next(index for index, end in enumerate(ends) if target < end)
        self._code -= unit * (ends[chosen] - weights[chosen])
        self._range = unit * weights[chosen]
        while self._range < _LEAST:
            self._code, self._range = self._code << 8 | next(self._rest, 0), self._range << 8
        return chosen


class Model:
    """The table, as a tree of contexts: below one, those that are a symbol longer at its front.

    At its root, the empty context, every symbol may follow. The columns stand one after another,
    the length of each in 4 bytes ahead: of each context how many are below it, their front symbols,
    how many symbols may follow it, and the level of anything else; then those symbols, and their
    levels.
    """

    def __init__(self, table: bytes) -> None:
        columns = []
        while table:
            size = 4 + int.from_bytes(table[:4])
            columns.append(table[4:size])
            table = table[size:]
        below, self._fronts, follow, self._escapes, self._symbols, self._levels = columns
        self._below = array("H", accumulate(below, initial=0))
        self._follow = array("H", accumulate(follow, initial=0))

    def contexts(self, before: list[int]) -> list[int]:
        """Those that end what stands before, the longest first."""
        found = [0]
        for symbol in before[: -ORDER - 1 : -1]:
            start, end = self._below[found[-1]], self._below[found[-1] + 1]
            child = self._fronts.find(symbol, start, end)
            if child < 0:
                break
            # The root is below none.
            found.append(child + 1)
        return found[::-1]

    def code(self, coder: Coder, before: list[int], symbol: int = 0) -> int:
        """The symbol that follows; a decoder finds it."""
        excluded: set[int] = set()
        for context in self.contexts(before):
            start, end = self._follow[context], self._follow[context + 1]
            known, weights = [], []
            for place in range(start, end):
                each = self._symbols[place]
                if each not in excluded:
                    known.append(each)
                    weights.append(WEIGHTS[self._levels[place]])
            if not known:
                continue
            if context:
                weights.append(WEIGHTS[self._escapes[context]])
            at = coder.choose(weights, known.index(symbol) if symbol in known else len(known))
            if at < len(known):
                return known[at]
            excluded.update(known)
        raise RemoteProtocolError("packed text rules out every symbol")


@cache
def _model() -> Model:
    """Read at the first text: who sends none does without."""
    return Model(read_data("fieldagent.wire", "text_table_1.bin"))


def symbols(text: str) -> Iterator[tuple[int, str]]:
    """As which symbols it is coded; SHIFT comes with the character that it is for."""
    capitals = False
    for character in text:
        folded = _FOLDED.get(character, character)
        if folded != character and not capitals:
            yield SHIFT, character
        capitals = folded != character
        yield DIGIT if character in _DIGITS else _SYMBOL.get(folded, OTHER), character


# A text that waits is encoded again with each that may ride beside it.
@lru_cache(maxsize=64)
def pack(text: str) -> bytes | str:
    """The text as it is where plain UTF-8 is as short."""
    if len(text) > LONGEST:
        return text
    coder, model, before, capitals = Encoder(), _model(), [END], 0
    for symbol, character in symbols(text):
        shifted = before[-1] == SHIFT
        before.append(model.code(coder, before, symbol))
        if symbol != SHIFT:
            _character(coder, symbol, capitals, shifted, character)
            capitals = min(capitals + 1, 2) if character in _FOLDED else 0
    model.code(coder, before, END)
    packed = coder.finish()
    worth = len(packed) < len(text.encode()) and len(text) <= PER_BYTE * len(packed)
    return packed if worth else text


def unpack(packed: bytes) -> str:
    """RemoteProtocolError where it is damaged."""
    coder, model, before, capitals = Decoder(packed), _model(), [END], 0
    text: list[str] = []
    while len(text) <= min(LONGEST, PER_BYTE * len(packed)):
        symbol = model.code(coder, before)
        if symbol == END:
            return "".join(text)
        if symbol != SHIFT:
            character = _character(coder, symbol, capitals, before[-1] == SHIFT)
            capitals = min(capitals + 1, 2) if character in _FOLDED else 0
            text.append(character)
        elif before[-1] == SHIFT:
            break
        before.append(symbol)
    raise RemoteProtocolError("packed text has no end")


def _character(
    coder: Coder, symbol: int, capitals: int, shifted: bool, character: str = "\0"
) -> str:
    """What stands there for a symbol; a decoder finds it. So many `capitals` stand before it."""
    if symbol == DIGIT:
        return _DIGITS[coder.choose(_TEN, _DIGITS.find(character))]
    if symbol == OTHER:
        number = ord(character)
        parts = (number >> 16, number >> 8 & 255, number & 255)
        found = [coder.choose(*each) for each in zip(_CODE_POINT, parts, strict=True)]
        number = found[0] << 16 | found[1] << 8 | found[2]
        if 0xD800 <= number < 0xE000:
            raise RemoteProtocolError("packed text holds half of a surrogate pair")
        return chr(number)
    known = CHARACTERS[symbol]
    if known not in _CAPITAL:
        return known
    upper = shifted or (
        capitals and coder.choose(_CAPITALS[capitals - 1], int(character in _FOLDED))
    )
    return _CAPITAL[known] if upper else known
